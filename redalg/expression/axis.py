"""Axes, their extents, and run-time scalars: the symbols of the surface language."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, final

from sympy import Expr, Integer, Symbol
from sympy.core.assumptions import _assume_defined

from redalg.errors import ExpressionError
from redalg.expression.arguments import answer_arguments, short_text
from redalg.expression.node import Node
from redalg.expression.spelling import did_you_mean


@final
class Axis(Node, Symbol):
    """A named axis: a non-negative SymPy integer symbol that may stand in expressions (`where(k <= q, …)`).

    `size` fixes the extent when it is known (`axis("j", size=8)`); otherwise the tensors of a call give it.

    >>> import redalg as ra
    >>> k, j = ra.axis("k"), ra.axis("j", size=8)
    >>> k.extent, j.extent, j.renamed("i").size
    (|k|, 8, 8)
    """

    __slots__ = ("size",)
    size: int | None

    def __new__(cls, name: str, size: int | None = None) -> Axis:
        return _axis(name, size)

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


@lru_cache(1 << 10)
def _axis(name: str, size: int | None) -> Axis:
    """One axis for a name and size: equal axes are compared far more often than they are made."""
    symbol: Axis = Symbol.__xnew__(Axis, name, integer=True, nonnegative=True)
    symbol.size = size
    return symbol


@final
class Extent(Node, Symbol):
    """The extent of the axis of that name: an atom, which does not hold the axis among its free symbols."""

    __slots__ = ()

    def __new__(cls, name: str) -> Extent:
        extent: Extent = Symbol.__xnew__(cls, name, integer=True, nonnegative=True)
        return extent

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.name,), {}

    def _hashable_content(self) -> tuple[Any, ...]:
        return (self.name,)

    def _sympystr(self, printer: Any) -> str:
        return f"|{self.name}|"

    def _latex(self, printer: Any) -> str:
        return rf"\left|{self.name}\right|"


@final
class Scalar(Node, Symbol):
    """A run-time scalar, given by keyword at the call; extended real unless assumptions say more."""

    __slots__ = ()

    def __new__(cls, name: str, **assumptions: bool) -> Scalar:
        scalar: Scalar = Symbol.__xnew__(cls, name, **{"extended_real": True, **assumptions})
        return scalar


ASSUMED = frozenset(_assume_defined)
"""The assumptions of SymPy."""
AS_WRITTEN = {
    "axes": 'Write `ra.axes("b n")`.',
    "axis": 'Write `ra.axis("j", size=4)`.',
    "scalars": 'Write `ra.scalars("scale eps")`.',
    "Tensor": 'Write `ra.Tensor("x")[b, n]`.',
    "tensors": 'Write `ra.tensors("X[b,n] W[n]")`, and pass arrays when the result is called.',
}
"""The way to give names to each function that takes some."""


def split_names(text: str, what: str) -> list[str]:
    """Split `"q k"` into names, refusing what is not an identifier."""
    if not isinstance(text, str):
        raise ExpressionError(f"{what}: {text!r} is a {type(text).__name__}, not a string of names. {AS_WRITTEN[what]}")
    names = text.replace(",", " ").split()
    for name in names:
        if not name.isidentifier():
            raise ExpressionError(f"{what}: `{name}` is not a name. Write identifiers separated by spaces.")
    if not names:
        raise ExpressionError(f"{what}: no name given. Write identifiers separated by spaces.")
    return names


@answer_arguments(ExpressionError, AS_WRITTEN["axis"])
def axes(names: str, *more: Any) -> Any:
    """Axes by name, as `sympy.symbols` does it: one name gives an `Axis`, several a tuple.

    >>> q, k = axes("q k")
    >>> k <= q
    k <= q
    """
    if more:
        message = f"axes: {1 + len(more)} arguments are given; the names stand in one string."
        raise ExpressionError(f"{message} {AS_WRITTEN['axes']}")
    symbols = tuple(Axis(name) for name in split_names(names, "axes"))
    return symbols[0] if len(symbols) == 1 else symbols


@answer_arguments(ExpressionError, AS_WRITTEN["axis"])
def axis(name: str, size: int | None = None) -> Axis:
    """One axis, of a fixed `size` (elements) if given.

    >>> axis("j", size=8).extent
    8
    """
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise ExpressionError(f"axis {name!r}: size must be a non-negative int, not {size!r}.")
    [identifier] = split_names(name, "axis")
    return Axis(identifier, size)


@answer_arguments(ExpressionError, AS_WRITTEN["scalars"])
def scalars(names: str, **assumptions: bool) -> Any:
    """Run-time scalars by name, with SymPy assumptions: one name gives a symbol, several a tuple.

    >>> scalars("scale eps", positive=True)
    (scale, eps)
    """
    for unknown in assumptions.keys() - ASSUMED:
        raise ExpressionError(f"scalars: there is no assumption `{unknown}`.{did_you_mean(unknown, ASSUMED)} It takes "
                              "those of SymPy, such as `positive=True`; numbers are given at the call.")  # fmt: skip
    for name, held in assumptions.items():
        if held is not None and not isinstance(held, bool):
            raise ExpressionError(f"scalars: {name}={short_text(held)} should be True or False. Numbers are given at "
                                  "the call, by name.")  # fmt: skip
    symbols = tuple(Scalar(name, **assumptions) for name in split_names(names, "scalars"))
    return symbols[0] if len(symbols) == 1 else symbols
