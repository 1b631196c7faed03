"""Ready calls, on the CPU: later calls of a signature give what the first gave, and fail as it would.

Those by kernels are slow, as these are compiled in every rank; functions of Python stand for kernels in the others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

import redalg as ra
from redalg.distributed.call import Distributed
from redalg.distributed.packed import first_words
from redalg.distributed.protocol import Protocol
from redalg.distributed.ranks import Ranks, Report, group_ranks
from redalg.distributed.ready import Ready, signature
from redalg.runtime.bind.packing import Packing
from redalg.runtime.call.finish_kernels import PreparedFinish
from redalg.runtime.call.kernels import OneBuffer, Recipe
from redalg.runtime.call.merge_kernels import Merge, SlotInput
from tests.distributed.cases import here, n, x
from tests.distributed.pool import Pool
from tests.distributed.test_again import Done, told_by

spread = ra.fuse({"variance": (ra.var(x, n), "b"), "most": (ra.max(x, n), "b")})
"""A function with a count, which kernels hold as a float, and with several outputs."""


def call_by_kernels(group: Any = None) -> Distributed:
    return Distributed(spread, group_ranks(group), n, backend="tilelang")


def data_of(rank: int, seed: int) -> dict[str, torch.Tensor]:
    whole = torch.from_numpy(np.random.default_rng(seed).normal(100, 1, (2, 12)).astype(np.float32))
    return here({"x": whole[:, 6 * rank : 6 * rank + 6].contiguous()})


def wanted(seed: int) -> tuple[np.ndarray, np.ndarray]:
    whole = np.random.default_rng(seed).normal(100, 1, (2, 12)).astype(np.float32)
    return whole.var(1, dtype=np.float64), whole.max(1)


@contextmanager
def counted_runs() -> Iterator[list[int]]:
    """The ready calls that run."""
    runs, run = list[int](), Ready.run

    def run_counted(ready: Ready, *args: Any, **options: Any) -> Any:
        runs.append(1)
        return run(ready, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ready, "run", run_counted)
        yield runs


def calls(rank: int, size: int) -> tuple[list[list[np.ndarray]], int]:
    call = call_by_kernels()
    with counted_runs() as runs:
        made = [call(**data_of(rank, seed)) for seed in range(5)]  # read when all were made: none is overwritten
    return [[one.numpy() for one in outputs] for outputs in made], len(runs)


@pytest.mark.slow
def test_ready_calls_give_the_outputs_of_the_whole(two: Pool) -> None:
    (first, runs), (second, _) = two.values(calls)
    assert runs == 3  # the first agrees, the second keeps
    for seed, (outputs, other) in enumerate(zip(first, second, strict=True)):
        for output, again, want in zip(outputs, other, wanted(seed), strict=True):
            assert np.array_equal(output, again)
            np.testing.assert_allclose(output, want, rtol=2e-5)


def ready_and_not(rank: int, size: int) -> bool:
    """Tell if ready calls give the same bits as calls step by step."""
    call = call_by_kernels()
    slowly = [call(**data_of(rank, 3)) for _ in range(2)][1]
    return all(map(torch.equal, call(**data_of(rank, 3)), slowly))


@pytest.mark.slow
def test_ready_calls_give_the_same_bits(two: Pool) -> None:
    assert two.values(ready_and_not) == [True, True]


def wrong_call(rank: int, size: int, second: str) -> tuple[str, float, int]:
    """Ready calls, then one that goes wrong on rank 1, then a good one."""
    call = call_by_kernels()
    for _ in range(3):
        call(**data_of(rank, 0))
    given, rows = data_of(rank, 0), here({"x": torch.ones(3, 6)})
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1 and second == "leaf":
            patch.setattr(Recipe, "launch_into", None)
        text = (
            told_by(lambda: call(**(rows if rank == 1 and second == "rows" else given)))
            if (second == "rows" or rank == 0)
            else error_of(call, given)
        )
    with counted_runs() as runs:
        found = call(**given)
    return text, float(found.most[0]), len(runs)


def error_of(call: Distributed, given: dict[str, torch.Tensor]) -> str:
    try:
        call(**given)
    except TypeError as error:
        return f"rank 1 made no state of its shard: {error}"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize(("second", "told"), [("rows", "the ranks differ in the size of axis b"),
                                              ("leaf", "rank 1 made no state of its shard")])  # fmt: skip
def test_a_rank_that_goes_wrong_after_ready_calls_is_told_on_all(two: Pool, second: str, told: str) -> None:
    for text, most, runs in two.values(wrong_call, second):
        assert told in text
        assert most == wanted(0)[1][0]
        assert runs == (second == "leaf") or second == "rows"


def late_call(rank: int, size: int) -> tuple[list[bool], str, float]:
    """As ranks on CUDA: a ready call of which one rank fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redalg.distributed.call.may_learn_late", lambda *_: True)
        patch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
        patch.setattr(Ranks, "report", lambda ranks, sent, *_: Report(ranks, sent, first_words(sent).clone(), Done()))
        call = call_by_kernels()
        for _ in range(3):
            before = call(**data_of(rank, 0))
        assert torch.isfinite(before.most).all()
        if rank == 1:
            patch.setattr("redalg.runtime.call.kernels.with_alignment", None)
            assert error_of(call, data_of(rank, 0))
            patch.undo()
            outputs = [True]
        else:
            outputs = [bool(one.isnan().all()) for one in call(**data_of(rank, 0))]
        return outputs, told_by(call.check) or "", float(before.most[0])


