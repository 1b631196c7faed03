"""Weights that are at most 1 are taken about 0; where a result needs the pivot, it stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Expr, exp, log, sqrt

import redalg as ra
from redalg.incremental.arrange.bounded_weights import drop_bounded_pivots
from redalg.lower_tile.check.interpret import interpret
from redalg.strategies.levels import Grid, Lanes, Loop
from redalg.strategies.schedule import Schedule

n = ra.axes("n")
x, y = ra.tensors("x[b,n] y[b,n]")
WEIGHT = exp(-(x**2))
TOTAL = ra.sum(WEIGHT, n)
BOUNDED: dict[str, Expr] = {
    "sum": TOTAL,
    "weighted": ra.sum(WEIGHT * y, n),
    "of a size": ra.sum(exp(-abs(x) / 3) * y, n),
    "of two squares": ra.sum(exp(-(x**2) - (x - y) ** 2) * y, n),
    "beside another": 3 * ra.sum(WEIGHT * y, n) + ra.max(y, n),
    "of a mean": ra.sum(WEIGHT, n) / n.extent,
}
NEEDED: dict[str, Expr] = {
    "a ratio": ra.sum(WEIGHT * y, n) / TOTAL,
    "a logarithm": log(TOTAL),
    "a root": sqrt(TOTAL),
    "of either sign": ra.sum(exp(x) * y, n),
    "growing": ra.sum(exp(x**2) * y, n),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_weight_of_known_sign_is_dropped(name: str) -> None:
    form = drop_bounded_pivots(ra.fuse(BOUNDED[name], axes="b").form)
    form.verify()
    assert form.pivots == ()


@pytest.mark.parametrize("name", NEEDED)
def test_a_result_that_needs_its_pivot_keeps_it(name: str) -> None:
    """Of far data every weight underflows, and a ratio of sums about 0 would be 0/0."""
    form = ra.fuse(NEEDED[name], axes="b").form
    assert drop_bounded_pivots(form) is form


@pytest.mark.parametrize("name", [*BOUNDED, *NEEDED])
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 3.0, 40.0]), st.sampled_from([1, 5, 33]))
def test_a_weight_of_known_sign_needs_no_pivot(name: str, seed: int, offset: float, length: int) -> None:
    """In the tile interpreter, near 0, where all weights are below the range, and where one is exp(-oo) beside oo."""
    form, rng = ra.fuse((BOUNDED | NEEDED)[name], axes="b"), np.random.default_rng(seed)
    tensors = {key: (rng.normal(size=(3, length)) / 2 + offset * (key == "x")).astype(np.float32)
               for key in form.cascade.inputs()}  # fmt: skip
    if seed % 3 == 0:
        tensors["x"][1, length // 2] = np.inf
    plan = Schedule(Grid("b", 2), Loop("n", 8), Lanes("n", 1))
    lowered = form.lower("c", {"b": 3, "n": length}, dict.fromkeys(tensors, "float32"), plan=plan)
    with np.errstate(all="ignore"):
        exact = np.asarray(form.reference(**{key: array.astype(np.float64) for key, array in tensors.items()}))
        found = interpret(lowered.program, tensors)["out"]
    in_range = np.abs(exact) < 1e38
    assert not np.isnan(found[in_range]).any()
    size = np.maximum(np.abs(exact[in_range]), 1e-6)
    np.testing.assert_allclose(found[in_range] / size, exact[in_range] / size, atol=3e-4)
