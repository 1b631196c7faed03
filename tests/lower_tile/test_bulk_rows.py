"""Long rows are fetched in bulk to shared memory: the same numbers, whatever their length and where they begin."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg import library
from redalg.errors import PlanError
from redalg.expression import Where
from redalg.lower_tile.ir.program import Copy, Loop, Parallel, Region, Statement, TileProgram
from redalg.lower_tile.passes.bulk_rows import rows_in_bulk
from redalg.lower_tile.passes.order import run_passes
from redalg.lower_tile.place.build import assemble
from redalg.runtime.compile.compile import compile_only
from redalg.strategies.levels import Grid, Lanes, Whole
from redalg.strategies.schedule import with_choices
from tests.cases.kernels import outputs_of
from tests.cases.whole_rows import FORMS, check_near, drawn, interpreted, is_near, lowered, of_short_axis, run_on_c
from tests.sweeps import draws

n = ra.axis("n")
x, y, w = ra.tensors("x[b,h,n] y[b,h,n] w[n]")
OTHERS = {
    "a maximum that NaN passes": ra.fuse(x - ra.max(x, n), axes="b h n"),
    "three sums of one term": ra.fuse(x / (ra.max(x, n) - ra.min(x, n) + ra.sum(x**2, n)), axes="b h n"),
    "a norm of a sum": ra.fuse((x + y - ra.mean(x + y, n)) / ra.std(x + y, n), axes="b h n"),
    "weights in a sum": ra.fuse(x * ra.sum(x * w, n), axes="b h n"),
    "two outputs": ra.fuse({"p": (ra.softmax(x, n), "b h n"), "z": (x + y, "b h n"), "m": (ra.max(x, n), "b h")}),
}
ALL = FORMS | OTHERS


def fetched(name: str, shape: tuple[int, int, int], dtype: str, threads: int = 64) -> Any:
    """A form under a plan of rows in shared memory."""
    wide = threads * (4 if dtype == "float32" else 8)
    tile = -(-shape[-1] // wide) * wide
    return lowered(ALL[name], shape, dtype, level="row", block_streamed=tile, threads=threads, stages=1)


def bulk_copies(program: TileProgram) -> list[Copy]:
    """The copies that one unit makes."""
    return [one for kernel in program.kernels for one in kernel.body if isinstance(one, Copy) and one.in_bulk]


@given(
    st.sampled_from([name for name in ALL if name != "a gate of some rows"]),
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.integers(8, 250).map(lambda eights: 8 * eights) | st.integers(512, 2100),
    st.sampled_from([32, 64, 128]),
    st.sampled_from(["float32", "bfloat16", "float16"]),
    st.integers(0, 99),
)
@settings(max_examples=draws(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_rows_mean_the_definition(
    name: str, rows: tuple[int, int], elements: int, threads: int, dtype: str, seed: int
) -> None:
    """By the program's interpreter, which fetches no element that a row lacks."""
    form, shape = ALL[name], (*rows, elements)
    tensors = drawn(form, shape, dtype, seed)
    program = fetched(name, shape, dtype, threads).program
    assert bulk_copies(program)
    check_near(interpreted(program, tensors), form, tensors, dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_vectors_of_every_row_are_fetched_and_no_others(dtype: str) -> None:
    """From the first vector on, as many as the shortest row has, which begins ahead of the last element of one."""
    program = fetched("softmax", (3, 5, 1001), dtype).program
    [copy] = bulk_copies(program)
    wide = 4 if dtype == "float32" else 8
    assert isinstance(copy.source, Region)
    [(_, count)] = [one for one in copy.source.place if isinstance(one, tuple)]
    assert count == (1001 - (wide - 1)) // wide * wide
    [parameter] = [one for one in program.parameters if one.key == "x"]
    assert parameter.shape == (3 * 5 * 1001,)


def test_rows_of_infinities_and_nan() -> None:
    """What lies behind a row in its tile is not read: only rows with NaN are NaN."""
    form = ALL["a maximum that NaN passes"]
    tensors = {"x": torch.randn(2, 2, 1001)}
    tensors["x"][0, 0, 1000], tensors["x"][1, 1, 3] = torch.nan, -torch.inf
    found = interpreted(fetched("a maximum that NaN passes", (2, 2, 1001), "float32").program, tensors)["out"]
    wanted = form.reference(x=tensors["x"].double())
    assert (torch.isnan(torch.from_numpy(found)).reshape(wanted.shape) == torch.isnan(wanted)).all()
    assert torch.isnan(wanted)[0, 0].all()
    assert not torch.isnan(wanted)[1:].any()


def turns_and_masks(statements: tuple[Statement, ...]) -> tuple[list[int], int]:
    """The turns of loops, and the loops over tiles in turn that ask if a row has an element."""
    loops = [one for one in statements if isinstance(one, Loop)]
    asked = sum(bool(store.expr.atoms(Where)) for one in loops for each in one.body if isinstance(each, Parallel)
                for store in each.body)  # fmt: skip
    return [int(one.stop) for one in loops], asked


@pytest.mark.parametrize(("elements", "turns"), [(2048, [4, 4]), (2040, [3, 3]), (1544, [3, 3]), (1001, [1, 1])])
def test_all_but_the_last_turn_ask_for_no_end(elements: int, turns: list[int]) -> None:
    program = fetched("softmax", (2, 1, elements), "bfloat16").program
    assert turns_and_masks(program.kernels[0].body) == (turns, 0)


def loops_of_turns(program: TileProgram) -> list[Parallel]:
    """The loops over the elements of a turn, in loops over turns."""
    turns = (one for one in program.kernels[0].body if isinstance(one, Loop))
    return [each for one in turns for each in one.body if isinstance(each, Parallel)]


@pytest.mark.parametrize("elements", [2040, 2043])
def test_terms_of_whole_turns_are_added_as_they_are(elements: int) -> None:
    """Not f + x − c for f + (x − c): that rounds at x."""
    loops = loops_of_turns(fetched("layer norm", (2, 1, elements), "float32").program)
    assert len(loops) == 2
    assert [len(store.expr.args) for one in loops for store in one.body] == [2, 2, 2]


def test_sums_that_need_not_wait_for_the_ends_share_their_turns() -> None:
    """Of rows that begin anywhere as of others: the ends are added up first."""
    for elements in (2040, 2043):
        loops = loops_of_turns(fetched("layer norm", (2, 1, elements), "float32").program)
        assert [len(one.body) for one in loops] == [1, 2]


@pytest.mark.parametrize(("name", "dtype", "alone"), [
    ("lengths", "bfloat16", True), ("lengths", "float32", True), ("layer norm", "bfloat16", True),
    ("layer norm", "float32", False), ("softmax", "bfloat16", False),
])  # fmt: skip
def test_lanes_take_elements_one_by_one_where_tilelang_loads_no_vectors(name: str, dtype: str, *, alone: bool) -> None:
    loops = loops_of_turns(fetched(name, (2, 1, 24576), dtype, 256).program)
    assert {(one.adjacent, one.lanes) for one in loops} == {(1, 32) if alone else (0, 0)}


@pytest.mark.sweep(1)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    ("name", "elements"), [("lengths", 24576), ("layer norm", 24573), ("weights of all rows", 24576)]
)
def test_no_warp_waits_for_another_within_a_sum(name: str, elements: int) -> None:
    """TileLang reduces between warps in a memory of its own, which it names workspace."""
    (compiled,) = compile_only(fetched(name, (41, 3, elements), "bfloat16", 256).source)
    assert "workspace" not in compiled.cuda
    assert compiled.spill_bytes == 0


