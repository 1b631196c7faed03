"""Pivots of columns among nine elements: outliers, masks whose other elements hold anything, plans of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, oo

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.schedule import Schedule
from tests.sweeps import draws

a, b, n = ra.axes("a b n")
X, Y = ra.tensors("x[n,a] y[n,b]")
FIRST, LAST = ra.tensors("first last")
IN_THREADS = Schedule(Grid(a, 4), Grid(b, 4), Parts(n, 2), Loop(n, 8), Lanes(a, 1))
PLANS = {"by rules": None, "in threads": IN_THREADS}
PAD = 1e6


def mean(term: Expr, live: Any) -> Expr:
    return ra.sum(ra.where(live, term, 0), n) / ra.sum(ra.where(live, 1, 0), n)


def covariance(x: Expr, y: Expr, live: Any) -> Expr:
    return mean((x - mean(x, live)) * (y - mean(y, live)), live)


BETWEEN = (n >= FIRST) & (n < LAST)
CORRELATION = ra.fuse(ra.covariance(X, Y, n) / (ra.std(X, n) * ra.std(Y, n)), axes="a b")
MASKED = ra.fuse(covariance(X, Y, BETWEEN), axes="a b")
OF_ROWS = ra.fuse(ra.sum(ra.softmax(ra.where(n <= a, ra.tensor("s[a,n]"), -oo), n) * (Y - 1) ** 2, n), axes="a b")


def drawn(length: int, seed: int, dtype: str = "float32") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 1, (length, columns)).astype(dtype) for name, columns in (("x", 5), ("y", 6))}


def result(form: ra.Fused, tensors: dict[str, np.ndarray], plan: Schedule | None, target: str) -> np.ndarray:
    """The output of the kernel of a target, in the tile interpreter."""
    dtypes = {name: str(one.dtype) for name, one in tensors.items()}
    sizes = {"a": 5, "b": 6, "n": len(tensors["y"])}
    program = form.lower(target, sizes=sizes, dtypes=dtypes, plan=plan).program
    return np.asarray(interpret(program, tensors)["out"])


@pytest.mark.parametrize(("plan", "target"), [("by rules", "c"), ("by rules", "H200"), ("in threads", "c")])
def test_an_outlier_at_the_start_costs_no_digits(plan: str, target: str) -> None:
    tensors = drawn(500, 0)
    tensors["x"][0] = tensors["y"][0] = 1e3
    found = result(CORRELATION, tensors, PLANS[plan], target)
    np.testing.assert_allclose(found, CORRELATION.reference(**tensors), atol=2e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("first", "last"), [(0, 60), (440, 500), (130, 200), (5, 25), (499, 500)])
@pytest.mark.parametrize("plan", PLANS)
def test_masked_elements_are_no_centre(plan: str, first: int, last: int) -> None:
    """Pads hold numbers that are far away: those that count keep their digits, be they few."""
    tensors = drawn(500, 1)
    for one in tensors.values():
        one[:first] = one[last:] = PAD
    tensors |= {"first": np.array(first, np.int32), "last": np.array(last, np.int32)}
    wanted = MASKED.reference(**tensors)
    np.testing.assert_allclose(result(MASKED, tensors, PLANS[plan], "c"), wanted, atol=2e-6)


@pytest.mark.parametrize("plan", PLANS)
def test_elements_of_weight_zero_are_no_centre(plan: str) -> None:
    w = ra.tensor("w[n]")
    means = {one: ra.sum(w * one, n) / ra.sum(w, n) for one in (X, Y)}
    form = ra.fuse(ra.sum(w * (X - means[X]) * (Y - means[Y]), n) / ra.sum(w, n), axes="a b")
    tensors = drawn(500, 4)
    tensors["w"] = np.abs(np.random.default_rng(4).normal(0, 1, 500)).astype(np.float32)
    for name, pad in (("x", PAD), ("y", PAD), ("w", 0)):
        tensors[name][:130] = tensors[name][200:] = pad
    np.testing.assert_allclose(result(form, tensors, PLANS[plan], "c"), form.reference(**tensors), atol=2e-6)


@given(st.integers(1, 40), st.integers(-2, 41), st.integers(-2, 41), st.sampled_from(sorted(PLANS)), st.integers(0, 9))
@settings(max_examples=draws(12), deadline=None)
def test_any_mask_means_the_definition(length: int, first: int, last: int, plan: str, seed: int) -> None:
    """In float64; an empty span gives NaN in both."""
    tensors = drawn(length, seed, "float64")
    tensors |= {"first": np.array(first, np.int32), "last": np.array(last, np.int32)}
    np.testing.assert_allclose(
        result(MASKED, tensors, PLANS[plan], "c"), MASKED.reference(**tensors), rtol=1e-9, atol=1e-11
    )


@pytest.mark.slow
def test_the_c_target_does_as_the_interpreter() -> None:
    tensors = drawn(500, 2)
    for one in tensors.values():
        one[:130] = one[200:] = PAD
    spans = {"first": np.array(130, np.int32), "last": np.array(200, np.int32)}
    found = MASKED(**{name: torch.from_numpy(one) for name, one in (tensors | spans).items()}, backend="tilelang")
    np.testing.assert_allclose(found.numpy(), MASKED.reference(**tensors, **spans), atol=2e-6)


@pytest.mark.parametrize("target", ["c", "H200"])
def test_a_mask_of_rows_keeps_the_first_element(target: str) -> None:
    """Other rows have other elements, and a column's pivot serves all of them."""
    tensors = drawn(40, 3) | {"s": np.random.default_rng(3).normal(0, 1, (5, 40)).astype(np.float32)}
    del tensors["x"]
    found = result(OF_ROWS, tensors, None, target)
    np.testing.assert_allclose(found, OF_ROWS.reference(**tensors), rtol=2e-5, atol=1e-6)


def test_the_centre_is_found_ahead_of_the_loop() -> None:
    """Once for a column, also where a mask tells by an integer which elements count."""
    sizes = {"a": 64, "b": 64, "n": 2000}
    of_masked = {"x": "float16", "y": "float16", "first": "int32", "last": "int32"}
    for form, dtypes in ((MASKED, of_masked), (CORRELATION, "float16")):
        text = str(form.source("H200", sizes=sizes, dtypes=dtypes))
        before, loop = text[: text.index("T.Pipelined(")], text[text.index("T.Pipelined(") :]
        assert "centre[e] = " in before
        assert "choice" not in loop.split("T.Kernel(")[0]
