"""Names across outputs: what an output reduces over is named by no other output, and one pass still makes both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra

i, j, c, k, r, s = ra.axes("i j c k r s")
x, y, w = (ra.Tensor(name) for name in "xyw")


def rows(a: ra.Axis, b: ra.Axis) -> Any:
    """Elements less what a sum over their row takes off."""
    return (x[a, b, c] - y[a, b, c] * ra.sum(x[a, b, k] * y[a, b, k] * w[k], k)) * w[c]


def outputs_with(a: ra.Axis, b: ra.Axis) -> dict[str, Any]:
    """Rows, and sums over all of them by two names."""
    return {
        "rows": (rows(i, j), "i j c"),
        "products": (ra.sum(x[a, b, c] * y[a, b, c], a, b), "c"),
        "columns": (ra.sum(rows(i, j), i, j), "c"),
    }


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 9), st.integers(0, 10**6))
def test_other_names_mean_the_same(first: int, second: int, third: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    X, Y = generator.normal(size=(2, first, second, third))
    W = generator.normal(size=third)
    wanted = (X - Y * (X * Y * W).sum(-1, keepdims=True)) * W
    found = ra.fuse(outputs_with(r, s))(x=X, y=Y, w=W)
    for got, exact in zip(found, (wanted, (X * Y).sum((0, 1)), wanted.sum((0, 1))), strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("target", ["sm_90a", "c"])
def test_the_kernels_are_those_of_common_names(target: str) -> None:
    both = [ra.fuse(outputs_with(*names)) for names in ((r, s), (i, j))]
    sizes = {axis.name: {"i": 8, "j": 16}.get(axis.name, 64) for axis in both[1].cascade.axes()}
    first, second = (fused.source(target, sizes=sizes, dtypes="float32") for fused in both)
    assert first == second


def test_a_name_of_two_outputs_alone_is_common_too() -> None:
    fused = ra.fuse({"total": (ra.sum(x[i, r], r), "i"), "most": (ra.max(x[i, s], s), "i")})
    assert {axis.name for axis in fused.cascade.axes()} == {"i", "r"}


def test_an_axis_of_an_output_keeps_its_name() -> None:
    fused = ra.fuse({"shares": (x[i, r] / ra.sum(x[i, r], r), "i r"), "most": (ra.max(x[i, s], s), "i")})
    assert {axis.name for axis in fused.cascade.axes()} == {"i", "r"}


def test_no_name_is_taken_that_stands_for_something_else() -> None:
    fused = ra.fuse({"columns": (ra.sum(x[i, r], i), "r"), "most": (ra.max(x[s, r] + w[i], s), "i r")})
    X, W = np.random.default_rng(0).normal(size=(5, 3)), np.arange(5.0)
    columns, most = fused(x=X, w=W)
    np.testing.assert_allclose(columns, X.sum(0))
    np.testing.assert_allclose(most, X.max(0) + W[:, None])


def pairs(first: ra.Axis, second: ra.Axis, of_first: ra.Axis, of_second: ra.Axis, below: ra.Axis) -> Any:
    """Moran's I of places with weights, each mean over an axis of its own."""
    here, there, last = x[first], x[second], x[below]
    near = w[first, second]
    products = near * (here - ra.mean(x[of_first], of_first)) * (there - ra.mean(x[of_second], of_second))
    spread = ra.sum((last - ra.mean(last, below)) ** 2, below)
    return ra.sum(products, first, second) / spread / ra.sum(near, first, second)


@pytest.mark.parametrize("below", [i, j, k])
@pytest.mark.parametrize("of_second", [i, j, k])
@pytest.mark.parametrize("of_first", [i, j, k])
def test_means_beside_pairs_of_the_same_places(of_first: ra.Axis, of_second: ra.Axis, below: ra.Axis) -> None:
    generator = np.random.default_rng(0)
    X, W = generator.normal(3, 1, 9), generator.random((9, 9))
    centred = X - X.mean()
    exact = (W * centred[:, None] * centred).sum() / (centred**2).sum() / W.sum()
    np.testing.assert_allclose(ra.fuse(pairs(i, j, of_first, of_second, below))(x=X, w=W), exact, rtol=1e-12)


def test_sums_of_rows_and_columns_of_one_tensor_take_axes_of_their_own() -> None:
    """Both are parts of what is reduced together; elements of one tensor stand at both axes."""
    distance = abs(x[i] - x[j])
    centred = distance - ra.mean(distance, i) - ra.mean(distance, j) + ra.mean(distance, i, j)
    X = np.random.default_rng(0).normal(3, 1, 9)
    D = abs(X[:, None] - X)
    exact = ((D - D.mean(0) - D.mean(1)[:, None] + D.mean()) ** 2).sum()
    np.testing.assert_allclose(ra.fuse(ra.sum(centred**2, i, j))(x=X), exact, rtol=1e-12)


def test_sums_of_rows_and_columns_of_a_matrix_are_refused() -> None:
    """Neither axis is left to stream, and the error says what to do."""
    w = ra.Tensor("w")[i, j]
    with pytest.raises(ra.ExpressionError, match="Compute one of them first"):
        ra.fuse(ra.sum(ra.max(w, i) * ra.max(w, j) * w, i, j))


@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 10**6))
def test_means_over_axes_of_other_names(rows: int, length: int, seed: int) -> None:
    """The length of an axis that is renamed is that of the axis in its place."""
    X = np.random.default_rng(seed).normal(3, 1, (rows, length))
    row, other = x[i, j], x[i, k]
    found = ra.fuse({
        "mean": ra.mean(row, j), "square": ra.mean(other**2, k), "about": ra.mean((other - ra.mean(row, j)) ** 2, k),
        "within": ra.mean((row - ra.mean(other, k)) ** 2, j), "length": ra.sum(other, k) * k.extent / j.extent,
    })(x=X)  # fmt: skip
    for got, exact in zip(found, (X.mean(1), (X**2).mean(1), X.var(1), X.var(1), X.sum(1)), strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-9, atol=1e-9)


def test_a_declared_size_is_that_of_every_name() -> None:
    m = ra.axis("m", size=8)
    variance = ra.fuse(ra.mean((w[c] - ra.mean(w[m], m)) ** 2, c))
    assert [(axis.name, axis.size) for axis in variance.cascade.axes()] == [("c", 8)]
    data = np.arange(8.0)
    parts = [variance.leaf({"w": data[first : first + 4]}, start={"c": first}) for first in (0, 4)]
    for found in (variance(w=data), variance.finish(variance.merge(*parts))):
        np.testing.assert_allclose(found, data.var())
    with pytest.raises(ra.InputError, match=r"several sizes: 10 in w \(dimension 0\), 8 in its declaration"):
        variance(w=np.arange(10.0))
    with pytest.raises(ra.ExpressionError, match="axes m of size 8 and n of size 4 index the same dimension of w"):
        ra.fuse(ra.sum(w[m], m) * ra.max(w[ra.axis("n", size=4)], ra.axis("n", size=4)))
