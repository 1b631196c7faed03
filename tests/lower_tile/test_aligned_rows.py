"""Rows that begin within a 16-byte load are taken by vectors: the same numbers, whatever their length and place."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import exp, oo

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.program import TileProgram
from redalg.lower_tile.passes import aligned_rows
from redalg.lower_tile.passes.aligned_rows import rows_by_vectors
from redalg.lower_tile.passes.order import run_passes
from redalg.lower_tile.place.build import assemble
from redalg.runtime.compile.compile import compile_only
from redalg.strategies.levels import Grid, Lanes, Loop, Whole
from redalg.strategies.schedule import with_choices
from tests.cases.whole_rows import (
    FORMS,
    check_near,
    drawn,
    interpreted,
    is_near,
    lowered,
    of_short_axis,
    run_on_c,
    run_on_gpu,
)
from tests.sweeps import draws

n, (x,) = ra.axis("n"), ra.tensors("x[b,h,n]")
WAYS: dict[str, dict[str, Any]] = {"whole": {"level": "row"}, "tiles": {"level": "block", "block_streamed": 64}}


@pytest.fixture(scope="module", autouse=True)
def short_rows() -> Iterator[None]:
    """Rows of any length are cut, so that they need not be long to be tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aligned_rows, "LEAST_ROW", 16)
        yield


def takes_vectors(program: TileProgram) -> bool:
    """Tell if rows are two tiles."""
    return any(one.name.endswith("_ends") for kernel in program.kernels for one in kernel.buffers)


@given(
    st.sampled_from(list(FORMS)),
    st.sampled_from(list(WAYS)),
    st.tuples(st.integers(1, 5), st.integers(1, 3)),
    st.integers(16, 300),
    st.sampled_from(["float32", "bfloat16", "float16"]),
    st.integers(0, 99),
)
@settings(max_examples=draws(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_rows_mean_the_definition(
    name: str, way: str, rows: tuple[int, int], elements: int, dtype: str, seed: int
) -> None:
    """By the program's interpreter, which reads no element that a tensor lacks."""
    form, shape = FORMS[name], (*rows, elements)
    tensors = drawn(form, shape, dtype, seed)
    program = lowered(form, shape, dtype, **WAYS[way]).program
    check_near(interpreted(program, tensors), form, tensors, dtype)


@pytest.mark.parametrize("tile", [Whole("n", 1024), Loop("n", 256)])
@pytest.mark.parametrize(("elements", "length"), [(1000, 1001), (1000, 1005), (1001, 1003), (1024, 1025), (1000, 2001)])
def test_an_axis_that_ends_ahead_of_its_dimension(elements: int, length: int, tile: Any) -> None:
    """What lies behind the axis in a row is no element of it."""
    lowering, data, wanted = of_short_axis(elements, length, ra.Schedule(Grid("b"), tile, Lanes("n", 32)))
    found = interpreted(lowering.program, {"x": data})["out"]
    assert is_near(found / float(wanted.max()), wanted / wanted.max(), "float32")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FORMS)
def test_each_form_takes_vectors(name: str, way: str) -> None:
    """Else the test above would show nothing. Loops whose tiles data tell stay as they are."""
    program = lowered(FORMS[name], (3, 2, 197), "bfloat16", **WAYS[way]).program
    assert takes_vectors(program) == ((name, way) != ("lengths", "tiles"))


@pytest.mark.parametrize(("elements", "dtype", "wide"), [
    (197, "bfloat16", 8), (198, "bfloat16", 8), (196, "bfloat16", None), (200, "bfloat16", None),
    (197, "float32", 4), (198, "float32", None), (196, "float32", None), (17, "bfloat16", 8), (15, "bfloat16", None),
])  # fmt: skip
def test_rows_of_short_loads_alone_are_cut(elements: int, dtype: str, wide: int | None) -> None:
    """Rows that begin at multiples of 8 bytes are loaded as they are, and so are short ones."""
    program = lowered(FORMS["softmax"], (3, 2, elements), dtype, level="row").program
    assert takes_vectors(program) == (wide is not None)
    if wide is not None:
        assert {one.shape for kernel in program.kernels for one in kernel.buffers if "_ends" in one.name} == {
            (1, 2 * wide)
        }


@pytest.mark.parametrize(("elements", "dtype", "wide"), [
    (197, "bfloat16", 2), (198, "bfloat16", 4), (196, "bfloat16", None), (197, "float32", 2), (198, "float32", None),
])  # fmt: skip
def test_weights_that_begin_elsewhere_leave_short_vectors(elements: int, dtype: str, wide: int | None) -> None:
    """Threads load weights one by one: neighbours then lie side by side."""
    program = lowered(FORMS["root mean square"], (3, 2, elements), dtype, level="row").program
    ends = {one.shape for kernel in program.kernels for one in kernel.buffers if "_ends" in one.name}
    assert ends == ({(1, 2 * wide)} if wide else set())


def test_tensors_whose_elements_32_bits_do_not_count_stay() -> None:
    assert takes_vectors(lowered(FORMS["softmax"], (2**20, 1, 2047), "bfloat16", level="row").program)
    assert not takes_vectors(lowered(FORMS["softmax"], (2**20, 2, 2047), "bfloat16", level="row").program)


def test_tiles_that_a_mask_leaves_out_stay() -> None:
    """The tiles of a window are counted from the row's first element."""
    b = ra.axis("b")
    (scores,) = ra.tensors("scores[b,n]")
    form = ra.fuse(ra.softmax(ra.where((n <= b) & (b < n + 70), scores, -oo), n), axes="b n")
    options: dict[str, Any] = {"sizes": {"b": 301, "n": 301}, "dtypes": "bfloat16"}
    plan = with_choices(form.lower("sm_90a", **options).plan, level="block", threads=32, block_row=1, block_streamed=64)
    program = form.lower("sm_90a", **options, plan=plan).program
    assert not takes_vectors(program)
    values = torch.randn((301, 301), generator=torch.Generator().manual_seed(0)).bfloat16().float()
    out = interpret(program, {"scores": values.numpy()})["out"]
    assert is_near(out, form.reference(scores=values.double()), "bfloat16")


@pytest.mark.sweep(1)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["softmax", "two tensors", "layer norm", "a number beside"])
def test_the_c_target_equals_the_definition(name: str, way: str) -> None:
    """A compiled kernel, whose tensors end where their last row ends."""
    form, shape = FORMS[name], (3, 2, 197)
    tensors = drawn(form, shape, "float32", 0)
    lowering = lowered(form, shape, "float32", "c", **WAYS[way])
    dtypes = {one.key: one.dtype for one in lowering.program.parameters if one.role == "output"}
    placed = assemble(lowering.stages, lowering.source.plan, lowering.problem, dtypes)
    program = run_passes(rows_by_vectors(placed), lowering.source.plan)
    assert takes_vectors(program)
    assert not takes_vectors(lowering.program)
    check_near(run_on_c(program, lowering.source.plan, tensors), form, tensors, "float32")


