"""A call across ranks gives what a call on the whole gives, on every rank, wherever the shards end."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

import redalg as ra
from tests.distributed.cases import CASES, as_arrays, fused, n, q, shard, split_call, whole_data, x
from tests.distributed.pool import Pool, ranks

LENGTHS = ((6, 7), (1, 12), (0, 9), (9, 0))
"""Lengths of two shards: even, uneven, and a rank without elements."""
KEEPS_THE_AXIS = ("softmax",)
MANY = (3, 0, 1, 5, 2, 2, 0, 4)


def drawn(name: str, size: int) -> list[tuple[int, ...]]:
    """Lengths that are drawn for a case."""
    random = np.random.default_rng(len(name))
    return [tuple(map(int, random.integers(0, 40, size))) for _ in range(3)]


def check(pool: Pool, name: str, lengths: tuple[int, ...], seed: int) -> None:
    outcomes = pool.values(split_call, name, list(lengths), seed)
    wanted = as_arrays(fused(name)(**whole_data(name, sum(lengths), seed)))
    if name in KEEPS_THE_AXIS:
        found = [np.concatenate(parts, axis=1) for parts in zip(*outcomes, strict=True)]
    else:
        found = outcomes[0]
        for other in outcomes[1:]:
            assert all(np.array_equal(a, c, equal_nan=True) for a, c in zip(found, other, strict=True))
    for output, want in zip(found, wanted, strict=True):
        assert output.dtype == want.dtype
        np.testing.assert_allclose(output, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_agree_with_one(two: Pool, name: str) -> None:
    for seed, lengths in enumerate((*LENGTHS, *drawn(name, 2))):
        check(two, name, lengths, seed)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_dtypes(two: Pool, dtype: str) -> None:
    tolerance = {"float64": 1e-12, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    for name in ("logsumexp", "weighted mean", "topk", "place"):
        wanted = as_arrays(fused(name)(**whole_data(name, 12, 0, getattr(torch, dtype))))
        for found in two.values(split_call, name, [5, 7], 0, dtype):
            for output, want in zip(found, wanted, strict=True):
                assert output.dtype == want.dtype
                np.testing.assert_allclose(output, want, rtol=tolerance, atol=tolerance)


def autocast_call(rank: int, size: int) -> list[np.ndarray]:
    data = shard("weighted mean", whole_data("weighted mean", 12, 0), 6 * rank, 6 * rank + 6)
    with torch.autocast("cpu", torch.bfloat16):
        output = fused("weighted mean").distributed(axis="k")(**data)
    assert output.dtype == torch.bfloat16
    return as_arrays(output)


def test_under_autocast_a_call_is_that_of_the_function(two: Pool) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        [wanted] = as_arrays(fused("weighted mean")(**whole_data("weighted mean", 12, 0)))
    for [found] in two.values(autocast_call):
        np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-2)


def compiled_call(rank: int, size: int) -> list[np.ndarray]:
    call = fused("variance").distributed(axis="n")
    data = shard("variance", whole_data("variance", 12, 0), 6 * rank, 6 * rank + 6)
    return as_arrays(torch.compile(lambda x: call(x=x * 2) / 4, backend="eager")(data["x"]))


def test_a_graph_breaks_at_a_call(two: Pool) -> None:
    [wanted] = as_arrays(fused("variance")(**whole_data("variance", 12, 0)))
    for [found] in two.values(compiled_call):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def several_calls(rank: int, size: int) -> list[float]:
    """Lengths change from call to call; a group of this rank alone; sizes that no tensor has; nothing at all."""
    call = fused("variance").distributed(axis="n")
    found = [float(call(x=torch.arange(2.0 * (length + rank)).reshape(2, -1))[0]) for length in (2, 5, 1)]
    alone = [dist.new_group([one]) for one in range(size)][rank]
    found.append(float(fused("variance").distributed(alone)(x=torch.arange(4.0 + 2 * rank).reshape(1, -1))[0]))
    spread = ra.fuse(ra.sum(x * q, n), axes="b q").distributed()
    found.append(float(spread(x=torch.ones(1, 2 + rank), sizes={"q": 3})[0, 2]))
    with torch.no_grad():
        found.append(float(call(x=torch.nn.Parameter(torch.ones(2, 0)), empty="zero")[0]))
    return found


def test_one_function_is_called_again_and_again(two: Pool) -> None:
    lines = [[np.arange(length + rank) for rank in (0, 1)] for length in (2, 5, 1)]
    together = [float(np.concatenate(parts).var()) for parts in lines]
    for rank, found in enumerate(two.values(several_calls)):
        np.testing.assert_allclose(found, [*together, np.arange(4 + 2 * rank).var(), 10.0, 0.0], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 8])
def test_many_ranks_agree_with_one(size: int, tmp_path) -> None:
    with ranks(size, tmp_path) as pool:
        for name in CASES:
            for seed, lengths in enumerate((MANY[:size], *drawn(name, size))):
                check(pool, name, lengths, seed)
