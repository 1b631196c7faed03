"""Runs of elements, whose sums a thread adds up on their own: the digits of long sums."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import exp, oo

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.compile.compile import compile_only
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.rules.runs import MANY_MOVED as MANY
from redalg.strategies.rules.runs import RUN
from redalg.strategies.schedule import Schedule
from tests.lower_tile import test_serial, test_serial_columns, test_serial_producers
from tests.lower_tile.test_serial import results

i, j, d = ra.axes("i j d")
X, Y, W = ra.tensors("x[i] y[j] w[j]")
DISTANCE = abs(X - Y)
KERNEL = exp(-DISTANCE)
SUMS: dict[str, ra.Fused] = {
    "distances": ra.fuse(ra.sum(DISTANCE * W, j), axes="i"),
    "about a maximum": ra.fuse(ra.sum(KERNEL * W, j) / ra.max(KERNEL, j), axes="i"),
    "weighted mean": ra.fuse(ra.sum(KERNEL * W, j) / ra.sum(KERNEL, j) * j.extent, axes="i"),
    "with a place": ra.fuse({"sum": (ra.sum(DISTANCE * W, j), "i"), "place": (ra.argmin(Y - X, j), "i")}),
    "of producers": ra.fuse(
        ra.sum(ra.sum(abs(ra.tensor("x[i,d]") - ra.tensor("y[j,d]")), d) * W, j),
        axes="i",
    ),
}
NO_RUNS = {
    test_serial: {"nearest", "farthest", "products", "neighbours", "of batches"},
    test_serial_columns: {"max-plus product", "largest distance", "products"},
    test_serial_producers: {"k-means", "nearest", "largest component"},
}
"""Forms without a sum that rounds, and a product of matrices."""
ROUNDED_UP, UNIT = 0.6 * 2.0**-23, 2.0**-24
"""A number that rounds 1 up to 1 + 2⁻²³, as often as it is added; the unit roundoff of float32."""


def case(of: ModuleType, name: str, rows: int, length: int, seed: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors of a form of another test, and what `lower` knows of them."""
    form = of.FORMS[name]
    if of is test_serial_producers:
        tensors = of.drawn(form, (rows, length, 3), seed)
        return tensors, of.known(tensors, (rows, length, 3))
    if of is test_serial_columns:
        return of.drawn(form, (2, rows, length), seed), of.known(form, 2, rows, length)
    return of.drawn(form, rows, length, seed), of.known(form, rows, length)


def plan_of(of: ModuleType, name: str, tile: int, parts: int) -> Schedule:
    if of is test_serial_producers:
        return of.schedule(4, tile, parts)
    return of.schedule(of.FORMS[name], *([2, 4] if of is test_serial_columns else [4]), tile, parts)


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    ("of", "name"),
    [(of, name) for of in (test_serial, test_serial_columns, test_serial_producers) for name in of.FORMS],
)
@given(st.data())
@settings(max_examples=3, deadline=None)
def test_any_run_means_the_definition(of: ModuleType, name: str, data: st.DataObject) -> None:
    """In the tile interpreter: runs that are a tile or a part of it, ragged ones and empty ones, two parts."""
    form, parts = of.FORMS[name], data.draw(st.integers(1, 2))
    length = parts * MANY + data.draw(st.integers(1, 50))
    tensors, known = case(of, name, data.draw(st.integers(1, 5)), length, data.draw(st.integers(0, 9)))
    plan = plan_of(of, name, data.draw(st.sampled_from([8, 16, 40, 48, 64, 128])), parts)
    lowered = form.lower("c", **known, plan=plan)
    has_runs = any(one.name.endswith("_run") for one in lowered.program.kernels[0].buffers)
    assert has_runs is (name not in NO_RUNS[of])
    inputs = (one for one in lowered.program.parameters if one.role == "input")
    given = {one.key: tensors[one.key].reshape(one.shape) for one in inputs}
    found = results(form, interpret(lowered.program, given))
    for key, exact in results(form, form.reference(**tensors)).items():
        largest = np.abs(exact[np.isfinite(exact)]).max(initial=0)
        np.testing.assert_allclose(found[key], exact, rtol=5e-5, atol=5e-5 + 5e-6 * largest)