def test_a_call_takes_tensors_as_they_are() -> None:
    """The kernel's own shape of a tensor, one dimension, is none of the caller's."""
    form, shape = FORMS["softmax"], (3, 2, 197)
    lowering = lowered(form, shape, "bfloat16", level="row")
    flat = [one for one in lowering.program.parameters if one.key in ("x", "out")]
    assert [(one.shape, one.folded) for one in flat] == [((3 * 2 * 197,), (3,))] * 2


@pytest.mark.sweep(1)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", ["softmax", "root mean square"])
def test_threads_load_and_store_vectors(name: str) -> None:
    (compiled,) = compile_only(lowered(FORMS[name], (30, 8, 1001), "bfloat16", level="row").source)
    vector = {"softmax": "uint4", "root mean square": "uint1"}[name]
    assert f"*({vector}*)(x +" in compiled.cuda
    assert compiled.spill_bytes == 0


def test_a_kernel_beside_others_stays() -> None:
    program = lowered(FORMS["softmax"], (3, 2, 197), "bfloat16", level="row", block_row=2).program
    assert not takes_vectors(program)
    form = ra.fuse(ra.softmax(exp(x), n), axes="b h n")
    alone = lowered(form, (3, 2, 197), "bfloat16", level="row").program
    assert takes_vectors(alone)
    assert rows_by_vectors(replace(alone)) == alone


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("elements", [1001, 8190, 20001, 70001])
@pytest.mark.parametrize("name", FORMS)
def test_rows_are_right_on_a_gpu(name: str, elements: int, dtype: str) -> None:
    """As the rules plan them; the last row ends where its tensor ends, within a vector."""
    form, shape = FORMS[name], (71, 3, elements)
    tensors = drawn(form, shape, dtype, 0)
    check_near(run_on_gpu(form, tensors, dtype), form, tensors, dtype)


@pytest.mark.parametrize(("dtype", "fits"), [("bfloat16", True), ("float32", False)])
def test_the_largest_blocks_have_few_registers(dtype: str, fits: bool) -> None:
    """Of a long row in float32 a thread of 1024 holds all that it can; its ends would be kept in memory."""
    form = FORMS["softmax"]
    program = form.lower("H200", {"b": 1024, "h": 1, "n": 50257}, dtype).program
    assert {one.shape[-1] for kernel in program.kernels for one in kernel.buffers} > {1}
    assert takes_vectors(program) == fits
