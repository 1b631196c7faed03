"""Parts merged in the launch that makes them: as the merging kernel's result, in whatever order blocks come."""

from __future__ import annotations

import re
import runpy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sympy import S

from redalg.errors import PlanError
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.check.lint import lint
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.program import Kernel, Parallel, Store, TileProgram
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.space import I
from redalg.runtime.call import counters
from redalg.runtime.call.counters import Counters
from redalg.runtime.compile.compile import compile_only, compile_source
from redalg.runtime.known.stored import from_choices
from redalg.runtime.known.tuned import parse_entry
from redalg.runtime.lowered import Lowered
from redalg.runtime.lowering import space_for
from redalg.strategies.schedule import choices_of, numbers_of, with_choices
from redalg.strategies.search.choice import preferred_schedule
from redalg.strategies.search.space import Space
from tests.cases.kernels import CASES, fused, problem, tensors_of, worst_error
from tests.cases.problems import Problem, levelled, problems
from tests.strategies.test_varying import drawn as of_sizes
from tests.sweeps import draws

KNOWN = {one.name: one for one in CASES}
LAUNCH = {"merge": "launch"}


def lowered(name: str, target: str = "c", **fields: Any) -> Lowered:
    """A case under its usual plan with parts that are merged in the launch."""
    case = KNOWN[name]
    form, options = fused(case.form), problem(fused(case.form), tensors_of(case), case.sizes)
    plan = form.lower(target, **options, empty=case.empty).plan
    lowering: Lowered = form.lower(
        target, **options, empty=case.empty, plan=with_choices(plan, **{"segments": 4, **LAUNCH, **fields})
    )
    return lowering


def shuffled(seed: int) -> Callable[[Any], list[Any]]:
    def order(places: Any) -> list[Any]:
        found = list(places)
        Random(seed).shuffle(found)
        return found

    return order


# ---- meaning ---------------------------------------------------------------------------------------------------------


@given(problems(), st.sampled_from([2, 3, 4]), st.sampled_from([1, 2, 3, 16]), st.integers(0, 99))
@settings(max_examples=draws(10))
def test_the_last_block_makes_what_a_merging_kernel_makes(drawn: Problem, parts: int, rows: int, seed: int) -> None:
    """To the last bit, in any order of blocks; and every counter is 0 again."""
    name, tensors, small, extents = drawn
    form = fused(name)
    options = problem(form, tensors, extents)
    lowered = form.lower("c", **options)
    by_rules, sizes = lowered.plan, lowered.problem.sizes
    tile: dict[str, Any] = {**small, "segments": parts, "splits": 1, "level": "block", "block_merged": rows}
    plan = levelled(by_rules, {**tile, "block_row": 1} if by_rules.binding.row is None else tile, sizes, form.form)
    assume(numbers_of(plan).segments > 1)
    arguments = {one: array.numpy() for one, array in tensors.items()}
    programs = [form.lower("c", **options, plan=with_choices(plan, merge=one)).program for one in ("kernel", "launch")]
    titles = [one.title for one in programs[0].kernels]
    assert [one for one in titles if one.startswith("merge the parts")] == titles[1:2]
    assert len(programs[1].kernels) == len(
        [one for one in titles if not re.fullmatch("merge the parts(, finish)?", one)]
    )
    apart, together = interpret(programs[0], arguments), interpret(programs[1], arguments, order=shuffled(seed))
    for one in form.cascade.outputs:
        assert np.array_equal(apart[one.name], together[one.name], equal_nan=True)
    counts = [one.name for one in programs[1].parameters if one.role == "counter"]
    assert counts
    assert not any(together[one].any() for one in counts)


ON_C: dict[str, dict[str, Any]] = {
    "ragged, d ≠ e": {"block_row": 24, "block_column": 16, "block_streamed": 16},
    "softmax": {"block_streamed": 64},
    "covariance": {"block_column": 16},
    "best of rows": {"block_streamed": 64},
    "routing": {"block_streamed": 16},
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ON_C)
def test_the_c_target_equals_the_definition_again_and_again(name: str) -> None:
    """Called twice, so that what the first call leaves in its counter would show."""
    case, lowering = KNOWN[name], lowered(name, **ON_C[name])
    tensors, form = tensors_of(case), fused(case.form)
    for _ in range(2):
        out = form(**tensors, backend="tilelang", empty=case.empty, sizes=case.sizes, plan=lowering.plan)
        assert worst_error(out, form.reference(**tensors, sizes=case.sizes), case.empty) <= max(case.tolerance, 1e-6)


