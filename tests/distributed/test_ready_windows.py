"""Ready calls through windows: states that are merged where they lie, and rows that are read from there; failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import redalg as ra
from redalg.distributed.exchange import GATHER, SYMMETRIC
from redalg.distributed.packed import STATUS_BYTES, first_words
from redalg.distributed.protocol import Protocol
from redalg.distributed.ranks import Ranks, Report, group_ranks
from redalg.distributed.ready import Ready
from redalg.distributed.window import Window
from redalg.runtime.bind.packing import Packing
from redalg.runtime.call.finish_kernels import PreparedFinish
from redalg.runtime.call.kernels import OneBuffer, Recipe
from redalg.runtime.call.merge_kernels import Merge, SlotInput
from tests.distributed.cases import CASES, fused
from tests.distributed.pool import Pool
from tests.distributed.shared import shared_window, shared_windows
from tests.distributed.streams import Stream, streams_of
from tests.distributed.test_again import Done, parts_of, told_by


def write_sums(table: torch.Tensor, sums: torch.Tensor, most: torch.Tensor) -> None:
    sums.copy_(table.sum(1))
    most.copy_(table.amax(1))


def add_sums(*arguments: torch.Tensor) -> None:
    first, second, one, other, sums, most = arguments
    sums.copy_(first + second)
    most.copy_(torch.maximum(one, other))


def add_rows(first: torch.Tensor, second: torch.Tensor, sums: torch.Tensor, most: torch.Tensor) -> None:
    sums.copy_(first.sum(0))
    most.copy_(second.amax(0))


def ready_of_python(window: Window, *, apart: bool) -> Ready:
    """A ready call whose kernels are functions; `apart`: the merge takes the states where they lie."""
    packing = Packing({"sums": "float32", "most": "float32"}, {"sums": (3,), "most": (3,)})
    cpu = torch.device("cpu")
    recipe = Recipe(write_sums, (("x", None),), (), OneBuffer(packing, ("sums", "most"), {}, cpu), ())
    inputs = tuple(SlotInput(one, (0,), (), (3,), "float32", True, apart, False) for one in ("sums", "most"))
    step = lambda inputs: {name: inputs[name].clone() for name in ("sum", "max")}  # noqa: E731
    finish = PreparedFinish(step, {"sum": "sums", "max": "most"}, {}, frozenset(), frozenset())
    merge = Merge(add_sums if apart else add_rows, inputs, packing)
    return Ready(group_ranks(None), cpu, recipe, merge, finish, packing, 7 << 8, window)


def ready_calls(rank: int, size: int, apart: bool, folder: Path) -> list[tuple[list[float], list[float]]]:
    ready = ready_of_python(shared_window(folder, rank, size), apart=apart)
    assert ready.merges_in_place == apart
    protocol, found = Protocol[Any](ready.ranks), []
    for at in range(50):
        made = ready.run(protocol, {"x": torch.full((3, 2), float(at + rank))}, late=False)
        assert made is not None
        found.append((made["sum"].tolist(), made["max"].tolist()))
    return found


@pytest.mark.parametrize("apart", [True, False])
def test_ready_calls_go_through_windows(two: Pool, apart: bool, tmp_path: Path) -> None:
    wanted = [([4.0 * at + 2] * 3, [at + 1.0] * 3) for at in range(50)]
    assert two.values(ready_calls, apart, tmp_path) == [wanted] * 2


def ready_failure(rank: int, size: int, apart: bool, folder: Path) -> tuple[str, list[float]]:
    ready = ready_of_python(shared_window(folder, rank, size), apart=apart)
    protocol, good = Protocol[Any](ready.ranks), {"x": torch.ones(3, 2)}
    for _ in range(3):
        ready.run(protocol, good, late=False)
    try:
        ready.run(protocol, good if rank == 0 else {"x": torch.ones(2, 2)}, late=False)
        text = ""
    except (ra.InputError, RuntimeError) as error:
        text = f"{type(error).__name__}: {error}"
    found = [ready.run(protocol, good, late=False) for _ in range(2)]  # both halves
    return text, [float(one["sum"][0]) for one in found if one]


@pytest.mark.parametrize("apart", [True, False])
def test_a_ready_call_that_fails_is_told_on_all(two: Pool, apart: bool, tmp_path: Path) -> None:
    (first, one), (second, other) = two.values(ready_failure, apart, tmp_path)
    assert "InputError: distributed: rank 1 made no state of its shard" in first
    assert second.startswith("RuntimeError")
    assert "could not exchange" not in second
    assert one == other == [4, 4]


def late_ready(rank: int, size: int, folder: Path) -> tuple[list[float], str]:
    """A ready call of ranks that do not wait, of which one fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ranks, "report", lambda ranks, sent, *_: Report(ranks, sent, first_words(sent).clone(), Done()))
        ready = ready_of_python(shared_window(folder, rank, size), apart=True)
        protocol = Protocol[Any](ready.ranks)
        if rank == 1:
            patch.setattr(Recipe, "launch_into", None)
        made = told_by_type(lambda: ready.run(protocol, {"x": torch.ones(3, 2)}, late=True))
        text = told_by(lambda: protocol.read_reports(waits=True)) or ""
    return ([] if made is None else made["sum"].tolist()), text


