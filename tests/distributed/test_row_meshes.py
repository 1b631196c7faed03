"""Tensors of a mesh whose rows are split: taken as they are placed, outputs with `Shard` along rows and free axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.distributed.cases import as_arrays
from tests.distributed.pool import Pool, ranks
from tests.distributed.test_rows import AXES, fused, h, k, q, wanted, whole_data


def table(size: int) -> Any:
    """A mesh with heads over its first dimension, and the group of a call over its second."""
    from torch.distributed.device_mesh import init_device_mesh

    shape = (size // 2, 2) if size > 2 else (1, size)
    return init_device_mesh("cpu", shape, mesh_dim_names=("heads", "parts"))


def placed(data: dict[str, torch.Tensor], mesh: Any, over: tuple[str, ...]) -> dict[str, Any]:
    """Tensors in a mesh, each split over a dimension along the first of the axes that it has."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def place(name: str, axes: str) -> Any:
        own = next((axis for axis in axes if axis in AXES[name]), None)
        return Replicate() if own is None else Shard(AXES[name].index(own))

    return {name: distribute_tensor(one, mesh, [place(name, axes) for axes in over]) for name, one in data.items()}


def mesh_call(rank: int, size: int, name: str, rows: int, streamed: int, heads: bool) -> Any:
    """The placements and the whole outputs of two calls, the second of a kind that is known."""
    mesh = table(size)
    call = fused(name).distributed((mesh, "parts"), axis=k, rows=q)
    tensors = placed(whole_data(name, rows, streamed), mesh, (h.name if heads else "", "qk"))
    first, second = call(**tensors), call(**tensors)
    assert all(torch.equal(a.to_local(), c.to_local()) for a, c in zip(first, second, strict=True))
    return [str(one.placements) for one in first], as_arrays(tuple(one.full_tensor() for one in first))


def check(pool: Pool, name: str, rows: int, streamed: int, heads: bool) -> None:
    for placements, outputs in pool.values(mesh_call, name, rows, streamed, heads):
        assert placements == [f"({'Shard(dim=0)' if heads else 'Replicate()'}, Shard(dim=1))"] * 2
        for output, want in zip(outputs, wanted(name, rows, streamed), strict=True):
            np.testing.assert_allclose(output, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["causal", "documents", "bias"])
def test_rows_of_a_mesh_stay_split(two: Pool, name: str) -> None:
    for rows, streamed in ((8, 8), (7, 5)):
        check(two, name, rows, streamed, heads=name == "causal")


@pytest.mark.slow
def test_heads_stay_split_over_the_other_dimension(tmp_path) -> None:
    with ranks(4, tmp_path) as pool:
        for name in ("causal", "bias", "window and sinks"):
            check(pool, name, 9, 6, heads=True)


def refused_call(rank: int, size: int, fault: str) -> Any:
    mesh = table(size)
    zigzag = {"zigzag": True} if fault == "zigzag" else {}
    call = fused("bias" if fault == "both" else "causal").distributed((mesh, "parts"), axis=k, rows=q, **zigzag)
    data = whole_data("bias" if fault == "both" else "causal", 8, 8)
    over = {"whole": "q", "features": "dk", "heads": "hk", "both": "kq"}.get(fault, "qk")
    tensors = placed(data, mesh, ("k" if fault == "dimension" else "", "q" if fault == "dimension" else over))
    if fault == "recorded":
        tensors = {name: one.requires_grad_() for name, one in tensors.items()}
    if fault == "plain":
        tensors["V"] = data["V"]
    if fault == "by":
        tensors |= {"by": torch.zeros(5, dtype=torch.int64), "groups": 1}
    return call(**tensors)


REFUSED = {
    "zigzag": "zigzag=True gives a rank two spans",
    "recorded": "a tensor requires a gradient",
    "whole": "tensor `K` is whole along it",
    "features": "is split along axis d over dimension 1",
    "heads": "is split along axis h over dimension 1",
    "both": "tensor `B` is split along axis k over dimension 1",
    "dimension": "tensor `K` is split along axis k over dimension 0",
    "plain": "tensor `K` is a DTensor, and `V` is none",
    "by": "it should have shape (4,), and has (5,).",
}


@pytest.mark.parametrize("fault", REFUSED)
def test_other_placements_are_refused_on_every_rank(two: Pool, fault: str) -> None:
    for outcome in two.outcomes(refused_call, fault):
        assert outcome.error == "InputError"
        assert REFUSED[fault] in outcome.text
