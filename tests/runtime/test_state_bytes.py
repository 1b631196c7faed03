"""States in one buffer, as bytes and as dictionaries of tensors; states of many pieces, and in place."""

from __future__ import annotations

import io
import json
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg.runtime.bind import packing
from redalg.runtime.bind.packing import ALIGNMENT, Packed
from redalg.runtime.bind.state_bytes import LENGTH_BYTES, MARK
from tests.sweeps import draws

b, n = ra.axes("b n")
x, y = ra.tensors("x[b,n] y[b,n]")
FUNCTIONS = {
    "variance": ra.fuse(ra.var(x, n), axes="b"),
    "logsumexp": ra.fuse(ra.logsumexp(x, n), axes="b"),
    "correlation": ra.fuse(ra.cosine_similarity(x - ra.mean(x, n), y - ra.mean(y, n), n), axes="b"),
    "argmax": ra.fuse(ra.argmax(x, n), axes="b"),
    "top 3": ra.fuse(ra.topk(x, n, ra.axis("j", size=3))[0], axes="b j"),
    "last": ra.fuse(ra.last(x, n), axes="b"),
    "recurrence": ra.fuse(ra.affine(x / 4, y, n)[1], axes="b"),
    "masked by place": ra.fuse(ra.sum(ra.where(n < 7, x, 0), n), axes="b"),
}


def pieces(name: str, data: dict[str, Any], cuts: list[int]) -> list[ra.State]:
    """The states of pieces between cuts."""
    edges = [0, *sorted(cuts), data["x"].shape[1]]
    fused = FUNCTIONS[name]
    return [fused.leaf({key: one[:, i:k] for key, one in data.items()}, start={n: i})
            for i, k in pairwise(edges)]  # fmt: skip


def tensors_of(name: str, library: str, length: int, seed: int) -> dict[str, Any]:
    """The tensors of a function, of two rows."""
    generator = np.random.default_rng(seed)
    names = {one.name for one in FUNCTIONS[name].cascade.elements()}
    data = {key: generator.normal(0, 1, (2, length)).astype(np.float32) for key in sorted(names)}
    return data if library == "numpy" else {key: torch.from_numpy(one) for key, one in data.items()}


def is_close(found: Any, wanted: Any) -> bool:
    """Tell if outputs are equal up to rounding."""
    return np.allclose(np.asarray(found), np.asarray(wanted), rtol=1e-5, atol=1e-6)


TRIPS: dict[str, Callable[[ra.State], ra.State]] = {
    "bytes": lambda state: ra.State.from_bytes(state.to_bytes()),
    "dictionary": lambda state: ra.State.from_state_dict(state.state_dict()),
    "pickle": lambda state: pickle.loads(pickle.dumps(state)),
}


