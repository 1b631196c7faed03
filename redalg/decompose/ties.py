"""Sums over the elements that attain an extremum, or do not: a threshold that moves with d, and yet a state.

    Σ where(u = max u, w, z) → sum_at_max(u, w) + sum_below_max(u, z)     and u ≥, <, ≠ max u: no u exceeds its maximum
    Σ where(u = min u, w, z) → sum_at_max(−u, w) + sum_below_max(−u, z)
    Σ sign(u − max u)·w      → sum_at_max(u, 0·u·w) − sum_below_max(u, w) sign(u − min u) alike, by −u
    Σ (A + where(…))         → Σ A + Σ where(…)                           where the second sum is one of those above

Exact, ties included: the state holds the maximum, the sum of w over the elements that attain it, and the sum of w over
those that do not, which is never found by subtraction. w and z are of x alone. Beside a NaN in u the sums are NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from sympy import Add, Eq, Expr, Ge, Gt, Le, Lt, Mul, Ne, S, Tuple, sign
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Reduction
from redalg.decompose.plain import is_finite
from redalg.expression import UNDEFINED, Where
from redalg.expression.contents import values_of

AT, BELOW = "sum_at_max", "sum_below_max"
Part: TypeAlias = tuple[Expr, str, Tuple]
"""A factor of d, the monoid and its operands (u, w)."""


def beside_extremum(term: Expr, reductions: Iterable[Reduction]) -> tuple[list[Part], Expr] | None:
    """The sums at and below an extremum of which a sum of this term is made, and the term of the rest; or None."""
    made = {one.value: one for one in reductions if one.monoid.name in ("max", "min")}
    if values_of(term).isdisjoint(made) or not term.has(Where, sign):
        return None
    known = {one.value for one in reductions}
    parts, rest = list[Part](), list[Expr]()
    for addend in Add.make_args(term):
        found = _of_factors(Mul.make_args(addend), made)
        if not found or any(values_of(operands) & known for _, _, operands in found):
            rest.append(addend)
        else:
            parts += found
    return (parts, Add(*rest)) if parts else None


def _of_factors(factors: tuple[Expr, ...], made: Mapping[Expr, Reduction]) -> list[Part] | None:
    for factor in factors:
        if isinstance(factor, Where) and (found := attained(factor.condition, made)) is not None:
            u, at = found
            weight = _beside(factor, factors)
            branches = ((AT if at else BELOW, factor.args[1]), (BELOW if at else AT, factor.args[2]))
            return [(S.One, kind, Tuple(u, weight * branch)) for kind, branch in branches if branch is not S.Zero]
        if isinstance(factor, sign) and (below := _deviation(factor.args[0], made)) is not None:
            u, way = below
            weight = _beside(factor, factors)
            at = Where(is_finite(u), S.Zero, UNDEFINED)  # sign(∞ − ∞) is NaN
            return [(way, BELOW, Tuple(u, weight)), (S.One, AT, Tuple(u, weight * at))]
    return None


def _beside(factor: Expr, factors: tuple[Expr, ...]) -> Expr:
    return Mul(*(other for other in factors if other is not factor))


def attained(condition: Boolean, made: Mapping[Expr, Reduction]) -> tuple[Expr, bool] | None:
    """u (or −u, of a minimum) where the condition says that u attains its own extremum, or (False) that it does not."""
    if not isinstance(condition, Eq | Ne | Ge | Le | Gt | Lt):
        return None
    for u, value in (condition.args, condition.args[::-1]):
        one = made.get(value)
        if one is None or one.term != u:
            continue
        largest = one.monoid.name == "max"
        way, said = u if largest else -u, (condition, condition.reversed)
        if isinstance(condition, Eq) or (Ge if largest else Le)(u, value) in said:
            return way, True
        if isinstance(condition, Ne) or (Lt if largest else Gt)(u, value) in said:
            return way, False
    return None


def _deviation(difference: Expr, made: Mapping[Expr, Reduction]) -> tuple[Expr, Expr] | None:
    """u − max u as (u, −1), max u − u as (u, 1); of a minimum (−u, 1) and (−u, −1)."""
    for value in values_of(difference) & made.keys():
        one = made[value]
        for way in (1, -1):
            if difference == way * (one.term - value):
                return (one.term, S(-way)) if one.monoid.name == "max" else (-one.term, S(way))
    return None
