"""States as messages: every slot comes back as it was sent, and places far beyond 2²⁴ stay exact."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.distributed.packed import (
    STATUS_BYTES,
    agreement_word,
    failures_in,
    message_packing,
    new_message,
    slots_in,
    write_failure,
    write_slots,
)
from tests.distributed.cases import CASES, fused, n, shard, whole_data
from tests.distributed.pool import Pool

v = ra.tensor("v[n]")
furthest = ra.fuse(ra.max(v * n, n) - 2**24)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_slots_come_back_as_they_were(name: str, far: bool) -> None:
    state = fused(name).leaf(
        shard(name, whole_data(name, 7, 0), 0, 7), extents={"i": 7} if "i" in fused(name).cascade.extents() else {}
    )
    packing = message_packing(state.layout, state.sizes, "float32", far=far)
    message = new_message(2 * packing.nbytes, "cpu")
    write_slots(state.slots, message, packing, 1)
    found = slots_in(message.clone(), packing, 1)
    for slot in state.layout:
        assert torch.equal(found[slot.name], state.slots[slot.name])
        wide = far and slot.kind in ("extremum", "pivot")
        assert found[slot.name].dtype == (torch.float64 if wide else state.slots[slot.name].dtype)
    assert int(message[0]) == 0


@given(st.text(max_size=700))
def test_reasons_are_read_as_far_as_they_fit(reason: str) -> None:
    packing = message_packing((), {}, "float32", far=False)
    message = new_message(2 * packing.nbytes, "cpu", word=agreement_word(b"some text"))
    write_failure(reason, message)
    [(number, text)] = failures_in(torch.stack([torch.zeros_like(message), message]), [0, 1]).items()
    assert number == 1
    assert reason.rstrip("\0").startswith(text)
    assert len(text.encode()) >= min(len(reason.rstrip("\0").encode()), STATUS_BYTES - 4)


def far_call(rank: int, _: int) -> np.ndarray:
    """Of 2²⁴ + 2 elements the second rank has two: the last places are no numbers of float32."""
    part = torch.zeros(2**24) if rank == 0 else torch.ones(2)
    return furthest.distributed(axis=n)(v=part).double().numpy()


def test_places_are_exact_beyond_the_numbers_of_float32(two: Pool) -> None:
    found = two.values(far_call)
    pieces = [furthest.leaf({"v": torch.zeros(4)}), furthest.leaf({"v": torch.ones(2)}, start={n: 2**24})]
    assert [pieces[0].slots["max_0"].dtype, pieces[1].slots["max_0"].dtype] == [torch.float32, torch.float64]
    assert found[0] == found[1] == furthest.finish(furthest.merge(*pieces)) == 1
