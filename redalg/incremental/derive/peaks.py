"""Extrema of exp(u)·w beside exponentials of d: held as the weight and the exponent of the largest (`monoids.peaks`).

    max_l exp(u)·w       → (w*, u*), the peak                              min_l: that of −w, and its negative
    φ(max_l exp(u)·w)    → φ with exp(u*)·exp(v(d)) = exp(u* + v(d))       so that no exp(u) is computed alone
    where(c, a, b)       → (where(c, w_a, w_b), where(c, u_a, u_b))        of no element (−∞, 0), of 0 (0, −∞)

Exact, and as accurate as the definition: u* is an element's own exponent, and u* + v(d) is rounded once.
"""

from __future__ import annotations

from sympy import Add, And, Expr, Mul, Not, S, Tuple, exp, expand_mul

from redalg.decompose.extrema.extremal import Slot
from redalg.decompose.separate.plain import is_number
from redalg.expression import Value, Where
from redalg.expression.contents import elements_of, is_indicator, values_of
from redalg.monoids.functions import is_least

Pair = tuple[Expr, Expr]
"""A weight and an exponent."""


def peak_of(kind: str, term: Expr, final: Expr) -> Tuple | None:
    """The weight and exponent of a term's peak; None if the term or `final` has no exponential to join."""
    if not any(elements_of(one) for one in term.atoms(exp)) or not any(map(values_of, final.atoms(exp))):
        return None
    weight, exponent = _weight_and_exponent(term)
    return Tuple(-weight if kind in ("min", "argmin") else weight, exponent) if elements_of(exponent) else None


def _weight_and_exponent(term: Expr) -> Pair:
    """(w, u) with w·exp(u) the term; w is infinite if the term is the identity of an extremum."""
    if term in (S.Infinity, S.NegativeInfinity):
        return term, S.Zero
    if term is S.Zero:
        return S.Zero, S.NegativeInfinity
    if isinstance(term, Where):
        (w, u), (v, t) = map(_weight_and_exponent, term.args[1:])
        return _choice(term, w, v), _choice(term, u, t)
    if isinstance(term, Add):
        return _factor_exponential(term)
    masks = [one for one in Mul.make_args(term) if is_indicator(one)]
    if masks:
        rest = Mul(*(one for one in Mul.make_args(term) if one is not masks[0]))
        return _weight_and_exponent(masks[0].func(masks[0].args[0], *(rest * one for one in masks[0].args[1:])))
    exponents = [one for one in Mul.make_args(term) if isinstance(one, exp)]
    return Mul(*(one for one in Mul.make_args(term) if one not in exponents)), Add(*(one.args[0] for one in exponents))


def _choice(node: Expr, a: Expr, b: Expr) -> Expr:
    """One of two parts, by the condition of a choice."""
    return a if a == b else Where(node.args[0], a, b)


def _factor_exponential(term: Add) -> Pair:
    """A sum as (w, u) with the exponential that all terms share; (term, 0) if they share none."""
    pairs = [_weight_and_exponent(one) for one in term.args]
    exponent = pairs[0][1]
    alike = all(one == exponent for _, one in pairs) and not any(isinstance(one, Where) for one in term.args)
    return (Add(*(w for w, _ in pairs)), exponent) if alike else (term, S.Zero)


def about_peak(final: Expr, slot: Slot, weight: Value, exponent: Value) -> Expr:
    """`final` with the extremum as a weight times exp(exponent + v(d))."""
    sign = S.One if slot.kind == "max" else S.NegativeOne

    def visit(node: Expr) -> Expr:
        if node == slot.symbol:
            return sign * _peak_power(weight, exponent, S.Zero, S.One)
        if not node.has(slot.symbol):
            return node
        powers = [one for one in node.args if node.is_Mul and one.as_base_exp()[0] == slot.symbol]
        if not powers:
            return node.func(*map(visit, node.args))
        if any(one.is_Add and one.has(exp) for one in node.args):
            return visit(_spread(node))
        power = Add(*(one.as_base_exp()[1] for one in powers))
        scales = [one for one in node.args if isinstance(one, exp)]
        rest = (visit(one) for one in node.args if one not in (*powers, *scales))
        whole = _peak_power(weight, exponent, Add(*(one.args[0] for one in scales)), power)
        return Mul(sign**power, *rest, whole)

    return visit(final)


def _spread(node: Mul) -> Expr:
    """The product with the exponential that all terms of a sum share moved out of it; else written out."""
    result = node
    for factor in node.args:
        if factor.is_Add and factor.has(exp):
            weight, exponent = _factor_exponential(factor)
            result = result.xreplace({factor: weight * exp(exponent)})
    return expand_mul(node) if result == node else result


def _peak_power(weight: Value, exponent: Value, v: Expr, power: Expr) -> Expr:
    """(w·e^u)^k·e^v; 0 if v is −∞, or if u is −∞ and v is any number; without elements w^k."""
    known = is_number(v) if values_of(v) else S.true
    least = is_least(weight)
    factor = Where(And(is_least(exponent), known), S.Zero, exp(power * exponent + v))
    whole = weight**power * Where(least, S.One, factor)
    return Where(And(is_least(v), Not(least)), S.Zero, whole) if values_of(v) else whole
