"""Two axes of rows on lanes: pairwise terms along the streamed axis itself, as in a product of any semiring."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Abs, Expr, Max, exp, oo, tanh

import redalg as ra
from redalg.errors import PlanError
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.compile.compile import compile_only
from redalg.runtime.known.stored import read_line, write_line
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.schedule import Schedule, numbers_of
from tests.lower_tile.test_serial import results

b, c, i, k = ra.axes("b c i k")
X, Y, Z, P, L, W, A, B = ra.tensors("x[c,k] y[k,i] z[i,k] p[c,i] L[c] w[k] g[b,c,k] h[b,k,i]")
K = exp(-Abs(X + Y))
MEAN = ra.sum(K * W, k) / ra.sum(K, k)

FORMS: dict[str, ra.Fused] = {
    "log-domain product": ra.fuse(ra.logsumexp(X + Y, k), axes="c i"),
    "max-plus product": ra.fuse({"best": (ra.max(X + Y, k), "c i"), "place": (ra.argmax(X + Y, k), "c i")}),
    "sum of distances": ra.fuse(ra.sum(Abs(X - Z), k), axes="c i"),
    "largest distance": ra.fuse(ra.max(Abs(X - Z), k), axes="c i"),
    "with a bias": ra.fuse(ra.logsumexp(X + Y, k) + P, axes="c i"),
    "bias inside": ra.fuse(ra.sum(Max(X * Y, P) * W, k), axes="c i"),
    "softmax mean": ra.fuse(ra.sum(ra.softmax(X + Y, k) * W, k), axes="c i"),
    "variance": ra.fuse(ra.var(tanh(X + Y), k), axes="c i"),
    "weighted variance": ra.fuse(ra.sum(K * (W - MEAN) ** 2, k) / ra.sum(K, k), axes="c i"),
    "some": ra.fuse(ra.logsumexp(ra.where(k < L, X + Y, -oo), k), axes="c i"),
    "of batches": ra.fuse(ra.logsumexp(A + B, k), axes="b c i"),
    "weights of rows": ra.fuse(ra.sum(ra.softmax(ra.where(k <= i, Z, -oo), k) * Abs(X - Z), k), axes="c i"),
    "products": ra.fuse(ra.prod(1 + X * exp(-Abs(Y)), k), axes="c i"),
}
OF_X = ra.fuse({"both": (ra.sum(tanh(X + Y), k), "c i"), "one": (ra.sum(tanh(Y), k), "i")})


def shapes(columns: int, rows: int, length: int) -> dict[str, tuple[int, ...]]:
    return {"x": (columns, length), "y": (length, rows), "z": (rows, length), "p": (columns, rows), "L": (columns,),
            "w": (length,), "g": (2, columns, length), "h": (2, length, rows)}  # fmt: skip


def drawn(form: ra.Fused, size: tuple[int, int, int], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    of = shapes(*size)
    tensors = {name: rng.normal(0, 1, of[name]).astype(np.float32) for name in form.cascade.inputs()}
    if "L" in tensors:
        tensors["L"] = rng.integers(0, size[2] + 1, size[0]).astype(np.int32)
    return tensors


def known(form: ra.Fused, columns: int, rows: int, length: int) -> dict[str, Any]:
    sizes = {"b": 2, "c": columns, "i": rows, "k": length}
    dtypes = {name: "int32" if name == "L" else "float32" for name in form.cascade.inputs()}
    return {"sizes": {axis.name: sizes[axis.name] for axis in form.cascade.axes()}, "dtypes": dtypes}


def schedule(form: ra.Fused, columns: int, rows: int, tile: int, parts: int = 1, threads: int = 1) -> Schedule:
    grid = [Grid("b")] if b in form.form.outputs[0].axes else []
    cut = [Parts("k", parts)] if parts > 1 else []
    return Schedule(*grid, Grid("c", columns), Grid("i", rows), *cut, Loop("k", tile), Lanes("i", threads))


def check(form: ra.Fused, found: Any, tensors: dict[str, np.ndarray]) -> None:
    made = results(form, found)
    for key, exact in results(form, form.reference(**tensors)).items():
        largest = np.abs(exact[np.isfinite(exact)]).max(initial=0)
        np.testing.assert_allclose(made[key], exact, rtol=3e-5, atol=3e-5 + 3e-6 * largest)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", FORMS)
@given(st.data())
@settings(max_examples=4)
def test_any_tile_means_the_definition(name: str, data: st.DataObject) -> None:
    """In the tile interpreter: one row, one column, one element, ragged tiles, parts that hold nothing."""
    form, draw = FORMS[name], data.draw
    size = (draw(st.integers(1, 9)), draw(st.integers(1, 20)), draw(st.integers(1, 30)))
    tensors = drawn(form, size, draw(st.integers(0, 9)))
    tiles = (draw(st.sampled_from([2, 4])), draw(st.sampled_from([4, 16])), draw(st.sampled_from([2, 8])))
    lowered = form.lower("c", **known(form, *size), plan=schedule(form, *tiles, draw(st.integers(1, 3))))
    plan = numbers_of(lowered.plan)
    assert plan.is_serial
    assert (plan.block_column, plan.block_row) == tiles[:2]
    inputs = (one for one in lowered.program.parameters if one.role == "input")
    check(form, interpret(lowered.program, {one.key: tensors[one.key] for one in inputs}), tensors)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("target", ["H200", "sm_86", "sm_80"])
@pytest.mark.parametrize("name", FORMS)
def test_rules_keep_rows_of_several_columns(name: str, target: str) -> None:
    """Under the rules' schedule, ragged: an element of the tile serves every column of the block."""
    form, size = FORMS[name], (5, 130, 41)
    lowered = form.lower(target, **known(form, *size))
    plan = numbers_of(lowered.plan)
    assert plan.is_serial
    assert plan.block_column > 1
    tensors = drawn(form, size, 1)
    inputs = (one for one in lowered.program.parameters if one.role == "input")
    check(form, interpret(lowered.program, {one.key: tensors[one.key] for one in inputs}), tensors)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["log-domain product", "max-plus product", "variance", "some", "of batches"])