def told_by_type(function: Any) -> Any:
    try:
        return function()
    except TypeError:
        return None


def test_outputs_of_a_ready_call_are_nan_where_a_rank_failed(two: Pool, tmp_path: Path) -> None:
    (sums, told), (nothing, _) = two.values(late_ready, tmp_path)
    assert np.isnan(sums).all()
    assert "rank 1: TypeError: 'NoneType' object is not callable" in told
    assert nothing == []


def order_in_graph(rank: int, size: int, apart: bool, captured: bool, folder: Path) -> dict[str, set[str]]:
    """The operations of a ready call on a GPU that is none, each with those that come before it."""
    window = shared_window(folder, rank, size)
    ready = ready_of_python(window, apart=apart)
    assert ready.merge is not None
    with streams_of(window, captured=captured) as (record, patch):

        def noted(name: str, function: Any) -> Any:
            def run(*given: Any) -> Any:
                record.note(name)
                return function(*given)

            return run

        patch.setattr(window, "write_word", noted("word", window.write_word))
        ready = replace(
            ready,
            leaf=replace(ready.leaf, entry=noted("leaf", ready.leaf.entry)),
            merge=replace(ready.merge, entry=noted("merge", ready.merge.entry)),
            finish=replace(ready.finish, step=noted("finish", ready.finish.step)),
        )
        patch.setattr("redalg.distributed.ready.fill_where", lambda *_: record.note("fill"))
        patch.setattr(Protocol, "keep_report", lambda *_: None)
        patch.setattr("torch.cuda.is_current_stream_capturing", lambda: captured)
        for _ in range(2):
            made = ready.run(Protocol[Any](ready.ranks), {"x": torch.ones(3, 2)}, late=True)
        assert made is not None
        record.note("end")
        return record.before


@pytest.mark.parametrize("apart", [True, False])
def test_branches_of_a_graph_come_in_time(two: Pool, apart: bool, tmp_path: Path) -> None:
    for before in two.values(order_in_graph, apart, True, tmp_path):
        assert {"word", "leaf"} <= before["barrier"]
        assert "word" not in before["leaf"]  # side by side
        assert "barrier" in before["merge"] & before["read"]
        assert "merge" in before["finish"]
        assert ({"merge", "read"} if apart else {"read"}) <= before["barrier 2"]  # nothing is read after it
        assert "finish" not in before["barrier 2"]
        assert {"finish", "read"} <= before["fill"]
        assert {"barrier 2", "fill"} <= before["leaf 2"] & before["word 2"]
        assert {*before} - {"end"} == before["end"]


@pytest.mark.parametrize("apart", [True, False])
def test_without_a_graph_all_is_in_turn(two: Pool, apart: bool, tmp_path: Path) -> None:
    steps = ["word", "leaf", "barrier", "read", "merge", "finish", "fill"]
    for before in two.values(order_in_graph, apart, False, tmp_path):
        assert list(before)[: len(steps)] == steps
        assert [len(before[one]) for one in steps] == [*range(len(steps))]


def streams_in_turn(_: int, __: int, folder: Path) -> list[set[str]]:
    """The operations that come before the second and the third message, which are on another stream and on the last."""
    window = shared_window(folder, 0, 1)
    with streams_of(window, captured=False) as (record, _patch):
        found = []
        for stream in (record.current, Stream(), Stream()):
            with record.on(stream):
                window.gather(torch.zeros(STATUS_BYTES, dtype=torch.uint8))
                found.append(set(stream.before))
        return found


def test_a_call_comes_after_those_on_other_streams(two: Pool, tmp_path: Path) -> None:
    first = {"barrier", "read"}
    second = first | {"barrier 2", "read 2"}
    assert two.values(streams_in_turn, tmp_path)[0] == [first, second, second | {"barrier 3", "read 3"}]


def kernel_calls(rank: int, size: int, folder: Path) -> tuple[list[bool], bool]:
    """Tell of calls by kernels, which merge states in the memory of both ranks, if a collective gives the same."""
    with shared_windows(rank, size, folder):
        pulled, gathered = (replace(fused("weighted mean").distributed(axis=CASES["weighted mean"].axis, exchange=one),
                                    backend="tilelang") for one in (SYMMETRIC, GATHER))  # fmt: skip
        given = [parts_of("weighted mean", rank, [8, 8], seed) for seed in range(6)]
        found = [torch.equal(pulled(**one), gathered(**one)) for one in given]
        agreed = pulled._protocol.last
        assert agreed is not None
        [ready] = agreed.terms.ready.values()
        return found, ready is not None and ready.merges_in_place


@pytest.mark.slow
def test_kernels_merge_states_where_they_lie(two: Pool, tmp_path: Path) -> None:
    assert two.values(kernel_calls, tmp_path) == [([True] * 6, True)] * 2
