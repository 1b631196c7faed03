"""States through symmetric memory of two GPUs of this machine: the bits of NCCL's way, in graphs too, and faults."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import redalg as ra
from redalg.distributed.exchange import GATHER, SYMMETRIC
from redalg.distributed.ready import Ready
from tests.distributed.cases import fused, k, n, x
from tests.distributed.pool import Pool, ranks
from tests.distributed.test_exchange import error_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
COMPILES = 120
"""Seconds in which a rank may compile a kernel that another found in the cache."""
MANY = 200
total = ra.fuse(ra.sum(x, n))


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with ranks(2, tmp_path_factory.mktemp("gpus"), "nccl", COMPILES) as pool:
        yield pool


def variances(exchange: str | None) -> Any:
    return replace(fused("variance").distributed(axis=n, exchange=exchange), backend="tilelang")


def products(exchange: str | None) -> Any:
    return replace(fused("weighted mean").distributed(axis=k, exchange=exchange), backend="tilelang")


MAKE = {"variance": variances, "weighted mean": products}
"""The first has a count, so that its states are read into rows; those of the second are merged where they lie."""


def data_of(name: str, rank: int, seed: int, rows: int = 5) -> dict[str, torch.Tensor]:
    """The shard of a rank; what is whole is the same on all."""
    shared, own = (torch.Generator().manual_seed(one) for one in (seed, 1000 * (rank + 1) + seed))
    if name == "variance":
        given = {"x": torch.randn(rows, 64, generator=own) + 100}
    else:
        given = {"Q": torch.randn(rows, 16, generator=shared), "K": torch.randn(64, 16, generator=own),
                 "V": torch.randn(64, 16, generator=own)}  # fmt: skip
    return {tensor: one.cuda() for tensor, one in given.items()}


def both_ways(rank: int, _: int, name: str) -> tuple[list[bool], str, bool]:
    """Tell of calls, first step by step and then ready ones, if both ways give the same bits."""
    pulled, gathered = MAKE[name](None), MAKE[name](GATHER)
    found = []
    for seed in range(5):
        given = data_of(name, rank, seed)
        found.append(torch.equal(pulled(**given), gathered(**given)))
    [ready] = pulled._protocol.last.terms.ready.values()
    return found, pulled.explain(), ready.merges_in_place


@pytest.mark.parametrize("name", MAKE)
def test_both_ways_give_the_same_bits(gpus: Pool, name: str) -> None:
    for found, explained, in_place in gpus.values(both_ways, name):
        assert found == [True] * 5
        assert "symmetric memory: 8 us predicted, taken" in explained
        assert in_place == (name == "weighted mean")


def many_calls(rank: int, _: int, name: str, copied: bool) -> float:
    """The greatest difference of many calls, which no rank waits for and in which one lags, from those by NCCL."""
    pulled, gathered = MAKE[name](SYMMETRIC), MAKE[name](GATHER)
    given = [data_of(name, rank, seed) for seed in range(MANY)]
    wanted = torch.stack([gathered(**one) for one in given])
    torch.cuda.synchronize()
    with pytest.MonkeyPatch.context() as patch:
        if copied:
            patch.setattr(Ready, "merges_in_place", False)
        found = []
        for at, one in enumerate(given):
            if (at + 3 * rank) % 7 == 0:
                torch.cuda._sleep(200_000)  # about 0.1 ms: the other rank is ahead
            found.append(pulled(**one))
    pulled.check()
    return float((torch.stack(found) - wanted).abs().max())


@pytest.mark.parametrize(("name", "copied"), [("variance", False), ("weighted mean", False), ("weighted mean", True)])
def test_many_calls_in_a_row_read_their_own_numbers(gpus: Pool, name: str, copied: bool) -> None:
    assert gpus.values(many_calls, name, copied) == [0, 0]


def replayed(rank: int, _: int, name: str) -> tuple[float, float]:
    """The differences of two calls in a graph, and of one beside it, over many replays on other numbers."""
    pulled, gathered = MAKE[name](SYMMETRIC), MAKE[name](GATHER)
    first, second = data_of(name, rank, 0), data_of(name, rank, 1)
    for _ in range(3):
        pulled(**first)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = pulled(**first), pulled(**second)
    off = [0.0, 0.0]
    for seed in range(2, 52):
        new = data_of(name, rank, seed), data_of(name, rank, 100 + seed)
        for given, one in zip((first, second), new, strict=True):
            for tensor, value in one.items():
                given[tensor].copy_(value)
        if (seed + 3 * rank) % 5 == 0:
            torch.cuda._sleep(200_000)
        graph.replay()
        found = [one.clone() for one in outputs]
        beside = pulled(**second)
        wanted = [gathered(**one) for one in new]
        off[0] = max(off[0], *(float((one - want).abs().max()) for one, want in zip(found, wanted, strict=True)))
        off[1] = max(off[1], float((beside - wanted[1]).abs().max()))
    pulled.check()
    return off[0], off[1]


@pytest.mark.parametrize("name", MAKE)
def test_graphs_are_replayed_on_other_numbers(gpus: Pool, name: str) -> None:
    assert gpus.values(replayed, name) == [(0, 0), (0, 0)]


def several_streams(rank: int, _: int) -> float:
    """The greatest difference of calls on two streams in turn."""
    pulled, gathered = products(SYMMETRIC), products(GATHER)
    given = [data_of("weighted mean", rank, seed) for seed in range(40)]
    wanted = torch.stack([gathered(**one) for one in given])
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    found = []
    for at, one in enumerate(given):
        with torch.cuda.stream(streams[at % 2]):
            found.append(pulled(**one))
    torch.cuda.synchronize()
    return float((torch.stack(found) - wanted).abs().max())


def test_calls_on_several_streams_come_one_after_another(gpus: Pool) -> None:
    assert gpus.values(several_streams) == [0, 0]


def several_sizes(rank: int, _: int) -> tuple[list[bool], str]:
    """Calls of two sizes and functions in turn, and one whose states are too large."""
    sizes = [("variance", 5), ("weighted mean", 5), ("variance", 40)]
    calls = [(name, rows, MAKE[name](SYMMETRIC), MAKE[name](GATHER)) for name, rows in sizes]
    found = [torch.equal(pulled(**data_of(name, rank, seed, rows)), gathered(**data_of(name, rank, seed, rows)))
             for seed in range(4) for name, rows, pulled, gathered in calls]  # fmt: skip
    large = torch.ones(1 << 17, 2, device="cuda")
    return found, error_of(lambda: total.distributed(axis=n, exchange=SYMMETRIC)(x=large))


def test_several_sizes_go_through_one_window(gpus: Pool) -> None:
    for found, refused in gpus.values(several_sizes):
        assert found == [True] * 12
        assert "a rank's states have 524,288 bytes" in refused


def late(rank: int, _: int) -> Any:
    """A ready call that fails on the last rank, and one after it."""
    pulled, given = products(SYMMETRIC), data_of("weighted mean", rank, 0)
    wanted = [pulled(**given) for _ in range(3)][-1]
    options, found = {"empty": "none"} if rank == 1 else {}, list[torch.Tensor]()
    own = error_of(lambda: found.append(pulled(**given, **options)))
    told = error_of(pulled.check)
    return [bool(one.isnan().all()) for one in found], own + told, torch.equal(pulled(**given), wanted)


def test_outputs_are_nan_where_a_rank_failed(gpus: Pool) -> None:
    (first, told, after), (_, own, also) = gpus.values(late)
    assert first == [True]
    assert "rank 1 made no state" in told
    assert "empty=" in own
    assert after
    assert also


def good(rank: int, _: int) -> list[float]:
    call = products(SYMMETRIC)
    return [float(call(**data_of("weighted mean", rank, 0)).sum()) for _ in range(3)]


def death(rank: int, _: int) -> Any:
    """Rank 1 goes once ranks have agreed, so that the other waits at a barrier of GPUs."""
    call, given = products(SYMMETRIC), data_of("weighted mean", rank, 0)
    for _ in range(3):
        call(**given)
    torch.cuda.synchronize()
    if rank == 1:
        os._exit(1)
    found = call(**given)
    call.check()
    return found.tolist()


def test_a_rank_that_dies_ends_the_others_in_time(tmp_path: Path) -> None:
    """By an exception within the group's timeout, or by the end of the process, as PyTorch's watchdog does it."""
    with ranks(2, tmp_path, "nccl", 25) as alone:
        alone.values(good)  # the group's start and a kernel's compilation are no part of the time
        first, second = alone.outcomes(death)
    assert second.error == "died"
    assert first.error in ("BackendError", "died")
    if first.error == "BackendError":
        assert "one is gone, or has not come within the group's timeout" in first.text


def test_outputs_are_those_of_the_whole(gpus: Pool) -> None:
    outputs = gpus.values(one_call)
    whole = torch.cat([data_of_cpu(rank) for rank in range(2)], 1).double().numpy()
    for output in outputs:
        np.testing.assert_allclose(output, whole.var(1), rtol=1e-4)


def data_of_cpu(rank: int) -> torch.Tensor:
    return data_of("variance", rank, 7)["x"].cpu()


def one_call(rank: int, _: int) -> Any:
    return variances(SYMMETRIC)(**data_of("variance", rank, 7)).cpu().numpy()
