"""Producers in a thread: sums of differences over an inner axis, of rows on lanes and elements one after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Abs, exp, oo, sqrt

import redalg as ra
from redalg.errors import PlanError
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.compile.compile import compile_only
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.schedule import Schedule, numbers_of
from tests.lower_tile.test_serial import results

i, j, d = ra.axes("i j d")
X, C, W, L = ra.tensors("x[i,d] c[j,d] w[j] L[i]")
SQUARE, CITY = ra.sum((X - C) ** 2, d), ra.sum(Abs(X - C), d)
FORMS: dict[str, ra.Fused] = {
    "k-means": ra.fuse({"place": (ra.argmin(SQUARE, j), "i"), "distance": (ra.min(SQUARE, j), "i")}),
    "nearest": ra.fuse(ra.min(CITY, j), axes="i"),
    "largest component": ra.fuse(ra.min(ra.max(Abs(X - C), d), j), axes="i"),
    "gaussian sum": ra.fuse(ra.sum(exp(-SQUARE / 8) * W, j), axes="i"),
    "softmax mean": ra.fuse(ra.sum(ra.softmax(-sqrt(SQUARE), j) * W, j), axes="i"),
    "two distances": ra.fuse(ra.sum(exp(-SQUARE / 8) * CITY, j), axes="i"),
    "some": ra.fuse(ra.logsumexp(ra.where(j < L, -CITY, -oo), j), axes="i"),
    "variance": ra.fuse(ra.var(CITY, j), axes="i"),
}
Size = tuple[int, int, int]


def drawn(form: ra.Fused, size: Size, seed: int) -> dict[str, np.ndarray]:
    rng, (rows, length, inner) = np.random.default_rng(seed), size
    shapes = {"x": (rows, inner), "c": (length, inner), "w": (length,), "L": (rows,)}
    names = {one.name for one in form.cascade.elements()} | {"x", "c"}
    tensors = {name: rng.normal(0, 1, shapes[name]).astype(np.float32) for name in shapes if name in names}
    if "L" in tensors:
        tensors["L"] = rng.integers(0, length + 1, rows).astype(np.int32)
    return tensors


def known(tensors: dict[str, np.ndarray], size: Size) -> dict[str, Any]:
    sizes = dict(zip(("i", "j", "d"), size, strict=True))
    return {"sizes": sizes, "dtypes": {name: str(one.dtype) for name, one in tensors.items()}}


def schedule(rows: int, tile: int, parts: int = 1) -> Schedule:
    cut = [Parts("j", parts)] if parts > 1 else []
    return Schedule(Grid("i", rows), *cut, Loop("j", tile), Lanes("i", 1))


def check(form: ra.Fused, found: Any, tensors: dict[str, np.ndarray]) -> None:
    made = results(form, found)
    for key, exact in results(form, form.reference(**tensors)).items():
        np.testing.assert_allclose(made[key], exact, rtol=3e-5, atol=3e-5)


def run(form: ra.Fused, lowered: Any, tensors: dict[str, np.ndarray]) -> None:
    inputs = (one for one in lowered.program.parameters if one.role == "input")
    check(form, interpret(lowered.program, {one.key: tensors[one.key] for one in inputs}), tensors)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", FORMS)
@given(st.data())
@settings(max_examples=4)
def test_any_tile_means_the_definition(name: str, data: st.DataObject) -> None:
    """In the tile interpreter: one row, one element, one component, ragged tiles, parts that hold nothing."""
    form, draw = FORMS[name], data.draw
    size = (draw(st.integers(1, 20)), draw(st.integers(1, 40)), draw(st.sampled_from([1, 5, 17])))
    tensors = drawn(form, size, draw(st.integers(0, 9)))
    plan = schedule(draw(st.sampled_from([4, 16])), draw(st.sampled_from([8, 16])), draw(st.integers(1, 3)))
    lowered = form.lower("c", **known(tensors, size), plan=plan)
    assert numbers_of(lowered.plan).is_serial
    run(form, lowered, tensors)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", FORMS)
def test_rules_keep_rows_in_threads(name: str) -> None:
    form, size = FORMS[name], (150, 70, 20)
    tensors = drawn(form, size, 1)
    lowered = form.lower("H200", **known(tensors, size))
    assert numbers_of(lowered.plan).is_serial
    run(form, lowered, tensors)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["k-means", "softmax mean", "some"])
def test_the_c_target_runs_producers_in_threads(name: str) -> None:
    form = FORMS[name]
    tensors = drawn(form, (37, 101, 12), 0)
    given = {key: torch.from_numpy(one) for key, one in tensors.items()}
    check(form, form(**given, backend="tilelang", plan=schedule(16, 32, 2)), tensors)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("target", ["sm_90a", "sm_86"])
def test_nvcc_spills_no_register(target: str) -> None:
    form, size = FORMS["nearest"], (3000, 500, 64)
    lowered = form.lower(target, **known(drawn(form, size, 0), size))
    assert all(one.spill_bytes == 0 for one in compile_only(lowered.source))


def test_what_a_thread_reads_of_its_rows_serves_eight_elements() -> None:
    form, size = FORMS["nearest"], (200000, 1024, 64)
    source = str(form.source("H200", **known(drawn(form, (1, 1, 64), 0), size)))
    assert "Grid(i, 256) Loop(j, 64, stages=2) Lanes(i, 128)" in source
    assert 'x_tile = shared((64, 256), "float32")' in source  # neighbouring lanes read neighbours
    assert source.count("for u in T.unroll(64, unroll_factor=4):") == 1


def test_sums_are_rescaled_once_for_eight_elements() -> None:
    """Their largest comes first; then eight weights, and one factor of the sums so far."""
    form, size = FORMS["softmax mean"], (20000, 128, 16)
    source = str(form.source("H200", **known(drawn(form, (1, 1, 16), 0), size)))
    assert source[source.index("T.Pipelined") :].count("power_of_two(") == 8 + 1


@pytest.mark.parametrize("inner", [200, 600])
def test_long_inner_axes_keep_their_schedules(inner: int) -> None:
    form, size = FORMS["nearest"], (20000, 1024, inner)
    assert not numbers_of(form.lower("H200", **known(drawn(form, (1, 1, inner), 0), size)).plan).is_serial


def test_products_are_for_matrix_units() -> None:
    form = ra.fuse(ra.max(ra.sum(X * C, d), j), axes="i")
    size = (20000, 1024, 64)
    assert not numbers_of(form.lower("H200", **known(drawn(form, (1, 1, 64), 0), size)).plan).is_serial


def test_a_tile_has_whole_groups() -> None:
    form, size = FORMS["nearest"], (20, 30, 5)
    with pytest.raises(PlanError, match="of 8 elements at a time"):
        form.lower("c", **known(drawn(form, size, 0), size), plan=schedule(4, 12))


def test_every_schedule_that_is_listed_builds() -> None:
    form, size = FORMS["nearest"], (20000, 1024, 64)
    given = known(drawn(form, (1, 1, 64), 0), size)
    first = [candidate.plan for candidate in form.plans(**given, device="H200")][:12]
    listed = [plan for plan in first if isinstance(plan, Schedule)]
    assert all(numbers_of(plan).is_serial for plan in listed)
    assert numbers_of(form.lower("H200", **given, plan=listed[-1]).plan).is_serial


def test_producers_are_for_one_axis_of_rows() -> None:
    form = ra.fuse(ra.min(ra.sum(Abs(ra.tensor("g[b,i,d]") - C), d), j), axes="b i")
    plan = Schedule(Grid("b", 2), Grid("i", 8), Loop("j", 16), Lanes("i", 1))
    with pytest.raises(PlanError, match="beside rows of several columns"):
        form.lower("c", {"b": 4, "i": 8, "j": 16, "d": 5}, "float32", plan=plan)


@pytest.mark.gpu
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("size", [(300, 101, 64), (1000, 777, 17), (129, 64, 128)])
def test_on_a_gpu(name: str, size: Size) -> None:
    form, tensors = FORMS[name], drawn(FORMS[name], size, 2)
    check(form, form(**{key: torch.from_numpy(one).cuda() for key, one in tensors.items()}), tensors)