@pytest.mark.slow
def test_outputs_of_a_ready_call_are_nan_where_a_rank_failed(two: Pool) -> None:
    (outputs, text, before), (_, nothing, _) = two.values(late_call)
    assert outputs == [True, True]
    assert "rank 1 made no state" in text
    assert nothing == ""
    assert before == wanted(0)[1][0]


@pytest.mark.slow
def test_a_call_by_one_rank_is_ready_without_a_merge() -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        call, given = call_by_kernels(), {"x": torch.arange(12.0).reshape(2, 6)}
        with counted_runs() as runs:
            found = [call(**given).variance.tolist() for _ in range(3)]
    finally:
        dist.destroy_process_group()
    assert len(runs) == 1
    np.testing.assert_allclose(found, 3 * [2 * [35 / 12]], rtol=1e-5)


def test_signatures_tell_what_kernels_depend_on() -> None:
    table = torch.ones(2, 6)
    plain = signature((), {"x": table}, "nan")
    assert plain is not None
    others = [table.double(), table.t(), torch.ones(2, 7), torch.ones(6, 2).t()]
    assert plain not in [signature((), {"x": one}, "nan") for one in others]
    assert plain not in (signature((), {"x": table}, "zero"), signature((), {"y": table}, "nan"),
                         signature((table,), {}, "nan"))  # fmt: skip
    assert plain == signature((), {"x": torch.zeros(2, 6)}, "nan")
    recorded = torch.ones(2, 6, requires_grad=True)
    for strange in (recorded, torch.nn.Parameter(table), table.to_sparse(), 1.5, np.ones(2)):
        assert signature((), {"x": strange}, "nan") is None
    with torch.autocast("cpu"):
        assert signature((), {"x": table}, "nan") is None


def write_sums(table: torch.Tensor, sums: torch.Tensor, count: torch.Tensor) -> None:
    sums.copy_(table.sum(1))
    count.fill_(table.shape[1])


def add_sums(a: torch.Tensor, b: torch.Tensor, *counts_and_results: torch.Tensor) -> None:
    first, second, sums, _ = counts_and_results
    assert first.dtype == second.dtype == torch.float32
    sums.copy_((a + b) / (first + second))


def ready_of_python() -> Ready:
    """A ready call whose kernels are functions: a mean, of a state with a gap between its slots."""
    packing = Packing({"sums": "float32", "count": "int64"}, {"sums": (3,), "count": ()})
    cpu = torch.device("cpu")
    recipe = Recipe(write_sums, (("x", None),), (), OneBuffer(packing, ("sums", "count"), {}, cpu), ())
    sums = SlotInput("sums", (0,), (), (3,), "float32", True, True, False)
    count = SlotInput("count", (), (0,), (1,), "float32", False, True, True)
    step = lambda inputs: {name: inputs[name].clone() for name in ("means", "number")}  # noqa: E731
    finish = PreparedFinish(step, {"means": "sums", "number": "count"}, {}, frozenset(), frozenset())
    return Ready(group_ranks(None), cpu, recipe, Merge(add_sums, (sums, count), packing), finish, packing, 7 << 8)


def calls_of_python(rank: int, size: int) -> list[tuple[list[float], int]]:
    ready = ready_of_python()
    protocol = Protocol[Any](ready.ranks)
    made = [ready.run(protocol, {"x": torch.full((3, 2 + rank), float(at + rank))}, late=False) for at in range(3)]
    return [(one["means"].tolist(), int(one["number"])) for one in made if one is not None]


def test_rows_hold_the_states_of_all_ranks(two: Pool) -> None:
    for found in two.values(calls_of_python):
        assert [number for _, number in found] == [5, 5, 5]
        np.testing.assert_allclose([means for means, _ in found], [3 * [at + 3 / 5] for at in range(3)], rtol=1e-6)


def failure_of_python(rank: int, size: int) -> str:
    ready = ready_of_python()
    given = {"x": torch.ones(3, 2)} if rank == 0 else {"x": torch.ones(2, 2)}
    try:
        ready.run(Protocol[Any](ready.ranks), given, late=False)
    except (ra.InputError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_a_rank_whose_kernel_fails_is_told_on_all(two: Pool) -> None:
    first, second = two.values(failure_of_python)
    assert "InputError: distributed: rank 1 made no state of its shard" in first
    assert second.startswith("RuntimeError")
