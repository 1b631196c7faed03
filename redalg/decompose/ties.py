"""Sums over the elements that attain an extremum: a threshold that moves with d, and yet a state of fixed size.

    Σ where(u = max u, w, 0)  → sum_at_max(u, w)        and where(u ≥ max u, …): no u exceeds its maximum
    Σ where(u = min u, w, 0)  → sum_at_max(−u, w)

Exact, ties included: the state holds the maximum and the sum of w over the elements that attain it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sympy import Eq, Expr, Ge, Le, Mul, S, Tuple
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Reduction
from redalg.expression import Value, Where
from redalg.expression.contents import values_of


def at_extremum(term: Expr, reductions: Iterable[Reduction]) -> Tuple | None:
    """The operands (u, w) of the `sum_at_max` that a sum of this term is, or None."""
    made = {one.value: one for one in reductions}
    for factor in Mul.make_args(term):
        if isinstance(factor, Where) and factor.args[2] is S.Zero:
            u = attained(factor.condition, made)
            weight = Mul(*(other for other in Mul.make_args(term) if other is not factor), factor.args[1])
            if u is not None and not values_of(weight) & made.keys():
                return Tuple(u, weight)
    return None


def attained(condition: Boolean, made: dict[Value, Reduction]) -> Expr | None:
    """u (or −u, of a minimum) where the condition says that u attains its own extremum."""
    if not isinstance(condition, Eq | Ge | Le):
        return None
    for u, value in (condition.args, condition.args[::-1]):
        one = made.get(value)
        if one is None or one.term != u or one.monoid.name not in ("max", "min"):
            continue
        beyond = Ge if one.monoid.name == "max" else Le
        if isinstance(condition, Eq) or condition == beyond(u, value):
            return u if one.monoid.name == "max" else -u
    return None