def test_sizes_that_change() -> None:
    """Counters have run-time extents as the tiles that they count."""
    form, sizes = fused("attention"), (1, 2, 40, 300)
    options = problem(form, of_sizes(form, *sizes))
    for target in ("sm_90a", "c"):
        plan = form.lower(target, **options, varying="bhqk").plan
        plan = with_choices(plan, segments=3, stages=min(1, numbers_of(plan).stages), **LAUNCH)
        lowering = form.lower(target, **options, varying="bhqk", plan=plan)
        for at in (sizes, (2, 3, 5, 70), (1, 1, 70, 1), (2, 1, 129, 65)):
            tensors = of_sizes(form, *at)
            found = interpret(lowering.program, {key: one.numpy() for key, one in tensors.items()}, order=shuffled(0))
            assert worst_error(torch.from_numpy(found["out"]), form.reference(**tensors)) <= 2e-6
    run = compile_source(lowering.source).run
    tensors = of_sizes(form, 2, 1, 70, 65)
    out, parts = torch.full((2, 1, 70, 24), torch.nan), [torch.empty(3, 2, 1, 70) for _ in range(2)]
    done = torch.zeros(-(-70 // numbers_of(plan).block_row), 1, 2, dtype=torch.int32)
    for _ in range(2):
        run(*(tensors[name] for name in form.cascade.inputs()), out, *parts, torch.empty(3, 2, 1, 70, 24), done)
        assert worst_error(out, form.reference(**tensors)) <= 2e-6
        assert not done.any()


def test_a_saved_file_begins_with_counters_at_0(tmp_path: Path) -> None:
    lowering = lowered("variance", block_streamed=64)
    path = fused("variance").save(tmp_path / "saved.py", target="c", sizes={"b": 5, "n": 1000},
                                  dtypes={"x": "float32"}, plan=lowering.plan)  # fmt: skip
    assert '"done": torch.zeros((2,), dtype=torch.int32, device=device)' in path.read_text(encoding="utf-8")
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(path), run_name="__main__")
    torch.set_default_dtype(torch.float32)
    assert stop.value.code == 0


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_parts_are_merged_by_a_kernel_or_in_the_launch() -> None:
    said = "Parts(merge='grid') should be 'kernel', 'launch' or 'cluster'."
    with pytest.raises(PlanError, match=re.escape(said)):
        lowered("one query", "sm_90a", merge="grid")


def test_a_plan_says_where_parts_are_merged() -> None:
    plan = lowered("one query", "sm_90a").plan
    assert ' Parts(k, 4, merge="launch") ' in str(plan)
    assert "merge" not in str(with_choices(plan, merge="kernel"))
    assert choices_of(plan)["merge"] == "launch"


def with_change(program: TileProgram, change: Callable[[Kernel], Kernel]) -> TileProgram:
    return replace(program, kernels=(change(program.kernels[0]), *program.kernels[1:]))


def with_last(kernel: Kernel, **fields: Any) -> Kernel:
    return replace(kernel, body=(*kernel.body[:-1], replace(kernel.body[-1], **fields)))


def storing(kernel: Kernel, name: str, dimensions: int) -> Kernel:
    """The kernel with a store to a parameter before all else."""
    return before(kernel, Store(name, (S.Zero,) * dimensions, S.Zero))


def reading(kernel: Kernel, name: str, dimensions: int) -> Kernel:
    """The kernel with a read of a parameter before all else."""
    return before(kernel, Store("sum_0", (I,), Load(name, *(0,) * dimensions)))


def before(kernel: Kernel, store: Store) -> Kernel:
    (rows,) = next(one.shape for one in kernel.buffers if one.name == "sum_0")
    return replace(kernel, body=(Parallel(((I, rows),), (store,)), *kernel.body))


BREAKS: dict[str, tuple[str, Callable[[Kernel], Kernel]]] = {
    "not last": ("is not the kernel's last statement", lambda k: replace(k, body=(k.body[-1], *k.body[:-1]))),
    "too few": ("waits for 3 of the 4 blocks of a tile", lambda k: with_last(k, parts=3)),
    "outputs": ("the output `out` is for the last block alone", lambda k: storing(k, "out", 4)),
    "parts": ("the workspace `max_0_parts` is for the last block alone", lambda k: reading(k, "max_0_parts", 4)),
    "counters": ("the counter `done` is for the last block alone", lambda k: reading(k, "done", 3)),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_program_that_leaves_too_much_to_other_blocks(name: str) -> None:
    lowering = lowered("one query", "sm_90a")
    lint(lowering.program, numbers_of(lowering.plan))
    said, change = BREAKS[name]
    with pytest.raises(PlanError, match=said):
        lint(with_change(lowering.program, change), numbers_of(lowering.plan))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"counter": "out"}, "`out` is no counter"),
        ({"place": ()}, "has 3 dimensions, 0 are named"),
        ({"flag": "max_0"}, "`max_0` is no integer of a thread's own"),
        ({"parts": 1}, "counts to 1"),
    ],
)
def test_verify_refuses_a_broken_counter(fields: dict[str, Any], said: str) -> None:
    lowering = lowered("one query", "sm_90a")
    verify(lowering.program)
    with pytest.raises(PlanError, match=said):
        verify(with_change(lowering.program, lambda kernel: with_last(kernel, **fields)))


