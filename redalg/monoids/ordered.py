"""Monoids of what stands in an order: first, last and affine scans, whose pieces are merged in order only.

first     (x, p) ⊕ (y, q)  =  (x, p) where p, else (y, q)          p: whether there is an element
last      (x, p) ⊕ (y, q)  =  (y, q) where q, else (x, p)
affine    (a, b) ⊕ (c, d)  =  (c·a, c·b + d)                        h ↦ a·h + b, and then h ↦ c·h + d
affine_tangent    affine, with the tangents of both parts by the rule of products

The places of the first and the last element are integers, −1 of none, and commute:
first_place    m ⊕ n  =  min(m, n) of those that are no −1
last_place     m ⊕ n  =  max(m, n)
"""

from __future__ import annotations

from sympy import Eq, Expr, Max, Min, S

from redalg.monoids.functions import pick
from redalg.monoids.monoid import Component, Monoid, Parts, Result
from redalg.monoids.selection import NOWHERE

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


def place_if_counted(counts: Expr, n: Expr) -> Parts:
    """n where it counts; elsewhere the identity."""
    return (pick(Eq(counts, 1), n, NOWHERE),)


def earlier_place(a: Parts, b: Parts) -> Parts:
    """a ⊕ b of first_place."""
    return (pick(a[0] < 0, b[0], pick(b[0] < 0, a[0], Min(a[0], b[0]))),)


def later_place(a: Parts, b: Parts) -> Parts:
    """a ⊕ b of last_place."""
    return (Max(a[0], b[0]),)


def compose_affine(a: Parts, b: Parts) -> Parts:
    """a ⊕ b of affine maps: b after a."""
    return b[0] * a[0], b[0] * a[1] + b[1]


def compose_tangents(a: Parts, b: Parts) -> Parts:
    """a ⊕ b of affine maps and their tangents."""
    tangents = b[2] * a[0] + b[0] * a[2], b[2] * a[1] + b[0] * a[3] + b[3]
    return *compose_affine(a[:2], b[:2]), *tangents


FIRST = Monoid("first", "first", FOUND, earlier, ("finite", "truth"), lift_counted, value_or_nan, commutative=False,
               idempotent=True, exact=True)  # fmt: skip
LAST = Monoid("last", "last", FOUND, later, ("finite", "truth"), lift_counted, value_or_nan, commutative=False,
              idempotent=True, exact=True)  # fmt: skip
PLACE, INDEX = (Component("place", NOWHERE, integer=True),), (Result("", "int64"),)
FIRST_PLACE = Monoid("first_place", "min", PLACE, earlier_place, ("truth",), place_if_counted, results=INDEX,
                     idempotent=True, exact=True)  # fmt: skip
LAST_PLACE = Monoid("last_place", "max", PLACE, later_place, ("truth",), place_if_counted, results=INDEX,
                    idempotent=True, exact=True)  # fmt: skip
AFFINE = Monoid("affine", "∘", (Component("scale", S.One), Component("shift", S.Zero)), compose_affine,
                ("finite", "finite"), results=(Result("scale"), Result("shift")), commutative=False)  # fmt: skip
AFFINE_TANGENT = Monoid(
    "affine_tangent", "∘",
    (*AFFINE.components, Component("scale_tangent", S.Zero), Component("shift_tangent", S.Zero)), compose_tangents,
    ("finite",) * 4, results=(*AFFINE.results, Result("scale_tangent"), Result("shift_tangent")), commutative=False,
)  # fmt: skip
