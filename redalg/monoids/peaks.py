"""The largest of numbers w·e^u as its weight w and its exponent u: no e^u is computed but beside the other's.

    peak    (w, u) ⊕ (v, t)  =  (w, u) where w·e^(u − m) ≥ v·e^(t − m), else (v, t)      m = max(u, t)

A number of no weight is (0, −∞), and no number at all (−∞, 0): an exponent is finite or −∞. The largest is w·e^u; of
numbers that all have a factor e^d it is w·e^(u + d).
"""

from __future__ import annotations

from sympy import And, Eq, Expr, Max, Ne, Or, S, exp
from sympy.logic.boolalg import Boolean

from redalg.monoids.functions import IsNaN, pick
from redalg.monoids.monoid import Component, Monoid, Parts


def weighed(w: Expr, u: Expr, _n: Expr) -> Parts:
    """(w, u) ↦ itself, of no weight (0, −∞); an exponent that is not finite is in the weight."""
    above, below = u > S.NegativeInfinity, u < S.Infinity
    none = Or(Eq(w, 0), Eq(u, S.NegativeInfinity))
    return pick(And(above, below), w, w * exp(u)), pick(none, S.NegativeInfinity, pick(below, u, S.Zero))


def larger(a: Parts, b: Parts) -> Parts:
    """a ⊕ b: the larger of both, NaN before every number."""
    first = is_larger(a, b)
    return tuple(pick(first, one, other) for one, other in zip(a, b, strict=True))


def is_larger(a: Parts, b: Parts) -> Boolean:
    """Tells if a is not smaller than b. An infinite weight is not multiplied by what may be 0."""
    (w, u), (v, t) = a, b
    m = Max(u, t)
    value, other = w * exp(u - m), v * exp(t - m)
    above = value >= other if S.NaN not in (value, other) else S.false
    number = And(Ne(w, S.NegativeInfinity), Or(Eq(v, S.NegativeInfinity), Eq(w, S.Infinity), above))
    return Or(Eq(IsNaN(w), 1), And(Eq(IsNaN(v), 0), number))


def value_of(w: Expr, u: Expr) -> Parts:
    """(w, u) ↦ w·e^u."""
    return (w * exp(u),)


PEAK = Monoid(
    "peak", "max", (Component("weight", S.NegativeInfinity), Component("exponent", S.Zero)), larger,
    ("finite", "logarithm"), lift=weighed, lower=value_of, idempotent=True,
)  # fmt: skip