def test_the_c_target_runs_rows_of_several_columns(name: str) -> None:
    form = FORMS[name]
    tensors = {key: torch.from_numpy(array) for key, array in drawn(form, (11, 45, 101), 0).items()}
    found = form(**tensors, backend="tilelang", plan=schedule(form, 4, 16, 32, 2))
    check(form, found, {key: one.numpy() for key, one in tensors.items()})


@pytest.mark.slow  # the longest takes ptxas 10 s
@pytest.mark.parametrize("target", ["sm_90a", "sm_86", "sm_80"])
@pytest.mark.parametrize("name", ["log-domain product", "max-plus product", "sum of distances"])
def test_nvcc_compiles(name: str, target: str) -> None:
    form = FORMS[name]
    assert all(one.spill_bytes == 0 for one in compile_only(form.lower(target, **known(form, 100, 300, 200)).source))


def test_a_thread_keeps_columns_and_reads_each_element_once() -> None:
    form = FORMS["log-domain product"]
    source = str(form.source("H200", **known(form, 4096, 4096, 4096)))
    assert "Grid(i, 128) Grid(c, 16) Loop(k, 64, stages=2) Lanes(i, 128)" in source
    assert 'max_0 = fragment((16, 128), "float32")' in source
    assert 'x_tile = shared((16, 64), "float32")' in source
    assert 'y_tile = shared((64, 128), "float32")' in source


@pytest.mark.parametrize(
    "expr",
    [
        (ra.sum(tanh(X + Y) * ra.tensor("q[c,k,i]"), k)),  # a streamed tensor of both axes
        (ra.sum(tanh(Y) * W, k)),  # no second axis of rows
    ],
)
def test_other_terms_have_one_axis_of_rows(expr: Expr) -> None:
    form = ra.fuse(expr)
    sizes = {axis.name: 500 for axis in form.cascade.axes()}
    lowered = form.lower("H200", sizes, dict.fromkeys(form.cascade.inputs(), "float32"))
    assert numbers_of(lowered.plan).block_column == 1


def test_an_output_of_one_axis_keeps_the_lanes() -> None:
    lowered = OF_X.lower("H200", {"c": 500, "i": 500, "k": 500}, {"x": "float32", "y": "float32"})
    assert numbers_of(lowered.plan).block_column == 1


def test_every_schedule_that_is_listed_builds() -> None:
    form = FORMS["max-plus product"]
    listed = [candidate.plan for candidate in form.plans(**known(form, 512, 1024, 1024), device="H200")]
    kernels = [plan for plan in listed if isinstance(plan, Schedule)]
    assert len({str(plan) for plan in kernels}) > 1
    assert all(numbers_of(plan).block_column > 1 for plan in kernels)


def test_a_schedule_is_kept_in_files() -> None:
    form = FORMS["log-domain product"]
    plan = form.lower("H200", **known(form, 512, 1024, 1024)).plan
    assert read_line(write_line(plan), plan.binding, plan.device) == plan


def test_a_second_tile_needs_lanes_along_the_rows() -> None:
    form = FORMS["log-domain product"]
    plan = Schedule(Grid("c", 4), Grid("i", 16), Loop("k", 32), Lanes("k", 1))
    with pytest.raises(PlanError, match="tiles axis c"):
        form.lower("c", **known(form, 8, 32, 64), plan=plan)


@pytest.mark.gpu
@pytest.mark.parametrize("name", FORMS)
def test_on_a_gpu(name: str) -> None:
    form = FORMS[name]
    for size in ((37, 200, 91), (512, 1024, 1024)):
        tensors = drawn(form, size, 2)
        found = form(**{key: torch.from_numpy(array).cuda() for key, array in tensors.items()})
        check(form, found, tensors)


def test_a_group_finds_extrema_of_rows_and_of_columns() -> None:
    """Where a mask of rows hides elements, whether there is one is a number of a row, and the largest one of both."""
    form = ra.fuse(ra.sum(ra.where(ra.ne(Z, -oo), exp(X + P - Z) * W, 0), k), axes="c i")
    tensors = drawn(form, (16, 128, 64), 0)
    tensors["z"][3], tensors["z"][5, 1:] = -np.inf, -np.inf
    lowered = form.lower("sm_90a", **known(form, 16, 128, 64))
    check(form, interpret(lowered.program, tensors), tensors)
