"""Monoids of the elements that attain a maximum, and of those that do not: a commutative ⊕ joins their values w.

    ⊕_at_max        (m, s) ⊕ (n, t)  =  (m, s) where m > n, (n, t) where n > m, (m, s ⊕ t) where they are equal
    ⊕_below_max     the same, with ⊕ of w over all other elements beside it
    at_argmax       (m, i, w) ⊕ (n, j, v)  =  that of the larger value; of equal ones that of the lower index
    ⊕_beside_argmax the same, with ⊕ of w over all other elements beside it

⊕ is sum, max or min. If a NaN is among the elements, the value at or below a maximum is NaN. argmax takes the first
NaN for the largest.
"""

from __future__ import annotations

from functools import partial

from sympy import And, Eq, Expr, Max, Or, S
from sympy.logic.boolalg import Boolean

from redalg.monoids.functions import IsNaN, pick
from redalg.monoids.monoid import Component, Monoid, Parts
from redalg.monoids.scalar import MAX, MIN, SUM
from redalg.monoids.selection import NOWHERE, comes_before

OF = (SUM, MAX, MIN)
"""The ⊕ of which there is a monoid of each kind, named after it."""
LARGEST = Component("max", S.NegativeInfinity)


def at_max(plus: Monoid, a: Parts, b: Parts) -> Parts:
    """a ⊕ b of the elements that attain the maximum."""
    (m, s), (n, t) = a, b
    return Max(m, n), pick(m > n, s, pick(n > m, t, plus.combine(s, t)))


def below_max(plus: Monoid, a: Parts, b: Parts) -> Parts:
    """a ⊕ b of the elements that do not: those that attained the smaller maximum are below the larger one."""
    (m, s, below), (n, t, under) = a, b
    total = plus.combine(below, under)
    largest, at = at_max(plus, (m, s), (n, t))
    return largest, at, pick(m > n, plus.combine(total, t), pick(n > m, plus.combine(total, s), total))


def precedes(a: Parts, b: Parts) -> Boolean:
    """Tell if a precedes b in argmax's order; of one place, which two elements never share, the larger w precedes."""
    (m, i, w), (n, j, v) = a, b
    unordered_m, unordered_n = IsNaN(m), IsNaN(n)
    earlier = Or(And(Eq(i, j), w >= v), And(comes_before(i, j), Or(i < j, j < 0)))
    numbers = Or(m > n, And(Eq(m, n), earlier)) if S.NaN not in (m, n) else S.false
    return Or(
        And(Eq(unordered_m, 1), Or(Eq(unordered_n, 0), earlier)),
        And(Eq(unordered_m, 0), Eq(unordered_n, 0), numbers),
    )


def at_argmax(a: Parts, b: Parts) -> Parts:
    """a ⊕ b of argmax: the one that comes first."""
    first = precedes(a, b)
    return tuple(pick(first, one, other) for one, other in zip(a, b, strict=True))


def beside_argmax(plus: Monoid, a: Parts, b: Parts) -> Parts:
    """a ⊕ b of all others: the one that does not come first joins them."""
    first = precedes(a[:3], b[:3])
    others = plus.combine(plus.combine(a[3], b[3]), pick(first, b[2], a[2]))
    return *(pick(first, one, other) for one, other in zip(a[:3], b[:3], strict=True)), others


def lift_attained(rest: Expr, x: Expr, w: Expr, _n: Expr) -> Parts:
    """(x, w) ↦ (x, w, rest): one element attains its maximum."""
    return x, w, rest


def insert_place(x: Expr, w: Expr, n: Expr) -> Parts:
    """(x, w) at n ↦ (x, n, w)."""
    return x, n, w


def placed_alone(rest: Expr, x: Expr, w: Expr, n: Expr) -> Parts:
    """(x, w) at n ↦ (x, n, w, rest)."""
    return x, n, w, rest


def beside_nan(m: Expr, *parts: Expr) -> Parts:
    """The last part, or NaN if the maximum is NaN."""
    return (pick(Eq(IsNaN(m), 1), S.NaN, parts[-1]),)


def last_part(*parts: Expr) -> Parts:
    """The last part."""
    return (parts[-1],)


def _domain(plus: Monoid) -> tuple[str, str]:
    return "extended", "finite" if plus is SUM else "extended"


def _at(plus: Monoid) -> Component:
    return Component("sum" if plus is SUM else "at", plus.identity)


def _at_max(plus: Monoid) -> Monoid:
    parts = (LARGEST, _at(plus))
    return Monoid(f"{plus.name}_at_max", "⊕", parts, partial(at_max, plus), _domain(plus), lower=beside_nan,
                  idempotent=plus.idempotent, exact=plus.exact)  # fmt: skip


def _below_max(plus: Monoid) -> Monoid:
    parts = (LARGEST, _at(plus), Component("below", plus.identity))
    return Monoid(f"{plus.name}_below_max", "⊕", parts, partial(below_max, plus), _domain(plus),
                  partial(lift_attained, plus.identity), beside_nan, idempotent=plus.idempotent,
                  exact=plus.exact)  # fmt: skip


def _beside_argmax(plus: Monoid) -> Monoid:
    parts = (*PLACES, _at(plus), Component("beside", plus.identity))
    return Monoid(f"{plus.name}_beside_argmax", "⊕", parts, partial(beside_argmax, plus), _domain(plus),
                  partial(placed_alone, plus.identity), last_part, exact=plus.exact)  # fmt: skip


PLACES = (Component("value", S.NegativeInfinity), Component("index", NOWHERE, integer=True))
AT_ARGMAX = Monoid("at_argmax", "⊕", (*PLACES, Component("at", S.Zero)), at_argmax, ("extended", "finite"),
                   insert_place, last_part, idempotent=True, exact=True)  # fmt: skip
ATTAINED = (*map(_at_max, OF), *map(_below_max, OF), AT_ARGMAX, *map(_beside_argmax, OF))
