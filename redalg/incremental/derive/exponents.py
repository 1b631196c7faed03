"""Exponents with a rate k, made of scalars, as a factor: terms that cancel are subtracted before they are multiplied.

    exp(k·v)      → exp(|k|·(k < 0 ? −v : v))           of k = 0 exp(1·(k·v)), which 0 times an infinity spoils alike
    k·c − k·d     → k·(c − d)
    |k|·c − k·d   → |k|·(c − (k < 0 ? −d : d))
    Σ exp(λ)·v    → exp(m)·Σ exp(λ − m)·v               m the largest λ; under a division, a root or a logarithm

Exact. A rate is then positive, as a pivot needs that is the maximum of its base; and it is never rounded into one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sympy import Abs, Add, Expr, Gt, Lt, Max, Mul, Ne, S, exp, log

from redalg.expression import Axis, Element, Scalar, Value, Where
from redalg.monoids.functions import is_least


def split_rate(u: Expr, others: Iterable[Expr]) -> tuple[Expr, Expr]:
    """u as k·v, k a positive number or made of scalars and positive.

    A rate of either sign is taken out only if another exponent, of d, has it too: alone, k·v stays as it was written.
    """
    rate = common_rate(u)
    signed = rate.is_extended_positive or rate.is_extended_negative
    if rate is S.One or rate.is_zero or not (signed or any(common_rate(one) == rate for one in others)):
        return S.One, u
    v = Add(*(term / rate for term in Add.make_args(u)))
    if rate.is_extended_positive:
        return rate, v
    if rate.is_extended_negative:
        return -rate, -v
    return magnitude(rate), turn_sign(rate, v)


def magnitude(rate: Expr) -> Expr:
    """|k|, or 1 if k = 0."""
    return Where(Ne(rate, 0), Abs(rate), S.One)


def turn_sign(rate: Expr, v: Expr) -> Expr:
    """v with the sign of the rate k; k·v if the rate is 0 or NaN."""
    number, v = v.as_coeff_Mul()
    return number * Where(Gt(rate, 0), v, Where(Lt(rate, 0), -v, rate * v))


def common_rate(u: Expr) -> Expr:
    """The product of the factors without data that all terms of u share; rationals stay with v, and so do signs."""
    first, *others = ([one for one in Mul.make_args(term) if is_rate(one)] for term in Add.make_args(u))
    return Mul(*(one for one in first if all(one in other for other in others)))


def is_rate(factor: Expr) -> bool:
    """Tell if a factor is an irrational number or made of scalars: a state holds these, and no tensors."""
    return not factor.is_Rational and not factor.atoms(Element, Value, Axis)


def gather_exponent(exponent: Expr) -> Expr:
    """The exponent, with terms that share a rate or its magnitude under one product."""
    if not (exponent.is_Add and exponent.atoms(Scalar)):
        return exponent
    by_rate: dict[Expr, list[tuple[Expr, Expr]]] = {}
    for term in exponent.args:
        rate = Mul(*(one for one in Mul.make_args(term) if is_rate(one)))
        by_rate.setdefault(_plain(rate), []).append((rate, term / rate))
    return Add(*(_together(plain, terms) for plain, terms in by_rate.items()))


def _plain(rate: Expr) -> Expr:
    """The rate with k in place of every magnitude |k|."""
    return Mul(*(one.args[1].args[0] if _is_magnitude(one) else one for one in Mul.make_args(rate)))


def _is_magnitude(rate: Expr) -> bool:
    return isinstance(rate, Where) and isinstance(rate.args[1], Abs) and rate == magnitude(rate.args[1].args[0])


def _together(plain: Expr, terms: list[tuple[Expr, Expr]]) -> Expr:
    if len(terms) == 1 or plain is S.One:
        return Add(*(rate * v for rate, v in terms))
    shared = next((rate for rate, _ in terms if rate != plain), plain)
    content, together = Add(*(v if rate == shared else turn_sign(plain, v) for rate, v in terms)).as_content_primitive()
    return Mul(content, shared, together, evaluate=not together.is_Add)


def with_exponents(scale: Expr, v: Expr) -> tuple[Expr, Expr]:
    """exp(λ)·v with the exponentials among the factors of v joined to λ."""
    parts = [one for one in Mul.make_args(v) if isinstance(one, exp)]
    return Add(scale, *(one.args[0] for one in parts)), Mul(*(one for one in Mul.make_args(v) if one not in parts))


def largest_of(exponents: Iterable[Expr]) -> Expr:
    """The largest exponent; 0 if all are −∞, so that the terms that they weigh are 0."""
    distinct = list(dict.fromkeys(exponents))
    largest = Max(*distinct)
    if any(one.is_number for one in distinct):
        return largest
    return Where(is_least(largest), S.Zero, largest)


def power_of_scales(exponents: Iterable[Expr]) -> Expr | None:
    """The largest power of magnitudes in exponents Σ k·log m, 0 with none; None if an exponent is anything else."""
    largest: Expr = S.Zero
    for exponent in exponents:
        total: Expr = S.Zero
        for term in Add.make_args(exponent):
            power, rest = term.as_coeff_Mul()
            if not (isinstance(rest, log) and isinstance(rest.args[0], Value) and power.is_Rational) and term != 0:
                return None
            total += abs(power)
        largest = Max(largest, total)
    return largest


def as_shares(
    parts: Iterable[tuple[Expr, Expr]], power: Expr, named: Callable[[str, Expr], Expr], bounded: set[Value]
) -> tuple[Expr, Expr]:
    """Σ m^k·v of pairs (k·log m, v) as h and Σ ±(t/h)^p, t = |m^k·v|^(1/p), p the power; `bounded` gets the values t/h.

    h is the largest t, so that m^k·v is never computed and no term vanishes beside a scale that is large alone.
    """
    pairs = list(parts)
    sizes = [named("size", exp(scale / power) * Abs(v) ** (1 / power)) for scale, v in pairs]
    largest = named("largest", Max(*sizes))
    unit = named("unit", Where(Gt(largest, 0), largest, S.One))
    shares = [named("share", size / unit) for size in sizes]
    terms = (Where(Lt(v, 0), -(share**power), share**power) for (_, v), share in zip(pairs, shares, strict=True))
    bounded.update(one for one in shares if isinstance(one, Value))
    return unit, Add(*terms)
