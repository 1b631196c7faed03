"""Tensors are viewed so that indices run along axes, and their elements are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, Integer, Symbol

from redalg.expression import Axis, Tensor, where
from redalg.graphs.compose import Composed
from redalg.graphs.interpret import interpret_program
from redalg.graphs.lay import Laid, lay_outputs
from redalg.graphs.program import TensorProgram, TensorType
from tests.sweeps import draws

A, B, C, D = (Axis(name) for name in "abcd")
X = Tensor("x")


def laid_of(term: Expr, sizes: dict[Axis, int | Expr], *shape: int | Expr) -> Laid:
    """An output along all axes that reads one tensor of a shape."""
    known = {axis: Integer(size) if isinstance(size, int) else size for axis, size in sizes.items()}
    sides = tuple(Integer(size) if isinstance(size, int) else size for size in shape)
    return lay_outputs([Composed("out", tuple(known), known, term)], {"x": TensorType(sides, "float32")})


def value_of(output: Composed, array: Any) -> Any:
    """The output on an array."""
    shape = TensorType(tuple(map(Integer, array.shape)), "float32")
    return interpret_program(TensorProgram({"x": shape}, (output.expression("float32"),), ("out",)), {"x": array})[
        "out"
    ]


@pytest.mark.parametrize(("index", "sizes", "view", "place"), [
    (16 * A + B, {A: 3, B: 16}, (3, 16), (A, B)),
    (B + 4 * A, {A: 3, B: 16}, None, None),  # b runs over several a
    (6 * A + 2 * B + C, {A: 4, B: 3, C: 2}, (4, 3, 2), (A, B, C)),
    (12 * A + B + 4, {A: 2, B: 8}, (2, 12), (A, B + 4)),  # a part of each
    (A + B, {A: 3, B: 4}, None, None),
    (8 * A, {A: 3}, (3, 8), (A, 0)),
])  # fmt: skip
def test_an_index_says_where_its_dimension_is_split(index: Any, sizes: Any, view: Any, place: Any) -> None:
    length = {3: 48, 4: 24, 2: 24}[next(iter(sizes.values()))] if index != 8 * A else 24
    laid = laid_of(X[index], sizes, length)
    assert laid.views == ({} if view is None else {"x": view})
    assert laid.outputs[0].term == X[index if place is None else place]


def test_an_axis_that_runs_past_a_dimension_makes_a_computed_place() -> None:
    """As elements of two tensors stand beside each other: those of the second are read in the second branch."""
    joined = where(B < 12, X[A, B], 7)
    laid = laid_of(joined, {A: 3, B: 16}, 3, 12)
    assert laid.outputs[0].term == where(B < 12, X[A, where(B < 12, B, 0)], 7)
    array = np.arange(36, dtype=np.float32).reshape(3, 12)
    wanted = np.concatenate([array, np.full((3, 4), 7)], 1)
    np.testing.assert_array_equal(value_of(laid.outputs[0], array), wanted)
    assert laid_of(joined, {A: 3, B: 12}, 3, 12).outputs[0].term == joined


def test_a_condition_bounds_what_it_guards() -> None:
    """As halves are rotated: each reads the other half, 8 elements further or before."""
    rotated = where(B < 8, -X[16 * A + B + 8], X[16 * A + B - 8])
    laid = laid_of(rotated, {A: 3, B: 16}, 48)
    assert laid.views == {"x": (3, 16)}
    assert laid.outputs[0].term == where(B < 8, -X[A, B + 8], X[A, B - 8])
    assert not laid_of(X[16 * A + B + 8], {A: 2, B: 16}, 48).views


def test_a_condition_leaves_the_ranges_of_other_axes() -> None:
    laid = laid_of(where(B < 2, X[16 * A + 4 * C + B], 0), {A: 3, B: 4, C: 4}, 48)
    assert laid.views == {"x": (3, 4, 4)}
    assert laid.outputs[0].term == where(B < 2, X[A, C, B], 0)


def test_a_condition_that_leaves_one_place_is_that_place() -> None:
    """As tensors side by side: of each the whole is read, at its own place of an axis."""
    beside = where(A < 1, X[4 * A + B], where(A < 2, X[4 * A + B - 4] * 2, X[4 * A + B - 8] * 3))
    laid = laid_of(beside, {A: 3, B: 4}, 4)
    assert not laid.views
    assert laid.outputs[0].term == where(A < 1, X[B], where(A < 2, X[B] * 2, X[B] * 3))


def test_all_reads_of_a_tensor_agree() -> None:
    assert laid_of(X[4 * A + B] + X[8 * C + D], {A: 6, B: 4, C: 3, D: 8}, 24).views == {}
    laid = laid_of(X[4 * A + B] + X[8 * C + 4 * D], {A: 6, B: 4, C: 3, D: 2}, 24)
    assert laid.views == {"x": (6, 4)}
    assert laid.outputs[0].term == X[A, B] + X[2 * C + D, 0]


def test_sizes_may_vary() -> None:
    length = Symbol("s", integer=True, positive=True)
    laid = laid_of(X[length * A + B], {A: 3, B: length}, 3 * length)
    assert laid.views == {"x": (3, length)}
    assert laid.outputs[0].term == X[A, B]
    assert "view x as [3, s]" in str(laid)


def test_computed_places_stay() -> None:
    places = Tensor("i")
    known = {A: Integer(3)}
    types = {"x": TensorType((Integer(8),), "float32"), "i": TensorType((Integer(6),), "int64")}
    laid = lay_outputs([Composed("out", (A,), known, X[places[2 * A]])], types)
    assert laid.views == {"i": (3, 2)}
    assert laid.outputs[0].term == X[places[A, 0]]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 99))
@settings(max_examples=draws(60))
def test_the_elements_are_the_same(radices: list[int], skipped: int, seed: int) -> None:
    """A dimension of mixed radices, of which axes take some."""
    axes = [A, B, C, D][: len(radices)]
    index, stride = Integer(0), 1
    for axis, radix in reversed([*zip(axes, radices, strict=True)]):
        index += stride * axis if axes.index(axis) != skipped else 0
        stride *= radix
    array = np.random.default_rng(seed).normal(size=stride).astype("f")
    sizes = dict(zip(axes, radices, strict=True))
    laid = laid_of(X[index], sizes, stride)
    viewed = array.reshape([int(size) for size in laid.views.get("x", (stride,))])
    original = Composed("out", tuple(axes), {axis: Integer(size) for axis, size in sizes.items()}, X[index])
    np.testing.assert_array_equal(value_of(laid.outputs[0], viewed), value_of(original, array))
