"""Rewrites of extrema against what NumPy says of every element: empty rows, branches, any chunking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from sympy import Abs, Expr, Max, Min, exp, oo

import redalg as ra
from redalg.expression import Where

Rows = np.ndarray
Value = Callable[[Rows, Rows, Rows], Rows]
"""φ of x, y and v, elementwise; v = mean y is a column."""

b, n = ra.axes("b n")
x, y = ra.tensors("x[b,n] y[b,n]")
V = ra.mean(y, n)
SHORT = n < b
"""Row 0 has no element that counts, row 1 has one, and so on."""

RISING: list[tuple[Expr, Value]] = [
    (exp(x - V), lambda x, y, v: np.exp(x - v)),
    (3 * x + V**2, lambda x, y, v: 3 * x + v**2),
    (x * exp(V), lambda x, y, v: x * np.exp(v)),
    ((x + V) ** 3, lambda x, y, v: (x + v) ** 3),
]
FALLING: list[tuple[Expr, Value]] = [
    (V - x, lambda x, y, v: v - x),
    (exp(-2 * x) * Abs(V), lambda x, y, v: np.exp(-2 * x) * np.abs(v)),
]
CONVEX: list[tuple[Expr, Value]] = [
    (Abs(x - V), lambda x, y, v: np.abs(x - v)),
    ((x - V) ** 2, lambda x, y, v: (x - v) ** 2),
    (x * V, lambda x, y, v: x * v),
    (Max(x - V, 2 * V - 3 * x), lambda x, y, v: np.maximum(x - v, 2 * v - 3 * x)),
]
LATTICE: list[tuple[Expr, Value]] = [
    (Max(x + V, V - y), lambda x, y, v: np.maximum(x + v, v - y)),
    (Max(x * exp(V), Abs(y - V), V), lambda x, y, v: np.maximum(np.maximum(x * np.exp(v), np.abs(y - v)), v)),
]
BRANCHES: list[tuple[Expr, Value]] = [
    (ra.where(x > 0, (x - V) ** 2, y + V), lambda x, y, v: np.where(x > 0, (x - v) ** 2, y + v)),
    (ra.where(y < x, V - x, -3 + V), lambda x, y, v: np.where(y < x, v - x, v - 3)),
    (ra.where(V > 0, x + V, V - x), lambda x, y, v: np.where(v > 0, x + v, v - x)),
]
INWARD: list[tuple[Expr, Value]] = [
    (2 * Max(x + V, V - y) - V, lambda x, y, v: 2 * np.maximum(x + v, v - y) - v),
    (-Min(x + V, V - y), lambda x, y, v: -np.minimum(x + v, v - y)),
    (Abs(V) * ra.where(x > 0, (x - V) ** 2, y + V), lambda x, y, v: np.abs(v) * np.where(x > 0, (x - v) ** 2, y + v)),
]
SCALED: list[tuple[Expr, Value]] = [
    ((x + y**2) * exp(V) + V, lambda x, y, v: (x + y**2) * np.exp(v) + v),
    ((x * y - y) * Abs(V), lambda x, y, v: (x * y - y) * np.abs(v)),
]
SELECTED: list[tuple[Expr, Value]] = [
    (exp(x - V), lambda x, y, v: np.exp(x - v)),
    (3 * x + V, lambda x, y, v: 3 * x + v),
]


def rows() -> Iterator[tuple[Rows, Rows]]:
    """Values of both signs, of one sign, ties, and far from 0."""
    rng = np.random.default_rng(0)
    yield rng.standard_normal((4, 7)), rng.standard_normal((4, 7))
    yield np.abs(rng.standard_normal((4, 7))) + 0.1, -np.abs(rng.standard_normal((4, 7)))
    yield -np.abs(rng.standard_normal((4, 7))) - 0.1, rng.standard_normal((4, 7))
    yield rng.integers(-2, 3, (4, 7)).astype(float), rng.integers(-2, 3, (4, 7)) + 0.5
    yield rng.standard_normal((4, 7)) + 30, rng.standard_normal((4, 7))


def extrema_are(terms: list[tuple[Expr, Value]]) -> None:
    """max of each term and min of its negative, over all the elements and over few or none."""
    for term, phi in terms:
        for made, empty, reduce in (
            (ra.max(term, n), False, np.max),
            (ra.min(opposite(term), n), False, np.min),
            (ra.max(ra.where(SHORT, term, -oo), n), True, np.max),
            (ra.min(ra.where(SHORT, opposite(term), oo), n), True, np.min),
        ):
            fused, sign = ra.fuse(made), 1 if reduce is np.max else -1
            for of_x, of_y in rows():
                every = sign * phi(of_x, of_y, of_y.mean(1, keepdims=True))
                counts = np.tri(4, 7, -1, dtype=bool) if empty else np.ones((4, 7), dtype=bool)
                wanted = reduce(np.where(counts, every, -sign * np.inf), axis=1)
                for got in (fused(x=of_x, y=of_y, backend="numpy"), merged(fused, of_x, of_y)):
                    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12, err_msg=str(made))


def opposite(term: Expr) -> Expr:
    """−term, the minus inside."""
    if isinstance(term, Max):
        return Min(*(-arg for arg in term.args))
    return ra.where(term.args[0], *map(opposite, term.args[1:])) if isinstance(term, Where) else -term


def merged(fused: ra.Fused, of_x: Rows, of_y: Rows) -> Rows:
    """The same from pieces."""
    parts = [
        fused.leaf({"x": of_x[:, start:end], "y": of_y[:, start:end]}, start={n: start})
        for start, end in pairwise((0, 1, 3, 7))
    ]
    made: Rows = fused.finish(fused.merge(parts[0], fused.merge(parts[1], parts[2])))
    return made


def selections_are(terms: list[tuple[Expr, Value]]) -> None:
    """Which elements are selected, ties to the lowest index, and their values."""
    place = ra.axis("j", size=3)
    for term, phi in terms:
        values, indices = ra.topk(term, n, place)
        made = ra.fuse({"best": (ra.argmax(term, n), "b"), "least": (ra.argmin(term, n), "b"),
                        "values": (values, "b j"), "indices": (indices, "b j")})  # fmt: skip
        for of_x, of_y in rows():
            every = phi(of_x, of_y, of_y.mean(1, keepdims=True))
            order = np.argsort(-of_x, axis=1, kind="stable")[:, :3]  # φ rises: of x, so that rounding makes no ties
            got = made(x=of_x, y=of_y, backend="numpy")
            np.testing.assert_array_equal(got.best, order[:, 0])
            np.testing.assert_array_equal(got.least, np.argmin(of_x, axis=1))
            np.testing.assert_array_equal(got.indices, order)
            np.testing.assert_allclose(got.values, np.take_along_axis(every, order, axis=1), rtol=1e-12)
