"""The largest of numbers w·e^u as its weight w and its exponent u: no e^u is computed but beside the other's.

    peak      (w, u) ⊕ (v, t)  =  (w, u) where w·e^(u − m) ≥ v·e^(t − m), else (v, t)      m = max(u, t)
    argpeak   the same with the place of the largest beside it; of equal ones the first, as argmax has it

A number of no weight is (0, −∞), and no number at all (−∞, 0): an exponent is finite or −∞. The largest is w·e^u; of
numbers that all have a factor e^d it is w·e^(u + d).
"""

from __future__ import annotations

from sympy import And, Eq, Expr, Max, Not, Or, S, exp
from sympy.logic.boolalg import Boolean

from redalg.monoids.functions import Infinite, IsNaN, is_greatest, is_least, pick
from redalg.monoids.monoid import Component, Monoid, Parts
from redalg.monoids.selection import NOWHERE, comes_before


def lift_weighted(w: Expr, u: Expr, _n: Expr) -> Parts:
    """(w, u) ↦ itself, of no weight (0, −∞); an exponent that is not finite is in the weight."""
    finite, none = And(Eq(Infinite(u), 0), Eq(IsNaN(u), 0)), Or(Eq(w, 0), is_least(u))
    return pick(finite, w, w * exp(u)), pick(none, S.NegativeInfinity, pick(finite, u, S.Zero))


def combine_peaks(a: Parts, b: Parts) -> Parts:
    """a ⊕ b: the larger of both, NaN before every number."""
    first = is_larger(a, b)
    return tuple(pick(first, one, other) for one, other in zip(a, b, strict=True))


def is_larger(a: Parts, b: Parts) -> Boolean:
    """Tells if a is not smaller than b."""
    (w, _), (v, _) = a, b
    return Or(Eq(IsNaN(w), 1), And(Eq(IsNaN(v), 0), is_above(a, b)))


def is_above(a: Parts, b: Parts) -> Boolean:
    """Tells if one number is not smaller than another. An infinite weight is not multiplied by what may be 0."""
    (w, u), (v, t) = a, b
    m = Max(u, t)
    value, other = w * exp(u - m), v * exp(t - m)
    above = value >= other if S.NaN not in (value, other) else S.false
    plain = And(Not(is_least(w)), Or(is_greatest(w), above))
    return Or(is_least(v), And(Eq(w, 0), Eq(v, 0)), plain)


def first_larger(a: Parts, b: Parts) -> Parts:
    """a ⊕ b of argpeak: the larger, of equal ones that of the lower place; the first NaN before every number."""
    (w, u, i), (v, t, j) = a, b
    unordered_w, unordered_v = IsNaN(w), IsNaN(v)
    above, below = is_above((w, u), (v, t)), is_above((v, t), (w, u))
    first = Or(
        And(Eq(unordered_w, 1), Or(Eq(unordered_v, 0), comes_before(i, j))),
        And(Eq(unordered_w, 0), Eq(unordered_v, 0), above, Or(Not(below), comes_before(i, j))),
    )
    return tuple(pick(first, one, other) for one, other in zip(a, b, strict=True))


def lift_argpeak(w: Expr, u: Expr, n: Expr) -> Parts:
    """(w, u) at n ↦ (w, u, n)."""
    return *lift_weighted(w, u, n), n


def peak_place(_w: Expr, _u: Expr, n: Expr) -> Parts:
    """(w, u, n) ↦ n."""
    return (n,)


def peak_value(w: Expr, u: Expr) -> Parts:
    """(w, u) ↦ w·e^u."""
    return (w * exp(u),)


PARTS = (Component("weight", S.NegativeInfinity), Component("exponent", S.Zero))
DOMAINS = ("finite", "logarithm")
PEAK = Monoid("peak", "max", PARTS, combine_peaks, DOMAINS, lift_weighted, peak_value, idempotent=True)
ARGPEAK = Monoid("argpeak", "argmax", (*PARTS, Component("index", NOWHERE, integer=True)), first_larger, DOMAINS,
                 lift_argpeak, peak_place, idempotent=True)  # fmt: skip
