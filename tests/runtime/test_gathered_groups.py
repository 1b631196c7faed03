"""States by group of elements in the order of their keys: those that every element's key gives, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sympy import exp

import redalg as ra
from redalg.incremental.gathered import with_gathered_groups
from redalg.runtime.bind.groups import read_keys
from redalg.runtime.bind.leaf import read_piece
from redalg.runtime.bind.state import State
from redalg.runtime.call.gathered_groups import gathered_state, leaf_by_gathering
from tests.cases.refusals import Case, each
from tests.runtime import test_groups
from tests.runtime.test_groups import FUNCTIONS, FUSED, check_groups, draw_keys, in_library, keys_in, numbers
from tests.sweeps import draws

n, d = ra.axes("n d")
x, y, group_first = ra.tensors("x[n] y[n] group_first[n]")
X = ra.tensor("X[n,d]")
PLAIN = [name for name in FUNCTIONS if not FUSED[name].form.structures]


def state_of(fused: ra.Fused, arrays: Mapping[str, Any], by: Any, groups: int, start: int = 0,
             backend: str | None = None) -> State:  # fmt: skip
    """The state of a piece by this module; `backend=None` is that of kernels, which say why there is none."""
    piece = read_piece(fused.form, arrays, {n: start}, {})
    keys = read_keys(by, groups, piece.bound, n, "leaf")
    if backend is None:
        return leaf_by_gathering(fused.form, piece, keys)
    return gathered_state(fused.form, piece, keys, backend)


@pytest.mark.parametrize("name", PLAIN)
@settings(max_examples=draws(8))
@given(st.data())
def test_every_group_is_its_formula(name: str, data: st.DataObject) -> None:
    fused, length = FUSED[name], data.draw(st.integers(1, 40))
    keys, groups = draw_keys(data, length)
    tensors = numbers(name, length, data.draw(st.integers(0, 99)))
    if name == "correlation":
        assume(all(np.ptp(tensors[key][keys == one]) for one in np.unique(keys) for key in "xy"))
    library = data.draw(st.sampled_from(("numpy", "torch")))
    arrays, by = in_library(tensors, library, "float64"), keys_in(library, keys)
    state = state_of(fused, arrays, by, groups, backend=library)
    like = fused.leaf(arrays, by=by, groups=groups)
    assert (state.layout, state.places, state.sizes, state.form) == (like.layout, like.places, like.sizes, like.form)
    check_groups(fused.finish(state), name, tensors, keys, "float64")
    cut = data.draw(st.integers(1, length))
    rest = test_groups.of_any_rows(arrays, slice(cut, None))
    first = fused.leaf(test_groups.of_any_rows(arrays, slice(cut)), by=by[:cut], groups=groups)
    states = [first] if cut == length else [first, state_of(fused, rest, by[cut:], groups, cut, library)]
    check_groups(fused.finish(fused.merge(*states)), name, tensors, keys, "float64")


@pytest.mark.parametrize("name", [
    "variance", "mask by data", *(pytest.param(one, marks=pytest.mark.slow)
                                  for one in PLAIN if one not in ("variance", "mask by data"))])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_kernels_make_the_states_of_rows(name: str, dtype: str) -> None:
    keys = np.random.default_rng(2).integers(0, 30, 500) * 3
    arrays = in_library(numbers(name, 500, 7), "torch", dtype)
    by = torch.from_numpy(keys)
    if name == "product":
        arrays["y"] = arrays["y"] / 64
    tensors = {key: test_groups.as_numpy(one) for key, one in arrays.items()}
    for order in (slice(None), torch.argsort(by, stable=True)):
        if name in ("mask by place", "share of a mask by place") and not isinstance(order, slice):
            continue  # other elements lie at those places
        given = test_groups.of_any_rows(arrays, order)
        check_groups(FUSED[name].finish(state_of(FUSED[name], given, by[order], 100)), name, tensors, keys, dtype)


def test_names_of_a_user() -> None:
    fused = ra.fuse(ra.sum(ra.where(group_first > 0, x, 0), n))
    names = with_gathered_groups(fused.form)
    assert names.first == "group_first_1"
    arrays = {"x": np.arange(6.0), "group_first": np.array([1, 0, 1, 1, 0, 1])}
    state = state_of(fused, arrays, np.array([1, 1, 0, 0, 0, 1]), 2, backend="numpy")
    assert fused.finish(state).tolist() == [5, 5]


def refused(expr: Any, start: int = 0, **arrays: Any) -> State:
    length = len(next(iter(arrays.values())))
    return state_of(ra.fuse(expr), arrays, np.zeros(length, np.int64), 2, start)


def leave(reason: str) -> str:
    advice = 'Leave backend="tilelang" out: the tensors\' library makes them.'
    return f"leaf: no kernel makes these states by group: {reason}. {advice}"


REFUSED = {
    "an index": (lambda: refused(ra.argmax(x, n), x=np.ones(3)),
                 "a slot has several components (an index, an order, a product)"),
    "a sum within": (lambda: refused(ra.sum(exp(ra.sum(X, d)), n), X=np.ones((3, 2))),
                     "the expression holds sums within its terms"),
    "a shift": (lambda: refused(ra.sum(ra.where(n > 0, ra.Tensor("y")[n - 1] * x, 0), n), x=np.ones(3), y=np.ones(3)),
                "a tensor is read at a place computed of axis n"),
    "far places": (lambda: refused(ra.sum(n * x, n), 2**24, x=np.ones(3)),
                   "places beyond 16777216 matter, which kernels do not tell apart"),
    "no elements": (lambda: refused(ra.sum(exp(x), n), x=np.ones(0)), "the piece has no elements"),
}  # fmt: skip


@each({name: Case(call, ra.BackendError, leave(reason)) for name, (call, reason) in REFUSED.items()})
def test_refused(case: Case) -> None:
    case.check()
