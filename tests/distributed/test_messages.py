"""States as messages: every slot comes back as it was sent, and places far beyond 2²⁴ stay exact."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.distributed.packed import STATUS_BYTES, MessageLayout, read_failures, write_failure
from redalg.incremental.form import Slot
from tests.distributed.cases import CASES, fused, n, shard, whole_data
from tests.distributed.pool import Pool

KINDS = ("count", "index", "extremum", "pivot", "accumulator", "component")
v = ra.tensor("v[n]")
furthest = ra.fuse(ra.max(v * n, n))
AXES = ra.axes("a c")
slots = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([(), AXES[:1], AXES])), max_size=6)


@pytest.mark.parametrize("name", CASES)
def test_slots_come_back_as_they_were(name: str) -> None:
    state = fused(name).leaf(shard(name, whole_data(name, 7, 0), 0, 7))
    layout = MessageLayout.of_slots(state.layout, state.sizes, "float32", far=False)
    message = layout.new_message("cpu")
    layout.write_slots(state.slots, message)
    found = dict(layout.views(message.clone()))
    assert {slot: array.dtype for slot, array in found.items()} == {a: c.dtype for a, c in state.slots.items()}
    assert all(torch.equal(found[slot], array) for slot, array in state.slots.items())


@given(slots, st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_slots_lie_apart_and_aligned(kinds: list, first: int, second: int, far: bool) -> None:
    layout = MessageLayout.of_slots(
        tuple(Slot(f"slot_{i}", kind, axes) for i, (kind, axes) in enumerate(kinds)),
        {"a": first, "c": second}, "float32", far=far,
    )  # fmt: skip
    end = STATUS_BYTES
    for place in layout.places:
        assert place.start >= end
        assert place.start % 16 == 0
        end = place.stop
    assert end <= layout.bytes < end + 16
    message = layout.new_message("cpu")
    layout.write_slots({one.name: torch.full(one.shape, 7.0) for one in layout.places}, message)
    assert all(bool((view == 7).all()) for _, view in layout.views(message))
    assert read_failures(message[None]) == {}


@given(st.text(max_size=700))
def test_reasons_are_read_as_far_as_they_fit(reason: str) -> None:
    message = MessageLayout.of_slots((), {}, "float32", far=False).new_message("cpu")
    write_failure(reason, message)
    [(number, text)] = read_failures(torch.stack([torch.zeros_like(message), message])).items()
    assert number == 1
    assert reason.rstrip("\0").startswith(text)
    assert len(text.encode()) >= min(len(reason.rstrip("\0").encode()), STATUS_BYTES - 4)


def far_call(rank: int, _: int) -> np.ndarray:
    """Of 2²⁴ + 2 elements the second rank has two: the last places are no numbers of float32."""
    part = torch.zeros(2**24) if rank == 0 else torch.ones(2)
    return furthest.distributed(axis=n)(v=part.double().float()).double().numpy()


def test_places_are_exact_beyond_the_numbers_of_float32(two: Pool) -> None:
    found = two.values(far_call)
    pieces = [furthest.leaf({"v": torch.zeros(4)}), furthest.leaf({"v": torch.ones(2)}, start={n: 2**24})]
    assert [pieces[0].slots["max_0"].dtype, pieces[1].slots["max_0"].dtype] == [torch.float32, torch.float64]
    assert found[0] == found[1] == furthest.finish(furthest.merge(*pieces)).double().numpy()
