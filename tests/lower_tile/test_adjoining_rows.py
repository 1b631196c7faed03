"""Short rows that begin within a 16-byte load are loaded as one array: the same numbers, whatever their shape."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import exp

import redalg as ra
from redalg.lower_tile.ir.program import Parallel, TileProgram
from redalg.lower_tile.passes.adjoining_rows import rows_as_arrays
from redalg.lower_tile.passes.order import run_passes
from redalg.lower_tile.place.build import assemble
from redalg.runtime.compile.compile import compile_only
from redalg.strategies.rules.adjoining_rows import tile_of_rows
from tests.cases.whole_rows import FORMS, check_near, drawn, interpreted, lowered, run_on_c, run_on_gpu
from tests.sweeps import draws

TOGETHER = [name for name in FORMS if name not in ("a gate of some rows", "lengths")]
"""The forms that read no axis of rows by itself: their rows are numbered along one dimension."""


def several(name: str, shape: tuple[int, int, int], dtype: str, target: str = "sm_90a", **choices: Any) -> Any:
    """A form under a plan of several rows a block."""
    own = {"level": "row", "block_row": 8, "threads": 128, **choices}
    return lowered(FORMS[name], shape, dtype, target, **own)


def has_arrays(program: TileProgram) -> bool:
    """Tell if rows come through shared memory."""
    return any(one.name == "x_rows" for kernel in program.kernels for one in kernel.buffers)


def on_one_thread(program: TileProgram) -> TileProgram:
    """A program whose loops say nothing of threads."""
    [kernel] = program.kernels
    body = tuple(replace(one, lanes=0, adjacent=0) if isinstance(one, Parallel) else one for one in kernel.body)
    return replace(program, kernels=(replace(kernel, body=body),))


@given(
    st.sampled_from(list(FORMS)),
    st.tuples(st.integers(1, 5), st.integers(1, 17)),
    st.integers(17, 150),
    st.sampled_from([4, 8, 16]),
    st.sampled_from(["float32", "bfloat16", "float16"]),
    st.integers(0, 99),
)
@settings(max_examples=draws(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_rows_mean_the_definition(
    name: str, rows: tuple[int, int], elements: int, block: int, dtype: str, seed: int
) -> None:
    """By the program's interpreter, which reads no element that a tensor lacks."""
    form, shape = FORMS[name], (*rows, elements)
    tensors = drawn(form, shape, dtype, seed)
    program = several(name, shape, dtype, block_row=block).program
    check_near(interpreted(program, tensors), form, tensors, dtype)


@pytest.mark.parametrize("heads", [8, 3])
@pytest.mark.parametrize("name", FORMS)
def test_each_form_takes_arrays(name: str, heads: int) -> None:
    """Else the test above would show nothing. Three rows of one index adjoin the next three, where nothing asks for
    the index."""
    assert has_arrays(several(name, (5, heads, 197), "bfloat16").program) == (heads == 8 or name in TOGETHER)


@pytest.mark.parametrize(("elements", "dtype", "arrays"), [
    (197, "bfloat16", True), (198, "bfloat16", True), (200, "bfloat16", False), (197, "float32", True),
    (200, "float32", False), (17, "bfloat16", True), (15, "bfloat16", True), (1701, "bfloat16", False),
])  # fmt: skip
def test_rows_that_begin_at_vectors_stay(elements: int, dtype: str, arrays: bool) -> None:
    """So do those that shared memory would hold too few of."""
    assert has_arrays(several("two tensors", (5, 8, elements), dtype).program) == arrays


def test_narrow_rows_stay() -> None:
    """Threads that hold whole rows take them faster."""
    assert not has_arrays(several("softmax", (50, 8, 15), "bfloat16", block_streamed=16).program)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("shape", [(5, 3, 37), (4, 8, 101), (1, 3, 33)])
@pytest.mark.parametrize("name", ["softmax", "two tensors", "layer norm", "a number beside"])
def test_the_c_target_equals_the_definition(name: str, shape: tuple[int, int, int]) -> None:
    """A compiled kernel, whose tensors end where their last row ends."""
    form = FORMS[name]
    tensors = drawn(form, shape, "float32", 0)
    lowering = several(name, shape, "float32", "c")
    dtypes = {one.key: one.dtype for one in lowering.program.parameters if one.role == "output"}
    placed = assemble(lowering.stages, lowering.source.plan, lowering.problem, dtypes)
    program = run_passes(on_one_thread(rows_as_arrays(placed, 8, 64)), lowering.source.plan)
    assert has_arrays(program)
    assert not has_arrays(lowering.program)
    check_near(run_on_c(program, lowering.source.plan, tensors), form, tensors, "float32")


def test_a_call_takes_tensors_as_they_are() -> None:
    """The kernel's own shapes are none of the caller's: rows of all dimensions are numbered along one."""
    program = several("a number beside", (5, 3, 197), "bfloat16").program
    shapes = {one.key: (one.shape, one.folded) for one in program.parameters}
    assert shapes == {"x": ((5 * 3 * 197,), (3,)), "out": ((5 * 3 * 197,), (3,)), "log": ((5 * 3,), (2,))}
    assert [extent for kernel in program.kernels for _, extent in kernel.grid] == [2]


