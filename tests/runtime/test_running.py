"""Running states: updated where they lie, in a buffer of one owner, whatever shares it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redalg as ra

b, n = ra.axes("b n")
x, y = ra.tensors("x[b,n] y[b,n]")
FUNCTIONS = {
    "variance": ra.fuse(ra.var(x, n)),
    "weighted mean": ra.fuse(ra.sum(ra.softmax(y, n) * x, n)),
    "argmax": ra.fuse(ra.argmax(x, n)),
    "affine": ra.fuse(ra.affine(y, x, n)[1]),
    "first": ra.fuse(ra.first(x, n)),
}


def piece(fused: ra.Fused, length: int, seed: int, library: str) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    arrays = {name: generator.normal(size=(2, length)) for name in fused.cascade.inputs()}
    if library == "numpy":
        return arrays
    import torch

    return {name: torch.from_numpy(one) for name, one in arrays.items()}


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=8)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.booleans())
def test_a_running_state_is_that_of_merges_in_its_own_memory(
    name: str, library: str, lengths: list[int], empty: bool
) -> None:
    fused = FUNCTIONS[name]
    first = fused.leaf(piece(fused, 3, 99, library))
    running = fused.empty_state({"b": 2}, "float64", library=library) if empty else fused.merge(first)
    whole = (
        fused.empty_state({"b": 2}, "float64", library=library) if empty else fused.leaf(piece(fused, 3, 99, library))
    )
    buffer, at = running.buffer, 0 if empty else 3
    for seed, length in enumerate(lengths):
        given = piece(fused, length, seed, library)
        running = fused.update(running, given, start={n: at})
        whole = fused.merge(whole, fused.leaf(given, start={n: at}))
        at += length
        assert running.buffer is buffer
    assert (running.buffer == whole.buffer).all()
    assert running.places == whole.places
    np.testing.assert_array_equal(np.asarray(fused.finish(running)), np.asarray(fused.finish(whole)))


def test_what_shares_memory_changes_and_what_does_not_stays() -> None:
    fused = FUNCTIONS["variance"]
    data, more = (piece(fused, 4, seed, "torch") for seed in (0, 1))
    state = fused.leaf(data)
    before = np.asarray(fused.finish(state)).copy()
    own = [fused.take(state, [0, 1], b), ra.State.from_bytes(state.to_bytes()), fused.merge(state, state)]
    values = [np.asarray(fused.finish(one)).copy() for one in own]
    kept = state.state_dict()
    restored, slots = ra.State.from_state_dict(kept), state.slots
    text = kept["buffer"].clone()
    fused.update(restored, more)
    after = np.asarray(fused.finish(fused.update(state, more)))
    for one, value in zip(own, values, strict=True):
        np.testing.assert_array_equal(np.asarray(fused.finish(one)), value)
    assert (kept["buffer"] == text).all()
    assert slots["count"] == 8  # an array of the spent state is one of the running state
    assert not np.array_equal(before, after)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_piece_that_is_refused_leaves_the_state_as_it_was(library: str) -> None:
    fused = FUNCTIONS["argmax"]
    state = fused.leaf(piece(fused, 4, 0, library))
    before = state.to_bytes()
    with pytest.raises(ra.InputError, match="both states hold element"):
        fused.update(state, piece(fused, 4, 1, library), start={n: 3})
    assert state.to_bytes() == before


def test_views_of_a_shared_state_are_refused() -> None:
    fused = FUNCTIONS["variance"]
    row = fused.leaf({"x": np.ones((1, 3))})
    with pytest.raises(ra.InputError, match="lie in no common buffer"):
        fused.update(fused.expand(row, {b: 2}), piece(fused, 4, 1, "numpy"))