@pytest.mark.parametrize(("name", "shape", "dtype", "target", "choices", "message"), [
    ("softmax", (2, 2, 512), "float32", "sm_80", {}, "fetches rows in bulk, which sm_80 cannot"),
    ("softmax", (2, 2, 512), "float32", "c", {}, "fetches rows in bulk, which c cannot"),
    ("softmax", (2, 2, 512), "float32", "sm_90a", {"block_row": 2}, "fetches 2 rows a block in bulk. Use one"),
    ("a gate of some rows", (2, 3, 513), "float32", "sm_90a", {}, "not each begins at a multiple of 16 bytes"),
])  # fmt: skip
def test_plans_of_other_rows_are_refused(
    name: str, shape: tuple[int, int, int], dtype: str, target: str, choices: dict[str, int], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        lowered(FORMS[name], shape, dtype, target, level="row", threads=64, stages=1, **choices)


def test_a_kernel_that_needs_other_elements_is_refused() -> None:
    """A list of the best elements is sorted by threads that hold them."""
    best = ra.fuse({"v": (ra.topk(x, n, ra.axis("j", size=3))[0], "b h j")})
    with pytest.raises(PlanError, match="Kernels of this form compute it of others too"):
        lowered(best, (3, 2, 512), "float32", level="row", threads=64, stages=1)


def test_an_axis_that_ends_ahead_of_its_dimension() -> None:
    """A row that begins at a vector is fetched beyond the axis; of one that begins anywhere the ends are not known."""
    plan = ra.Schedule(Grid("b"), Whole("n", 1024, memory="shared"), Lanes("n", 64))
    lowering, data, wanted = of_short_axis(1000, 1008, plan)
    found = interpreted(lowering.program, {"x": data})["out"]
    assert bulk_copies(lowering.program)
    assert is_near(found / float(wanted.max()), wanted / wanted.max(), "float32")
    with pytest.raises(PlanError, match="not each begins at a multiple of 16 bytes"):
        of_short_axis(1000, 1001, plan)


def test_a_tile_that_rounds_its_elements_is_refused() -> None:
    """Computed where it is read, an element would keep its digits."""
    lowering = lowered(FORMS["softmax"], (3, 2, 512), "float32", level="row")
    plan, dtypes = lowering.source.plan, {"out": "float32"}
    program = assemble(lowering.stages, plan, lowering.problem, dtypes)
    [kernel] = program.kernels
    assert bulk_copies(rows_in_bulk(program, {0: plan}))
    buffers = tuple(replace(one, dtype="bfloat16") if one.name == "term" else one for one in kernel.buffers)
    with pytest.raises(PlanError, match="Kernels of this form compute it of others too"):
        rows_in_bulk(replace(program, kernels=(replace(kernel, buffers=buffers),)), {0: plan})


def test_rules_offer_registers_where_a_kernel_has_no_program() -> None:
    """Rows of the gate and of the data begin at vectors of their own."""
    program = FORMS["a gate of some rows"].lower("H200", {"b": 4096, "h": 3, "n": 32001}, "bfloat16").program
    assert not bulk_copies(program)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["softmax", "two tensors", "layer norm", "a number beside", "lengths"])
