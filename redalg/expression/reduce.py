"""`Reduce(kind, expr, axis, …)`: a reduction as a SymPy expression, with its axes bound."""

from __future__ import annotations

from typing import Any, final

from sympy import Expr, KroneckerDelta, Mul, S, SympifyError, Tuple, sympify
from sympy.core.symbol import Str

from redalg.errors import ExpressionError
from redalg.expression.axis import Axis

LATEX = {"sum": r"\sum", "prod": r"\prod", "max": r"\max", "min": r"\min"}


@final
class Reduce(Expr):
    """`args = (kind, expr, axes)`. The axes are bound: they are not among the free symbols.

    `subs` respects the binder: a bound axis stays, and is renamed where it would capture a free one. An element that
    holds it (`x[b, n]`) is matched inside, and so are its axes in what replaces it. `xreplace` is structural.
    """

    is_extended_real = True
    is_commutative = True

    def __new__(cls, kind: Any, expr: Any, bound: Any) -> Reduce:
        kind = kind if isinstance(kind, Str) else Str(kind)
        bound = bound if isinstance(bound, Tuple) else Tuple(*bound)
        expr = sympify(expr)
        sized = {Axis(axis.name): axis for axis in bound if axis.size is not None}
        made: Reduce = Expr.__new__(cls, kind, expr.xreplace(sized) if sized else expr, bound)
        return made

    @property
    def kind(self) -> str:
        """The monoid's name, such as `"sum"`."""
        return str(self.args[0].name)

    @property
    def expr(self) -> Expr:
        """The term that is reduced."""
        return self.args[1]

    @property
    def bound(self) -> tuple[Axis, ...]:
        """The axes that are reduced."""
        return tuple(self.args[2])

    @property
    def free_symbols(self) -> set[Any]:
        """Free symbols of the term, less the bound axes."""
        free: set[Any] = self.expr.free_symbols - set(self.bound)
        return free

    @property
    def bound_symbols(self) -> list[Axis]:
        """The bound axes, as SymPy asks for them."""
        return list(self.bound)

    def _eval_subs(self, old: Expr, new: Expr) -> Expr | None:
        if old in self.bound:
            return self
        clash = (set(self.bound) & sympify(new).free_symbols) - old.free_symbols
        if not clash or not old.free_symbols & self.free_symbols:
            return None
        return self.freshened(clash, new.free_symbols)._subs(old, new)

    def freshened(self, axes: set[Axis], taken: set[Any]) -> Reduce:
        """Rename bound axes so that they clash with no name in `taken` (α-renaming: exact by definition)."""
        names = {symbol.name for symbol in taken | self.expr.free_symbols if hasattr(symbol, "name")}
        renaming = {axis: axis.renamed(_fresh(axis.name, names)) for axis in self.bound if axis in axes}
        return Reduce(self.args[0], self.expr.xreplace(renaming), [renaming.get(axis, axis) for axis in self.bound])

    def _eval_derivative(self, symbol: Expr) -> Expr:
        clash = set(self.bound) & symbol.free_symbols
        node = self.freshened(clash, symbol.free_symbols) if clash else self
        inner = node.expr.diff(symbol)
        if inner is S.Zero:
            return S.Zero
        if self.kind == "sum":
            return _contract_delta(inner, node.bound)
        raise ExpressionError(
            f"`{self}` is not differentiable everywhere (where the {self.kind} is attained twice, or a factor is 0). "
            "Differentiate the sum that it shifts instead, or treat it as a constant by naming it as a tensor."
        )

    def _sympystr(self, printer: Any) -> str:
        bound = ", ".join(axis.name for axis in self.bound)
        return f"{self.kind}({printer._print(self.expr)}, {bound})"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        operator = LATEX.get(self.kind, rf"\operatorname*{{{self.kind}}}")
        body = rf"{operator}_{{{','.join(axis.name for axis in self.bound)}}} {printer.parenthesize(self.expr, 40)}"
        return body if exp is None else rf"\left({body}\right)^{{{exp}}}"


def _fresh(name: str, taken: set[str]) -> str:
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def _contract_delta(expr: Expr, bound: tuple[Axis, ...]) -> Expr:
    """Σ_n δ(n, i)·f(n) -> f(i), exact for an index i in range (the only kind that elements have)."""
    for delta in (factor for factor in Mul.make_args(expr) if isinstance(factor, KroneckerDelta)):
        for axis, other in (delta.args, delta.args[::-1]):
            if axis in bound and axis not in other.free_symbols:
                rest = (expr / delta).xreplace({axis: other})
                left = tuple(one for one in bound if one != axis)
                return _contract_delta(rest, left) if left else rest
    return Reduce("sum", expr, bound) if bound else expr


def _reduce(kind: str, expr: Any, axes: tuple[Any, ...]) -> Reduce:
    flat = [one for axis in axes for one in (axis if isinstance(axis, tuple | list | Tuple) else (axis,))]
    for axis in flat:
        if not isinstance(axis, Axis):
            raise ExpressionError(
                f"{kind}: {axis!r} is not an axis. Make one by `n = ra.axes('n')` and reduce over it."
            )
    twice = next((axis for place, axis in enumerate(flat) if axis in flat[:place]), None)
    if twice is not None:
        raise ExpressionError(f"{kind}: axis {twice} is given twice. Reduce over each axis once.")
    if not flat:
        raise ExpressionError(f"{kind}: no axis given. Write `ra.{kind}(expr, n)` with `n = ra.axes('n')`.")
    try:
        term = sympify(expr)
    except (SympifyError, ValueError, TypeError):
        term = None
    if not isinstance(term, Expr):
        raise ExpressionError(
            f"{kind}: a {type(expr).__name__} is not an expression. Write the term with tensor elements, as in "
            f"`ra.{kind}(ra.tensor('x[b,n]'), n)`, and pass arrays at the call."
        )
    return Reduce(kind, term, flat)


def sum(expr: Any, *axes: Any) -> Reduce:  # noqa: A001
    """Σ of `expr` over the axes (0 over an empty axis).

    >>> from redalg import axes, tensor
    >>> sum(tensor("x[b,n]"), axes("n"))
    sum(x[b, n], n)
    """
    return _reduce("sum", expr, axes)


def prod(expr: Any, *axes: Any) -> Reduce:
    """Π of `expr` over the axes (1 over an empty axis)."""
    return _reduce("prod", expr, axes)


def max(expr: Any, *axes: Any) -> Reduce:  # noqa: A001
    """Largest `expr` over the axes (-inf over an empty axis)."""
    return _reduce("max", expr, axes)


def min(expr: Any, *axes: Any) -> Reduce:  # noqa: A001
    """Smallest `expr` over the axes (+inf over an empty axis)."""
    return _reduce("min", expr, axes)
