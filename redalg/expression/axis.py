"""Axes, their extents, and run-time scalars: the symbols of the surface language."""

from __future__ import annotations

from typing import Any, final

from sympy import Expr, Integer, Symbol

from redalg.errors import ExpressionError


@final
class Axis(Symbol):
    """A named axis: a non-negative SymPy integer symbol that may stand in expressions (`where(k <= q, …)`).

    `size` fixes the extent when it is known (`axis("j", size=8)`); otherwise the tensors of a call give it.
    """

    __slots__ = ("size",)
    size: int | None

    def __new__(cls, name: str, size: int | None = None) -> Axis:
        made: Axis = Symbol.__xnew__(cls, name, integer=True, nonnegative=True)
        made.size = size
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.name, self.size), {}

    def _hashable_content(self) -> tuple[Any, ...]:
        return (self.name, str(self.size))

    @property
    def extent(self) -> Expr:
        """Number of elements along the axis: an `Extent` symbol, or the integer itself when `size` is known."""
        return Extent(self.name) if self.size is None else Integer(self.size)

    def renamed(self, name: str) -> Axis:
        """The same axis under another name (used where a bound axis would capture a free one)."""
        return Axis(name, self.size)


@final
class Extent(Symbol):
    """The extent of the axis of that name: an atom, which does not hold the axis among its free symbols."""

    __slots__ = ()

    def __new__(cls, name: str) -> Extent:
        made: Extent = Symbol.__xnew__(cls, name, integer=True, nonnegative=True)
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.name,), {}

    def _hashable_content(self) -> tuple[Any, ...]:
        return (self.name,)

    def _sympystr(self, printer: Any) -> str:
        return f"|{self.name}|"

    def _latex(self, printer: Any) -> str:
        return rf"\left|{self.name}\right|"


@final
class Scalar(Symbol):
    """A run-time scalar, given by keyword at the call; extended real unless assumptions say more."""

    __slots__ = ()

    def __new__(cls, name: str, **assumptions: bool) -> Scalar:
        made: Scalar = Symbol.__xnew__(cls, name, **{"extended_real": True, **assumptions})
        return made


def names_of(text: str, what: str) -> list[str]:
    """Split `"q k"` into names, refusing what is not an identifier."""
    names = text.replace(",", " ").split()
    for name in names:
        if not name.isidentifier():
            raise ExpressionError(f"{what}: `{name}` is not a name. Write identifiers separated by spaces.")
    if not names:
        raise ExpressionError(f"{what}: no name given. Write identifiers separated by spaces.")
    return names


def axes(names: str) -> Any:
    """Axes by name, as `sympy.symbols` does it: one name gives an `Axis`, several a tuple.

    >>> q, k = axes("q k")
    >>> k <= q
    k <= q
    """
    made = tuple(Axis(name) for name in names_of(names, "axes"))
    return made[0] if len(made) == 1 else made


def axis(name: str, size: int | None = None) -> Axis:
    """One axis, of a fixed `size` (elements) if given.

    >>> axis("j", size=8).extent
    8
    """
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise ExpressionError(f"axis {name!r}: size must be a non-negative int, not {size!r}.")
    [one] = names_of(name, "axis")
    return Axis(one, size)


def scalars(names: str, **assumptions: bool) -> Any:
    """Run-time scalars by name, with SymPy assumptions: one name gives a symbol, several a tuple.

    >>> scalars("scale eps", positive=True)
    (scale, eps)
    """
    made = tuple(Scalar(name, **assumptions) for name in names_of(names, "scalars"))
    return made[0] if len(made) == 1 else made
