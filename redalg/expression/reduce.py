"""`Reduce(kind, expr, axis, …)`: a reduction as a SymPy expression, with its axes bound."""

from __future__ import annotations

from typing import Any, final

from sympy import Expr, KroneckerDelta, Mul, S, Tuple, sympify
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean

from redalg.errors import ExpressionError
from redalg.expression.arguments import answer_arguments
from redalg.expression.axis import Axis
from redalg.expression.known import no_more_known
from redalg.expression.masks import as_condition
from redalg.expression.node import Node
from redalg.expression.nodes import Where
from redalg.expression.operand import expression_of
from redalg.expression.spelling import no_other
from redalg.expression.tensor import Element

LATEX = {
    "sum": r"\sum", "prod": r"\prod", "max": r"\max", "min": r"\min", "any": r"\bigvee", "all": r"\bigwedge",
}  # fmt: skip
OF_TWO = {"max": " The larger of two is `sympy.Max(x, y)`.", "min": " The smaller of two is `sympy.Min(x, y)`."}


@final
@no_more_known
class Reduce(Node):
    """`args = (kind, expr, axes)`. The axes are bound: they are not among the free symbols.

    A reduction of several operands has a Tuple of them for `expr`. If it gives several results, a fourth argument,
    `result`, names the one that is meant. If it gives several elements, a fifth argument, `place`, is the new axis that
    numbers them; this axis is free.

    `subs` respects the binder: a bound axis stays, and is renamed where it would capture a free one. An element that
    holds it (`x[b, n]`) is matched inside, and so are its axes in what replaces it. `xreplace` is structural.

    >>> import redalg as ra
    >>> b, i, n, j = *ra.axes("b i n"), ra.axis("j", size=4)
    >>> total = ra.sum(ra.tensor("x[b,n]") ** 2, n)
    >>> total.kind, total.expr, total.bound, total.operands
    ('sum', x[b, n]**2, (n,), (x[b, n]**2,))
    >>> n in total.free_symbols, total.bound_symbols
    (False, [n])
    >>> total.rename_bound({n}, {n}), total.rebuilt(ra.tensor("y[i]"), [i])
    (sum(x[b, n_1]**2, n_1), sum(y[i], i))
    >>> values, indices = ra.topk(ra.tensor("x[n]"), n, j)
    >>> indices.result, indices.place
    ('indices', j)
    """

    is_extended_real = True
    is_commutative = True

    def __new__(cls, kind: Any, expr: Any, bound: Any, result: Any = "", place: Any = None) -> Reduce:
        kind = kind if isinstance(kind, Str) else Str(kind)
        bound = bound if isinstance(bound, Tuple) else Tuple(*bound)
        expr = sympify(expr)
        sized = {
            Axis(axis.name): axis for axis in bound if getattr(axis, "size", None) is not None
        }  # SymPy may bind others
        expr = expr.xreplace(sized) if sized else expr
        named = () if result == "" else (result if isinstance(result, Str) else Str(result),)
        numbered = () if place is None else (checked_place(place, expr, bound),)
        node: Reduce = Expr.__new__(cls, kind, expr, bound, *named, *numbered)
        return node

    def rebuilt(self, expr: Expr, bound: Any) -> Reduce:
        """The same result of the same kind of reduction, of another term over other axes."""
        return Reduce(self.args[0], expr, bound, *self.args[3:])

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
    def operands(self) -> tuple[Expr, ...]:
        """The terms that are reduced together, usually one."""
        return tuple(self.expr.args) if isinstance(self.expr, Tuple) else (self.expr,)

    @property
    def result(self) -> str:
        """The name of the result that is meant, if there are several; else empty."""
        return str(self.args[3].name) if len(self.args) > 3 else ""

    @property
    def place(self) -> Axis | None:
        """The new axis that numbers the results."""
        return self.args[4] if len(self.args) > 4 else None

    @property
    def free_symbols(self) -> set[Any]:
        """Free symbols of the term, less the bound axes, and the axis that numbers the results."""
        free: set[Any] = self.expr.free_symbols - set(self.bound)
        return free if self.place is None else free | {self.place}

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
        return self.rename_bound(clash, new.free_symbols)._subs(old, new)

    def rename_bound(self, axes: set[Axis], others: set[Any]) -> Reduce:
        """Rename bound axes so that they clash with no name in `others` (α-renaming: exact by definition)."""
        inside = self.expr.free_symbols | {axis for one in self.expr.atoms(Reduce) for axis in one.bound}
        names = {symbol.name for symbol in others | inside if hasattr(symbol, "name")}
        renaming = {axis: axis.renamed(_fresh(axis.name, names)) for axis in self.bound if axis in axes}
        return self.rebuilt(self.expr.xreplace(renaming), [renaming.get(axis, axis) for axis in self.bound])

    def _eval_derivative(self, symbol: Expr) -> Expr:
        clash = set(self.bound) & symbol.free_symbols
        node = self.rename_bound(clash, symbol.free_symbols) if clash else self
        inner = [one.diff(symbol) for one in node.operands]
        if all_zero(inner):
            return S.Zero
        if self.kind == "sum":
            return _contract_delta(inner[0], node.bound)
        raise ExpressionError(
            f"`{self}` is not differentiable everywhere (where the {self.kind} is attained twice, or a factor is 0). "
            "Differentiate the sum that it shifts instead, or treat it as a constant by naming it as a tensor."
        )

    def _sympystr(self, printer: Any) -> str:
        axes = [str(axis) for axis in self.bound] + ([] if self.place is None else [self.place.name])
        suffix = f".{self.result}" if self.result else ""
        return f"{self.kind}({', '.join([*map(printer._print, self.operands), *axes])}){suffix}"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        name = ".".join(filter(None, (self.kind, self.result))).replace("_", r"\_")
        operator = LATEX.get(self.kind, rf"\operatorname*{{{name}}}")
        term = printer._print(self.expr) if isinstance(self.expr, Tuple) else printer.parenthesize(self.expr, 40)
        body = rf"{operator}_{{{','.join(axis.name for axis in self.bound)}}} {term}"
        return body if exp is None else rf"\left({body}\right)^{{{exp}}}"


