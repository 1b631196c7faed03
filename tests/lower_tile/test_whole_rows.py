"""Tiles of whole rows: the numbers of a row, the columns' sums and outputs along both are made of one read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Abs, Expr, exp, sqrt

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.compile.compile import compile_only
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.rules.whole_rows import forms_within
from redalg.strategies.schedule import Schedule, numbers_of

b, n, m = ra.axes("b n m")
X, XM, G, GM, W, WM, R = ra.tensors("x[b,n] x[b,m] g[b,n] g[b,m] w[n] w[m] r[b]")
MEAN, SQUARES = ra.mean(XM, m), ra.mean(XM**2, m)
CENTRED, LARGEST = ra.var(XM, m), ra.max(XM, m)
TOTAL = ra.sum(exp(XM - LARGEST), m)
Outputs = Mapping[str, tuple[Expr, str]]
FUNCTIONS: dict[str, Outputs] = {
    "gradients of a norm": {"dx": (R * (W * G - X * R**2 * ra.mean(WM * GM * XM, m)), "b n"),
                            "dw": (ra.sum(G * X * R, b), "n")},
    "columns of rows over their roots": {"y": (X * W / sqrt(SQUARES + 1), "b n"),
                                         "s": (ra.sum(X / sqrt(SQUARES + 1), b), "n")},
    "columns of centred rows": {"y": ((X - MEAN) / sqrt(CENTRED + 1), "b n"),
                                "s": (ra.sum((X - MEAN) ** 2 / (CENTRED + 1), b), "n"), "most": (ra.max(X, b), "n")},
    "columns of weights": {"s": (ra.sum(exp(X - LARGEST) / TOTAL, b), "n"), "top": (ra.max(X - LARGEST, b), "n")},
    "shares of columns of weights": {"p": (exp(X - LARGEST) / TOTAL / ra.sum(exp(X - LARGEST) / TOTAL, b), "b n")},
    "variance of columns of weights": {"v": (ra.var(exp(X - LARGEST) / TOTAL, b), "n")},
}  # fmt: skip
FUSED = {name: ra.fuse(outputs) for name, outputs in FUNCTIONS.items()}
OFTEN = [
    ("columns of centred rows", 1024, "float32"),
    ("gradients of a norm", 768, "float16"),
    ("columns of weights", 4096, "float16"),
]
COMPILED = [pytest.param(name, length, dtype, marks=() if (name, length, dtype) in OFTEN else pytest.mark.slow)
            for name in FUSED for length in (40, 256, 768, 1024, 4096)
            for dtype in ("float16", "float32") if dtype == "float32" or "variance" not in name]  # fmt: skip
"""The kernels that nvcc compiles, the slow ones of them beside those of CI."""


def lowered(form: ra.Fused, rows: int, length: int, plan: Schedule | None = None, dtype: str = "float32") -> Any:
    """The program of a form for tensors of one dtype."""
    elements = form.cascade.elements()
    dtypes = {one.name: "float32" if one.name == "r" else dtype for one in elements}
    sizes = {"b": rows} | {axis.name: length for one in elements for axis in one.indices if axis != b}
    return form.lower("sm_90a", sizes, dtypes, plan=plan)


def number_within(made: Any) -> int:
    """The number of stages that the loop's tiles make."""
    return len(forms_within(made.stages, numbers_of(made.plan), made.problem))


def reads(text: str, name: str) -> int:
    """The number of statements that load a tensor's elements."""
    kernel = text[text.index("with T.Kernel") : text.index("def compiled")]
    return kernel.count(f"T.copy({name}[") + kernel.count(f"T.cast({name}[")


@pytest.mark.parametrize("name", [*FUSED][:-1])
def test_the_rules_read_every_tensor_once(name: str) -> None:
    made = lowered(FUSED[name], 4096, 1024, dtype="bfloat16")
    assert number_within(made) == 1
    late = "shares" in name  # these need the columns' sums
    assert len(made.program.kernels) == 2 + late
    assert reads(str(made.source), "x") == 1 + late


def test_rows_that_are_too_long_or_short_of_lanes_have_kernels_of_their_own() -> None:
    made = lowered(FUSED["gradients of a norm"], 64, 500_000)
    assert number_within(made) == 0
    assert len(made.program.kernels) >= 2


