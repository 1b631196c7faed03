"""Reductions over other axes that stand in a reduction: where they do so linearly, and where not.

The results are judged by `tests/oracle.py`, which evaluates what was written.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from sympy import Abs, Dummy, Expr, Max, Rational, S, cos, exp, expand, floor, sign, sqrt, tanh

import redalg as ra
from redalg.decompose.parse.parse import linear_part
from redalg.errors import ExpressionError
from redalg.verdicts import Refused, Undecided
from tests.cases.corpus import Runner
from tests.oracle import Oracle

n, e = ra.axes("n e")
x, y, g, r = ra.tensors("x[n] y[n] g[n,e] r[n,e]")
TOTAL = ra.sum(ra.max(g, n), e)
INNER = ra.sum(r * ra.mean(g, n), e)
"""Of values alone, and of values and data."""
SIZES = {"n": 9, "e": 2}

UNARY: tuple[Callable[[Expr], Expr], ...] = (
    tanh, Abs, sign, floor, cos, lambda u: u**2, lambda u: exp(u / 8), lambda u: sqrt(1 + u**2), lambda u: Max(u, 0),
    lambda u: -u, lambda u: u + 1, lambda u: 3 * u, lambda u: u / (1 + y**2), lambda u: ra.where(y > 0, u, x),
    lambda u: ra.where(x < u, x, y), lambda u: ra.where(u > 0, x, 0), lambda u: ra.let("named", u),
)  # fmt: skip
BINARY: tuple[Callable[[Expr, Expr], Expr], ...] = (
    lambda u, w: u + w,
    lambda u, w: u * w,
    lambda u, w: u - w,
    lambda u, w: ra.where(u < w, u, w),
    lambda u, w: ra.where(y > 0, u, w),
)
OUTER: tuple[Callable[[Expr], Expr], ...] = (
    lambda u: ra.sum(u, n), lambda u: ra.sum(u, n), lambda u: ra.mean(u * x, n), lambda u: ra.max(u, n),
    lambda u: ra.prod(1 + tanh(u) / 8, n), lambda u: ra.first(u, n), lambda u: ra.last(u, n),
    lambda u: ra.affine(tanh(x) / 2, u, n)[1], lambda u: ra.sum_at_max(x, u, n), lambda u: ra.argmax(u, n),
)  # fmt: skip


def function(rng: random.Random, depth: int, leaves: tuple[Expr, ...]) -> Expr:
    """A random function of leaves."""
    if depth == 0:
        return rng.choice(leaves)
    if rng.random() < 0.5:
        return rng.choice(UNARY)(function(rng, depth - 1, leaves))
    return rng.choice(BINARY)(function(rng, depth - 1, leaves), function(rng, depth - 1, leaves))


def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"x": ("n",), "y": ("n",), "g": ("n", "e"), "r": ("n", "e")}
    return {name: rng.uniform(-2, 2, [SIZES[axis] for axis in axes]) for name, axes in shapes.items()}


def test_a_coefficient_is_one() -> None:
    """node(hole) − node(0) − A·hole is 0, and the hole stands in no condition, wherever A is found."""
    assert sum(map(has_coefficient, range(300))) > 20


def has_coefficient(seed: int) -> bool:
    hole = Dummy("hole", extended_real=True)
    node = function(random.Random(seed), 3, (hole, x, y))
    found = linear_part(node, hole, S.One)
    if found is None:
        return False
    assert not found.has(hole)
    rest = node - node.xreplace({hole: 0}) - found * hole
    values = {x: 0.75, y: -0.5}
    for at in (-3.0, -0.25, 0.5, 4.0):
        assert abs(float(expand(rest.doit()).xreplace({**values, hole: at}))) < 1e-12
    return node.has(hole)


ROWS = ra.sum(x * ra.sum(ra.sum(g, n), e), n)
MASKED = {
    "a factor": ra.where(y > 0, x * ROWS, 0),
    "beside another term": ra.where(y > 0, x * (ROWS + 1), 0),
    "in both branches": ra.where(y > 0, x * ROWS, ra.where(y < 0, 0, ROWS)),
}


@pytest.mark.parametrize("hidden", [np.nan, np.inf])
@pytest.mark.parametrize("name", MASKED)
def test_a_mask_hides_an_inner_sum_that_moves_out(name: str, hidden: float) -> None:
    """Σ_n where(c, x·Σ_e R, 0) → Σ_e Σ_n where(c, x·R, 0): where no element counts, R is not multiplied by 0."""
    fused = ra.fuse(ra.sum(MASKED[name], n))
    values = {"x": np.ones(4), "g": np.full((4, 2), hidden)}
    assert fused(y=np.full(4, -1.0), **values) == 0
    assert not np.isfinite(fused(y=np.full(4, 1.0), **values))


@pytest.mark.parametrize("block", [*range(5), *(pytest.param(one, marks=pytest.mark.slow) for one in range(5, 40))])
def test_a_yes_is_the_definition(block: int) -> None:
    """Random functions of inner reductions, under reductions of every kind."""
    for seed in range(20 * block, 20 * block + 20):
        check_yes(seed)


def check_yes(seed: int) -> None:
    rng = random.Random(seed)
    expr = rng.choice(OUTER)(function(rng, rng.randint(1, 3), (TOTAL, INNER, TOTAL, x, y)))
    try:
        verdict = ra.analyze(expr)
    except ExpressionError:
        return
    if not hasattr(verdict, "fused"):
        assert verdict.reason
        return
    want, bound = Oracle(data(), {}, SIZES).output(expr, "")
    runner = Runner(verdict.fused, data(), SIZES)
    ordered = not all(one.monoid.commutative for one in verdict.fused.cascade.reductions)
    for got in (runner.call("numpy"), runner.call("torch"), runner.random(seed, 3, ordered=ordered)):
        assert np.abs(got["out"] - want) <= 1e-14 + 1e-15 * bound


MEANS = ra.sum(ra.mean(g, n), e)


@pytest.mark.parametrize("inner", [TOTAL, MEANS], ids=str)
@pytest.mark.parametrize(
    "spelling",
    [
        lambda inner: ra.sum(ra.where(x < inner, x, 0), n),
        lambda inner: ra.sum(x * ra.where(x < inner, 1, 0), n),
        lambda inner: ra.mean(y * ra.where(inner > x, x, 1), n),
        lambda inner: ra.prod(ra.where(x < inner, 1 + x, 1), n),
    ],
)
def test_a_threshold_of_an_inner_reduction_is_no_yes(spelling: Callable[[Expr], Expr], inner: Expr) -> None:
    verdict = ra.analyze(spelling(inner))
    assert isinstance(verdict, Refused)
    assert verdict.certificate
    assert "threshold moves with" in verdict.reason


def test_a_function_of_an_inner_reduction_is_a_function_of_a_value() -> None:
    fused = ra.fuse(ra.sum(tanh(TOTAL) * x, n))
    given = {"x": np.array([1.0, 2, 3]), "g": np.array([[5.0, 1], [5, 1.5], [4, 1]])}
    assert fused(**given) == pytest.approx(6 * np.tanh(6.5), rel=1e-15)
    with pytest.raises(ra.PlanError, match='backend="torch"'):
        fused.source("c", sizes={"n": 3, "e": 2}, dtypes="float64")


def test_a_condition_of_values_on_a_gather_is_decided() -> None:
    """It guards no index of the data, which is read before the value is known."""
    index = ra.tensor("index[n]")
    expr = ra.sum(ra.where(ra.sum(x, n) > 0, ra.Tensor("y")[index], 1), n)
    given = {"x": np.array([1.0, -0.5, 2]), "y": np.array([3.0, 5]), "index": np.array([1, 0, 1])}
    assert ra.fuse(expr)(**given) == 13
    assert ra.fuse(expr)(**{**given, "x": -given["x"]}) == 3


b, m, d = ra.axes("b m d")
s, joint, key = ra.tensors("s[b,n] joint[b,n,m] key[n,d]")
LARGEST = ra.max(joint, n, m)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "any", "all"])
def test_an_output_reduces_values_in_every_way_that_it_can(backend: str, kind: str) -> None:
    """Truth values too: of 0 and 1, `any` is the largest."""
    expr = getattr(ra, kind)(s > LARGEST if kind in ("any", "all") else s - LARGEST, n)
    rng = np.random.default_rng(0)
    given = {"joint": rng.standard_normal((8, 2, 1)), "s": rng.standard_normal((8, 2)) + 0.5}
    got = ra.fuse(expr, axes="b")(**given, backend=backend)
    want, _ = Oracle(given, {}, {"b": 8, "n": 2, "m": 1}).output(expr, "b")
    np.testing.assert_allclose(got, want.astype(float), rtol=1e-14)


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        (ra.argmax(s - LARGEST, n), "no argmax"),
        (ra.argmax(ra.min(joint, n, m), n), "no argmax"),
        (ra.first(s - LARGEST, n), "no first"),
        (ra.affine(s, s - LARGEST, n)[1], "no affine"),
        (ra.sum(ra.where(LARGEST < 1, 1, ra.sum(key, d)), n), "computed again"),
    ],
    ids=str,
)
def test_an_output_that_cannot_is_told_so(expr: Expr, said: str) -> None:
    with pytest.raises(ExpressionError, match=said):
        ra.analyze(expr, "b")


@pytest.mark.parametrize("size", [3, 51])
def test_a_list_longer_than_the_samples_gets_a_verdict(size: int) -> None:
    """Places of a topk beyond the last sample hold -inf, as they do where an axis is short."""
    j = ra.axis("j", size=size)
    rest = x - ra.min(ra.topk(x, n, j)[0], j)
    huber = ra.sum(ra.where(Abs(rest) < 1, rest**2 / 2, Abs(rest) - Rational(1, 2)), n)
    assert isinstance(ra.analyze(huber), Undecided)
    assert len(ra.fuse(huber, passes=2).passes) == 2


@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
def test_a_list_is_normalised_beside_what_streams_its_axis(backend: str) -> None:
    """Of a list and its axis that axis is streamed, however the reductions over the list stand in each other."""
    j = ra.axis("j", size=2)
    best, places = ra.topk(s, n, j)
    outputs = {"w": (ra.softmax(best, j), "b j"), "id": (places, "b j"), "z": (ra.logsumexp(s, n), "b")}
    given = np.random.default_rng(0).standard_normal((3, 7))
    w, order, z = ra.fuse(outputs)(s=given, backend=backend)
    np.testing.assert_array_equal(order, np.argsort(-given, 1)[:, :2])
    e = np.exp(np.take_along_axis(given, np.asarray(order), 1))
    np.testing.assert_allclose(w, e / e.sum(1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(z, np.log(np.exp(given).sum(1)), rtol=1e-12)