def rounded_up(name: str, length: int) -> dict[str, torch.Tensor]:
    """Tensors of which a sum takes 1 first, and then numbers for which it is rounded up one after another."""
    added = torch.full((length,), ROUNDED_UP)
    added[0] = 1
    points = {"x": torch.zeros(3), "y": torch.full((length,), float("distance" in name or "place" in name))}
    if name == "of producers":
        points = {"x": torch.zeros(3, 2), "y": torch.tensor([0.0, 1.0]).expand(length, 2).contiguous()}
    return {**points, "w": added}


@pytest.mark.parametrize("name", SUMS)
def test_a_long_sum_keeps_its_digits(name: str) -> None:
    """On the C target, within the bound of a sum in runs; one element after another errs by 24 times as much."""
    form, length = SUMS[name], 16384
    tensors = rounded_up(name, length)
    bound = (RUN + length / RUN + 4) * UNIT
    assert length * 0.4 * 2 * UNIT > 20 * bound
    found = results(form, form(**tensors, backend="tilelang", plan=Schedule(Grid(i, 4), Loop(j, 256), Lanes(i, 1))))
    for key, exact in results(form, form.reference(**tensors)).items():
        np.testing.assert_allclose(found[key], exact, rtol=bound, atol=0)


def test_terms_about_a_centre_are_added_up_eight_at_a_time() -> None:
    """Squares of 120 elements: the root mean square of their errors is below 2 units, and 3 for one after another."""
    n = ra.axis("n")
    rows = ra.tensor("x[i,n]")
    form = ra.fuse(ra.mean((rows - ra.mean(rows, n)) ** 2, n), axes="i")
    x = torch.randn(512, 120, generator=torch.Generator().manual_seed(0))
    exact = x.double().var(1, correction=0)
    found = form(x=x, backend="tilelang", plan=Schedule(Grid(i, 4), Loop(n, 24), Lanes(i, 1)))
    assert ((found - exact) / exact).square().mean().sqrt() < 2 * UNIT


@pytest.mark.parametrize(
    ("dtype", "digits", "unit"), [("float64", "float32", 2.0**-53), ("float32", "float16", 2.0**-24)]
)
def test_products_keep_the_digits_of_numbers_of_a_shorter_type(dtype: str, digits: str, unit: float) -> None:
    """Squares of 24 or 11 digits end in few patterns: without runs the roundings of a sum have one sign."""
    form, length = ra.fuse(ra.sum(ra.Tensor("x")[j, i] * ra.Tensor("x")[j, d], j), axes="i d"), 16384
    plan = Schedule(Grid(i, 4), Grid(d, 4), Loop(j, 16), Lanes(i, 1))
    x = np.random.default_rng(0).normal(0, 1, (length, 4)).astype(digits).astype(dtype)
    exact = x.T.astype(np.longdouble) @ x.astype(np.longdouble)
    found = form(x=torch.from_numpy(x), backend="tilelang", plan=plan).numpy()
    assert np.abs(found - exact).max() < 40 * unit * np.abs(exact).max()
    in_turn = np.zeros((4, 4), dtype)
    for row in x:
        in_turn += row[:, None] * row
    assert np.abs(in_turn - exact).max() > 100 * unit * np.abs(exact).max()


def test_products_have_runs_where_registers_hold_their_sums_twice() -> None:
    form = ra.fuse(ra.sum(ra.Tensor("x")[j, i] * ra.Tensor("x")[j, d], j), axes="i d")
    for columns, has_runs in ((4, True), (16, False)):
        plan = Schedule(Grid(i, columns), Grid(d, columns), Loop(j, 16), Lanes(i, 1))
        text = str(form.source("c", {"i": columns, "d": columns, "j": 16384}, "float32", plan=plan))
        assert ("_run" in text) is has_runs


