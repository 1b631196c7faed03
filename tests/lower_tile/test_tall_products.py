"""Products over a long axis, of few rows and columns: parts of it, and threads that keep rows of several columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, sqrt

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.compile.compile import compile_only
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.schedule import Schedule, numbers_of
from tests.lower_tile.test_serial import results

a, b, n = ra.axes("a b n")
X, Y, W = ra.Tensor("x"), ra.Tensor("y"), ra.Tensor("w")[n]
XA, XB, YB = X[n, a], X[n, b], Y[n, b]


def mean(x: Expr) -> Expr:
    return ra.sum(x, n) / n.extent


def weighted(x: Expr) -> Expr:
    return ra.sum(W * x, n) / ra.sum(W, n)


def covariance(x: Expr, y: Expr) -> Expr:
    return ra.sum((x - mean(x)) * (y - mean(y)), n) / (n.extent - 1)


FORMS: dict[str, ra.Fused] = {
    "Gram": ra.fuse(ra.sum(XA * XB, n), axes="a b"),
    "covariance": ra.fuse(covariance(XA, XB), axes="a b"),
    "of two tensors": ra.fuse(covariance(XA, YB), axes="a b"),
    "correlation": ra.fuse(covariance(XA, YB) / sqrt(ra.var(XA, n) * ra.var(YB, n)), axes="a b"),
    "weighted": ra.fuse(ra.sum(W * (XA - weighted(XA)) * (YB - weighted(YB)), n) / ra.sum(W, n), axes="a b"),
    "beside means": ra.fuse({"out": (covariance(XA, YB), "a b"), "mean": (mean(YB), "b")}),
}


def drawn(form: ra.Fused, size: tuple[int, int, int], seed: int, offset: float = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    columns = size[1] if "y" in form.cascade.inputs() else size[0]
    shapes = {"x": (size[2], size[0]), "y": (size[2], columns), "w": (size[2],)}
    made = {name: rng.normal(offset, 1, shapes[name]) for name in form.cascade.inputs()}
    made |= {"w": np.abs(made["w"] - offset) + 0.1} if "w" in made else {}
    return {name: array.astype(np.float32) for name, array in made.items()}


def known(form: ra.Fused, rows: int, columns: int, length: int) -> dict[str, Any]:
    columns = columns if "y" in form.cascade.inputs() else rows
    return {"sizes": {"a": rows, "b": columns, "n": length}, "dtypes": dict.fromkeys(form.cascade.inputs(), "float32")}


def schedule(rows: int, columns: int, tile: int, parts: int, threads: int = 1) -> Schedule:
    cut = [Parts("n", parts)] if parts > 1 else []
    return Schedule(Grid("a", rows), Grid("b", columns), *cut, Loop("n", tile), Lanes("a", threads))


def check(form: ra.Fused, found: Any, tensors: dict[str, np.ndarray], allowed: float = 3e-5) -> None:
    """Compare with the definition, beside the products of standard deviations, which are about 1 or more."""
    made = results(form, found)
    wanted = results(form, form.reference(**{name: one.astype(np.float64) for name, one in tensors.items()}))
    for key, exact in wanted.items():
        np.testing.assert_allclose(made[key], exact, rtol=allowed, atol=allowed * np.abs(exact).max(initial=1))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", FORMS)
@given(st.data())
@settings(max_examples=4)
def test_any_tile_means_the_definition(name: str, data: st.DataObject) -> None:
    """In the tile interpreter: one row, one column, two elements, ragged tiles, parts that hold nothing."""
    form, draw = FORMS[name], data.draw
    size = (draw(st.integers(1, 20)), draw(st.integers(1, 9)), draw(st.integers(2, 30)))
    tensors = drawn(form, size, draw(st.integers(0, 9)), draw(st.sampled_from([0, 10])))
    plan = schedule(*(draw(st.sampled_from(one)) for one in ([4, 16], [2, 4], [2, 8], [1, 2, 3])))
    lowered = form.lower("c", **known(form, *size), plan=plan)
    assert numbers_of(lowered.plan).is_serial
    inputs = (one for one in lowered.program.parameters if one.role == "input")
    allowed = 1e-2 if name == "correlation" else 1e-4  # of as few as two elements
    check(form, interpret(lowered.program, {one.key: tensors[one.key] for one in inputs}), tensors, allowed)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", FORMS)
def test_the_c_target_runs_them(name: str) -> None:
    form = FORMS[name]
    tensors = {key: torch.from_numpy(one) for key, one in drawn(form, (20, 12, 1000), 0, 5).items()}
    found = form(**tensors, backend="tilelang", plan=schedule(16, 8, 32, 4))
    check(form, found, {key: one.numpy() for key, one in tensors.items()})


@pytest.mark.parametrize("merge", ["kernel", "launch"])
def test_many_parts_are_merged_in_groups(merge: str) -> None:
    """A sum of 150 parts one after another would round 150 times; of the last group some are left."""
    form, tensors = FORMS["of two tensors"], drawn(FORMS["of two tensors"], (8, 4, 600), 0, 5)
    plan = Schedule(Grid("a", 4), Grid("b", 4), Parts("n", 150, merge=merge), Loop("n", 4), Lanes("a", 1))
    given = {key: torch.from_numpy(one) for key, one in tensors.items()}
    assert "for group in T.serial(" in form.source("c", **known(form, 8, 4, 600), plan=plan)
    check(form, form(**given, backend="tilelang", plan=plan), tensors)


@pytest.mark.parametrize("kind", ["offset", "trend", "outlier", "two outliers", "equal"])
def test_a_pivot_lies_among_the_data(kind: str) -> None:
    """The mean of three medians of three elements: neither an outlier nor a trend draws it away."""
    form = FORMS["of two tensors"]
    tensors = drawn(form, (16, 8, 900), 0)
    x, y = tensors["x"], tensors["y"]
    if kind == "offset":
        x += 1e5
    elif kind == "trend":
        x += np.arange(900, dtype=np.float32)[:, None] * 100
    elif kind == "outlier":
        x[0] = y[0] = 1e4
    elif kind == "two outliers":
        x[[0, -1]] = y[[0, -1]] = 1e4
    else:
        x[:], y[:] = 1e4, 3.3
    found = form(**{key: torch.from_numpy(one) for key, one in tensors.items()}, backend="tilelang",
                 plan=schedule(16, 8, 32, 4))  # fmt: skip
    check(form, found, tensors, 1e-3 if kind != "equal" else 1e-6)


@pytest.mark.parametrize("name", FORMS)
def test_rules_keep_them_in_threads(name: str) -> None:
    form = FORMS[name]
    lowered = form.lower("H200", **known(form, 64, 48, 1_000_000))
    assert str(lowered.plan).startswith(
        "Grid(a, 64) Grid(b, 64) Parts(n, 512, rows=4) Loop(n, 32, stages=2) Lanes(a, 64)"
    )
    text = lowered.source.text
    assert text.count("T.copy(x[") == 1  # where rows and columns are of one tensor, both read one tile
    if name != "Gram":
        assert "x_tile[j, i] - centre[i]" in text


@pytest.mark.parametrize(
    ("size", "dtype", "options"),
    [
        ((4096, 4096, 1_000_000), "float32", {}),  # blocks enough without parts
        ((64, 64, 512), "float32", {}),  # no long axis
        ((64, 64, 1_000_000), "float16", {}),  # matrix instructions
        ((64, 64, 1_000_000), "float32", {"precision": "tf32"}),
    ],
)
def test_other_products_keep_their_schedules(size: tuple[int, int, int], dtype: str, options: dict[str, Any]) -> None:
    form = FORMS["of two tensors"]
    lowered = form.lower("H200", {"a": size[0], "b": size[1], "n": size[2]}, {"x": dtype, "y": dtype}, **options)
    assert not numbers_of(lowered.plan).is_serial


@pytest.mark.sweep(9)
@pytest.mark.parametrize("target", ["sm_90a", "sm_86", "sm_80"])
@pytest.mark.parametrize("name", ["Gram", "covariance", "weighted"])
def test_nvcc_compiles(name: str, target: str) -> None:
    form = FORMS[name]
    made = form.lower(target, **known(form, 64, 64, 200_000))
    assert numbers_of(made.plan).is_serial
    assert all(one.spill_bytes == 0 for one in compile_only(made.source))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(64, 64, 100_000), (96, 70, 33_333), (33, 64, 5_000)])
@pytest.mark.parametrize("name", FORMS)
def test_on_a_gpu(name: str, size: tuple[int, int, int]) -> None:
    form = FORMS[name]
    tensors = drawn(form, size, 0, 5)
    found = form(**{key: torch.from_numpy(one).cuda() for key, one in tensors.items()}, backend="tilelang")
    found = found.cpu() if isinstance(found, torch.Tensor) else type(found)(*(one.cpu() for one in found))
    check(form, found, tensors, 1e-5)
