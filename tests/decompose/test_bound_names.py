"""Names of bound axes mean nothing: an axis bound twice, one within the other, is two axes.

The results are judged by `tests/oracle.py`, which evaluates what was written.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from sympy import Expr, tanh

import redalg as ra
from redalg.errors import ExpressionError
from redalg.expression import Axis
from redalg.expression.contents import free_axes
from redalg.gradient.stage import names_with_sizes
from tests.oracle import Oracle

NAMES = i, j, k = ra.axes("i j k")
SIZE = 5
x, y, w = map(ra.Tensor, "xyw")
ELEMENTS: tuple[Callable[[Any, Any], Expr], ...] = (
    lambda p, q: x[p], lambda p, q: y[p], lambda p, q: abs(x[p] - x[q]), lambda p, q: x[p] * y[q],
    lambda p, q: w[p, q] if p != q else x[p], lambda p, q: w[q, p] if p != q else y[p],
)  # fmt: skip
BOTH: tuple[Callable[[Expr, Expr], Expr], ...] = (
    lambda u, v: u + v, lambda u, v: u - v, lambda u, v: u * v, lambda u, v: (u - v) ** 2, lambda u, v: tanh(u) * v,
)  # fmt: skip

Twice = tuple[Any, Any]
"""An axis or an expression: under few names, one within the other, and under names that are all apart."""


def element(rng: random.Random, axis: Axis, scope: Mapping[Axis, Axis]) -> Twice:
    """An element along an axis, or of a pair that has it; the scope gives every visible name that of its own."""
    make, other = rng.choice(ELEMENTS), rng.choice([*scope])
    return make(axis, other), make(scope[axis], scope[other])


def reduction(rng: random.Random, depth: int, scope: Mapping[Axis, Axis]) -> Twice:
    """A reduction of a random term, whose axis may have the name of one outside."""
    axis, own = rng.choice(NAMES), ra.axes(f"n{rng.getrandbits(40)}")
    inside = {**scope, axis: own}
    term = element(rng, axis, inside)
    for _ in range(rng.randint(0, 2)):
        deeper = depth and rng.random() < 0.8
        other = reduction(rng, depth - 1, inside) if deeper else element(rng, axis, inside)
        combine = rng.choice(BOTH)
        term = combine(term[0], other[0]), combine(term[1], other[1])
    reduce = rng.choice([ra.sum, ra.sum, ra.mean, ra.max])
    return reduce(term[0], axis), reduce(term[1], own)


def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": rng.uniform(-2, 2, SIZE), "y": rng.uniform(-2, 2, SIZE), "w": rng.uniform(-2, 2, (SIZE, SIZE))}


def sizes_of(fused: ra.Fused) -> dict[str, int]:
    """The size of every axis, for lengths that no tensor has."""
    return dict.fromkeys(names_with_sizes(fused), SIZE)


def result(expr: Expr, axes: str) -> np.ndarray | None:
    """The fused result; None if the expression is refused."""
    try:
        verdict = ra.analyze(expr, axes=axes)
    except ExpressionError:
        return None
    if not hasattr(verdict, "fused"):
        return None
    fused = verdict.fused
    given = {name: one for name, one in data().items() if name in fused.cascade.inputs()}
    return np.asarray(fused(**given, sizes=sizes_of(fused)))


@pytest.mark.parametrize("block", [*range(4), *(pytest.param(one, marks=pytest.mark.slow) for one in range(4, 40))])
def test_a_yes_is_the_definition_whatever_the_names(block: int) -> None:
    """Nested reductions, whose axes bear the names of axes outside, and those whose names are all apart."""
    assert sum(map(is_fused, range(10 * block, 10 * block + 10))) > 3


def is_fused(seed: int) -> bool:
    """Tell if a random expression is fused; it and the same with names apart are held to the definition."""
    rng = random.Random(seed)
    return check(*reduction(rng, 2, rng.choice([{}, {i: i}])))


def check(*spellings: Expr) -> bool:
    """Hold every spelling that is fused to the definition of the first; tell if that one is."""
    axes = " ".join(map(str, free_axes(spellings[0])))
    want, bound = Oracle(data(), {}, dict.fromkeys("ijk", SIZE)).output(spellings[0], axes)
    found = [result(one, axes) for one in spellings]
    for one in found:
        assert one is None or np.abs(one - want).max() <= 1e-14 + 1e-15 * np.max(bound), spellings
    return found[0] is not None


DISTANCES, OTHERS = abs(x[i] - x[j]), abs(y[i] - y[j])


def centred(distances: Expr) -> Expr:
    """Distances without the means of rows and columns: Székely, Rizzo and Bakirov 2007, equation 2.8."""
    return distances - ra.mean(distances, j) - ra.mean(distances, i) + ra.mean(ra.mean(distances, j), i)


CAPTURED = {
    "total within a row": ra.mean((DISTANCES + ra.mean(ra.mean(DISTANCES, j), i)) * y[j], j),
    "total within a total": ra.sum(y[j] * ra.sum(ra.sum(x[k] * x[j], j), k), j),
    "means of one axis": ra.mean(ra.mean((DISTANCES - ra.mean(DISTANCES, i)) * OTHERS, j), i),
    "distance covariance": ra.mean(ra.mean(centred(DISTANCES) * centred(OTHERS), j), i),
    "distance covariance at once": ra.mean(centred(DISTANCES) * centred(OTHERS), [i, j]),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_what_is_renamed_captures_no_name_within(name: str) -> None:
    """Σ_j Σ_k (… Σ_j …) is streamed along one j; the other takes the name k, and never that of the first."""
    assert check(CAPTURED[name])
