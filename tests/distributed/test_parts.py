"""Parts of fixed length: outputs are the same to the last bit, however many ranks hold them."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.distributed.parts import part_edges
from tests.distributed.cases import CASES, as_arrays, d, fused, k, n, part_call, whole_data
from tests.distributed.pool import Pool, ranks

KEEPS_THE_AXIS = ("softmax",)
LENGTH, PARTS = 8 * 37 - 5, 8
"""Eight parts of 37 elements; the last has 32."""


def joined(outcomes: list[list[np.ndarray]], name: str) -> list[np.ndarray]:
    """The outputs of the whole, which every rank has, or has a part of."""
    if name in KEEPS_THE_AXIS:
        return [np.concatenate(parts, axis=1) for parts in zip(*outcomes, strict=True)]
    for other in outcomes[1:]:
        assert all(np.array_equal(a, c, equal_nan=True) for a, c in zip(outcomes[0], other, strict=True))
    return outcomes[0]


def outputs_of(pool: Pool, name: str, parts_of_ranks: tuple[int, ...]) -> list[np.ndarray]:
    lengths = [37 * parts for parts in parts_of_ranks]
    lengths[-1] -= 5 if parts_of_ranks[-1] else 0
    lengths[-2 % len(lengths)] -= 0 if parts_of_ranks[-1] else 5
    assert sum(lengths) == LENGTH
    found = pool.values(part_call, name, lengths, PARTS, len(lengths))
    return joined(found[: len(lengths)], name)


def check(pool: Pool, name: str, splits: tuple[tuple[int, ...], ...]) -> None:
    first, *others = [outputs_of(pool, name, split) for split in splits]
    for other in others:
        assert all(np.array_equal(a, c, equal_nan=True) for a, c in zip(first, other, strict=True))
    for output, want in zip(first, as_arrays(fused(name)(**whole_data(name, LENGTH, 0))), strict=True):
        np.testing.assert_allclose(output, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_one_rank_and_two_agree_to_the_last_bit(two: Pool, name: str) -> None:
    check(two, name, ((8,), (4, 4), (7, 1), (8, 0)))


@pytest.mark.slow
def test_one_two_and_four_ranks_agree_to_the_last_bit(tmp_path) -> None:
    with ranks(4, tmp_path) as pool:
        for name in CASES:
            check(pool, name, ((8,), (3, 5), (2, 2, 2, 2), (1, 4, 0, 3)))


@pytest.mark.slow
def test_eight_ranks_agree_to_the_last_bit_with_one(tmp_path) -> None:
    with ranks(8, tmp_path) as pool:
        for name in CASES:
            check(pool, name, ((8,), (1,) * 8))


BATCHES: dict[str, tuple[ra.Fused, Any, dict[str, tuple[int, ...]]]] = {
    "variance": (fused("variance"), n, {"x": (296,)}),
    "logsumexp": (fused("logsumexp"), n, {"x": (296,)}),
    "weighted mean": (
        ra.fuse(ra.sum(ra.softmax(ra.sum(ra.tensor("Q[b,q,d]") * ra.tensor("K[b,k,d]"), d), k)
                       * ra.tensor("V[b,k,e]"), k), axes="b q e"),
        k, {"Q": (3, 16), "K": (296, 16), "V": (296, 8)},
    ),
}  # fmt: skip


def batch_calls(rank: int, size: int, name: str) -> list[np.ndarray]:
    """The outputs of a call of 1024 rows, and of calls of the first of them, of which each rank has half."""
    function, axis, shapes = BATCHES[name]
    call, generator = function.distributed(axis=axis, deterministic=8), torch.Generator().manual_seed(0)
    data = {key: torch.randn(1024, *shape, generator=generator) + 9 for key, shape in shapes.items()}
    half = slice(148 * rank, 148 * (rank + 1))
    mine = {key: one if key == "Q" else one[:, half] for key, one in data.items()}
    return [
        call(**{key: one[:rows].contiguous() for key, one in mine.items()}).numpy() for rows in (1024, 1, 2, 7, 300)
    ]


@pytest.mark.parametrize("name", BATCHES)
def test_a_row_has_the_same_bits_in_every_batch(two: Pool, name: str) -> None:
    for whole, *others in two.values(batch_calls, name):
        assert all(np.array_equal(other, whole[: len(other)]) for other in others)


def test_a_shard_that_ends_within_a_part_is_refused_on_every_rank(two: Pool) -> None:
    for outcome in two.outcomes(part_call, "variance", [10, 14], 4, 2):
        assert outcome.error == "InputError"
        assert "the shard of rank 0 ends at element 10" in outcome.text
        assert "24 elements into parts of 6" in outcome.text


def test_ranks_with_other_parts_are_refused(two: Pool) -> None:
    for outcome in two.outcomes(other_parts):
        assert "option `deterministic`: 2 on rank 0; 3 on rank 1" in outcome.text


def other_parts(rank: int, size: int) -> list[np.ndarray]:
    return part_call(rank, size, "variance", [6, 6], 2 + rank, 2)


@pytest.mark.parametrize("parts", [0, -1, 2.0, True, "8"])
def test_what_is_no_number_of_parts_is_refused(parts: object) -> None:
    with pytest.raises(ra.InputError, match="no number of parts"):
        fused("variance").distributed(deterministic=parts)  # type: ignore[call-overload]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(1, 9))
def test_parts_are_those_of_the_whole(shares: list[int], length: int) -> None:
    """Whoever holds them: in order, apart, of one length, and none is missing."""
    parts = max(1, sum(shares))
    edges = part_edges([share * length for share in shares], parts, range(len(shares)))
    if sum(shares):
        assert [edge for of_rank in edges for edge in of_rank] == [(i * length, (i + 1) * length) for i in range(parts)]
        assert [len(of_rank) for of_rank in edges] == shares
