"""Residuals of a line through a centred regressor: data in order of it have a slope of their own in every part."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import redalg as ra

n = ra.axis("n")
x, t = ra.tensors("x[n] t[n]")
MIDDLE = n - (n.extent - 1) / 2
LENGTH = 1000


def residual(of: Any) -> ra.Fused:
    """The mean square of what a line through the middle, and the mean, leave of x."""
    slope = ra.sum(of * x, n) / ra.sum(of**2, n)
    return ra.fuse(ra.mean((x - ra.mean(x, n) - slope * of) ** 2, n))


FORMS = {"a tensor": residual(t), "places": residual(MIDDLE)}


def tensors(trend: float, offset: float) -> dict[str, Any]:
    places = np.arange(LENGTH) - (LENGTH - 1) / 2
    noise = np.random.default_rng(0).standard_normal(LENGTH)
    return {"x": (noise + offset + trend * places).astype(np.float32), "t": places.astype(np.float32)}


def wanted(given: dict[str, Any]) -> float:
    values, places = (given[name].astype(np.float64) for name in "xt")
    slope = places @ values / (places @ places)
    return float(np.mean((values - values.mean() - slope * places) ** 2))


@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
@pytest.mark.parametrize("offset", [0, 5000])
@pytest.mark.parametrize("trend", [0, 0.1, 1, 10])
@pytest.mark.parametrize("name", FORMS)
def test_parts_that_begin_far_from_the_middle_cost_no_digits(
    name: str, trend: float, offset: float, backend: str
) -> None:
    form, given = FORMS[name], tensors(trend, offset)
    own = {key: given[key] for key in form.cascade.inputs()}
    assert form(**own, backend=backend) == pytest.approx(wanted(given), rel=1e-5)


@pytest.mark.parametrize("cut", [(300, 301), (1, 999), (128, 700)])
def test_states_of_parts_are_merged(cut: tuple[int, int]) -> None:
    form, given = FORMS["a tensor"], tensors(1, 5000)
    edges = (0, *cut, LENGTH)
    parts = [form.leaf({key: array[first:last] for key, array in given.items()})
             for first, last in pairwise(edges)]  # fmt: skip
    assert form.finish(form.merge(*parts)) == pytest.approx(wanted(given), rel=1e-5)


def test_a_line_through_the_origin_keeps_its_slope() -> None:
    """Nothing shifts x there, and least squares without an intercept are what the block gives."""
    form = ra.fuse(ra.mean((x - ra.sum(t * x, n) / ra.sum(t**2, n) * t) ** 2, n))
    given = tensors(10, 0)
    values, places = (given[name].astype(np.float64) for name in "xt")
    left = values - places @ values / (places @ places) * places
    assert form(**given, backend="numpy") == pytest.approx(np.mean(left**2), rel=1e-5)
