"""Reductions over the elements that attain an extremum, or do not: a threshold that moves with d, and yet a state.

    Σ where(u = max u, w, z) → sum_at_max(u, w) + sum_below_max(u, z)     and u ≥, <, ≠ max u: no u exceeds its maximum
    Σ where(u = min u, w, z) → sum_at_max(−u, w) + sum_below_max(−u, z)
    Σ where(n = argmax u, w, z) → at_argmax(u, w) + sum_beside_argmax(u, z)          0 of no elements; argmin by −u
    max where(u = max u, w, z) → max(max_at_max(u, w), max_below_max(u, z))          and min, and by argmax, alike
    Σ where(…, h·w, z)       → h·Σ where(…, w, 0) + Σ where(…, 0, z)      h of d alone; 0 of no elements
    Σ where(n = argmax u, φ(w, d), 0) → φ(at_argmax(u, w), d)             φ without conditions; 0 of no elements
    Σ sign(u − max u)·w      → sum_at_max(u, 0·u·w) − sum_below_max(u, w) sign(u − min u) alike, by −u
    where(p ∧ c, w, z)       → where(p, where(c, w, z), z)                p one of these conditions, c free of d
    where(p ∨ c, w, z)       → where(p, w, where(c, w, z))                alike
    Σ (A + where(…))         → Σ A + Σ where(…)                           where the second sum is one of those above

Exact, ties included: the state holds the maximum, the sum of w over the elements that attain it, and the sum of w over
those that do not, which is never found by subtraction (nor is Σ (w − d), which stays as it is). w and z are of x alone.
Beside a NaN in u the first are NaN; argmax has the first NaN for the largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias, final

from sympy import Add, And, Eq, Expr, Ge, Gt, Le, Lt, Mul, Ne, Or, S, Tuple, sign
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Reduction
from redalg.decompose.plain import is_finite
from redalg.expression import UNDEFINED, Axis, Where
from redalg.expression.contents import free_axes, of_kind, values_of

EXTREMA, PLACES = ("max", "min"), ("argmax", "argmin")
Part: TypeAlias = tuple[Expr, str, Tuple, Expr | None]
"""A factor of d, the monoid, its operands (u, w) and the argmax of u; only what is at one place may have d in w."""


@final
@dataclass(frozen=True)
class Selector:
    """What a condition says of an element: its u is the largest, or (not `at`) is not.

    `place` is the argmax of u where one element alone is meant, the first of the largest.
    """

    u: Expr
    at: bool
    place: Expr | None = None

    def part(self, plus: str, branch: int, w: Expr) -> tuple[str, Tuple]:
        """The monoid of ⊕ w over the elements that take a branch, and its operands."""
        at = self.at == (branch == 0)
        if self.place is not None:
            return ("at_argmax" if at else f"{plus}_beside_argmax"), Tuple(self.u, w)
        return f"{plus}_{'at' if at else 'below'}_max", Tuple(self.u, w)

    def of_some(self, kind: str, made: Expr, identity: Expr) -> Expr:
        """What is at the argmax, the identity where there is none."""
        alone = kind == "at_argmax" and identity is not S.Zero
        return Where(self.place >= 0, made, identity) if alone and self.place is not None else made


@final
class Attained:
    """Finds what attains an extremum in a term, given the reductions before it and the axes that are reduced."""

    def __init__(self, reductions: Iterable[Reduction], axes: AbstractSet[Axis]) -> None:
        self.axes, self.made = axes, {one.value: one for one in reductions}

    def sums(self, term: Expr) -> tuple[list[Part], Expr] | None:
        """The sums of which a sum of this term is made, and the term of the rest; or None."""
        if self.made.keys().isdisjoint(values_of(term)) or not term.has(Where, sign):
            return None
        parts, rest = list[Part](), list[Expr]()
        for addend in Add.make_args(term):
            found = self._of_factors(Mul.make_args(addend))
            parts += found or []
            rest += [] if found else [addend]
        return (parts, Add(*rest)) if parts else None

    def extremum(self, kind: str, term: Expr, identity: Expr) -> tuple[Selector, list[tuple[str, Tuple]]] | None:
        """The reductions of which a max or min of this term is the max or min; or None."""
        found = self._opened(term) if isinstance(term, Where) else None
        if found is None or any(map(self._holds_d, found[1])):
            return None
        selector, branches = found
        return selector, [selector.part(kind, branch, w) for branch, w in enumerate(branches) if w != identity]

    def _opened(self, node: Where) -> tuple[Selector, tuple[Expr, Expr]] | None:
        """What the condition of a mask says of extrema, and the branches, which take in what else it says; or None."""
        condition, a, b = node.args
        parts = condition.args if isinstance(condition, And | Or) else (condition,)
        found = [(one, part) for part in parts if (one := self.selector(part)) is not None]
        if len(found) != 1 or any(self._holds_d(part) for part in parts if part is not found[0][1]):
            return None
        [(selector, said)] = found
        rest = [part for part in parts if part is not said]
        if not rest:
            return selector, (a, b)
        inner = Where(condition.func(*rest), a, b)
        return selector, (inner, b) if isinstance(condition, And) else (a, inner)

    def _of_factors(self, factors: tuple[Expr, ...]) -> list[Part] | None:
        for factor in factors:
            beside = Mul(*(other for other in factors if other is not factor))
            if isinstance(factor, Where) and (opened := self._opened(factor)) is not None:
                return self._of_branches(opened[0], beside, opened[1])
            below = _deviation(factor.args[0], self.made) if isinstance(factor, sign) else None
            if below is not None and not self._holds_d(beside):
                u, way = below
                at = Where(is_finite(u), S.Zero, UNDEFINED)  # sign(∞ − ∞) is NaN
                parts = ((way, "sum_below_max", beside), (S.One, "sum_at_max", beside * at))
                return [(h, kind, Tuple(u, w), None) for h, kind, w in parts]
        return None

    def _of_branches(self, selector: Selector, beside: Expr, branches: Iterable[Expr]) -> list[Part] | None:
        found = list[Part]()
        for number, branch in enumerate(branches):
            kind, operands = selector.part("sum", number, beside * branch)
            if kind == "at_argmax" and not of_kind(Where, operands):
                found += [] if branch is S.Zero else [(S.One, kind, operands, selector.place)]
                continue
            split = self._split(beside * branch)
            if split is None:
                return None
            found += ((h, *selector.part("sum", number, g), selector.place) for h, g in split)
        return found

    def _split(self, expr: Expr) -> list[tuple[Expr, Expr]] | None:
        """h·g as the pair, h of d alone and g of what is not, or none of 0; None where they are not a product."""
        of_d = [one for one in Mul.make_args(expr) if self._holds_d(one)]
        if any(free_axes(one) & self.axes for one in of_d):
            return None
        rest = Mul(*(one for one in Mul.make_args(expr) if one not in of_d))
        return [(Mul(*of_d), rest)] if rest is not S.Zero else []

    def _holds_d(self, expr: Basic) -> bool:
        return not self.made.keys().isdisjoint(values_of(expr))

    def selector(self, condition: Boolean) -> Selector | None:
        """What a condition says of extrema; or None."""
        if not isinstance(condition, Eq | Ne | Ge | Le | Gt | Lt):
            return None
        for u, value in (condition.args, condition.args[::-1]):
            one = self.made.get(value)
            if one is None or self._holds_d(one.term):
                continue
            if one.monoid.name in EXTREMA and one.term == u:
                return _of_values(condition, u, value, largest=one.monoid.name == "max")
            if one.monoid.name in PLACES and u in self.axes and isinstance(condition, Eq | Ne):
                way = one.term if one.monoid.name == "argmax" else -one.term
                return Selector(way, isinstance(condition, Eq), value)
        return None


def _of_values(condition: Boolean, u: Expr, value: Expr, *, largest: bool) -> Selector | None:
    way, said = u if largest else -u, (condition, condition.reversed)
    if isinstance(condition, Eq) or (Ge if largest else Le)(u, value) in said:
        return Selector(way, True)
    if isinstance(condition, Ne) or (Lt if largest else Gt)(u, value) in said:
        return Selector(way, False)
    return None


def _deviation(difference: Expr, made: Mapping[Expr, Reduction]) -> tuple[Expr, Expr] | None:
    """u − max u as (u, −1), max u − u as (u, 1); of a minimum (−u, 1) and (−u, −1)."""
    for value in values_of(difference) & made.keys():
        one = made[value]
        if one.monoid.name not in EXTREMA:
            continue
        for way in (1, -1):
            if difference == way * (one.term - value):
                return (one.term, S(-way)) if one.monoid.name == "max" else (-one.term, S(way))
    return None
