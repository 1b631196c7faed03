"""Groups across ranks: every rank has elements of any groups, and the outputs of each are those of the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import redalg as ra
from tests.distributed.cases import CASES, as_arrays, fused, here, n, shard, whole_data, x
from tests.distributed.pool import Pool

GROUPED = [name for name, case in CASES.items() if len(fused(name).cascade.reduced_axes) == 1]
"""Keys number the elements of one axis."""
GROUPS = 4
"""Of which the last has no element."""


def keys_of(length: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(length).integers(0, GROUPS - 1, length))


def grouped_call(
    rank: int, size: int, name: str, lengths: list[int], parts: int | None = None, empty: str = "nan"
) -> list[list[np.ndarray]]:
    """The outputs of two calls, the second of a kind that is known."""
    call, found = fused(name).distributed(axis=CASES[name].axis, deterministic=parts), []
    for seed in (0, 1):
        data, first = whole_data(name, sum(lengths), seed), sum(lengths[:rank])
        own = here(shard(name, data, first, first + lengths[rank]))
        keys = here({"": keys_of(sum(lengths))[first : first + lengths[rank]]})[""]
        found.append(as_arrays(call(**own, by=keys, groups=GROUPS, empty=empty)))
    return found


def check(pool: Pool, name: str, lengths: list[int], **options: Any) -> None:
    outcomes = pool.values(grouped_call, name, lengths, *options.values())
    keeps = any(one.carries for one in fused(name).form.outputs)
    for seed, of_ranks in enumerate(zip(*outcomes, strict=True)):
        whole = fused(name)(**whole_data(name, sum(lengths), seed), by=keys_of(sum(lengths)), groups=GROUPS)
        for number, want in enumerate(as_arrays(whole)):
            arrays = [outputs[number] for outputs in of_ranks]
            found = np.concatenate(arrays, 1) if keeps else arrays[0]
            np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)
            assert keeps or all(np.array_equal(found, other, equal_nan=True) for other in arrays)


@pytest.mark.parametrize("name", GROUPED)
def test_groups_of_two_ranks_are_those_of_the_whole(two: Pool, name: str) -> None:
    for lengths in ([7, 6], [9, 0]):
        check(two, name, lengths)


def test_parts_of_fixed_length_agree_to_the_last_bit(two: Pool) -> None:
    for name in ("variance", "softmax", "first and last"):
        check(two, name, [8, 4], parts=3)
        whole, split = (two.values(grouped_call, name, lengths, 3) for lengths in ([12, 0], [4, 8]))
        for calls, others in zip(*([*zip(*one, strict=True)] for one in (whole, split)), strict=True):
            for place in range(len(calls[0])):
                joined = [[of_rank[place] for of_rank in one] for one in (calls, others)]
                a, c = (np.concatenate(one, 1) if name == "softmax" else one[0] for one in joined)
                np.testing.assert_array_equal(a, c)


def test_empty_groups_are_what_the_policy_says(two: Pool) -> None:
    for empty, wanted in (("nan", np.nan), ("zero", 0)):
        for calls in two.values(grouped_call, "variance", [5, 4], None, empty):
            np.testing.assert_array_equal(calls[0][0][GROUPS - 1], [wanted] * 2)


def sliced_call(rank: int, size: int) -> Any:
    """The outputs of a call whose states are merged slice by slice along the groups."""
    from redalg.distributed import slices

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "sliced_us", lambda *_: -1.0)
        call = ra.fuse(ra.var(ra.tensor("r[n]"), n)).distributed(axis=n)
        keys = keys_of(12)[6 * rank : 6 * rank + 6]
        found = call(r=torch.arange(12.0)[6 * rank : 6 * rank + 6], by=keys, groups=GROUPS)
        agreed = call._protocol.last
        assert agreed is not None
        assert agreed.terms.slices is not None
        return str(agreed.terms.slices.axis), found.numpy()


def test_slices_of_groups_are_merged_by_ranks(two: Pool) -> None:
    data, keys = np.arange(12.0), keys_of(12).numpy()
    for axis, found in two.values(sliced_call):
        assert axis == "groups"
        np.testing.assert_allclose(found[:-1], [data[keys == group].var() for group in range(GROUPS - 1)], rtol=1e-6)
        assert np.isnan(found[-1])


def mesh_call(rank: int, size: int) -> Any:
    """The placements and the numbers of an output by group of a DTensor, with the keys of this rank's shard."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    data = distribute_tensor(whole_data("variance", 8, 0)["x"], mesh, [Shard(1)])
    call = fused("variance").distributed(mesh, axis=n)
    [one] = {str(call(x=data, by=keys_of(8)[4 * rank : 4 * rank + 4], groups=GROUPS).placements) for _ in range(2)}
    return one, call(x=data, by=keys_of(8)[4 * rank : 4 * rank + 4], groups=GROUPS).to_local().numpy()


def test_groups_of_a_tensor_of_a_mesh_are_whole(two: Pool) -> None:
    want = fused("variance")(**whole_data("variance", 8, 0), by=keys_of(8), groups=GROUPS)
    for placements, found in two.values(mesh_call):
        assert placements == "(Replicate(),)"
        np.testing.assert_allclose(found, want, rtol=2e-5)


def faulty_call(rank: int, size: int, fault: str) -> Any:
    """The texts of the error of a call that goes wrong on rank 1, and of a good one after it."""
    call, data = fused("variance").distributed(axis=n), {"x": torch.ones(2, 4)}
    by, groups = torch.tensor([0, 1, 1, 0]), 2
    given: dict[str, Any] = {"by": by, "groups": groups}
    wrong: dict[str, dict[str, Any]] = {
        "number": {"groups": 3},
        "range": {"by": by + 1},
        "floats": {"by": by.float()},
        "length": {"by": by[:3]},
        "list": {"by": [0, 1, 1, 0]},
        "alone": {"groups": None},
    }
    if rank == 1:
        given = given | wrong[fault] if fault in wrong else {}
    try:
        call(**data, **given)
    except ra.InputError as error:
        return str(error), as_arrays(call(**data, by=by, groups=groups))[0].tolist()
    return "", None


FAULTS = {
    "number": "the ranks differ in the number of groups: 2 on rank 0; 3 on rank 1",
    "without": "the ranks differ in the number of groups: 2 on rank 0; 0 on rank 1",
    "range": "a number from 0 to 1 as groups=2; of element 1 it is 2",
    "floats": "as an integer, and is float32",
    "length": "it should have shape (4,), and has (3,)",
    "list": "is a list. Pass a tensor of torch",
    "alone": "`by=` needs the number of groups",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_keys_that_do_not_fit_are_told_on_all_ranks(two: Pool, fault: str) -> None:
    for text, after in two.values(faulty_call, fault):
        assert FAULTS[fault] in text
        assert after == [[0, 0], [0, 0]]


def test_what_has_no_groups_is_refused(two: Pool) -> None:
    for outcome in two.outcomes(refused_call):
        assert "reduces over m and n together" in outcome.text


def refused_call(rank: int, size: int) -> Any:
    m = ra.axes("m")
    both = ra.fuse(ra.sum(x * ra.tensor("w[m]"), n, m))
    data = {"x": torch.ones(2, 4), "w": torch.ones(3)}
    return both.distributed(axis=n)(**data, by=torch.zeros(4, dtype=torch.int64), groups=1)