def all_zero(exprs: list[Expr]) -> bool:
    """Tell if every expression is 0."""
    return {*exprs} <= {S.Zero}


def checked_place(place: Any, expr: Expr, bound: Tuple) -> Axis:
    """The new axis of a reduction's results: an axis of fixed size, which no term carries."""
    if not isinstance(place, Axis) or place.size is None:
        raise ExpressionError(
            f"{place!r} should be a new axis of fixed size, which numbers the results. Write "
            '`j = ra.axis("j", size=4)`.'
        )
    if place in expr.free_symbols or place in bound or Axis(place.name) in expr.free_symbols:
        raise ExpressionError(f"axis {place} stands in the term already; the results need a new axis of their own.")
    return place


def _fresh(name: str, names: set[str]) -> str:
    number = 1
    while f"{name}_{number}" in names:
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


def _reduce(kind: str, expr: Any, axes: tuple[Any, ...], options: dict[str, Any]) -> Reduce:
    no_other(kind, options)
    return Reduce(kind, term_of(kind, expr), checked_axes(kind, axes))


def _no_axis(kind: str, given: Any) -> str:
    if isinstance(given, Expr) and given.has(Element):
        return f"{given} is not an axis, but of tensors. The term comes first, then its axes, as in `ra.{kind}(x, n)`."
    if isinstance(given, int):
        return f"axes have names, not the number {given}. Make one by `n = ra.axes('n')` and write `ra.{kind}(x, n)`."
    return f"{given!r} is not an axis. Make one by `n = ra.axes('n')` and reduce over it."


def checked_axes(kind: str, axes: tuple[Any, ...]) -> list[Axis]:
    """The axes of a reduction, each named once."""
    flat = [one for axis in axes for one in (axis if isinstance(axis, tuple | list | Tuple) else (axis,))]
    for axis in flat:
        if not isinstance(axis, Axis):
            raise ExpressionError(
                f"{kind}: {_no_axis(kind, axis)}" + OF_TWO.get(kind, "") * isinstance(axis, Expr | int | float)
            )
    twice = next((axis for place, axis in enumerate(flat) if axis in flat[:place]), None)
    if twice is not None:
        raise ExpressionError(f"{kind}: axis {twice} is given twice. Reduce over each axis once.")
    if not flat:
        raise ExpressionError(f"{kind}: no axis given. Write `ra.{kind}(expr, n)` with `n = ra.axes('n')`.")
    return flat