def test_many_parts_are_merged_in_groups() -> None:
    """An error of groups of 8 parts, and of 8 groups, is added to that of runs."""
    form, parts, length = SUMS["distances"], 64, 256
    tensors = rounded_up("distances", parts * length)
    tensors["w"][::length] = 1 / parts
    plan = Schedule(Grid(i, 4), Parts(j, parts), Loop(j, 64), Lanes(i, 1))
    known = {"sizes": {"i": 3, "j": parts * length}, "dtypes": dict.fromkeys("xyw", "float32")}
    assert "for group in T.serial(8):" in str(form.source("c", **known, plan=plan))
    found = results(form, form(**tensors, backend="tilelang", plan=plan))
    bound = (RUN + length / RUN + 8 + 8) * UNIT
    np.testing.assert_allclose(found["out"], results(form, form.reference(**tensors))["out"], rtol=bound, atol=0)


@pytest.mark.parametrize("dead", [RUN, 3 * RUN + 5, 2 * MANY])
def test_runs_of_which_nothing_counts(dead: int) -> None:
    """Masked elements at the start, also of the whole axis: a run's maximum is −∞, and so is the state's."""
    live = ra.where(ra.tensor("n[i]") <= j, -DISTANCE, -oo)
    form = ra.fuse({"lse": (ra.logsumexp(live, j), "i"), "mean": (ra.sum(ra.softmax(live, j) * W, j), "i")})
    rng = np.random.default_rng(0)
    tensors = {"x": rng.normal(0, 1, 5), "y": rng.normal(0, 1, 2 * MANY), "w": rng.normal(0, 1, 2 * MANY)}
    tensors = {name: one.astype(np.float32) for name, one in tensors.items()}
    tensors["n"] = np.array([0, dead, dead, dead, 1], np.int32)
    known = {"sizes": {"i": 5, "j": 2 * MANY}, "dtypes": {name: str(one.dtype) for name, one in tensors.items()}}
    lowered = form.lower("c", **known, plan=Schedule(Grid(i, 4), Loop(j, 64), Lanes(i, 1)))
    inputs = (one for one in lowered.program.parameters if one.role == "input")
    found = results(form, interpret(lowered.program, {one.key: tensors[one.key] for one in inputs}))
    for key, exact in results(form, form.reference(**tensors)).items():
        np.testing.assert_allclose(found[key], exact, rtol=3e-5, atol=3e-6)


def test_a_count_is_exact_and_has_no_run() -> None:
    source = str(
        ra.fuse(ra.mean(DISTANCE, j), axes="i").source("H200", sizes={"i": 20000, "j": 20000}, dtypes="float32")
    )
    assert "count = " in source
    assert "count_run" not in source
    assert "sum_0_run = " in source


def test_a_variance_has_centres_and_counts_of_its_own_in_a_run() -> None:
    """Its sums stand about a centre that elements move, so that a state's sums would move with every element."""
    form = ra.fuse(ra.var(DISTANCE, j), axes="i")
    tensors = {"x": torch.zeros(3), "y": 1000 + torch.rand(8192, generator=torch.Generator().manual_seed(0))}
    found = form(**tensors, backend="tilelang", plan=Schedule(Grid(i, 4), Loop(j, 256), Lanes(i, 1)))
    np.testing.assert_allclose(found, form.reference(**tensors), rtol=2e-6)


@pytest.mark.parametrize("name", ["forces", pytest.param("weighted variance", marks=pytest.mark.slow)])
def test_runs_spill_no_register(name: str) -> None:
    form = test_serial.FORMS[name]
    for one in compile_only(form.lower("sm_90a", **test_serial.known(form, 20000, 20000)).source):
        assert one.spill_bytes == 0
