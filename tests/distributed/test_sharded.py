"""Outputs that are split along a free axis: every rank merges and finishes its slice, and nothing is gathered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import redalg as ra
from redalg.distributed.ranks import Ranks
from tests.distributed.cases import CASES, as_arrays, b, fused, k, n, shard, whole_data, x
from tests.distributed.pool import Pool, ranks

SHARDED = ("variance", "logsumexp", "argmax", "topk", "first and last", "affine", "correlation")
c = ra.axes("c")
scaled = ra.fuse(ra.mean(x, n) * ra.tensor("gain[b]"))
two_outputs = ra.fuse({"total": (ra.sum(x, n), "b"), "pairs": (ra.tensor("gain[c]") * ra.max(x, n), "c b")})
"""Outputs that have the split axis in other places."""


def collectives(patch: pytest.MonkeyPatch) -> list[str]:
    """The names of the collectives of messages that are called from now on."""
    called: list[str] = []
    for name in ("gather", "exchange"):
        original = getattr(Ranks, name)

        def record(*args: Any, original: Any = original, name: str = name) -> Any:
            called.append(name)
            return original(*args)

        patch.setattr(Ranks, name, record)
    return called


def sharded_call(rank: int, size: int, name: str, lengths: list[int], parts: int | None = None) -> Any:
    """The outputs of a call of a known kind, and the collectives that it took."""
    data, first = whole_data(name, sum(lengths), 0), sum(lengths[:rank])
    if size > 2:
        data = {key: torch.cat([one, one]) for key, one in data.items()}
    call = fused(name).distributed(axis=CASES[name].axis, sharded="b", deterministic=parts)
    own = shard(name, data, first, first + lengths[rank])
    before = as_arrays(call(**own))
    with pytest.MonkeyPatch.context() as patch:
        called = collectives(patch)
        after = as_arrays(call(**own))
    assert all(np.array_equal(a, c) for a, c in zip(before, after, strict=True))
    return after, called


def check(pool: Pool, name: str, lengths: list[int], parts: int | None = None) -> None:
    outcomes = pool.values(sharded_call, name, lengths, parts)
    data = whole_data(name, sum(lengths), 0)
    if len(lengths) > 2:
        data = {key: torch.cat([one, one]) for key, one in data.items()}
    for number, want in enumerate(as_arrays(fused(name)(**data))):
        slices = [outputs[number] for outputs, _ in outcomes]
        assert {len(one) for one in slices} == {1}
        np.testing.assert_allclose(np.concatenate(slices), want, rtol=2e-5, atol=2e-5)
    assert all(called == ["exchange"] for _, called in outcomes)


@pytest.mark.parametrize("name", SHARDED)
def test_every_rank_has_its_slice_and_nothing_is_gathered(two: Pool, name: str) -> None:
    for lengths, parts in (([6, 7], None), ([0, 9], None), ([4, 4], 4)):
        check(two, name, lengths, parts)


@pytest.mark.slow
def test_four_ranks_have_a_slice_each(tmp_path) -> None:
    with ranks(4, tmp_path) as pool:
        for name in SHARDED:
            check(pool, name, [3, 0, 5, 1])


def call_with_more(rank: int, size: int) -> Any:
    """A tensor in the output, groups, and a tensor of a mesh."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    whole, gain = whole_data("variance", 8, 0)["x"], torch.tensor([2.0, 3.0])
    own = whole[:, 4 * rank : 4 * rank + 4]
    with_gain = scaled.distributed(axis=n, sharded=b)(x=own, gain=gain)
    keys = (torch.arange(8) % 3)[4 * rank : 4 * rank + 4]
    by_group = fused("variance").distributed(axis=n, sharded=b)(x=own, by=keys, groups=3)
    mesh = init_device_mesh("cpu", (size,))
    placed = fused("variance").distributed(mesh, axis=n, sharded=b)(x=distribute_tensor(whole, mesh, [Shard(1)]))
    return with_gain.numpy(), by_group.numpy(), (str(placed.placements), placed.full_tensor().numpy())