@pytest.mark.parametrize("elements", [96, 519])
def test_the_c_target_equals_the_definition(name: str, elements: int) -> None:
    """A compiled kernel that copies what another unit would fetch, and computes elements where they are read."""
    form, shape = FORMS[name], (3, 2, elements)
    tensors = drawn(form, shape, "float32", 0)
    lowering = lowered(form, shape, "float32", "c", level="row", block_streamed=1024)
    dtypes = {one.key: one.dtype for one in lowering.program.parameters if one.role == "output"}
    plan = lowering.source.plan
    program = rows_in_bulk(assemble(lowering.stages, plan, lowering.problem, dtypes), {0: plan})
    [kernel] = program.kernels
    assert bulk_copies(program)
    body = tuple(replace(one, in_bulk=False) if isinstance(one, Copy) else one for one in kernel.body)
    copied = replace(program, kernels=(replace(kernel, body=body, beside=1),))
    check_near(run_on_c(run_passes(copied, plan), plan, tensors), form, tensors, "float32")


@pytest.mark.sweep(1)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(("name", "elements"), [("softmax", 32000), ("layer norm", 32001), ("root mean square", 24000)])
def test_one_instruction_fetches_a_row(name: str, elements: int) -> None:
    """And blocks lie side by side: threads have few registers, and spill none."""
    (compiled,) = compile_only(fetched(name, (700, 1, elements), "bfloat16", 256).source)
    assert compiled.cuda.count("tl::tma_load(") == 1
    assert "(uint4*)(((bfloat16_t*)x_tile)" in compiled.cuda
    assert compiled.spill_bytes == 0


