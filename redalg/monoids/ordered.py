"""Monoids that are associative and not commutative (their pieces are merged in order only): first, last, affine scan.

first     (x, p) ⊕ (y, q)  =  (x, p) where p, else (y, q)          p: whether there is an element
last      (x, p) ⊕ (y, q)  =  (y, q) where q, else (x, p)
affine    (a, b) ⊕ (c, d)  =  (c·a, c·b + d)                        h ↦ a·h + b, and then h ↦ c·h + d
"""

from __future__ import annotations

from sympy import Eq, Expr, S

from redalg.monoids.functions import pick
from redalg.monoids.monoid import Component, Monoid, Parts, Result

FOUND = (Component("value", S.NaN), Component("found", S.Zero, integer=True))


def lift_counted(x: Expr, counts: Expr, _n: Expr) -> Parts:
    """x where it counts ↦ (x, 1); elsewhere the identity."""
    return pick(Eq(counts, 1), x, S.NaN), counts


def value_or_nan(value: Expr, _found: Expr) -> Parts:
    """(value, found) ↦ value: NaN where there was none."""
    return (value,)


def earlier(a: Parts, b: Parts) -> Parts:
    """a ⊕ b of first."""
    return pick(Eq(a[1], 1), a[0], b[0]), pick(Eq(a[1], 1), a[1], b[1])


def later(a: Parts, b: Parts) -> Parts:
    """a ⊕ b of last."""
    return earlier(b, a)


def compose_affine(a: Parts, b: Parts) -> Parts:
    """a ⊕ b of affine maps: b after a."""
    return b[0] * a[0], b[0] * a[1] + b[1]


FIRST = Monoid("first", "first", FOUND, earlier, ("finite", "truth"), lift_counted, value_or_nan, commutative=False,
               idempotent=True, exact=True)  # fmt: skip
LAST = Monoid("last", "last", FOUND, later, ("finite", "truth"), lift_counted, value_or_nan, commutative=False,
              idempotent=True, exact=True)  # fmt: skip
AFFINE = Monoid("affine", "∘", (Component("scale", S.One), Component("shift", S.Zero)), compose_affine,
                ("finite", "finite"), results=(Result("scale"), Result("shift")), commutative=False)  # fmt: skip