def test_outputs_that_need_the_element_alone_are_written_by_the_loop() -> None:
    form = ra.fuse({"y": (Abs(X), "b n"), "s": (ra.sum(X, b), "n")})
    assert reads(str(lowered(form, 4096, 1024).source), "x") == 1


@pytest.mark.parametrize("name", FUSED)
@given(st.data())
@settings(max_examples=4, deadline=None)
def test_any_tile_means_the_definition(name: str, data: st.DataObject) -> None:
    """In the tile interpreter: ragged rows and columns, one row or many a tile, one part or several."""
    form, rows, length = FUSED[name], data.draw(st.integers(1, 20)), data.draw(st.integers(33, 70))
    tile, parts = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.sampled_from([1, 3]))
    divided = (Parts("b", parts),) if parts > 1 else ()
    stages = data.draw(st.sampled_from([0, 2]))
    columns = 1 << (length - 1).bit_length() if length > 1 else 1
    plan = Schedule(Grid("n", max(32, columns)), *divided, Lanes("n", 32), Loop("b", tile, stages))
    made = lowered(form, rows, length, plan)
    assert number_within(made) == 1
    check(name, made, rows, length, seed=data.draw(st.integers(0, 9)))


@pytest.mark.parametrize("name", FUSED)
def test_many_parts_are_merged_by_lanes(name: str) -> None:
    """80 parts, of which most have no rows: 16 lanes merge 5 each."""
    made = lowered(FUSED[name], 13, 41, Schedule(Grid("n", 64), Parts("b", 80), Lanes("n", 32), Loop("b", 1)))
    has_lanes = "parallel(16, 16)" in str(made.source)
    assert has_lanes
    check(name, made, 13, 41)


def check(name: str, made: Any, rows: int, length: int, *, seed: int = 0) -> None:
    """Compare a program, interpreted, with the definition in float64."""
    generator = np.random.default_rng(seed)
    shapes = {"x": (rows, length), "g": (rows, length), "w": (length,), "r": (rows,)}
    names = {one.name for one in FUSED[name].cascade.elements()}
    tensors = {key: generator.normal(0, 1, shape).astype(np.float32) for key, shape in shapes.items() if key in names}
    found = interpret(made.program, tensors)
    exact = FUSED[name].reference(**tensors)
    exact = dict(zip(FUNCTIONS[name], exact if isinstance(exact, tuple) else (exact,), strict=True))
    for key, value in exact.items():
        np.testing.assert_allclose(found[key], value, rtol=2e-5, atol=2e-5 * (1 + np.abs(value).max(initial=0)))


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("name", "length", "dtype"), COMPILED)
def test_kernels_compile(name: str, length: int, dtype: str) -> None:
    """Without spills, and no thread takes more than its share of a tile (`side_by_side`): ptxas takes a minute else."""
    made = lowered(FUSED[name], 1000, length, dtype=dtype)
    found = compile_only(made.source)
    assert {one.spill_bytes for one in found} == {0}
    trips = re.findall(r"for \(int i\w* = 0; \w+ < (\d+);", found[0].cuda)
    plan = numbers_of(made.plan)
    assert max(map(int, trips)) <= plan.block_row * plan.block_streamed // plan.threads


@pytest.mark.gpu
@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize(("rows", "length"), [(4096, 1024), (1000, 768), (37, 5000), (3, 40), (600, 4096)])
def test_calls_on_a_gpu(name: str, rows: int, length: int) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = {"x": (rows, length), "g": (rows, length), "w": (length,), "r": (rows,)}
    names = {one.name for one in FUSED[name].cascade.elements()}
    for dtype, tolerance in ((torch.float32, 3e-5), (torch.bfloat16, 2e-2)):
        tensors = {key: torch.randn(shapes[key], generator=generator).to(dtype) for key in names}
        found = FUSED[name](**{key: one.cuda() for key, one in tensors.items()})
        exact = FUSED[name].reference(**{key: one.double().numpy() for key, one in tensors.items()})
        pairs = zip(*(one if isinstance(one, tuple) else (one,) for one in (found, exact)), strict=True)
        for value, true in pairs:
            wanted = torch.as_tensor(true)
            torch.testing.assert_close(value.double().cpu(), wanted, rtol=tolerance,
                                       atol=tolerance * float(1 + wanted.abs().max()))  # fmt: skip