@pytest.mark.parametrize(("operation", "sizes", "dtype", "tile", "lanes"), [
    ("softmax", (4096, 32000), "bfloat16", 32768, 256), ("softmax", (2048, 50257), "float16", 53248, 512),
    ("log_softmax", (2048, 40000), "bfloat16", 40960, 512), ("layer_norm", (4096, 32000), "bfloat16", 32768, 512),
    ("layer_norm", (4096, 24576), "bfloat16", 24576, 256), ("layer_norm", (8192, 8191), "bfloat16", 8192, 256),
    ("rms_norm", (16384, 4095), "bfloat16", 4096, 128), ("rms_norm", (2048, 20001), "float32", 20480, 512),
])  # fmt: skip
def test_rules_fetch_long_rows(operation: str, sizes: tuple[int, int], dtype: str, tile: int, lanes: int) -> None:
    """As they were timed."""
    form = getattr(library, operation)()
    plan = form.lower("H200", dict(zip("bn", sizes, strict=True)), dtype).plan
    assert plan.levels[1:] == (Whole("n", tile, memory="shared"), Lanes("n", lanes))


@pytest.mark.parametrize(("operation", "sizes", "dtype", "device"), [
    ("softmax", (4096, 20000), "bfloat16", "H200"), ("softmax", (256, 32000), "bfloat16", "H200"),
    ("softmax", (2048, 20000), "float32", "H200"), ("softmax", (2048, 56000), "bfloat16", "H200"),
    ("rms_norm", (2048, 50264), "bfloat16", "H200"),
    ("layer_norm", (32768, 2047), "bfloat16", "H200"), ("softmax", (4096, 32000), "bfloat16", "A100"),
])  # fmt: skip
def test_rules_keep_others_in_registers(operation: str, sizes: tuple[int, int], dtype: str, device: str) -> None:
    """Shorter rows, few of them, wider elements, plain sums of the longest, and cards without such a unit."""
    form = getattr(library, operation)()
    program = form.lower(device, dict(zip("bn", sizes, strict=True)), dtype).program
    assert not bulk_copies(program)


def test_weights_that_sums_read_keep_rows_in_registers() -> None:
    """Each sum would read them again."""
    form = ra.fuse(ra.softmax(x * w, n), axes="b h n")
    assert not bulk_copies(form.lower("H200", {"b": 4096, "h": 1, "n": 32000}, "bfloat16").program)


def test_tuning_tries_rows_in_shared_memory() -> None:
    form, sizes = library.softmax(), {"b": 4096, "n": 24576}
    plans = form.plans(sizes, "bfloat16", "H200")
    shared = f"Grid(b) {Whole('n', 24576, memory='shared')} "
    found = {str(one.plan).removeprefix(shared) for one in plans if str(one.plan).startswith(shared)}
    assert found == {f"Lanes(n, {threads}); sm_90a" for threads in (128, 256, 512, 1024)}


def test_a_schedule_says_where_a_row_lies() -> None:
    plan = library.softmax().lower("H200", {"b": 4096, "n": 4096}, "bfloat16").plan
    shared = plan.having(Whole("n", 4096, memory="shared"))
    assert str(shared) == 'Grid(b) Whole(n, 4096, memory="shared") Lanes(n, 128); sm_90a'
    assert with_choices(shared, stages=0) == plan
    with pytest.raises(PlanError, match="memory"):
        Whole("n", 4096, memory="global")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(300, 3, 4095), (400, 1, 8192), (300, 1, 21001), (290, 2, 24576)])
@pytest.mark.parametrize("name", [name for name in ALL if name != "a gate of some rows"])
def test_rows_are_right_on_a_gpu(name: str, shape: tuple[int, int, int], dtype: str) -> None:
    """Under a plan of rows in shared memory, though the rules may have another."""
    form = ALL[name]
    tensors = drawn(form, shape, dtype, 0)
    plan = fetched(name, shape, dtype, 256).plan
    placed = {key: (one if key == "length" else one.to(getattr(torch, dtype))).cuda() for key, one in tensors.items()}
    found = outputs_of(form(**placed, plan=plan))
    check_near({key: one.double().cpu().numpy() for key, one in found.items()}, form, tensors, dtype)