def test_a_counter_is_stored_to_by_its_statement_alone() -> None:
    lowering = lowered("one query", "sm_90a")
    with pytest.raises(PlanError, match="writes the counter `done`"):
        verify(with_change(lowering.program, lambda kernel: storing(kernel, "done", 3)))


# ---- what is generated -----------------------------------------------------------------------------------------------

SYNC = r"(?:__syncthreads\(\)|tl::__sync_thread_partial\(\d+, 128\))"
ARRIVAL = (
    r"__threadfence\(\)", SYNC, r"AtomicAddRet\(\(&\(done\[", r"done\[.*\] = 0;", SYNC, r"last\[0\] = ", SYNC,
    r"if \(last\[0\] != 0\)", r"__threadfence\(\)",
)  # fmt: skip


@pytest.mark.sweep(4)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    ("name", "target", "special"),
    [("one query", "sm_90a", True), ("one query", "sm_90a", False), ("variance", "sm_80", False),
     ("softmax", "sm_86", False)],
)  # fmt: skip
def test_the_cuda_source_waits_and_counts_in_order(name: str, target: str, special: bool) -> None:
    """Parts are stored; a fence; a barrier; one atomic and the reset; barriers that tell all; a fence; parts are read.

    Where some warps load tiles alone, every barrier is of the others; and no pointer promises that nobody else writes.
    """
    form = fused(KNOWN[name].form)
    options = problem(form, tensors_of(KNOWN[name]))
    options["dtypes"] = dict.fromkeys(options["dtypes"], "float16" if name == "one query" else "float32")
    plan = form.lower(target, **options).plan
    wanted = {"level": "block", "block_streamed": 128, "threads": 128} if not numbers_of(plan).multiplies else {}
    plan = with_choices(plan, **{"segments": 4, "merge": "launch", "warp_specialized": special, **wanted})
    lowering = form.lower(target, **options, plan=plan)
    first, *others = compile_only(lowering.source)
    assert len(others) == (name == "softmax")
    assert first.spill_bytes == 0
    head, body = first.cuda[first.cuda.index("__launch_bounds__") :].split(") {", 1)
    body = body.split('extern "C"')[0]
    parts = [one.name for one in lowering.program.parameters if one.role == "workspace" and one.name.endswith("_parts")]
    for one in (*parts, "done"):
        assert re.search(rf"(?<!const )(float|int)\* {one}\b", head), head
    named = [found.start() for one in parts for found in re.finditer(rf"\b{one}\b", body)]
    counts = body.index("AtomicAddRet")
    place = max(one for one in named if one < counts)
    for mark in ARRIVAL:
        found = re.search(mark, body[place:])
        assert found, mark
        place += found.end()
    assert not any(counts < one < place for one in named)
    assert sum(one > place for one in named) >= len(parts)
    assert body.count("AtomicAddRet(") == 1
    assert ("__syncthreads()" in body[counts:]) != special
    assert "return" not in body


# ---- plans -----------------------------------------------------------------------------------------------------------


def test_both_ways_are_searched_and_none_is_taken_unmeasured() -> None:
    form, sizes = fused("attention"), {"b": 1, "h": 8, "q": 1, "k": 8192, "d": 128, "e": 128}
    dtypes = dict.fromkeys("QKV", "float16")
    search_space = space_for(form.form, "sm_90a", sizes, dtypes)
    plans = [one for one in search_space.plans(persistent=False) if numbers_of(one).segments > 1]
    ways = {way: [one for one in plans if numbers_of(one).merge == way] for way in ("kernel", "launch")}
    assert {with_choices(one, merge="kernel", block_merged=1) for one in ways["launch"]} == {
        with_choices(one, block_merged=1) for one in ways["kernel"]
    }
    assert all(search_space.admits(one) for one in ways["launch"])
    assert numbers_of(preferred_schedule(search_space)).merge == "kernel"


