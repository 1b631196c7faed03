"""Calls of one kind after another: one collective each; and calls of another kind, on all ranks or on some."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

import redalg as ra
from redalg.distributed.packed import first_words, message_packing
from redalg.distributed.ranks import Ranks, Report
from redalg.distributed.shard import Shard
from tests.distributed.cases import CASES, as_arrays, fused, here, n, shard, whole_data, x
from tests.distributed.pool import Pool

total = ra.fuse(ra.sum(x, n))
above = ra.fuse(ra.where(ra.sum(x, n) > 0, 1.0, 0.0), axes="b")
"""An output that is a number whatever NaN a state holds."""


@contextmanager
def counted() -> Iterator[list[int]]:
    """The lengths of the messages that this process gathers."""
    lengths, gather = list[int](), Ranks.gather

    def gather_counted(ranks: Ranks, message: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        lengths.append(len(message))
        return gather(ranks, message, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ranks, "gather", gather_counted)
        yield lengths


def parts_of(name: str, rank: int, lengths: list[int], seed: int) -> dict[str, torch.Tensor]:
    data, first = whole_data(name, sum(lengths), seed), sum(lengths[:rank])
    return here(shard(name, data, first, first + lengths[rank]))


def calls(
    rank: int, size: int, name: str, kinds: list[list[int]], exchange: str | None = None
) -> tuple[list[list[np.ndarray]], list[int]]:
    """The outputs of calls of these lengths, and the collectives that each took."""
    call, found, numbers = fused(name).distributed(axis=CASES[name].axis, exchange=exchange), [], []
    for seed, lengths in enumerate(kinds):
        with counted() as messages:
            found.append(as_arrays(call(**parts_of(name, rank, lengths, seed))))
        numbers.append(len(messages))
    return found, numbers


@pytest.mark.parametrize("name", [name for name in CASES if name != "softmax"])
def test_calls_of_one_kind_take_one_collective(two: Pool, name: str) -> None:
    kinds = [[6, 7], [6, 7], [6, 7], [6, 5], [3, 5], [3, 5]]
    (found, first), (other, second) = two.values(calls, name, kinds)
    asks = name not in ("variance", "logsumexp", "weighted mean", "correlation")  # lengths or places matter
    assert first == second == [2, 1, 1, *([3, 3, 1] if asks else [1, 1, 1])]
    for seed, (lengths, outputs) in enumerate(zip(kinds, found, strict=True)):
        wanted = as_arrays(fused(name)(**whole_data(name, sum(lengths), seed)))
        for output, again, want in zip(outputs, other[seed], wanted, strict=True):
            assert np.array_equal(output, again, equal_nan=True)
            np.testing.assert_allclose(output, want, rtol=2e-5, atol=2e-6)


def after_one(rank: int, size: int, second: str) -> Any:
    """A good call, then one that goes wrong on rank 1, then a good one."""
    call = total.distributed(axis=n)
    assert float(call(**here({"x": torch.ones(2, 3 + rank)}))[0]) == 7
    wrong: dict[str, dict[str, Any]] = {
        "dtype": {"x": torch.ones(2, 3 + rank).double()},
        "rows": {"x": torch.ones(3, 3 + rank)},
        "name": {"y": 1},
        "empty": {"x": torch.ones(2, 4), "empty": "none"},
    }
    given = wrong[second] if rank == 1 else {"x": torch.ones(2, 3)}
    try:
        call(**{name: here({name: one})[name] if isinstance(one, torch.Tensor) else one for name, one in given.items()})
        text = ""
    except ra.InputError as error:
        text = str(error)
    return text, float(call(**here({"x": torch.ones(2, 3 + rank)}))[1])


@pytest.mark.parametrize(
    ("second", "told"),
    [("dtype", "the ranks differ in the dtype of tensor x"), ("rows", "the ranks differ in the size of axis b"),
     ("name", "rank 1 made no state"), ("empty", "rank 1 made no state")],
)  # fmt: skip
def test_a_rank_that_calls_otherwise_is_told_on_all(two: Pool, second: str, told: str) -> None:
    (first, one), (other, two_) = two.values(after_one, second)
    assert told in first
    assert other
    assert one == two_ == 7


class Done:
    """An event of statuses that are there."""

    def query(self) -> bool:
        return True


def told_by(function: Callable[[], Any]) -> Any:
    """The value of a function, or the text of its error."""
    try:
        return function()
    except ra.InputError as error:
        return str(error)


def late(rank: int, size: int, second: str) -> Any:
    """As a rank on CUDA, which learns after a call that another had no state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redalg.distributed.call.may_learn_late", lambda *_: True)
        patch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
        patch.setattr(Ranks, "report", lambda ranks, sent, *_: Report(ranks, sent, first_words(sent).clone(), Done()))
        call = (above if second == "hidden" else total).distributed(axis=n)
        call(x=torch.ones(2, 3))
        unknown = {"x": torch.ones(2, 3), "empty": "none"}
        wrong = {"kind": {"x": torch.ones(2, 3).double()}}.get(second, unknown)
        first = told_by(lambda: call(**(wrong if rank == 1 else {"x": torch.ones(2, 3)})).tolist())
        return first, told_by(call.check) or "", call(x=torch.ones(2, 4)).tolist()


@pytest.mark.parametrize(
    ("second", "own", "told"),
    [("kind", "rank 1 called with tensors of other shapes", "rank 1 called with tensors of other shapes"),
     ("empty", "empty=", "rank 1 made no state"), ("hidden", "empty=", "rank 1 made no state")],
)  # fmt: skip
def test_outputs_are_nan_where_a_rank_learns_late(two: Pool, second: str, own: str, told: str) -> None:
    (outputs, text, after), (error, nothing, also) = two.values(late, second)
    assert np.isnan(outputs).all()
    assert told in text
    assert own in error
    assert nothing == ""
    assert after == also == ([1, 1] if second == "hidden" else [8, 8])


def far_call(rank: int, size: int, name: str) -> list[str]:
    """The dtypes of a message of states, where the whole is said to be longer than float32 numbers."""
    found = list[str]()

    def recorded(*args: Any, far: bool) -> Any:
        found.extend(message_packing(*args, far=far).dtypes.values())
        return message_packing(*args, far=far)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shard, "is_far", property(lambda _: True))
        patch.setattr("redalg.distributed.call.message_packing", recorded)
        fused(name).distributed(axis=n)(**parts_of(name, rank, [6, 7], 0))
    return found


def test_messages_are_wide_only_where_places_are_numbers(two: Pool) -> None:
    for found in two.values(far_call, "variance"):
        assert set(found) == {"float32", "int64"}
    for found in two.values(far_call, "furthest"):
        assert "float64" in found
