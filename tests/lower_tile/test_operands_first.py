"""What the last loop of whole rows reads lies in shared memory, and rows that are written too stay in L2."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, Integer, S, sqrt

import redalg as ra
from redalg.errors import PlanError
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.program import Copy, Keep, Region, TileProgram
from redalg.runtime.compile.compile import compile_only
from redalg.runtime.lowered import Lowered
from tests.sweeps import draws

n = ra.axis("n")
X, W, BIAS = ra.tensors("x[b,n] w[n] bias[n]")
NORM = (X - ra.mean(X, n)) / sqrt(ra.var(X, n) + 1e-5) * W + BIAS
FUNCTION = ra.fuse(NORM, axes="b n")


def lowered(rows: int = 64, length: int = 1024, *, block: int = 2, lanes: int = 64, target: str = "sm_90a") -> Lowered:
    """The norm of rows of 16 bits, `block` rows a block."""
    schedule = ra.Schedule(ra.Grid("b", block), ra.Whole("n", length), ra.Lanes("n", lanes))
    return FUNCTION.lower(target, {"b": rows, "n": length}, "float16", plan=schedule)


def operands(program: TileProgram) -> list[str]:
    """The tiles that lie in shared memory from the first."""
    [kernel] = program.kernels
    shared = {one.name for one in kernel.buffers if one.scope == "shared"}
    copies = (one for one in kernel.body if isinstance(one, Copy) and isinstance(one.source, Region))
    return [str(one.target) for one in copies if one.target in shared]


def kept(program: TileProgram) -> list[str]:
    [kernel] = program.kernels
    return [str(one) for one in kernel.body if isinstance(one, Keep)]


def test_operands_are_loaded_beside_the_rows() -> None:
    program, text = lowered().program, lowered().source.text
    assert operands(program) == ["bias_tile", "w_tile"]
    load = text.index("T.copy(w[0:1024], w_tile, disable_tma=True)")
    assert text.index("T.copy(x[") < load < text.index("T.reduce_sum")
    assert "w_tile[j]" in text[load + 99 :]
    assert "w[j]" not in text


@pytest.mark.parametrize("other", ["long", "many side by side", "C"])
def test_operands_that_stay(other: str) -> None:
    """Those of all blocks side by side take half of the shared memory at most; C has none."""
    made = {"long": lambda: lowered(8192, 8192, block=1, lanes=128),
            "many side by side": lambda: lowered(8192, 2048, block=1, lanes=32),
            "C": lambda: lowered(target="c")}[other]()  # fmt: skip
    assert operands(made.program) == []


@given(st.integers(1, 9), st.sampled_from([1, 2, 3, 4]), st.integers(0, 99))
@settings(max_examples=draws(6))
def test_results_stay(rows: int, block: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    tensors = {"x": generator.normal(1, 1, (rows, 1024)), "w": generator.normal(1, 1, 1024),
               "bias": generator.normal(size=1024)}  # fmt: skip
    tensors = {name: one.astype(np.float16) for name, one in tensors.items()}
    program = lowered(rows, block=block).program
    assert operands(program)
    [found] = interpret(program, tensors).values()
    exact = FUNCTION.reference(**{name: one.astype(np.float64) for name, one in tensors.items()})
    np.testing.assert_allclose(found, exact, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("rows", "length", "block", "expected"), [
    (8192, 8192, 1, ["keep x[b_block:+1, 0:+8192] in L2"]), (4096, 4096, 1, []), (65536, 1024, 2, []),
    (8192, 8168, 1, []),
])  # fmt: skip
def test_rows_of_large_tensors_are_kept(rows: int, length: int, block: int, expected: list[str]) -> None:
    """Of small ones, of several rows a block and of rows that end within a line none are."""
    schedule = ra.Schedule(ra.Grid("b", block), ra.Whole("n", 8192 if length > 4096 else length), ra.Lanes("n", 128))
    made = FUNCTION.lower("sm_90a", {"b": rows, "n": length}, "float16", plan=schedule)
    assert kept(made.program) == expected
    assert ("keep_in_l2(T.address_of(x[b_block, line * 64]))" in made.source.text) is bool(expected)


def test_weights_count_for_nothing() -> None:
    """A kernel that loads its operands first reads a little more than it writes, and keeps its rows all the same."""
    norm = ra.fuse(X / sqrt(ra.mean(X**2, n) + 1e-5) * W, axes="b n")
    schedule = ra.Schedule(ra.Grid("b"), ra.Whole("n", 8192), ra.Lanes("n", 256))
    program = norm.lower("sm_90a", {"b": 8192, "n": 8192}, "bfloat16", plan=schedule).program
    assert operands(program) == ["w_tile"]
    assert kept(program) == ["keep x[b_block:+1, 0:+8192] in L2"]


def test_a_tensor_of_the_loops_name_is_kept_too() -> None:
    """The loop over lines has the name `line`; a tensor of that name gets another."""
    norm = ra.fuse(ra.tensor("line[b,n]") / ra.sum(ra.tensor("line[b,n]"), n), axes="b n")
    schedule = ra.Schedule(ra.Grid("b"), ra.Whole("n", 8192), ra.Lanes("n", 256))
    text = norm.lower("sm_90a", {"b": 8192, "n": 8192}, "bfloat16", plan=schedule).source.text
    assert "keep_in_l2(T.address_of(line_[b_block, line * 64]))" in text


KEPT_PART = ["keep x[b_block:+1, 2048*z:+2048] in L2"]


@pytest.mark.parametrize(("term", "expected"), [
    (2 * X + 1, ["keep x[2048*z:+2048] in L2"]), (2 * X + ra.tensor("g[b]"), KEPT_PART), (X * W, KEPT_PART),
    (ra.where(n < 8000, X, 0), KEPT_PART), (X + ra.tensor("y[b,n]"), []),
])  # fmt: skip
def test_parts_of_rows_are_kept_where_nothing_is_reduced(term: Expr, expected: list[str]) -> None:
    """Not where two tensors are read for one that is written."""
    form = ra.fuse(term, axes="b n")
    made = form.lower("sm_90a", {"b": 8192, "n": 8192}, "bfloat16")
    assert kept(made.program) == expected
    assert made.source.text.count(" + line * 64]))") == len(expected)
    assert kept(form.lower("sm_90a", {"b": 8192, "n": 4096}, "bfloat16").program) == []
    assert kept(form.lower("sm_90a", {"b": 8191, "n": 8199}, "bfloat16").program) == []


def test_sums_alone_keep_nothing() -> None:
    schedule = ra.Schedule(ra.Grid("b"), ra.Whole("n", 8192), ra.Lanes("n", 128))
    made = ra.fuse(ra.var(X, n), axes="b").lower("sm_90a", {"b": 32768, "n": 8192}, "float16", plan=schedule)
    assert kept(made.program) == []


def test_a_row_that_is_kept_is_whole() -> None:
    schedule = ra.Schedule(ra.Grid("b"), ra.Whole("n", 8192), ra.Lanes("n", 128))
    program = FUNCTION.lower("sm_90a", {"b": 8192, "n": 8192}, "float16", plan=schedule).program
    [kernel] = program.kernels
    places = ((S.Zero, (S.One, 8191)), (S.Zero, (Integer(64), 4096)), ((S.Zero, 2), (S.Zero, 8192)))
    for region in (*(Region("x", place) for place in places), Region("y", ())):
        broken = replace(kernel, body=(Keep(region), *kernel.body))
        with pytest.raises(PlanError, match=r"no row, or equal part|no parameter"):
            verify(replace(program, kernels=(broken,)))


@pytest.mark.sweep(1)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_90a"])
@pytest.mark.parametrize("what", ["operands", "rows"])
def test_nvcc_compiles_it(target: str, what: str) -> None:
    schedule = ra.Schedule(ra.Grid("b"), ra.Whole("n", 8192), ra.Lanes("n", 256))
    rows = FUNCTION.lower(target, {"b": 8192, "n": 8192}, "float16", plan=schedule)
    [kernel] = compile_only((lowered(target=target) if what == "operands" else rows).source)
    assert kernel.spill_bytes == 0
    assert ("prefetch.global.L2::evict_last" in kernel.cuda) is (what == "rows")


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "length", "block", "lanes"), [
    (4096, 1024, 2, 64), (1001, 1024, 2, 64), (37, 1024, 4, 64), (8192, 8192, 1, 256), (8193, 8192, 1, 128),
])  # fmt: skip
def test_a_gpu_runs_it(rows: int, length: int, block: int, lanes: int) -> None:
    x, w, bias = (torch.randn(*shape, device="cuda").half() for shape in ((rows, length), (length,), (length,)))
    schedule = ra.Schedule(ra.Grid("b", block), ra.Whole("n", length), ra.Lanes("n", lanes))
    found = FUNCTION(x=x, w=w, bias=bias, plan=schedule)
    exact = torch.nn.functional.layer_norm(x.float(), (length,), w.float(), bias.float(), 1e-5)
    torch.testing.assert_close(found.float(), exact, rtol=2e-3, atol=2e-3)
