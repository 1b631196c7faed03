"""Reductions over the elements that attain an extremum, or do not: a threshold that moves with d, and yet a state.

    Σ where(u = max u, w, z) → sum_at_max(u, w) + sum_below_max(u, z)     and u ≥, <, ≠ max u: no u exceeds its maximum
    Σ where(k·u + c = k·max u + c, w, z), Σ where(u − max u = 0, w, z) → as where(u = max u, …)    k and c numbers
    Σ where(u > v, w, z)     → sum_at_max(u, w) + sum_below_max(u, z)     v the second largest of u, max u > −∞; ≤ alike
    Σ max(u, v)·w            → Σ where(u > v, u, v)·w                     v the second largest; of the second least min
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
those that do not. The last is never found by subtraction (nor is Σ (w − d), which stays as it is). w and z are of x
alone. If u holds a NaN, so do its extrema, and no comparison with them but ≠ is true: the sum is Σ z then (of ≠ Σ w),
and that of max(u, v) and sign(u − max u) is NaN. argmax takes the first NaN for the largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias, final

from sympy import Add, And, Eq, Expr, Ge, Gt, Le, Lt, Max, Min, Mul, Ne, Or, S, Tuple, sign
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Reduction
from redalg.decompose.separate.plain import is_finite, nothing_times
from redalg.expression import Axis, Value, Where
from redalg.expression.contents import free_axes, is_indicator, of_kind, sympy_text, values_of

EXTREMA, PLACES, SECONDS = ("max", "min"), ("argmax", "argmin"), ("max_below_max", "min_below_max")
Part: TypeAlias = tuple[Expr, str, Tuple, Expr | None]
"""A factor of d, the monoid, its operands (u, w) and the argmax of u; w may hold d only if it is taken at one place."""


@final
@dataclass(frozen=True)
class Selector:
    """The meaning of a condition on an element: its u is the largest, or (not `at`) is not.

    `place` is the argmax of u if a single element is meant, the first of the largest. `but` is a condition of x: a
    largest element that fails it counts among the others. `extremum` is what u is compared with, if not by its place.
    """

    u: Expr
    at: bool
    place: Expr | None = None
    but: Boolean = S.true
    extremum: Expr | None = None

    def part(self, plus: str, branch: int, w: Expr) -> tuple[str, Tuple]:
        """The monoid of ⊕ w over the elements that take a branch, and its operands."""
        at = self.at == (branch == 0)
        if self.place is not None:
            return ("at_argmax" if at else f"{plus}_beside_argmax"), Tuple(self.u, w)
        return f"{plus}_{'at' if at else 'below'}_max", Tuple(self.u, w)

    def of_some(self, kind: str, value: Expr, identity: Expr) -> Expr:
        """The value at the argmax, or the identity if there is no argmax."""
        alone = kind == "at_argmax" and identity is not S.Zero
        return Where(self.place >= 0, value, identity) if alone and self.place is not None else value


@final
@dataclass(frozen=True)
class Choice:
    """A mask by a selector: a term for each branch, and, if the extremum may be NaN, the term of all elements then."""

    selector: Selector
    branches: tuple[Expr, Expr]
    unordered: Expr | None = None


@final
@dataclass(frozen=True)
class MaskSum:
    """The sums that make up the sum of a mask.

    If `extremum` is NaN, the sum is that of `unordered` instead; it is None where the parts themselves are right then.
    The sum is multiplied by `factor`, of d alone: this may be NaN, even if the mask lets no element through.
    """

    parts: list[Part]
    extremum: Expr | None = None
    unordered: Expr = S.Zero
    factor: Expr = S.One


@final
class Attained:
    """The finder of what attains an extremum in a term, given the reductions before it and the reduced axes."""

    def __init__(self, reductions: Iterable[Reduction], axes: AbstractSet[Axis]) -> None:
        self.axes, self.reductions = axes, {one.value: one for one in reductions}

    def sums(self, term: Expr) -> tuple[list[MaskSum], Expr] | None:
        """The sums that make up a sum of this term, and the term of the rest; or None."""
        if self.reductions.keys().isdisjoint(values_of(term)) or not term.has(Where, sign, Max, Min):
            return None
        sums, rest = list[MaskSum](), list[Expr]()
        for addend in Add.make_args(term):
            own = self._of_factors(Mul.make_args(addend))
            if own is None or not (own.parts or own.extremum):
                rest.append(addend)
            else:
                sums.append(own)
        return (sums, Add(*rest)) if sums else None

    def case(self, term: Expr) -> Where | None:
        """Find where(max u is a number, v, −∞) in a term, v the second largest of u; or None."""

        def is_second(node: Where) -> bool:
            reduction = self.reductions.get(node.args[1])
            return reduction is not None and reduction.monoid.name in SECONDS

        cases = [node for node in of_kind(Where, term) if is_second(node) and not free_axes(node.condition) & self.axes]
        return min(cases, key=sympy_text, default=None)

    def extremum(self, kind: str, term: Expr, identity: Expr) -> tuple[Choice, list[tuple[str, Tuple]]] | None:
        """The choice in a term, and the reductions whose max or min is that of the term; or None."""
        choice = self._open_mask(term) if isinstance(term, Where) else None
        if choice is None or any(map(self._holds_d, choice.branches)):
            return None
        part = choice.selector.part
        return choice, [part(kind, branch, w) for branch, w in enumerate(choice.branches) if w != identity]

    def _open_mask(self, node: Where, *, meets: bool = False) -> Choice | None:
        """The choice that a mask makes by a selector in its condition, whose rest goes into the branches; or None.

        If the branches meet, as those of max(u, d) do at u = d, it does not matter which of two equal ones is taken,
        and the value is NaN where u or d is.
        """
        condition, a, b = node.args
        parts = condition.args if isinstance(condition, And | Or) else (condition,)
        selectors = [(one, part) for part in parts if (one := self.selector(part)) is not None]
        if len(selectors) != 1 or any(self._holds_d(part) for part in parts if part is not selectors[0][1]):
            return None
        [(selector, comparison)] = selectors
        rest = [part for part in parts if part is not comparison]
        if rest:
            inner = Where(condition.func(*rest), a, b)
            a, b = (inner, b) if isinstance(condition, And) else (a, inner)
        if meets:
            return Choice(selector, (a, b))
        unordered = None if selector.extremum is None else a if isinstance(comparison, Ne) else b
        if selector.but is S.true:
            branches = a, b
        else:
            branches = (Where(selector.but, a, b), b) if selector.at else (a, Where(selector.but, b, a))
        return Choice(selector, branches, unordered)

    def _of_factors(self, factors: tuple[Expr, ...]) -> MaskSum | None:
        for factor in factors:
            beside = Mul(*(other for other in factors if other is not factor))
            mask = as_choice(factor)
            choice = self._open_mask(mask, meets=mask is not factor) if isinstance(mask, Where) else None
            if choice is not None:
                return self._of_choice(choice, beside, hides=is_indicator(mask) or mask is not factor)
            below = _deviation(factor.args[0], self.reductions) if isinstance(factor, sign) else None
            if below is not None and not self._holds_d(beside):
                u, way = below
                at = nothing_times(u)  # sign(∞ − ∞) is NaN
                parts = ((way, "sum_below_max", beside), (S.One, "sum_at_max", beside * at))
                return MaskSum([(h, kind, Tuple(u, w), None) for h, kind, w in parts])
        return None

    def _of_choice(self, choice: Choice, beside: Expr, *, hides: bool) -> MaskSum | None:
        """The sums of a mask times what stands beside it; a mask of 1 and 0 hides this where it is 0."""
        parts, selector = list[Part](), choice.selector
        outside = None if hides else self._split(beside)
        if not (hides or outside):
            return None
        [(factor, rest)] = outside or [(S.One, beside)]

        def times_rest(branch: Expr) -> Expr:
            zero = S.Zero if hides else nothing_times(rest)
            return zero if branch is S.Zero else rest * branch

        for number, branch in enumerate(map(times_rest, choice.branches)):
            kind, operands = selector.part("sum", number, branch)
            if kind == "at_argmax" and not of_kind(Where, operands):
                parts += [] if branch is S.Zero else [(S.One, kind, operands, selector.place)]
                continue
            split = self._split(branch)
            if split is None:
                return None
            parts += ((h, *selector.part("sum", number, g), selector.place) for h, g in split)
        if choice.unordered is None:
            return MaskSum(parts, factor=factor)
        return MaskSum(parts, selector.extremum, times_rest(choice.unordered), factor)

    def _split(self, expr: Expr) -> list[tuple[Expr, Expr]] | None:
        """The pair (h, g) of h·g, h of d alone and g free of d; no pair for 0, and None if there is no such product."""
        of_d = [one for one in Mul.make_args(expr) if self._holds_d(one)]
        if any(free_axes(one) & self.axes for one in of_d):
            return None
        rest = Mul(*(one for one in Mul.make_args(expr) if one not in of_d))
        return [(Mul(*of_d), rest)] if rest is not S.Zero else []

    def _holds_d(self, expr: Basic) -> bool:
        return not self.reductions.keys().isdisjoint(values_of(expr))

    def selector(self, condition: Boolean) -> Selector | None:
        """The selector that a condition stands for; or None."""
        if not isinstance(condition, Eq | Ne | Ge | Le | Gt | Lt):
            return None
        for value in sorted(values_of(condition) & self.reductions.keys(), key=sympy_text):
            reduction = self.reductions[value]
            if self._holds_d(reduction.term):
                continue
            if reduction.monoid.name in PLACES and isinstance(condition, Eq | Ne):
                way = reduction.term if reduction.monoid.name == "argmax" else -reduction.term
                if any(value_comparison(condition, axis, value) is not None for axis in self.axes):
                    return Selector(way, isinstance(condition, Eq), value)
            if (form := _of_extremum(condition, reduction)) is not None:
                return form
        return None


def value_comparison(condition: Relational, u: Expr, value: Expr) -> tuple[type[Relational], bool] | None:
    """A comparison of k·u + c with k·value + c (numbers k and c) as the relation of u to the value; or None.

    The second is True if k·(u − value) is compared with 0; this is NaN if both are ∞.

    >>> from redalg.expression import Label, Value, axes, tensor
    >>> x, m = tensor("x[n]"), Value(Label("m"))
    >>> value_comparison(Gt(2 * m - 1, 2 * x - 1), x, m)
    (<class 'sympy.core.relational.StrictLessThan'>, False)
    """
    left, right = condition.args
    factor = (left - right).expand().coeff(value)
    if not factor.is_number or not factor.is_finite or factor.is_zero:
        return None
    if (left - right - factor * (value - u)).expand() is not S.Zero:
        return None
    relation = condition.func if factor.is_negative else condition.reversed.func
    plain = any((here - factor * value).expand().is_number and (there - factor * u).expand().is_number
                for here, there in ((left, right), (-right, -left)))  # fmt: skip
    parted = left.is_number or right.is_number
    return (relation, parted) if plain or parted else None


def as_choice(factor: Expr) -> Expr:
    """max(u, d) as where(u > d, u, d), and min(u, d) as where(u < d, u, d)."""
    if not isinstance(factor, Max | Min) or len(factor.args) != 2:
        return factor
    u, d = sorted(factor.args, key=lambda one: isinstance(one, Value))
    return Where(u > d if isinstance(factor, Max) else u < d, u, d)


def _of_extremum(condition: Relational, reduction: Reduction) -> Selector | None:
    """The selector of a comparison with an extremum, or with the second largest or least; or None."""
    if (
        reduction.monoid.name in EXTREMA
        and (form := value_comparison(condition, reduction.term, reduction.value)) is not None
    ):
        relation, parted = form
        largest = reduction.monoid.name == "max"
        way = reduction.term if largest else -reduction.term
        if relation in (Eq, Ge if largest else Le):
            but = is_finite(reduction.term) if parted else S.true
            return Selector(way, True, but=but, extremum=reduction.value)
        if relation in (Ne, Lt if largest else Gt):
            but = is_finite(reduction.term) if parted and relation is Ne else S.true
            return Selector(way, False, but=but, extremum=reduction.value)
    if reduction.monoid.name in SECONDS:
        way, u = reduction.term.args
        largest = reduction.monoid.name == "max_below_max"
        form = value_comparison(condition, u, reduction.value) if way == (u if largest else -u) else None
        for at, relation in ((True, Gt if largest else Lt), (False, Le if largest else Ge)):
            if form == (relation, False):
                return Selector(way, at, but=way > S.NegativeInfinity)
    return None


def _deviation(difference: Expr, reductions: Mapping[Expr, Reduction]) -> tuple[Expr, Expr] | None:
    """u − max u as (u, −1), max u − u as (u, 1); of a minimum (−u, 1) and (−u, −1)."""
    for value in values_of(difference) & reductions.keys():
        reduction = reductions[value]
        if reduction.monoid.name not in EXTREMA:
            continue
        for way in (1, -1):
            if difference == way * (reduction.term - value):
                return (reduction.term, S(-way)) if reduction.monoid.name == "max" else (-reduction.term, S(way))
    return None