def term_of(kind: str, expr: Any) -> Expr:
    """A term as an expression, or an error that names the reduction."""
    term = expression_of(expr)
    if isinstance(term, Boolean) and not isinstance(term, Expr):
        raise ExpressionError(f"{kind}: `{term}` is a condition, not a number. Count what fulfils it by "
                              f"`ra.{kind}(ra.where({term}, 1, 0), n)`.")  # fmt: skip
    if not isinstance(term, Expr):
        raise ExpressionError(
            f"{kind}: a {type(expr).__name__} is not an expression. Write the term with tensor elements, as in "
            f"`ra.{kind}(ra.tensor('x[b,n]'), n)`, and pass arrays at the call."
        )
    return term


@answer_arguments(ExpressionError, "Write `ra.sum(x, n)`.")
def sum(expr: Any, *axes: Any, **options: Any) -> Reduce:  # noqa: A001
    """Σ of `expr` over the axes (0 over an empty axis).

    >>> from redalg import axes, tensor
    >>> sum(tensor("x[b,n]"), axes("n"))
    sum(x[b, n], n)
    """
    return _reduce("sum", expr, axes, options)


@answer_arguments(ExpressionError, "Write `ra.prod(x, n)`.")
def prod(expr: Any, *axes: Any, **options: Any) -> Reduce:
    """Π of `expr` over the axes (1 over an empty axis).

    >>> from redalg import axes, tensor
    >>> prod(tensor("x[b,n]"), axes("n"))
    prod(x[b, n], n)
    """
    return _reduce("prod", expr, axes, options)


@answer_arguments(ExpressionError, "Write `ra.max(x, n)`.")
def max(expr: Any, *axes: Any, **options: Any) -> Reduce:  # noqa: A001
    """Largest `expr` over the axes (-inf over an empty axis).

    >>> from redalg import axes, tensor
    >>> max(tensor("x[b,n]"), axes("n"))
    max(x[b, n], n)
    """
    return _reduce("max", expr, axes, options)


@answer_arguments(ExpressionError, "Write `ra.min(x, n)`.")
def min(expr: Any, *axes: Any, **options: Any) -> Reduce:  # noqa: A001
    """Smallest `expr` over the axes (+inf over an empty axis).

    >>> from redalg import axes, tensor
    >>> min(tensor("x[b,n]"), axes("n"))
    min(x[b, n], n)
    """
    return _reduce("min", expr, axes, options)


@answer_arguments(ExpressionError, "Write `ra.any(x, n)`.")
def any(condition: Any, *axes: Any, **options: Any) -> Reduce:  # noqa: A001
    """1 where `condition` holds for any element, else 0 (0 over an empty axis); an output of it is Boolean.

    A term that is no condition stands for `term != 0`, so that NaN counts as true. The value may be a condition itself:
    `ra.where(ra.any(x > 0, n), a, b)`.

    >>> from redalg import axes, tensor
    >>> any(tensor("x[b,n]") > 0, axes("n"))
    any(where(x[b, n] > 0, 1, 0), n)
    """
    return _reduce("any", truth_value(condition, "any"), axes, options)


@answer_arguments(ExpressionError, "Write `ra.all(x, n)`.")
def all(condition: Any, *axes: Any, **options: Any) -> Reduce:  # noqa: A001
    """1 where `condition` holds for all elements, else 0 (1 over an empty axis); see `any`.

    >>> from redalg import axes, tensor
    >>> all(tensor("x[b,n]") > 0, axes("n"))
    all(where(x[b, n] > 0, 1, 0), n)
    """
    return _reduce("all", truth_value(condition, "all"), axes, options)


def truth_value(condition: Any, caller: str) -> Expr:
    """1 where a condition holds, else 0."""
    return Where(as_condition(condition, caller), S.One, S.Zero)
