"""Whole rows are loaded side by side where both stay in registers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, sqrt

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.lowered import Lowered
from tests.sweeps import draws

n = ra.axis("n")
X, Y = ra.tensors("x[b,n] y[b,n]")
FAR_X, FAR_Y = X - ra.mean(X, n), Y - ra.mean(Y, n)
CORRELATION = ra.sum(FAR_X * FAR_Y, n) / sqrt(ra.sum(FAR_X**2, n) * ra.sum(FAR_Y**2, n))
FUNCTIONS = {"correlation": CORRELATION, "sums apart": ra.sum(X, n) * ra.sum(Y, n)}


def lowered(expr: Expr, rows: int = 3, length: int = 512) -> Lowered:
    """The program of rows that one tile holds."""
    schedule = ra.Schedule(ra.Grid("b"), ra.Whole("n", 512), ra.Lanes("n", 32))
    return ra.fuse(expr, axes="b").lower("sm_90a", {"b": rows, "n": length}, "float32", plan=schedule)


@pytest.mark.parametrize(("name", "side_by_side"), [("correlation", True), ("sums apart", False)])
def test_rows_that_are_read_again_are_loaded_before_the_first_sum(name: str, side_by_side: bool) -> None:
    """A row that nothing reads again leaves its registers to the next."""
    text = lowered(FUNCTIONS[name]).source.text
    assert (text.index("T.copy(y[") < text.index("T.reduce_sum")) is side_by_side


@pytest.mark.parametrize("name", FUNCTIONS)
@given(st.integers(1, 5), st.integers(257, 512), st.integers(0, 99))
@settings(max_examples=draws(10))
def test_the_order_of_loads_changes_nothing(name: str, rows: int, length: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    tensors = {key: generator.normal(1, 1, (rows, length)).astype(np.float32) for key in ("x", "y")}
    [found] = interpret(lowered(FUNCTIONS[name], rows, length).program, tensors).values()
    exact = ra.fuse(FUNCTIONS[name], axes="b").reference(**tensors)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=2e-6 * max(1, float(np.abs(exact).max())))