def test_what_was_tuned_before_is_merged_by_a_kernel() -> None:
    choices = choices_of(lowered("one query", "sm_90a").plan)
    key = {"cascade": "", "dtypes": {}, "bucket": {}, "options": {}, "card": "H200", "redalg": "", "tilelang": ""}
    line = {"key": key, "sizes": {}, "plan": choices, "measured_us": 1.0, "predicted_us": 1.0}
    assert ["Parts", {"axis": "streamed", "count": 4, "merge": "launch"}] in parse_entry(line).schedule
    older = {name: one for name, one in choices.items() if name != "merge"}
    assert parse_entry({**line, "plan": older}).schedule == from_choices({**older, "merge": "kernel"})


def test_a_launch_saved_is_worth_what_few_parts_cost() -> None:
    """Where tiles are many and parts few a launch is saved; where one block reads all parts it is not."""
    form, dtypes = fused("attention"), dict.fromkeys("QKV", "float16")
    few, rows = (
        space_for(form.form, "sm_90a", {"b": 1, "h": h, "q": q, "k": k, "d": 128, "e": 128}, dtypes)
        for h, q, k in ((64, 1, 8192), (1, 128, 65536))
    )

    def gain(space: Space, **fields: Any) -> float:
        plan = with_choices(next(iter(space.plans())), warp_specialized=False, **fields)
        return space.predict(plan).time_us - space.predict(with_choices(plan, merge="launch")).time_us

    assert gain(few, segments=4) > 0
    assert gain(rows, segments=64, block_row=128) < 0


# ---- counters of launches --------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A device with streams and graphs to be captured, of tensors on the CPU."""
    state = {"stream": 1, "capturing": False, "made": 0}

    def zeros(shape: tuple[int, ...], device: Any) -> torch.Tensor:
        state["made"] += 1
        return torch.zeros(shape, dtype=torch.int32)

    monkeypatch.setattr(counters, "zeros", zeros)
    monkeypatch.setattr(counters, "is_capturing", lambda: state["capturing"])
    monkeypatch.setattr(counters, "stream_of", lambda device: state["stream"])
    monkeypatch.setattr(counters, "wait_for", lambda device: None)
    monkeypatch.setattr(counters, "_LEFT", {})
    monkeypatch.setattr(counters, "_KEPT", [])
    return state


def shared(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two counters have an integer in common."""
    spans = [(one.data_ptr(), one.data_ptr() + 4 * one.numel()) for one in (first, second)]
    return spans[0][0] < spans[1][1] and spans[1][0] < spans[0][1]


def test_streams_share_no_counter(gpu: dict[str, Any]) -> None:
    one = Counters((3, 5), torch.device("cuda:0"))
    first = one()
    assert one() is first
    gpu["stream"] = 2
    assert not shared(first, one())
    gpu["stream"] = 1
    assert one() is first
    assert first.shape == (3, 5)


def test_captured_launches_share_no_counter(gpu: dict[str, Any]) -> None:
    one, other = (Counters(shape, torch.device("cuda:0")) for shape in ((3, 5), (70,)))
    eager = [one(), other()]
    made, gpu["capturing"] = gpu["made"], True
    captured = [each() for _ in range(20) for each in (one, other)]
    assert gpu["made"] == made  # a graph would hold what sets them to 0
    kept = [*eager, *captured]
    assert not any(shared(a, b) for place, a in enumerate(kept) for b in kept[:place])
    assert not any(each.any() for each in kept)
    assert all(each.data_ptr() % 128 == captured[0].data_ptr() % 128 for each in captured)


def test_a_graph_makes_its_own_where_none_are_left(gpu: dict[str, Any]) -> None:
    one = Counters((1000,), torch.device("cuda:0"))
    gpu["capturing"] = True
    first = one()  # nothing was laid by
    assert gpu["made"] == 1
    gpu["capturing"] = False
    one()
    gpu["capturing"] = True
    found = [first, *(one() for _ in range(100))]
    assert not any(shared(a, b) for place, a in enumerate(found) for b in found[:place])
    assert len(counters._KEPT) == 1


def test_calls_on_the_cpu_share_no_counter() -> None:
    one = Counters((4,), torch.device("cpu"))
    assert not shared(one(), one())
