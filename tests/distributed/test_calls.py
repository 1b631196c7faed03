"""A call across ranks gives what a call on the whole gives, on every rank, wherever the shards end."""

import numpy as np
import pytest

from tests.distributed.cases import CASES, as_arrays, fused, split_call, whole_data
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


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 8])
def test_many_ranks_agree_with_one(size: int, tmp_path) -> None:
    with ranks(size, tmp_path) as pool:
        for name in CASES:
            for seed, lengths in enumerate((MANY[:size], *drawn(name, size))):
                check(pool, name, lengths, seed)
