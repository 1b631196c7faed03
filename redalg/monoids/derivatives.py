"""The rule of a monoid's derivative, checked on generated elements: the first place at which it is wrong, or none.

    Σ_r g_r·∂(lower(x_1 ⊕ … ⊕ x_k))_r/∂x_i  =  Σ_c vjp(total, lift(x_i), ḡ)_c·∂lift(x_i)_c/∂x_i      ḡ = g·∂lower

Both sides are made of difference quotients in 60 digits. Where a quotient to the left and one to the right differ, as
at ties, there is no derivative, and nothing is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from random import Random

from sympy import Expr, Integer, N, Rational, S

from redalg.monoids.laws import DOMAINS, Violation, finite
from redalg.monoids.monoid import Monoid, Parts

DERIVATIVE = "vjp(total, a, g) = g·∂(a ⊕ b ⊕ …)/∂a (derivative)"
DISCRETE = ("count", "natural", "truth")
"""Domains of operands that have no derivative."""
STEP, CLOSE, DIGITS, CASES = Rational(1, 10**20), Rational(1, 10**10), 60, 32
Places = tuple[tuple[Expr, ...], ...]
"""The operands of each place."""


def rule_violation(kind: Monoid, seed: int = 0, cases: int = CASES) -> Violation | None:
    """The first case in which a monoid's rule is no derivative; None if it has no rule."""
    if kind.vjp is None:
        return None
    random = Random(seed)
    for _ in range(cases):
        places = tuple(_operands(kind, random) for _ in range(random.randint(1, 4)))
        weights = [S.Zero if one.hidden or one.dtype else finite(random) for one in kind.results]
        for operand, domain in enumerate(kind.domains):
            found = None if domain in DISCRETE else _violation_at(kind, places, operand, weights)
            if found is not None:
                return found
    return None


def _operands(kind: Monoid, random: Random) -> tuple[Expr, ...]:
    if kind.edges and random.random() < 0.2:
        return random.choice(kind.edges)
    return tuple(DOMAINS[one](random) for one in kind.domains)


def _violation_at(kind: Monoid, places: Places, operand: int, weights: Sequence[Expr]) -> Violation | None:
    """The violation by an operand of the first place, of weighted results."""
    x = places[0][operand]
    others = [tuple(kind.lift(*one, Integer(place + 1))) for place, one in enumerate(places[1:])]

    def element(moved: Expr) -> Parts:
        return tuple(kind.lift(*_with(places[0], operand, moved), S.Zero))

    def result(parts: Parts) -> Expr:
        return sum((one * weight for one, weight in zip(kind.lower(*parts), weights, strict=True) if weight), S.Zero)

    total = reduce(kind.join, others, element(x))
    wanted = _slope(lambda moved: result(reduce(kind.join, others, element(moved))), x)
    counts = [one.integer for one in kind.components]
    below = [S.Zero if count else _slope(partial(_at_part, result, total, place), total[place])
             for place, count in enumerate(counts)]  # fmt: skip
    above = [S.Zero if count else _slope(partial(_part_of, element, place), x)
             for place, count in enumerate(counts)]  # fmt: skip
    if wanted is None or None in below + above or kind.vjp is None:
        return None
    own = kind.vjp(total, element(x), tuple(below))
    found = _number(sum((part * lift for part, lift in zip(own, above, strict=True) if lift), S.Zero))
    if found is not None and abs(found - wanted) <= CLOSE * (1 + abs(wanted)):
        return None
    left = S.NaN if found is None else N(found, 8)
    return Violation(DERIVATIVE, (element(x), *others), (left,), (N(wanted, 8),))


def _at_part(function: Callable[[Parts], Expr], parts: Parts, place: int, value: Expr) -> Expr:
    """A function of components, with another value for one."""
    return function(_with(parts, place, value))


def _part_of(function: Callable[[Expr], Parts], place: int, value: Expr) -> Expr:
    return function(value)[place]


def _with(parts: Parts, place: int, value: Expr) -> Parts:
    return *parts[:place], value, *parts[place + 1 :]


def _slope(function: Callable[[Expr], Expr], x: Expr) -> Expr | None:
    """The derivative of a function at a number, if it has one there."""
    if not x.is_finite:
        return None
    left, here, right = (_number(function(x + step)) for step in (-STEP, S.Zero, STEP))
    if left is None or here is None or right is None:
        return None
    slope = (right - left) / (2 * STEP)
    bend = abs(right - 2 * here + left) / STEP
    return slope if bend <= CLOSE * (1 + abs(slope)) else None


def _number(expr: Expr) -> Expr | None:
    """The value of an expression of numbers; None if it is no real number."""
    value = N(expr, DIGITS)
    return value if value.is_real and value.is_finite else None
