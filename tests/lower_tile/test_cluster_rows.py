"""Rows that no block holds lie in the shared memory of a cluster of blocks: the same numbers, however they are cut."""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg import library
from redalg.errors import PlanError
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.exchange import Exchange
from redalg.lower_tile.ir.program import Copy, Parallel, TileProgram
from redalg.lower_tile.place.together import Step, join_programs
from redalg.runtime.compile.compile import compile_only
from redalg.strategies.levels import CLUSTER, Grid, Lanes, Loop, Parts, Whole
from redalg.strategies.rules.tiles import round_up
from tests.cases.kernels import outputs_of
from tests.cases.whole_rows import check_near, drawn, interpreted, of_short_axis
from tests.lower_tile.test_bulk_rows import ALL
from tests.sweeps import draws

n = ra.axis("n")
x, y = ra.tensors("x[b,h,n] y[b,h,n]")
ANYWHERE = [name for name in ALL if name != "a gate of some rows"]
"""The forms whose rows may begin anywhere: those of the gate begin elsewhere than those of the data."""


def in_cluster(form: Any, shape: tuple[int, int, int], dtype: str, blocks: int, threads: int = 64) -> Any:
    """A form under a plan of so many blocks for a row."""
    wide = 4 if dtype == "float32" else 8
    part = round_up(round_up(shape[-1], blocks) // blocks, wide)
    tile = round_up(part, threads * wide)
    plan = ra.Schedule(Grid("b"), Grid("h"), Parts("n", blocks, merge=CLUSTER), Whole("n", tile, memory="shared"),
                       Lanes("n", threads))  # fmt: skip
    dtypes = {name: "int32" if name == "length" else dtype for name in form.cascade.inputs()}
    return form.lower("sm_90a", sizes=dict(zip("bhn", shape, strict=True)), dtypes=dtypes, plan=plan)


@given(
    st.sampled_from(ANYWHERE),
    st.integers(1, 2),
    st.sampled_from([2, 4, 8]),
    st.integers(-60, 100).map(lambda vectors: 8 * vectors) | st.integers(-500, 800),
    st.sampled_from(["float32", "bfloat16", "float16"]),
    st.integers(0, 99),
)
@settings(max_examples=draws(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_parts_mean_the_definition(name: str, rows: int, blocks: int, more: int, dtype: str, seed: int) -> None:
    """By the program's interpreter, which runs the blocks of a cluster side by side. The last part may be shorter, and
    rows begin anywhere, wherever lengths are no multiples of a vector."""
    form, shape = ALL[name], (rows, 2, blocks * 1024 + more)
    tensors = drawn(form, shape, dtype, seed)
    program = in_cluster(form, shape, dtype, blocks).program
    assert [kernel.cluster for kernel in program.kernels] == [blocks]
    check_near(interpreted(program, tensors), form, tensors, dtype)


def test_a_gate_is_shared_out_with_its_rows() -> None:
    form, shape = ALL["a gate of some rows"], (2, 3, 4104)
    tensors = drawn(form, shape, "bfloat16", 0)
    check_near(interpreted(in_cluster(form, shape, "bfloat16", 4).program, tensors), form, tensors, "bfloat16")


@pytest.mark.parametrize("elements", [4096, 4104, 4999, 5000])
def test_each_order_of_clusters_means_the_same(elements: int) -> None:
    """No cluster waits for another; the last part of 5000 elements is shorter than the others."""
    form, shape = ALL["layer norm"], (3, 2, elements)
    tensors = drawn(form, shape, "bfloat16", 0)
    program = in_cluster(form, shape, "bfloat16", 4).program
    arrays = {key: one.numpy() for key, one in tensors.items()}
    forward, backward = (interpret(program, arrays, order=order)["out"] for order in (iter, reversed))
    assert (forward == backward).all()


def test_one_block_stores_a_number_of_a_row() -> None:
    program = in_cluster(ALL["a number beside"], (2, 2, 4096), "float32", 4).program
    outputs = {one.name: one.key for one in program.parameters if one.role == "output"}
    loops = [one for one in program.kernels[0].body if isinstance(one, Parallel)]
    guards = {outputs[store.target]: str(one.guard) for one in loops for store in one.body if store.target in outputs}
    assert guards == {"out": "True", "log": "Eq(part, 0)"}


def exchanges(program: TileProgram) -> list[Exchange]:
    """The exchanges of a program."""
    return [one for kernel in program.kernels for one in kernel.body if isinstance(one, Exchange)]


@pytest.mark.parametrize(("name", "rows"), [("softmax", [(0,), (1,)]), ("layer norm", [(0,), (1, 2)])])
def test_sums_that_do_not_wait_for_each_other_are_exchanged_at_once(name: str, rows: list[tuple[int, ...]]) -> None:
    """And the first waits until all blocks run."""
    found = exchanges(in_cluster(ALL[name], (2, 1, 8192), "float32", 4).program)
    assert [one.rows for one in found] == rows
    assert [one.is_first for one in found] == [True, False]


def test_rows_that_are_cut_evenly_ask_for_no_end() -> None:
    """Of 4 parts of 2048 elements, 64 threads take 512 at a time."""
    text = in_cluster(ALL["softmax"], (2, 1, 8192), "bfloat16", 4).source.text
    assert "length" not in text
    ragged = in_cluster(ALL["softmax"], (2, 1, 8200), "bfloat16", 4).source.text
    assert "x_tile[0, 0:length], prefer_instruction" in ragged


def test_a_broken_exchange_is_found() -> None:
    """Of rows that the table lacks, or of another number of blocks."""
    program = in_cluster(ALL["softmax"], (2, 1, 8192), "bfloat16", 4).program
    [kernel] = program.kernels
    [first, _] = exchanges(program)
    for wrong in ({"rows": (2,)}, {"blocks": 2}, {"source": "x_tile"}):
        body = tuple(one if one != first else type(first)(**{**vars(first), **wrong}) for one in kernel.body)
        broken = type(program)(**{**vars(program), "kernels": (type(kernel)(**{**vars(kernel), "body": body}),)})
        with pytest.raises(PlanError, match="to a table"):
            verify(broken)


@pytest.mark.parametrize(("levels", "message"), [
    ((Grid("b"), Grid("h"), Parts("n", 4, merge=CLUSTER), Loop("n", 512), Lanes("n", 64)), "There: Whole"),
    ((Grid("b"), Grid("h"), Parts("n", 4, merge=CLUSTER), Whole("n", 1024), Lanes("n", 64)),
     'Use Whole(…, memory="shared")'),
    ((Grid("b"), Grid("h"), Parts("n", 2, merge=CLUSTER), Whole("n", 1024, memory="shared"), Lanes("n", 64)),
     "Use a Whole tile of at least that"),
    ((Grid("b"), Grid("h"), Parts("n", 4, merge=CLUSTER), Whole("n", 1024, memory="shared"), Lanes("n", 512)),
     "a thread adds up 16 floating-point elements"),
])  # fmt: skip
def test_levels_that_make_no_cluster_are_refused(levels: tuple[Any, ...], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        ALL["softmax"].lower("sm_90a", sizes={"b": 4, "h": 1, "n": 4096}, dtypes="float32", plan=ra.Schedule(*levels))
    assert message in str(caught.value)


@pytest.mark.parametrize(("form", "elements", "message"), [
    (ALL["a gate of some rows"], 4098, "of which not each begins at a multiple of 16 bytes"),
    (ALL["softmax"], 510, "Such rows have 512 elements or more"),
    (ALL["softmax"], 8, "of which 3 blocks take all, in vectors of 4. Use fewer blocks"),
])  # fmt: skip
def test_rows_that_no_cluster_shares_out_are_refused(form: Any, elements: int, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        in_cluster(form, (3, 1, elements), "float32", 4)


def test_an_axis_that_ends_ahead_of_its_dimension_is_refused() -> None:
    """Its blocks would not know where their parts end."""
    plan = ra.Schedule(Grid("b"), Parts("n", 4, merge=CLUSTER), Whole("n", 1024, memory="shared"), Lanes("n", 64))
    with pytest.raises(PlanError, match="axis n ends ahead of them"):
        of_short_axis(4000, 4004, plan)


def test_clusters_have_2_4_or_8_blocks() -> None:
    with pytest.raises(PlanError, match="should be 2, 4 or 8 blocks of a cluster"):
        Parts("n", 3, merge=CLUSTER)


def test_a_step_of_a_shared_launch_has_no_cluster() -> None:
    lowering = in_cluster(ALL["softmax"], (2, 1, 8192), "bfloat16", 4)
    step = Step(lowering.program, lowering.source.plan, 0, {"x": "x", "out": "out"})
    with pytest.raises(PlanError, match="steps of one launch have no clusters"):
        join_programs("both", [step], ["out"])


@pytest.mark.sweep(1)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(("name", "elements"), [("softmax", 128256), ("layer norm", 65544), ("layer norm", 65541)])
def test_blocks_store_in_the_memory_of_others(name: str, elements: int) -> None:
    (compiled,) = compile_only(in_cluster(ALL[name], (700, 1, elements), "bfloat16", 4, 256).source)
    assert compiled.cuda.count("map_shared_rank") >= 2
    assert compiled.cuda.count("tl::cluster_wait()") == 1
    assert "cudaGridConstant" not in compiled.cuda
    assert compiled.spill_bytes == 0


@pytest.mark.sweep(1)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", ["a maximum that NaN passes", "a variance alone"])
def test_nothing_lies_where_other_blocks_store(name: str) -> None:
    """No tile that the sums alone read, and not the memory in which TileLang reduces between warps: another block may
    store its sums while this one still adds up."""
    (compiled,) = compile_only(in_cluster(ALL[name], (41, 3, 65536), "float32", 8, 256).source)
    found = re.findall(r"void\* (\w+) = \(\(void\*\)\(\(char\*\)buf_dyn_shmem \+ (\d+)\)\);", compiled.cuda)
    places = {buffer: int(place) for buffer, place in found}
    table = places.pop("warps_of_blocks")
    assert places
    assert table >= max(places.values()) + 1024 or all(place >= table + 512 for place in places.values())


def test_blocks_of_32_warps_are_refused() -> None:
    """The warp that copies their sums to other blocks would not wait for the others."""
    with pytest.raises(PlanError, match="gives a block of a cluster 1024 threads"):
        in_cluster(ALL["root mean square"], (41, 3, 65541), "float32", 2, 1024)


def test_a_launch_has_three_dimensions_of_which_the_cluster_takes_one() -> None:
    form = ra.fuse(ra.softmax(ra.tensor("x[a,b,h,n]"), n), axes="a b h n")
    plan = ra.Schedule(Grid("a"), Grid("b"), Grid("h"), Parts("n", 2, merge=CLUSTER), Whole("n", 1024, memory="shared"),
                       Lanes("n", 64))  # fmt: skip
    text = form.source("sm_90a", {"a": 5, "b": 3, "h": 7, "n": 2048}, "float32", plan=plan)
    assert "with T.Kernel(2, 105, **launch, cluster_dims=(2, 1, 1)) as (part, block):" in text
    assert "h_block = block % 7" in text


@pytest.mark.parametrize(("operation", "sizes", "dtype", "blocks", "tile", "lanes"), [
    ("softmax", (1024, 128256), "bfloat16", 4, 32768, 256), ("softmax", (512, 151936), "float16", 8, 20480, 256),
    ("layer_norm", (1024, 65536), "float32", 4, 16384, 256), ("rms_norm", (256, 256000), "float32", 8, 32768, 512),
    ("log_softmax", (1024, 65536), "bfloat16", 2, 32768, 256), ("softmax", (1024, 128257), "bfloat16", 8, 16384, 256),
    ("layer_norm", (1024, 65537), "bfloat16", 4, 18432, 256), ("layer_norm", (256, 256001), "float32", 8, 32768, 512),
])  # fmt: skip
def test_rules_share_out_rows_that_no_block_holds(
    operation: str, sizes: tuple[int, int], dtype: str, blocks: int, tile: int, lanes: int
) -> None:
    """As they were timed."""
    plan = getattr(library, operation)().lower("H200", dict(zip("bn", sizes, strict=True)), dtype).plan
    assert plan.levels[1:] == (Parts("n", blocks, merge=CLUSTER), Whole("n", tile, memory="shared"), Lanes("n", lanes))


@pytest.mark.parametrize(("operation", "sizes", "dtype", "device"), [
    ("softmax", (32, 128256), "bfloat16", "H200"), ("softmax", (1024, 128257), "bfloat16", "A100"),
    ("layer_norm", (256, 256000), "float32", "H200"), ("softmax", (1024, 128256), "bfloat16", "A100"),
    ("softmax", (2048, 50000), "float32", "H200"),
])  # fmt: skip
def test_rules_leave_others_to_blocks(operation: str, sizes: tuple[int, int], dtype: str, device: str) -> None:
    """A few rows, sums about means of parts of which one fills a chip's part, other cards."""
    program = getattr(library, operation)().lower(device, dict(zip("bn", sizes, strict=True)), dtype).program
    assert not any(kernel.cluster > 1 for kernel in program.kernels)
    assert not any(isinstance(one, Copy) and one.in_bulk for kernel in program.kernels for one in kernel.body)


def test_tuning_tries_clusters_of_rows_that_two_blocks_do_not_hold_side_by_side() -> None:
    form, sizes = library.softmax(), {"b": 1024, "n": 128256}
    plans = [str(one.plan) for one in form.plans(sizes, "bfloat16", "H200")]
    found = {plan.split('"cluster") ')[0][-12:] for plan in plans if '"cluster"' in plan}
    assert found == {f"n, {blocks}, merge=" for blocks in (2, 4, 8)}
    plan = form.lower("H200", sizes, "bfloat16").plan
    assert str(plan) in plans
    short = [str(one.plan) for one in form.plans({"b": 1024, "n": 8192}, "bfloat16", "H200")]
    assert not any('"cluster"' in plan for plan in short)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("cut", [(2, 40000, 256), (4, 65541, 256), (8, 65536, 256), (8, 128259, 256), (4, 65541, 512)])
@pytest.mark.parametrize("name", ANYWHERE)
def test_rows_are_right_on_a_gpu(name: str, cut: tuple[int, int, int], dtype: str) -> None:
    form, (blocks, elements, lanes) = ALL[name], cut
    tensors = drawn(form, (41, 3, elements), dtype, 0)
    placed = {key: (one if key == "length" else one.to(getattr(torch, dtype))).cuda() for key, one in tensors.items()}
    plan = in_cluster(form, (41, 3, elements), dtype, blocks, lanes).plan
    found = outputs_of(form(**placed, plan=plan))
    check_near({key: one.double().cpu().numpy() for key, one in found.items()}, form, tensors, dtype)
