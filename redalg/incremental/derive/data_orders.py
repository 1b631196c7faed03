"""Orders of expressions in their data: an expression of order k goes to 0 as the k-th power of the data does.

    order x = 1       order a·b = order a + order b       order (a + b) = the lesser       order Σ a = order a

A number has order 0, and so has what a condition or a count tells of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import final

from sympy import Abs, Add, Expr, Function, Max, Min, Mul, Pow, S, Tuple, ceiling, floor, oo, sign

from redalg.decompose.cascade import Reduction
from redalg.expression import Cast, Element, Let, Value, Where
from redalg.expression.contents import elements_of, values_of


@final
@dataclass(frozen=True)
class DataOrders:
    """Orders in the data of some names: of tensors, and of producers' values.

    Attributes:
        names: of the data.
        reductions: each by its value.
    """

    names: AbstractSet[str]
    reductions: Mapping[Value, Reduction]

    def order(self, expr: Expr) -> Expr:
        """The order of an expression, ∞ of 0; of a choice the lesser of its branches.

        >>> from redalg import tensors, where
        >>> x, y = tensors("x[n] y[n]")
        >>> [DataOrders({"x"}, {}).order(one) for one in (x**2 * y, x + y, where(x > 0, x, 0), where(x > 0, 1, 0))]
        [2, 0, 1, 0]
        """
        if expr is S.Zero:
            return oo
        if isinstance(expr, Value) and expr in self.reductions:
            return self._of_reduction(self.reductions[expr])
        if isinstance(expr, Element | Value):
            return S(int((expr.name if isinstance(expr, Element) else str(expr)) in self.names))
        if isinstance(expr, Pow) and expr.exp.is_Rational:
            return self.order(expr.base) * expr.exp
        if isinstance(expr, Mul):
            return Add(*map(self.order, expr.args))
        if isinstance(expr, Where):
            return Min(*map(self.order, expr.args[1:]))
        if isinstance(expr, Add | Max | Min):
            return Min(*map(self.order, expr.args))
        if isinstance(expr, Let):
            return self.order(expr.expr)
        if isinstance(expr, Abs | Cast) or _is_smooth_at_zero(expr):
            return self.order(expr.args[0])
        return S.Zero

    def _of_reduction(self, reduction: Reduction) -> Expr:
        """The order of a term, of operands the largest; a place, a truth and a logarithm have none."""
        if reduction.dtype or reduction.monoid.name == "logsumexp":
            return S.Zero
        return Max(*map(self.order, reduction.term.args if isinstance(reduction.term, Tuple) else (reduction.term,)))


def _is_smooth_at_zero(expr: Expr) -> bool:
    """Tell if a function is 0 at 0 and has a slope there, as tanh."""
    steps = isinstance(expr, sign | floor | ceiling)
    return isinstance(expr, Function) and not steps and len(expr.args) == 1 and expr.func(S.Zero) is S.Zero


def data_names(expr: Expr, reductions: Mapping[Value, Reduction]) -> set[str]:
    """The names of the tensors that an expression is made of, through its reductions, and of producers' values."""
    values = values_of(expr)
    names = {one.name for one in elements_of(expr)} | {str(one) for one in values - reductions.keys()}
    return names.union(*(data_names(reductions[value].term, reductions) for value in values & reductions.keys()))
