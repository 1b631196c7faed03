"""Ranks that fail or die while shards travel: an error on every rank in time, and never a wrong number."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import redalg as ra
from redalg.distributed.spans import spans_in_order
from tests.distributed.cases import as_arrays
from tests.distributed.pool import Outcome, Pool, ranks
from tests.distributed.test_rows import fused, k, part, q, wanted, whole_data

LENGTH, TIMEOUT = 4, 6


def shard_of(rank: int, size: int) -> dict[str, torch.Tensor]:
    spans = spans_in_order([LENGTH] * size)[rank]
    return dict(part("all", whole_data("all", LENGTH * size, LENGTH * size), spans, spans))


def failing(original: Callable[..., Any], at: int, how: str) -> Callable[..., Any]:
    """A method that goes wrong when it is called so often: it raises, ends the process, or sleeps."""
    calls = count(1)

    def method(*args: Any, **options: Any) -> Any:
        now = next(calls) == at
        if now and how == "raises":
            raise MemoryError("no memory for a state")
        if now and how == "dies":
            os._exit(1)
        if now:
            time.sleep(3 * TIMEOUT)
        return original(*args, **options)

    return method


def faulty_call(rank: int, size: int, bad: int, method: str, at: int, how: str, first: bool) -> Any:
    """The text of the error of a call in which a rank goes wrong, how long it took, and the outputs of the next."""
    group = None if how == "raises" else dist.new_group(timeout=timedelta(seconds=TIMEOUT))
    call, data = fused("all").distributed(group, axis=k, rows=q), shard_of(rank, size)
    if not first:
        call(**data)
    text, begun = "", time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        if rank == bad:
            patch.setattr(ra.Fused, method, failing(getattr(ra.Fused, method), at, how))
        try:
            call(**data)
        except (ra.RedalgError, MemoryError) as error:
            text = f"{type(error).__name__}: {error}"
    took = time.monotonic() - begun
    return text, took, as_arrays(call(**data)) if how == "raises" else None


def check(pool: Pool, size: int, bad: int, method: str, at: int, first: bool) -> None:
    want = wanted("all", LENGTH * size, LENGTH * size)
    for rank, (text, took, after) in enumerate(pool.values(faulty_call, bad, method, at, "raises", first)):
        reason = "MemoryError: no memory for a state"
        assert text == (reason if rank == bad else
                        f"InputError: distributed: rank {bad} made no state of its shard, so no rank has a result. "
                        f"rank {bad}: {reason}")  # fmt: skip
        assert took < TIMEOUT
        for output, whole in zip(after, want, strict=True):
            np.testing.assert_allclose(output, whole[:, LENGTH * rank : LENGTH * (rank + 1)], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("method", "at", "bad"), [("leaf", 1, 0), ("leaf", 2, 1), ("merge", 1, 1), ("finish", 1, 0)])
def test_a_rank_that_fails_tells_the_other_at_once(two: Pool, method: str, at: int, bad: int) -> None:
    for first in (True, False):
        check(two, 2, bad, method, at, first)


@pytest.mark.slow
def test_a_rank_that_fails_tells_two_others_at_once(tmp_path) -> None:
    with ranks(3, tmp_path) as pool:
        for bad in range(3):
            for at in (1, 2, 3):
                check(pool, 3, bad, "leaf", at, first=at == 1)


def failures(outcomes: list[Outcome], bad: int) -> list[tuple[str, float]]:
    return [one.value[:2] for rank, one in enumerate(outcomes) if rank != bad]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["dies", "sleeps"])
@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_that_is_gone_is_an_error_within_the_timeout(size: int, how: str, tmp_path) -> None:
    with ranks(size, tmp_path) as pool:
        check(pool, size, 0, "leaf", 1, first=True)  # all processes are ready
        outcomes = pool.outcomes(faulty_call, size - 1, "leaf", 2, how, False)
        for text, took in failures(outcomes, size - 1):
            assert text.startswith("BackendError: distributed: rank ")
            assert "could not exchange states with the others" in text
            assert took < 2 * TIMEOUT