@pytest.mark.parametrize("trip", TRIPS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_state_that_travelled_is_the_state(name: str, library: str, trip: str) -> None:
    data = tensors_of(name, library, 11, 1)
    first, second = pieces(name, data, [5])
    arrived = TRIPS[trip](first)
    for field in ("layout", "sizes", "result", "library", "device", "scalars", "places", "starts", "form", "meaning"):
        assert getattr(arrived, field) == getattr(first, field), field
    for key, one in first.slots.items():
        np.testing.assert_array_equal(np.asarray(arrived.slots[key]), np.asarray(one))
    fused = FUNCTIONS[name]
    assert is_close(fused.finish(fused.merge(arrived, second)), fused.reference(**data))


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_slots_are_views_of_one_buffer(name: str, library: str) -> None:
    data = tensors_of(name, library, 6, 0)
    state = FUNCTIONS[name].leaf(data)
    first = 0
    for slot in state.layout:
        view = np.asarray(state.slots[slot.name])
        assert np.asarray(state.buffer)[first : first + view.nbytes].tobytes() == view.tobytes()
        assert np.shares_memory(np.asarray(state.buffer), view)
        first += -(-view.nbytes // ALIGNMENT) * ALIGNMENT
    assert state.buffer.shape == (first,)


def test_a_state_put_together_by_hand_has_a_buffer_too() -> None:
    state = FUNCTIONS["variance"].leaf(tensors_of("variance", "numpy", 6, 0))
    other = replace(state, slots={key: one.copy() for key, one in state.slots.items()})
    assert other.buffer.tobytes() == state.buffer.tobytes()
    assert other.to_bytes() == state.to_bytes()


def test_libraries_read_each_other() -> None:
    state = FUNCTIONS["variance"].leaf(tensors_of("variance", "numpy", 6, 0))
    in_torch = ra.State.from_bytes(state.to_bytes(), library="torch")
    assert isinstance(FUNCTIONS["variance"].finish(in_torch), torch.Tensor)
    assert ra.State.from_bytes(in_torch.to_bytes(), library="numpy").to_bytes() == state.to_bytes()


def test_torch_loads_a_dictionary_of_weights_alone() -> None:
    state = FUNCTIONS["variance"].leaf(tensors_of("variance", "torch", 6, 0))
    file = io.BytesIO()
    torch.save(state.state_dict(), file)
    file.seek(0)
    arrived = ra.State.from_state_dict(torch.load(file, weights_only=True))
    assert arrived.to_bytes() == state.to_bytes()


@given(st.sampled_from([*FUNCTIONS]), st.lists(st.integers(0, 20), max_size=7), st.randoms(use_true_random=False))
@settings(max_examples=draws(40), deadline=None)
def test_many_states_merge_at_once_and_in_place(name: str, cuts: list[int], random: Any) -> None:
    data = tensors_of(name, "numpy", 20, len(cuts))
    states, fused = pieces(name, data, cuts), FUNCTIONS[name]
    wanted, edges = fused.reference(**data), [0, *sorted(cuts), 20]
    running = fused.empty_state({"b": 2}, library="numpy")
    buffer = running.buffer
    for i, k in pairwise(edges):
        running = fused.update(running, {key: one[:, i:k] for key, one in data.items()})
    assert running.buffer is buffer
    assert running.covers == (0, 20)
    assert is_close(fused.finish(running), wanted)
    random.shuffle(states)
    merged = fused.merge(*states) if len(states) > 1 else states[0]
    assert is_close(fused.finish(merged), wanted)


def test_bytes_are_laid_out_as_documented() -> None:
    """Read by the table of docs/STATES.md alone: a mark, a length, a header, slots from multiples of 16."""
    state = FUNCTIONS["variance"].leaf(tensors_of("variance", "numpy", 6, 0))
    data, mark = state.to_bytes(), b"redalg state\n"
    length = int.from_bytes(data[len(mark) : len(mark) + 8], "little")
    header = json.loads(data[len(mark) + 8 : len(mark) + 8 + length].decode())
    place = -(-(len(mark) + 8 + length) // 16) * 16
    for slot in header["slots"]:
        count = math.prod(slot["shape"])
        found = np.frombuffer(data, slot["dtype"], count, place).reshape(slot["shape"])
        np.testing.assert_array_equal(found, state.slots[slot["name"]])
        place += -(-found.nbytes // 16) * 16
    assert data.startswith(mark)
    assert place == len(data)


# ---- what comes from elsewhere ---------------------------------------------------------------------------------------

DATA = FUNCTIONS["variance"].leaf(tensors_of("variance", "numpy", 6, 0)).to_bytes()
START = len(MARK) + LENGTH_BYTES
LENGTH = int.from_bytes(DATA[len(MARK) : START], "little")


def with_fields(**fields: Any) -> bytes:
    """The bytes with other fields in their header; None takes a field out."""
    header = {**json.loads(DATA[START : START + LENGTH]), **fields}
    text = json.dumps({key: one for key, one in header.items() if one is not None}).encode()
    return MARK + len(text).to_bytes(LENGTH_BYTES, "little") + text + DATA[START + LENGTH :]


SLOT = {"name": "s", "kind": "count", "axes": [], "dtype": "int64", "shape": []}
REFUSED: dict[str, tuple[Any, str]] = {
    "no bytes": ("text", "the state should be bytes, not a str"),
    "another file": (b"PK\x03\x04", "the bytes begin with b'PK"),
    "cut in the header": (DATA[: START + 5], "the header should have"),
    "cut in the slots": (DATA[:-8], "the slots take 64 bytes; the buffer has shape (56,)"),
    "no JSON": (MARK + (4).to_bytes(8, "little") + b"{...", "the header is no JSON"),
    "no text": (MARK + (1).to_bytes(8, "little") + b"\xff", "the header is no text"),
    "no object": (MARK + (2).to_bytes(8, "little") + b"[]", "the header should be an object"),
    "a field less": (with_fields(form=None), "the header has no `form`"),
    "a version in words": (with_fields(version="1"), "`version` of the header should be an integer"),
    "a size below 0": (with_fields(sizes={"b": -2}), "`sizes` of the header should be integers by name"),
    "a name that is none": (with_fields(sizes={"b c": 2}), "`sizes` of the header"),
    "a box of three": (with_fields(places=[[[0, 1, 2]]]), "`places` of the header"),
    "a dtype of objects": (with_fields(slots=[{**SLOT, "dtype": "object"}]), "`slots` of the header"),
    "a slot of too many sizes": (with_fields(slots=[{**SLOT, "shape": [3]}]), "`slots` of the header"),
    "two slots of one name": (with_fields(slots=[SLOT, SLOT]), "two slots of the header have one name"),
    "a slot that is larger": (
        with_fields(slots=[{**SLOT, "axes": [["b", None]], "shape": [1 << 40]}]),
        "the slots take",
    ),
    "another library": (with_fields(library="jax"), "is not an option"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_state_is_refused(name: str) -> None:
    data, message = REFUSED[name]
    with pytest.raises(ra.InputError) as caught:
        ra.State.from_bytes(data)
    assert str(caught.value).startswith("from_bytes: ")
    assert message in str(caught.value)


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
@settings(max_examples=draws(100), deadline=None)
def test_any_changed_byte_is_refused_or_read_as_a_state(place: int, change: int) -> None:
    data = bytearray(DATA)
    data[place] ^= change
    try:
        state = ra.State.from_bytes(bytes(data))
        FUNCTIONS["variance"].finish(state)
    except ra.InputError:
        pass


def test_states_of_another_form_or_version_are_refused_when_they_are_used() -> None:
    with pytest.raises(ra.InputError, match="format 3"):
        FUNCTIONS["variance"].finish(ra.State.from_bytes(with_fields(version=3)))
    with pytest.raises(ra.InputError, match="slots"):
        FUNCTIONS["argmax"].finish(ra.State.from_bytes(DATA))


@pytest.mark.parametrize("found", [{}, {"header": "{}"}, {"header": "{}", "buffer": [1]}])
def test_a_dictionary_of_something_else_is_refused(found: dict[str, Any]) -> None:
    with pytest.raises(ra.InputError, match="it should have a `header` and a `buffer`"):
        ra.State.from_state_dict(found)


def test_a_state_without_a_common_buffer_is_not_updated() -> None:
    fused, data = FUNCTIONS["variance"], tensors_of("variance", "numpy", 6, 0)
    state = fused.leaf(data)
    with pytest.raises(ra.InputError, match="in no common buffer"):
        fused.update(replace(state, slots=dict(state.slots)), data)


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_bytes_of_other_memory_do_not_travel(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_CLEARED", most)
    whole_empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, **how: whole_empty(*shape, **how).fill_(7))
    arrays = {"a": torch.tensor(1.0), "b": torch.arange(3), "c": torch.ones(4)}
    buffer = Packed.of(arrays, "torch", "cpu").buffer
    assert buffer[4:16].tolist() == [0] * 12
    assert buffer[40:48].tolist() == [0] * 8
    assert buffer.numel() == 64
