"""Kernels that merge states, of any number: the state that the operations of a library make."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import PlanError
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.bind import state as state_module
from redalg.runtime.bind.inputs import array_dtype
from redalg.runtime.bind.packing import Packed
from redalg.runtime.bind.places import join_boxes
from redalg.runtime.call.merge_kernels import lower_merge, slot_inputs
from tests.cases.corpus import Pattern
from tests.cases.literature import PATTERNS
from tests.runtime.test_leaf_kernels import FORMS, numbers
from tests.runtime.test_state_bytes import FUNCTIONS, is_close, tensors_of

b, n = ra.axes("b n")
REASONS = ("run-time scalars", "pack several axes", "moves along the column axis", "a list of elements")
"""Why no kernel merges some forms."""
CORPUS = [one for one in PATTERNS if one.verdict == "Exact"]


def states_of(fused: ra.Fused, tensors: dict[str, Any], edges: list[int], **given: Any) -> list[ra.State]:
    """The states of pieces of NumPy's arrays, which become torch's."""
    axis, found = fused.form.cascade.axis, list[ra.State]()
    along = {one.name: one.indices.index(axis) for one in fused.cascade.elements() if axis in one.indices}
    for first, stop in pairwise(edges):
        piece = {key: np.take(one, range(first, stop), along[key]) if key in along else one
                 for key, one in tensors.items()}  # fmt: skip
        state = fused.leaf(piece, start={axis: first}, **given)
        found.append(ra.State.from_bytes(state.to_bytes(), library="torch"))
    return found


def merged_by_interpreter(fused: ra.Fused, states: list[ra.State], target: str) -> ra.State:
    """The state that a merging kernel makes, in the tile interpreter."""
    compute = "float64" if any(one.dtype == torch.float64 for one in states[0].slots.values()) else "float32"
    made, _ = lower_merge(fused.form, len(states), states[0].sizes, compute, target)
    dtypes = {name: array_dtype(one) for name, one in states[0].slots.items()}
    given = dict[str, Any]()
    for one in slot_inputs(fused.form, made, dtypes):
        arrays = one.of([state.slots[one.slot] for state in states])
        given |= {to.key: array.numpy() for to, array in zip(made.inputs[one.slot], arrays, strict=True)}
    found = interpret(made.program, given)
    like = fused.merge(*states)
    slots = {key: torch.as_tensor(found[key]).reshape(one.shape).to(one.dtype) for key, one in like.slots.items()}
    return replace(like, slots=slots)


@pytest.mark.parametrize(
    "edges",
    [[0, 30, 100], [0, 0, 20, 40, 100], [*range(0, 91, 9), 100]],
    ids=["two", "four, one of them empty", "eleven"],
)
@pytest.mark.parametrize("target", ["c", "sm_90a"])
@pytest.mark.parametrize("name", sorted({*FORMS} - {"top 3"}))
def test_a_kernel_merges_any_number_of_states(name: str, target: str, edges: list[int]) -> None:
    states = states_of(FORMS[name], numbers(name), edges)
    found, wanted = (FORMS[name].finish(state) for state in
                     (merged_by_interpreter(FORMS[name], states, target), FORMS[name].merge(*states)))  # fmt: skip
    assert is_close(found, wanted)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("pattern", CORPUS, ids=lambda one: one.name)
def test_patterns_merge_by_a_kernel_or_say_why_not(pattern: Pattern) -> None:
    fused = pattern.fuse()
    try:
        names = {one.name for one in fused.cascade.elements()}
        tensors = {key: one for key, one in pattern.tensors("float64").items() if key in names}
        length = pattern.extents()[str(fused.form.cascade.axis)]
        edges = [0, 1, min(3, length), length]
        states = states_of(fused, {**tensors, **pattern.scalars}, edges)
    except ra.InputError:  # of several passes, of tensors under two indices, of totals
        return
    try:
        merged = merged_by_interpreter(fused, states, "sm_90a")
    except PlanError as error:
        if any(reason in str(error) for reason in REASONS):
            return
        raise
    given = {key: torch.as_tensor(one) for key, one in tensors.items()} if fused.form.outputs[0].carries else None
    try:
        pairs = [fused.finish(state, given) for state in (merged, fused.merge(*states))]
    except ra.InputError:  # a tensor stands in the outputs themselves
        return
    for found, wanted in zip(*(one if isinstance(one, tuple) else (one,) for one in pairs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("name", ["variance", "recurrence"])
def test_compiled_kernels_merge_on_the_cpu(name: str) -> None:
    data = tensors_of(name, "torch", 40, 2)
    states = [FUNCTIONS[name].leaf({key: one[:, i:k] for key, one in data.items()}, start={n: i})
              for i, k in pairwise([0, 7, 25, 40])]  # fmt: skip
    merged = FUNCTIONS[name].merge(*reversed(states), backend="tilelang")
    assert merged.covers == (0, 40)
    assert {key: (one.shape, one.dtype) for key, one in merged.slots.items()} == {
        key: (one.shape, one.dtype) for key, one in states[0].slots.items()
    }
    assert is_close(FUNCTIONS[name].finish(merged), FUNCTIONS[name].reference(**data))


def test_states_that_do_not_fit_are_refused_before_a_kernel_is_made() -> None:
    first, second = (FUNCTIONS["last"].leaf(tensors_of("last", "torch", 4, 0), start={n: i}) for i in (0, 9))
    with pytest.raises(ra.InputError, match="missing between them"):
        FUNCTIONS["last"].merge(first, second, backend="tilelang")


def refuse_to_check(*_: Any) -> None:
    """Stand where a state is checked, for states whose kind was checked before."""
    raise AssertionError("the state is checked again")


def test_states_of_a_kind_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = FUNCTIONS["variance"]
    parts = [fused.leaf(tensors_of("variance", "torch", 5, seed), start={n: 5 * seed}) for seed in range(3)]
    fused.merge(*parts)
    monkeypatch.setattr(state_module, "check_new_state", refuse_to_check)
    assert fused.merge(*parts).covers == (0, 15)
    slots = parts[0].slots
    others = (
        replace(parts[0], slots=dict(slots)), replace(parts[0], sizes={"b": 3}), replace(parts[0], version=0),
        replace(parts[0], form="0" * 16), replace(parts[0], library="numpy"), replace(parts[0], result="float64"),
        replace(parts[0], slots=Packed.of({key: one.double() for key, one in slots.items()}, "torch", "cpu")),
        FUNCTIONS["logsumexp"].leaf(tensors_of("logsumexp", "torch", 5, 0)),
    )  # fmt: skip
    for other in others:
        with pytest.raises(AssertionError, match="checked again"):
            fused.merge(parts[1], other)


def test_states_of_one_kind_are_refused_for_what_differs() -> None:
    masked = FUNCTIONS["masked by place"]
    first, second, third = (masked.leaf(tensors_of("masked by place", "torch", 4, 0), start={n: i}) for i in (0, 4, 6))
    assert masked.merge(first, second).covers == (0, 8)
    with pytest.raises(ra.InputError, match="both states hold elements 6 to 7"):
        masked.merge(first, second, third)
    with pytest.raises(ra.InputError, match="does not say which places"):
        masked.merge(first, replace(second, places=None))
    power = ra.scalars("power", positive=True)
    scaled = ra.fuse(ra.sum(power * ra.tensor("x[n]"), n))
    one, two = (scaled.leaf({"x": torch.ones(3), "power": number}) for number in (1.0, 2.0))
    with pytest.raises(ra.InputError, match="different scalars"):
        scaled.merge(one, two)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=2, max_size=5))
def test_places_of_many_are_those_of_pairs(spans: list[tuple[int, int]]) -> None:
    boxes = [((start, start + length),) for start, length in spans]
    whole = join_boxes((boxes[0],))
    for box in boxes[1:]:
        whole = join_boxes(whole, (box,))
    if len(join_boxes(*((box,) for box in boxes))) == 1 and all(length for _, length in spans):
        held = sorted(place for start, length in spans for place in range(start, start + length))
        assert held == list(range(held[0], held[-1] + 1))
    if len(whole) == 1:
        assert whole == join_boxes(*((box,) for box in boxes))


@pytest.mark.parametrize(("name", "library", "message"), [
    ("top 3", "torch", "a slot is a list of elements"), ("variance", "numpy", "states of torch"),
])  # fmt: skip
def test_what_no_kernel_merges_is_refused_where_one_is_asked_for(name: str, library: str, message: str) -> None:
    state, other = (FUNCTIONS[name].leaf(tensors_of(name, library, 4, 0), start={n: i}) for i in (0, 4))
    with pytest.raises(ra.BackendError, match=message):
        FUNCTIONS[name].merge(state, other, backend="tilelang")


def test_states_of_far_places_are_merged_by_their_library() -> None:
    """Their slots are wider than those of other states."""
    near, far = (FUNCTIONS["variance"].leaf(tensors_of("variance", "torch", 4, seed)) for seed in (0, 1))
    wide = replace(far, slots={key: one.double() if one.is_floating_point() else one for key, one in far.slots.items()})
    with pytest.raises(ra.BackendError, match="those of far places are wider"):
        FUNCTIONS["variance"].merge(near, wide, backend="tilelang")
    mixed = [replace(one, slots={key: slot.double() if key == "c_0" else slot for key, slot in one.slots.items()})
             for one in (near, far)]  # fmt: skip
    with pytest.raises(ra.BackendError, match="those of far places are wider"):
        FUNCTIONS["variance"].merge(*mixed, backend="tilelang")
    found, wanted = (FUNCTIONS["variance"].finish(FUNCTIONS["variance"].merge(*pair)) for pair in (mixed, (near, far)))
    assert is_close(found, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("number", [2, 8, 70])
@pytest.mark.parametrize("name", sorted({*FORMS} - {"top 3"}))
def test_merges_on_a_gpu(name: str, number: int) -> None:
    edges = [*range(number), 100]
    there = [ra.State.from_bytes(one.to_bytes(), device="cuda") for one in states_of(FORMS[name], numbers(name), edges)]
    found, wanted = (FORMS[name].finish(FORMS[name].merge(*there, backend=one)) for one in ("tilelang", "library"))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
