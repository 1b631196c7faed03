"""Monoids that select elements with their places: argmax, argmin and topk.

    argmax   (v, i) ⊕ (w, j)  =  the pair of the larger value; of equal ones that of the lower index
    topk     the k best of both, in order of value and then of index

A NaN precedes every number and the first NaN all others, as in array libraries. A place without an element is
(−∞, −1), which stands behind every element.
"""

from __future__ import annotations

from functools import cmp_to_key, partial
from typing import Any

from sympy import And, Eq, Expr, Integer, Or, S, Tuple

from redalg.monoids.functions import IsNaN, pick
from redalg.monoids.monoid import Component, Monoid, Parts, Result

NOWHERE = Integer(-1)
"""The index of a place without an element."""
PLACED = (Component("value", S.NegativeInfinity), Component("index", NOWHERE, integer=True))


def with_place(x: Expr, n: Expr) -> Parts:
    """x at n ↦ (x, n)."""
    return x, n


def lift_to_list(x: Expr, n: Expr) -> Parts:
    """x at n ↦ ((x,), (n,)), a list of one pair."""
    return Tuple(x), Tuple(n)


def with_place_negated(x: Expr, n: Expr) -> Parts:
    """x at n ↦ (−x, n): the least of x is the greatest of −x."""
    return -x, n


def index_part(_value: Expr, index: Expr) -> Parts:
    """(value, index) ↦ index."""
    return (index,)


def comes_before(a: Expr, b: Expr) -> Any:
    """The condition that index a comes before b or equals it; a place without an element comes last."""
    return And(a >= 0, Or(b < 0, a <= b))


def better(a: Parts, b: Parts) -> Parts:
    """a ⊕ b of argmax."""
    (v, i), (w, j) = a, b
    unordered_v, unordered_w = IsNaN(v), IsNaN(w)
    numbers = Or(v > w, And(Eq(v, w), comes_before(i, j))) if S.NaN not in (v, w) else S.false
    first = Or(
        And(Eq(unordered_v, 1), Or(Eq(unordered_w, 0), comes_before(i, j))),
        And(Eq(unordered_v, 0), Eq(unordered_w, 0), numbers),
    )
    return pick(first, v, w), pick(first, i, j)


def combine_topk(k: int | None, a: Parts, b: Parts) -> Parts:
    """a ⊕ b of topk: the first k pairs of both (all of them when k is None, of which any k are a prefix)."""
    pairs = sorted([*_pairs(a), *_pairs(b)], key=cmp_to_key(_order))[:k]
    return Tuple(*(value for value, _ in pairs)), Tuple(*(index for _, index in pairs))


def _pairs(element: Parts) -> list[tuple[Expr, Expr]]:
    return list(zip(*element, strict=True))


def _order(a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> int:
    """Negative where a stands before b: NaN, then larger values, then lower indices."""
    if a[0] != b[0]:
        first = a[0] is S.NaN or (b[0] is not S.NaN and bool(a[0] > b[0]))
        return -1 if first else 1
    return int(a[1]) - int(b[1])


def topk_monoid(k: int | None) -> Monoid:
    """The k best with their indices, sorted."""
    return Monoid(
        "topk", "topk", tuple(Component(one.name, Tuple(), one.integer) for one in PLACED), partial(combine_topk, k),
        domains=("extended",), lift=lift_to_list, results=(Result("values"), Result("indices", "int64")), exact=True,
    )  # fmt: skip


ARG = (Result("", "int64"),)
EDGES: tuple[Parts, ...] = ((S.NaN,), (S.NegativeInfinity,), (S.Infinity,), (S.Zero,))
ARGMAX = Monoid("argmax", "argmax", PLACED, better, ("extended",), with_place, index_part, ARG, idempotent=True,
                exact=True, edges=EDGES)  # fmt: skip
ARGMIN = Monoid("argmin", "argmin", PLACED, better, ("extended",), with_place_negated, index_part, ARG, idempotent=True,
                exact=True, edges=EDGES)  # fmt: skip
TOPK = topk_monoid(None)
