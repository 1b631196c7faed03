"""Factors that are weights: a pivot that another sum needs costs them no digit and no slot."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from tests.oracle import Oracle

b, n, e = ra.axes("b n e")
w, x, y, z = ra.tensors("w[b,n] x[b,n] y[b,n] z[b,n]")
SQUARES = ra.sum((x - ra.first(x, n)) ** 2, n)
MEAN = ra.mean(z, n)
WEIGHTS = {
    "a product": ra.sum(x * y, n) / SQUARES,
    "of a value": ra.sum(x * y * SQUARES, n),
    "beside a deviation": ra.sum(w * x * (z - MEAN) * y, n) * SQUARES,
    "two factors": ra.sum(x * z * y, n) / ra.sum((x - ra.first(x, n)) * (z - MEAN), n),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_pivot_of_another_sum_costs_no_digit(name: str) -> None:
    """Found by the fuzzer, seeds 730223 and 731696: an outlier moves the pivot far from what the others weigh."""
    rng = np.random.default_rng(0)
    data = {one: rng.uniform(0.5, 1, (2, 9)) for one in "wxyz"}
    data["x"][:, 4] *= 1e9
    data["y"][:, 4] *= 1e-9
    form = ra.fuse(WEIGHTS[name], axes="b")
    wanted, _ = Oracle(data, {}, {"b": 2, "n": 9}).output(WEIGHTS[name], "b")
    given = {one: data[one] for one in form.cascade.inputs()}
    parts = [form.leaf({one: array[:, i:j] for one, array in given.items()}, start={n: i}) for i, j in ((0, 4), (4, 9))]
    for found in (form(**given, backend="numpy"), form.finish(form.merge(*parts))):
        np.testing.assert_allclose(found, wanted.astype(float), rtol=1e-13)


def test_a_weight_whose_own_sum_is_asked_keeps_the_pivot() -> None:
    """Σ y·x − m·Σ y, with both sums written, cancels about the pivot of x."""
    m = ra.mean(x, n)
    form = ra.fuse((ra.sum(x * y, n) - m * ra.sum(y, n)) / ra.sum((x - m) ** 2, n), axes="b")
    rng = np.random.default_rng(1)
    data = {"x": 1e8 + rng.uniform(0.5, 1, (2, 9)), "y": rng.uniform(0.5, 1, (2, 9))}
    about = data["x"] - data["x"].astype(np.longdouble).mean(1, keepdims=True)
    wanted = (about * data["y"]).sum(1) / (about**2).sum(1)
    np.testing.assert_allclose(form(**data, backend="numpy"), wanted.astype(float), rtol=1e-6)


def test_a_contraction_multiplies_the_tensors_themselves() -> None:
    """Σ x·V beside a variance of x: no sum of V stands beside it, and no operand is computed."""
    v = ra.tensor("v[n,e]")
    deviation = ra.sum((x - ra.mean(x, n)) ** 2, n)
    form = ra.fuse(ra.sum(x * v, n) / deviation, axes="b e").form
    assert {x, v} in [set(one.factors) for one in form.accumulators]
    assert not any(one.factors == (v,) for one in form.accumulators)