@pytest.mark.sweep(1)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["softmax", "root mean square", "two tensors"])
def test_threads_load_and_store_vectors(name: str, target: str) -> None:
    (compiled,) = compile_only(several(name, (300, 8, 777), "bfloat16", target, threads=128, block_streamed=800).source)
    assert "*(uint4*)(x +" in compiled.cuda
    assert "*(uint4*)(out +" in compiled.cuda
    assert compiled.spill_bytes == 0


@pytest.mark.parametrize(("length", "size", "tile"), [
    (101, 2, (16, 104, 64)), (50, 2, (16, 64, 64)), (63, 2, None), (127, 2, (8, 128, 64)), (191, 2, (8, 192, 64)),
    (254, 2, (8, 256, 64)), (255, 2, (8, 256, 128)), (777, 2, (8, 800, 128)), (101, 4, (8, 112, 64)),
    (255, 4, (4, 256, 64)), (777, 4, (4, 800, 128)), (2047, 4, (4, 2048, 256)), (101, 1, (32, 104, 128)),
])  # fmt: skip
def test_tiles_of_rows(length: int, size: int, tile: tuple[int, int, int] | None) -> None:
    """As they were timed: eight lanes where four rows lie in banks of their own, a warp for long rows."""
    assert tile_of_rows(length, size, 1, again=True) == tile


@pytest.mark.parametrize(("sizes", "rows"), [
    ({"b": 65536, "h": 1, "n": 255}, 8), ({"b": 4096, "h": 3, "n": 255}, 8), ({"b": 4096, "h": 8, "n": 256}, 4),
    ({"b": 65536, "h": 1, "n": 1001}, 1), ({"b": 4, "h": 8, "n": 255}, 4),
])  # fmt: skip
def test_rules_take_many_short_rows(sizes: dict[str, int], rows: int) -> None:
    """And no rows that begin at vectors, long ones, or a few."""
    assert FORMS["softmax"].lower("H200", sizes, "bfloat16").source.plan.block_row == rows


@pytest.mark.parametrize(("heads", "rows"), [(12, 4), (16, 8)])
def test_rows_that_lengths_tell_apart_are_of_one_index(heads: int, rows: int) -> None:
    """A block of eight rows would hold those of two lengths."""
    sizes, dtypes = {"b": 4096, "h": heads, "n": 255}, {"x": "bfloat16", "length": "int32"}
    assert FORMS["lengths"].lower("H200", sizes, dtypes).source.plan.block_row == rows


def test_terms_without_rows_of_their_own_keep_their_tiles() -> None:
    """Nothing is read along rows: a block has none to load."""
    b, n, w = ra.axis("b"), ra.axis("n"), ra.tensor("w[n]")
    form = ra.fuse(ra.sum(exp(-b * w), n), axes="b")
    assert not has_arrays(form.lower("H200", {"b": 65536, "n": 255}, "bfloat16").program)


@pytest.mark.parametrize(("beside", "arrays"), [("scale[b,m]", True), ("x[b,n]*scale[b,m]", False)])
def test_kernels_beside_others(beside: str, arrays: bool) -> None:
    """Tensors that another kernel reads stay as they are; the rows of a tile are then reduced in powers of two."""
    x, scale = ra.tensors("x[b,n] scale[b,m]")
    n = ra.axis("n")
    term, axes = (scale, "b m") if beside == "scale[b,m]" else (x * scale, "b n m")
    form = ra.fuse({"out": (ra.softmax(x, n), "b n"), "power": (exp(term), axes)})
    program = form.lower("H200", {"b": 65536, "n": 101, "m": 5}, "bfloat16").program
    assert len(program.kernels) == 2
    assert has_arrays(program) == arrays
    small = {"b": 21, "n": 101, "m": 5}
    tensors = {"x": torch.randn(21, 101), "scale": torch.randn(21, 5)}
    plan = form.lower("H200", {"b": 65536, "n": 101, "m": 5}, "bfloat16").plan
    program = form.lower("H200", small, "float32", plan=plan).program
    check_near(interpreted(program, tensors), form, tensors, "float32")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(701, 12, 101), (1403, 7, 255), (611, 8, 777), (2801, 3, 197), (9001, 1, 50)])
@pytest.mark.parametrize("name", FORMS)
def test_rows_are_right_on_a_gpu(name: str, shape: tuple[int, int, int], dtype: str) -> None:
    """As the rules plan them; the last block lacks rows, and the tensor's end lies within a vector."""
    form = FORMS[name]
    tensors = drawn(form, shape, dtype, 0)
    check_near(run_on_gpu(form, tensors, dtype), form, tensors, dtype)


def test_a_warp_that_has_one_row_exchanges_no_other() -> None:
    """TileLang compiles no sum of several rows at once of which a thread holds one."""
    source = FORMS["layer norm"].source("H200", {"b": 300, "h": 3, "n": 1001}, "float32")
    assert "in_rows(2, 1024, 1, 32)" in source
    assert "batch=" not in source
