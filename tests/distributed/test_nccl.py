"""Ranks over NCCL, each with a GPU of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import redalg as ra
from redalg.distributed.exchange import GATHER
from tests.distributed import test_again, test_calls, test_parts, test_rows
from tests.distributed.cases import CASES, as_arrays, fused, n, whole_data, x
from tests.distributed.pool import Pool, ranks

pytestmark = pytest.mark.gpu
total = ra.fuse(ra.sum(x, n))
COMPILES = 240
"""Seconds in which a rank may compile a kernel that another found in the cache."""
LENGTHS = (0, 6, 7, 33)
"""Lengths of shards: each is a kernel, which takes up to half a minute to compile."""


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with ranks(torch.cuda.device_count(), tmp_path_factory.mktemp("gpus"), "nccl", COMPILES) as pool:
        yield pool


def number_of(pool: Pool) -> int:
    return len(pool.pipes)


@pytest.mark.parametrize("name", CASES)
def test_gpus_agree_with_one(gpus: Pool, name: str) -> None:
    for seed, first in enumerate((1, 3)):
        lengths = tuple(LENGTHS[(first + rank) % len(LENGTHS)] for rank in range(number_of(gpus)))
        test_calls.check(gpus, name, lengths, seed)


@pytest.mark.parametrize("name", ["variance", "weighted mean", "argmax", "causal"])
def test_gpus_agree_to_the_last_bit(gpus: Pool, name: str) -> None:
    splits = {1: ((8,),), 2: ((8,), (4, 4), (3, 5)), 4: ((8,), (4, 4), (2, 2, 2, 2), (1, 3, 0, 4))}
    test_parts.check(gpus, name, splits[number_of(gpus)])


@pytest.mark.parametrize("name", ["variance", "weighted mean", "argmax", "affine"])
def test_calls_of_one_kind(gpus: Pool, name: str) -> None:
    kinds = [[6, 7, 8, 9][: number_of(gpus)]] * 3
    for found, numbers in gpus.values(test_again.calls, name, kinds, GATHER):
        assert numbers == [2, 1, 1]
        for seed, (lengths, outputs) in enumerate(zip(kinds, found, strict=True)):
            wanted = as_arrays(fused(name)(**whole_data(name, sum(lengths), seed)))
            np.testing.assert_allclose(outputs[0], wanted[0], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", test_rows.MAKE)
def test_rows_travel_between_gpus(gpus: Pool, name: str) -> None:
    size = number_of(gpus)
    in_order = [([6, 8, 2, 5][:size], [7, 3, 6, 5][:size])] * 2
    test_rows.check(gpus, name, in_order, zigzag=False)
    test_rows.check(gpus, name, [([64] * size, [64] * size)] * 2, zigzag=True)


def late(rank: int, size: int) -> Any:
    call = total.distributed(axis=n)
    call(x=torch.ones(2, 3, device="cuda"))
    last = rank == size - 1
    options = {"empty": "none"} if last else {}
    first = test_again.told_by(lambda: call(x=torch.ones(2, 3, device="cuda"), **options).tolist())
    return first, test_again.told_by(call.check) or "", call(x=torch.ones(2, 4, device="cuda")).tolist()


def test_outputs_are_nan_where_a_rank_failed(gpus: Pool) -> None:
    *others, (error, _, after) = gpus.values(late)
    assert "empty=" in error
    assert after == [4 * number_of(gpus)] * 2
    for outputs, told, also in others:
        assert np.isnan(outputs).all()
        assert f"rank {len(others)} made no state" in told
        assert also == after


def captured(rank: int, size: int) -> Any:
    """A call in a CUDA graph, replayed on other numbers."""
    call, data = fused("variance").distributed(axis=n), torch.randn(4, 512, device="cuda")
    for _ in range(3):
        call(x=data)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = call(x=data)
    data.copy_(torch.randn(4, 512, generator=torch.Generator().manual_seed(rank)) + 100)
    graph.replay()
    torch.cuda.synchronize()
    return data.cpu().double().numpy(), output.cpu().numpy()


def test_a_call_is_captured_in_a_graph(gpus: Pool) -> None:
    outcomes = gpus.values(captured)
    wanted = np.concatenate([data for data, _ in outcomes], axis=1).var(1)
    for _, output in outcomes:
        np.testing.assert_allclose(output, wanted, rtol=1e-5)


def sum_of_ones(_: int, __: int) -> Any:
    return total.distributed(axis=n, exchange=GATHER)(x=torch.ones(2, 3, device="cuda")).tolist()


def death(rank: int, _: int) -> Any:
    if rank == 1:
        os._exit(1)
    call = total.distributed(axis=n, exchange=GATHER)
    found = call(x=torch.ones(2, 3, device="cuda"))
    call.check()
    return found.tolist()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_rank_that_dies_ends_the_others(tmp_path) -> None:
    """By an exception within the group's timeout; PyTorch itself ends the process a minute later."""
    with ranks(2, tmp_path, "nccl") as alone:
        alone.values(sum_of_ones)  # the group's start and a kernel's compilation are no part of the time
        first, second = alone.outcomes(death)
    assert second.error == "died"
    assert first.error == "BackendError"
    assert "one is gone, or has not come within the group's timeout" in first.text
