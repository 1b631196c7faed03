"""Parts of fixed length of rows and of the streamed axis: outputs are the same to the last bit on any ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.distributed.spans import cut_spans, spans_in_order
from tests.distributed.cases import as_arrays
from tests.distributed.pool import Pool, ranks
from tests.distributed.test_rows import MAKE, fused, k, part, q, spans_of, wanted, whole_data

ROWS, STREAMED, PARTS = 24, 24, 8
Lengths = tuple[list[int], list[int]]
WHOLE: Lengths = ([ROWS], [STREAMED])
SPLIT: list[Lengths] = [([12, 12], [12, 12]), ([3, 21], [18, 6]), ([24, 0], [0, 24])]


def parts_call(rank: int, size: int, name: str, lengths: Lengths, zigzag: bool, dtype: str) -> list[np.ndarray]:
    """The outputs of a call with parts of fixed length, on as many ranks as there are lengths; empty on the others."""
    using = len(lengths[0])
    group = dist.new_group(list(range(using)))
    if rank >= using:
        return []
    data = {key: one.to(getattr(torch, dtype)) if one.is_floating_point() else one
            for key, one in whole_data(name, ROWS, STREAMED).items()}  # fmt: skip
    mine = [spans_of(one, zigzag, axis)[rank] for one, axis in zip(lengths, (q, k), strict=True)]
    call = fused(name).distributed(group, axis=k, rows=q, zigzag=zigzag, deterministic=PARTS)
    first, second = (as_arrays(call(**part(name, data, *mine))) for _ in range(2))
    assert all(np.array_equal(a, c) for a, c in zip(first, second, strict=True))
    return first


def outputs_of(pool: Pool, name: str, lengths: Lengths, zigzag: bool = False, dtype: str = "float32") -> list[Any]:
    """The outputs of all rows, in order."""
    outcomes = pool.values(parts_call, name, lengths, zigzag, dtype)[: len(lengths[0])]
    spans = spans_of(lengths[0], zigzag, q)
    places = np.concatenate([np.arange(one.first, one.stop) for of_rank in spans for one in of_rank])
    joined = (np.concatenate(arrays, 1) for arrays in zip(*outcomes, strict=True))
    return [array[:, np.argsort(places)] for array in joined]


def check(pool: Pool, name: str, splits: list[Lengths], zigzag: list[Lengths]) -> None:
    first = outputs_of(pool, name, WHOLE)
    for output, want in zip(first, wanted(name, ROWS, STREAMED), strict=True):
        np.testing.assert_allclose(output, want, rtol=1e-4, atol=1e-5)
    for lengths in (*splits, *zigzag):
        for output, other in zip(outputs_of(pool, name, lengths, lengths in zigzag), first, strict=True):
            np.testing.assert_array_equal(output, other)


@pytest.mark.parametrize("name", ["causal", "bias", "documents"])
def test_one_rank_and_two_agree_to_the_last_bit(two: Pool, name: str) -> None:
    whole = name != "documents"
    check(two, name, SPLIT if whole else SPLIT[1:2], [SPLIT[0]] if whole else [])


@pytest.mark.slow
def test_one_two_and_four_ranks_agree_to_the_last_bit(tmp_path) -> None:
    with ranks(4, tmp_path) as pool:
        for name in MAKE:
            check(pool, name, [*SPLIT, ([6, 3, 0, 15], [6, 9, 6, 3])], [([6] * 4, [6] * 4)])


def test_a_shard_that_ends_within_a_part_is_refused_on_every_rank(two: Pool) -> None:
    for outcome in two.outcomes(parts_call, "causal", ([12, 12], [11, 13]), False, "float32"):
        assert outcome.error == "InputError"
        assert "the shard of rank 0 is cut at element 11 of axis k" in outcome.text
        assert "24 elements into parts of 3" in outcome.text


def recorded_call(rank: int, size: int) -> None:
    data = {key: one.requires_grad_() for key, one in whole_data("causal", 8, 8).items()}
    fused("causal").distributed(axis=k, rows=q, deterministic=2)(**data)


def test_a_backward_is_refused(two: Pool) -> None:
    for outcome in two.outcomes(recorded_call):
        assert "the backward computes over all rows of a rank at once" in outcome.text


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(1, 7))
def test_spans_are_cut_where_the_whole_says(shares: list[int], length: int) -> None:
    """Whoever holds them: parts are in order, apart, of one length, and lie one after another in their shard."""
    spans, parts = spans_in_order([share * length for share in shares]), max(1, sum(shares))
    cut = cut_spans(spans, parts, range(len(shares)), k)
    edges = [(one.first, one.stop) for of_rank in cut for one in of_rank if one.length]
    assert edges == [(at * length, (at + 1) * length) for at in range(sum(shares))]
    assert all(one.at == place * length for of_rank in cut for place, one in enumerate(of_rank))
    if length > 1 and sum(shares) > 1:
        with pytest.raises(ra.InputError, match="is cut at element"):
            cut_spans(spans_in_order([length - 1, sum(shares) * length - length + 1]), parts, (0, 1), k)