def test_tensors_of_outputs_groups_and_meshes_are_cut_too(two: Pool) -> None:
    data = whole_data("variance", 8, 0)["x"]
    by_group = fused("variance")(x=data, by=torch.arange(8) % 3, groups=3)
    outcomes = two.values(call_with_more)
    for rank, (gain, groups, (placements, whole)) in enumerate(outcomes):
        np.testing.assert_allclose(gain, data.mean(1).numpy()[rank : rank + 1] * (2 + rank), rtol=1e-5)
        np.testing.assert_allclose(groups, by_group[:, rank : rank + 1], rtol=1e-4)
        assert placements == "(Shard(dim=0),)"
        np.testing.assert_allclose(whole, fused("variance")(x=data), rtol=1e-4)


def uneven_call(rank: int, size: int, rows: int) -> Any:
    """A tensor in the output, groups, two axes, and a tensor of a mesh, of rows that ranks do not divide."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    whole, gain = uneven_data(rows)
    own = whole[:, 4 * rank : 4 * rank + 4]
    with_gain = scaled.distributed(axis=n, sharded=b)(x=own, gain=gain)
    keys = (torch.arange(8) % 3)[4 * rank : 4 * rank + 4]
    by_group = fused("variance").distributed(axis=n, sharded=b)(x=own, by=keys, groups=3)
    several = two_outputs.distributed(axis=n, sharded=b, deterministic=4)(x=own, gain=gain)
    mesh = init_device_mesh("cpu", (size,))
    placed = fused("variance").distributed(mesh, axis=n, sharded=b)(x=distribute_tensor(whole, mesh, [Shard(1)]))
    of_mesh = str(placed.placements), placed.to_local().numpy(), placed.full_tensor().numpy()
    return with_gain.numpy(), by_group.numpy(), as_arrays(several), of_mesh


def uneven_data(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows)), torch.arange(1.0, rows + 1)


@pytest.mark.parametrize("rows", [1, 3, 5, 8])
def test_rows_that_ranks_do_not_divide_are_cut_as_torch_chunks_them(two: Pool, rows: int) -> None:
    data, gain = uneven_data(rows)
    variance, by_group = fused("variance")(x=data), fused("variance")(x=data, by=torch.arange(8) % 3, groups=3)
    several = as_arrays(two_outputs(x=data, gain=gain))
    own = [slice(0, -(-rows // 2)), slice(-(-rows // 2), rows)]
    for cut, outcome in zip(own, two.values(uneven_call, rows), strict=True):
        with_gain, groups, found, (placements, local, whole) = outcome
        np.testing.assert_allclose(with_gain, (data.mean(1) * gain).numpy()[cut], rtol=1e-5)
        np.testing.assert_allclose(groups, by_group[:, cut], rtol=1e-4)
        np.testing.assert_allclose(found[0], several[0][cut], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[1], several[1][:, cut], rtol=1e-4)
        assert placements == "(Shard(dim=0),)"
        np.testing.assert_allclose(local, variance[cut], rtol=1e-4)
        np.testing.assert_allclose(whole, variance, rtol=1e-4)


def unlike_call(rank: int, size: int) -> Any:
    return fused("variance").distributed(axis=n, **({} if rank else {"sharded": b}))(x=torch.ones(2, 4))


def test_ranks_that_split_outputs_otherwise_are_refused_on_all(two: Pool) -> None:
    for outcome in two.outcomes(unlike_call):
        assert outcome.error == "InputError"
        assert "the ranks differ in the axis along which outputs are split: b on rank 0; none on rank 1" in outcome.text


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "reduced": ("variance", {"axis": n, "sharded": n}, "sharded=n is no free axis"),
    "an output without": ({"a": (ra.sum(x, n), "b"), "z": (ra.sum(ra.tensor("w[n]"), n), "")},
                          {"axis": n, "sharded": b}, "sharded=b is no axis of output `z`"),
    "keeps the axis": ("softmax", {"axis": n, "sharded": b}, "output `out` keeps axis n"),
    "places": ("causal", {"axis": k, "sharded": "q"}, "holds places or the extent of this axis"),
    "rows": ("causal", {"axis": k, "rows": "q", "sharded": "q"}, "rows= splits the outputs along the rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_slices_is_refused(name: str) -> None:
    what, options, message = REFUSED[name]
    function = fused(what) if isinstance(what, str) else ra.fuse(what)
    with pytest.raises(ra.InputError, match=message):
        function.distributed(**options)
