"""Differences of which one side bounds the other, for every element and every prefix.

    d ≥ u                    of d = Σ u where u ≥ 0, a whole and its part, and of d = max u; d ≥ ±w of d = max |w|,
                             d ≥ v and d ≥ w of d = max of max(v, w); of min alike
    |w| ≥ ±w                 wherever it stands
    c·d^q + r, c·log d + r → c·u^q + r, c·log u + r      to find the sign: where c ≥ 0, and the right-hand side ≥ 0;
                                                         where c ≤ 0, and that is ≤ 0; q > 0, and u ≥ 0 but where q = 1
    |h·w| → h·|w|            to find the sign: where h ≥ 0
    a/h + b → a + b·h        to find the sign: where h ≥ 0

So |x| ≤ √Σx², x/max|x| ≤ 1, exp(x)/Σexp ≤ 1 and x ≤ log Σexp. Where h is 0 or ∞ a/h need
not be a number: a clip of it is none either, but a comparison hides it (`piecewise.relation_truth`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from sympy import Abs, Add, Expr, Max, Min, Mul, Pow, S, exp, expand_mul, log

from redalg.expression import Value
from redalg.expression.contents import elements_of, operations_of

SIZE_LIMIT = 40
"""Operations of a difference beyond which no bound is looked for."""

Sign: TypeAlias = Callable[[Expr], int]
"""1 of what is known to be at least 0, −1 of what is known to be at most 0, else 0."""
Facts: TypeAlias = Mapping[Value, tuple[str, Expr]]


def bounded_sign(difference: Add, facts: Facts, sign: Sign) -> int:
    """The sign of a difference, by bounds: 1 for at least 0, −1 for at most 0, 0 for unknown."""
    if not elements_of(difference) or operations_of(difference) > SIZE_LIMIT:
        return 0
    cleared = without_denominators(Add(*(pull_nonnegative(term, sign) for term in difference.args)), sign)
    if cleared != difference:
        return sign(cleared)
    for term in difference.args:
        rest = difference - term
        for bound, way in bounds_of(term, facts, sign):
            left = expand_mul(rest + bound)
            if way and (left is S.Zero or sign(left) == way):
                return way
    return 0


def pull_nonnegative(term: Expr, sign: Sign) -> Expr:
    """A product with |h·w| as h·|w| for each h that is known to be at least 0."""
    factors = list[Expr]()
    for factor in Mul.make_args(term):
        parts = Mul.make_args(factor.args[0]) if isinstance(factor, Abs) else ()
        up = [one for one in parts if sign(one) == 1]
        factors += [*up, Abs(Mul(*(one for one in parts if one not in up)))] if up else [factor]
    return Mul(*factors)


def without_denominators(difference: Expr, sign: Sign) -> Expr:
    """The difference times the denominators that are known to be at least 0 and hold a value or an element."""
    powers: dict[Expr, Expr] = {}
    for term in difference.args:
        for factor in Mul.make_args(term):
            if factor.is_Pow and factor.exp.is_Rational and factor.exp.is_negative and not factor.base.is_number:
                powers[factor.base] = max(powers.get(factor.base, S.Zero), -factor.exp)
    product: Expr = difference
    for base, power in powers.items():
        if sign(base) == 1:
            product = Add(*(expand_mul(term * base**power) for term in Add.make_args(product)))
    return product


def bounds_of(term: Expr, facts: Facts, sign: Sign) -> Iterator[tuple[Expr, int]]:
    """Bounds of a term: (bound, 1) where it is at least the bound, (bound, −1) where it is at most that."""
    for factor in Mul.make_args(term):
        bounds = list(_of_factor(factor, facts, sign))
        side = sign(term / factor) if bounds else 0
        yield from ((term / factor * bound, side * way) for bound, way in bounds if side)


def _of_factor(factor: Expr, facts: Facts, sign: Sign) -> Iterator[tuple[Expr, int]]:
    if isinstance(factor, Abs):
        yield from ((factor.args[0], 1), (-factor.args[0], 1))
    elif isinstance(factor, Value):
        yield from of_value(factor, facts, sign)
    elif isinstance(factor, log) or (factor.is_Pow and factor.exp.is_Rational and factor.exp.is_positive):
        rises = simplified_log if isinstance(factor, log) else lambda u: nonnegative_power(u, factor.exp)
        inner = factor.args[0]
        bounds = of_value(inner, facts, sign) if isinstance(inner, Value) else iter(())
        yield from ((rises(u), way) for u, way in bounds if way == 1 and sign(u) == 1)


def of_value(value: Value, facts: Facts, sign: Sign) -> Iterator[tuple[Expr, int]]:
    """The bounds of a reduced value by one of its elements."""
    kind, u = facts.get(value, ("", S.NaN))
    if kind == "max":
        further = (u.args[0], -u.args[0]) if isinstance(u, Abs) else u.args if isinstance(u, Max) else ()
        yield from ((one, 1) for one in (u, *further))
    elif kind == "min":
        yield from ((one, -1) for one in (u, *(u.args if isinstance(u, Min) else ())))
    elif kind == "sum" and u is not S.One and (way := sign(u)):
        yield u, way


def nonnegative_power(u: Expr, exponent: Expr) -> Expr:
    """u^q of what is at least 0, (a^2)^q as |a|^2q."""
    if u.is_Pow and u.exp.is_Integer and u.exp.is_even:
        return Pow(Abs(u.base), u.exp * exponent)
    return Pow(u, exponent)


def simplified_log(u: Expr) -> Expr:
    """log u, of exp a as a."""
    result: Expr = u.args[0] if isinstance(u, exp) else log(u)
    return result
