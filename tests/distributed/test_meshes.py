"""Meshes and their tensors: taken as they are placed, and refused where parts would be partial sums."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.distributed.cases import CASES, as_arrays, b, fused, k, n, q, shard, whole_data
from tests.distributed.pool import Pool, ranks


def line(size: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (size,), mesh_dim_names=("parts",))


def table(size: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (size // 2, 2) if size > 2 else (2, 1), mesh_dim_names=("rows", "parts"))


def placed(name: str, mesh: Any, data: dict[str, torch.Tensor], split: dict[int, Any]) -> dict[str, Any]:
    """Tensors in a mesh: `split` says along which axis over which of its dimensions."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    found = {}
    for tensor, array in data.items():
        axes = CASES[name].tensors[tensor].split()
        places = [Shard(axes.index(split[i].name)) if i in split and split[i].name in axes else Replicate()
                  for i in range(mesh.ndim)]  # fmt: skip
        found[tensor] = distribute_tensor(array, mesh, places)
    return found


def plain_call(rank: int, size: int, name: str) -> list[np.ndarray]:
    """Plain tensors, and a mesh for the group."""
    data, first = whole_data(name, 9, 0), (0, 4, 9)
    part = shard(name, data, first[rank], first[rank + 1])
    mesh = line(size)
    found = [fused(name).distributed(one, axis=CASES[name].axis)(**part) for one in (mesh, (mesh, "parts"), (mesh, 0))]
    assert all(torch.equal(found[0], one) for one in found)
    return as_arrays(found[0])


def mesh_call(rank: int, size: int, name: str, length: int) -> list[np.ndarray]:
    mesh = line(size)
    tensors = placed(name, mesh, whole_data(name, length, 0), {0: CASES[name].axis})
    return whole_outputs(fused(name).distributed(mesh, axis=CASES[name].axis)(**tensors))


def table_call(rank: int, size: int, name: str, free: Any) -> tuple[list[str], list[np.ndarray]]:
    """The streamed axis over one dimension of the mesh, a free axis over the other."""
    mesh = table(size)
    tensors = placed(name, mesh, whole_data(name, 7, 0), {0: free, 1: CASES[name].axis})
    outputs = fused(name).distributed((mesh, "parts"), axis=CASES[name].axis)(**tensors)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [str(one.placements) for one in outputs], whole_outputs(outputs)


def whole_outputs(outputs: Any) -> list[np.ndarray]:
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return as_arrays(tuple(one.full_tensor() for one in outputs))


def check(found: list[np.ndarray], name: str, length: int) -> None:
    for output, want in zip(found, as_arrays(fused(name)(**whole_data(name, length, 0))), strict=True):
        np.testing.assert_allclose(output, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["variance", "causal"])
def test_a_mesh_is_taken_for_its_group(two: Pool, name: str) -> None:
    for found in two.values(plain_call, name):
        check(found, name, 9)


@pytest.mark.parametrize("length", [8, 7, 1])
@pytest.mark.parametrize("name", ["variance", "causal", "topk", "softmax"])
def test_tensors_of_a_mesh_are_taken_as_they_are_placed(two: Pool, name: str, length: int) -> None:
    for found in two.values(mesh_call, name, length):
        check(found, name, length)


def test_a_free_axis_stays_split(two: Pool) -> None:
    for name, free, placement in (("causal", q, "Shard(dim=0), Replicate()"), ("softmax", b, "Shard(dim=0), Shard(")):
        for placements, found in two.values(table_call, name, free):
            assert placement in placements[0]
            check(found, name, 7)


@pytest.mark.slow
def test_both_axes_are_split_over_four(tmp_path) -> None:
    with ranks(4, tmp_path) as pool:
        for name, free in (("causal", q), ("softmax", b), ("topk", b), ("affine", b)):
            for _, found in pool.values(table_call, name, free):
                check(found, name, 7)


# ---- what is refused -------------------------------------------------------------------------------------------------


def partial_sums(rank: int, size: int) -> Any:
    from torch.distributed.tensor import DTensor, Partial

    mesh = line(size)
    return fused("variance").distributed(mesh, axis=n)(x=DTensor.from_local(torch.ones(2, 3), mesh, [Partial()]))


def contracted_axis(rank: int, size: int) -> Any:
    mesh = table(size)
    tensors = placed("weighted mean", mesh, whole_data("weighted mean", 4, 0), {0: CONTRACTED, 1: k})
    return fused("weighted mean").distributed((mesh, "parts"), axis=k)(**tensors)


def wrong_dimension(rank: int, size: int) -> Any:
    mesh = table(size)
    return fused("variance").distributed((mesh, "parts"), axis=n)(
        **placed("variance", mesh, whole_data("variance", 4, 0), {0: n})
    )


def other_lengths(rank: int, size: int) -> Any:
    from torch.distributed.tensor import DTensor, Shard

    x = DTensor.from_local(torch.ones(2, 3 + rank), line(size), [Shard(1)])  # 6 elements of n on rank 0, 8 on rank 1
    return fused("softmax").distributed(line(size), axis=n)(x=x)


def whole_beside_parts(rank: int, size: int) -> Any:
    from torch.distributed.tensor import Replicate, distribute_tensor

    mesh, data = line(size), whole_data("weighted mean", 4, 0)
    tensors = placed("weighted mean", mesh, data, {0: k})
    return fused("weighted mean").distributed(mesh, axis=k)(
        **{**tensors, "V": distribute_tensor(data["V"], mesh, [Replicate()])}
    )


def plain_beside_parts(rank: int, size: int) -> Any:
    mesh, data = line(size), whole_data("weighted mean", 4, 0)
    return fused("weighted mean").distributed(mesh, axis=k)(
        **{**placed("weighted mean", mesh, data, {0: k}), "Q": data["Q"]}
    )


def irregular_shards(rank: int, size: int) -> Any:
    from torch.distributed.tensor import DTensor, Shard

    mesh = line(size)
    part = DTensor.from_local(torch.ones(2, 1 + 3 * rank), mesh, [Shard(1)], shape=torch.Size((2, 5)), stride=(5, 1))
    return fused("variance").distributed(mesh, axis=n)(x=part)


def table_for_a_group(rank: int, size: int) -> Any:
    return fused("variance").distributed(table(size), axis=n)


CONTRACTED = next(axis for axis in fused("weighted mean").cascade.axes() if axis.name == "d")
REFUSALS = {
    partial_sums: "is placed as Partial(sum) over dimension 0 of its mesh",
    contracted_axis: "split along axis d, which the expression sums over on its own",
    wrong_dimension: "split along axis n over dimension 0 of its mesh",
    whole_beside_parts: "tensor `V` is whole along it. Place it as `Shard(0)` there",
    plain_beside_parts: "`Q` is none. Pass it as `distribute_tensor(Q, mesh, …)`",
    other_lengths: "the length of the whole, as DTensors tell it: n=6 on rank 0; n=8 on rank 1",
    irregular_shards: "`Shard(1)` of 5 gives it",
    table_for_a_group: "Pass `(mesh, 'parts')`",
}


@pytest.mark.parametrize("function", REFUSALS, ids=lambda one: one.__name__)
def test_other_placements_are_refused_by_name(two: Pool, function: Callable[..., Any]) -> None:
    for outcome in two.outcomes(function):
        assert outcome.error == "InputError", outcome.text
        assert REFUSALS[function] in outcome.text
