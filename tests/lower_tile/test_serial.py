"""Rows on lanes and elements one after another: pairwise terms, of tensors of which none has both axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, Rational, exp, oo, sqrt

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.schedule import Schedule, numbers_of

i, j, b = ra.axes("i j b")
X, Y = ra.Tensor("x"), ra.Tensor("y")
w, L, B = ra.tensors("w[j] L[i] z[b,j]")
DIFFERENCES = [X[i, k] - Y[j, k] for k in range(3)]
SQUARE = sum(one**2 for one in DIFFERENCES)
DISTANCE = sqrt(SQUARE + Rational(1, 100))
K = exp(-SQUARE)
MEAN = ra.sum(K * w, j) / ra.sum(K, j)


def force(component: int) -> Expr:
    """A component of the force on a body, softened."""
    return ra.sum(w * DIFFERENCES[component] / (SQUARE + Rational(1, 100)) ** Rational(3, 2), j)


FORMS: dict[str, ra.Fused] = {
    "forces": ra.fuse({f"f{k}": (force(k), "i") for k in range(3)}),
    "potential": ra.fuse(ra.sum(w / DISTANCE, j), axes="i"),
    "gaussian sum": ra.fuse(ra.sum(exp(-SQUARE) * w, j), axes="i"),
    "kernel regression": ra.fuse(ra.sum(exp(-SQUARE) * w, j) / ra.sum(exp(-SQUARE), j), axes="i"),
    "log density": ra.fuse(ra.logsumexp(-SQUARE / 2, j), axes="i"),
    "nearest": ra.fuse({"distance": (ra.min(SQUARE, j), "i"), "place": (ra.argmin(SQUARE, j), "i")}),
    "farthest": ra.fuse(ra.max(SQUARE, j), axes="i"),
    "neighbours": ra.fuse(ra.sum(ra.where(SQUARE < 1, 1, 0), j), axes="i"),
    "variance of distances": ra.fuse(ra.var(DISTANCE, j), axes="i"),
    "weighted variance": ra.fuse(ra.sum(K * (w - MEAN) ** 2, j) / ra.sum(K, j), axes="i"),
    "some": ra.fuse(ra.logsumexp(ra.where(j < L, -SQUARE, -oo), j), axes="i"),
    "share of more": ra.fuse(ra.sum(ra.where(X[i, 0] < Y[j, 0], 1, 0), j) / j.extent, axes="i"),
    "products": ra.fuse(ra.prod(1 + w * exp(-SQUARE), j), axes="i"),
    "of batches": ra.fuse(ra.sum(B * exp(-abs(X[i, 0] - Y[j, 0])), j), axes="b i"),
}


def drawn(form: ra.Fused, rows: int, length: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"x": (rows, 3), "y": (length, 3), "w": (length,), "L": (rows,), "z": (2, length)}
    tensors = {name: rng.normal(0, 1, shapes[name]).astype(np.float32) for name in form.cascade.inputs()}
    if "L" in tensors:
        tensors["L"] = rng.integers(0, length + 1, rows).astype(np.int32)
    return tensors


def schedule(form: ra.Fused, rows: int, tile: int, parts: int = 1, threads: int = 1) -> Schedule:
    grid = [Grid("b")] if b in form.form.outputs[0].axes else []
    cut = [Parts("j", parts)] if parts > 1 else []
    return Schedule(*grid, Grid("i", rows), *cut, Loop("j", tile), Lanes("i", threads))


def known(form: ra.Fused, rows: int, length: int) -> dict[str, Any]:
    dtypes = {name: "int32" if name == "L" else "float32" for name in form.cascade.inputs()}
    shapes = {name: shape for name, shape in {"x": (rows, 3), "y": (length, 3)}.items() if name in dtypes}
    sizes = {"i": rows, "j": length, **({"b": 2} if b in form.cascade.axes() else {})}
    return {"sizes": sizes, "dtypes": dtypes, "shapes": shapes}


def results(form: ra.Fused, found: Any) -> dict[str, np.ndarray]:
    """The outputs by name, as float64."""
    names = [one.name for one in form.form.outputs]
    by_name = found if isinstance(found, dict) else found._asdict() if len(names) > 1 else {names[0]: found}
    return {name: np.asarray(by_name[name], np.float64) for name in names}


@pytest.mark.parametrize("name", FORMS)
@given(st.data())
@settings(max_examples=4)
def test_any_tile_means_the_definition(name: str, data: st.DataObject) -> None:
    """In the tile interpreter: one row, one element, ragged tiles, parts that hold nothing."""
    form, rows, length = FORMS[name], data.draw(st.integers(1, 20)), data.draw(st.integers(1, 30))
    tensors = drawn(form, rows, length, data.draw(st.integers(0, 9)))
    plan = schedule(
        form, data.draw(st.sampled_from([4, 16])), data.draw(st.sampled_from([2, 8])), data.draw(st.integers(1, 3))
    )
    lowered = form.lower("c", **known(form, rows, length), plan=plan)
    assert numbers_of(lowered.plan).is_serial
    inputs = (one for one in lowered.program.parameters if one.role == "input")
    given = {one.key: tensors[one.key].reshape(one.shape) for one in inputs}
    made, wanted = results(form, interpret(lowered.program, given)), results(form, form.reference(**tensors))
    for key, exact in wanted.items():
        np.testing.assert_allclose(made[key], exact, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("name", ["forces", "nearest", "kernel regression", "variance of distances", "of batches"])
def test_the_c_target_runs_rows_on_lanes(name: str) -> None:
    form = FORMS[name]
    tensors = {key: torch.from_numpy(array) for key, array in drawn(form, 45, 101, 0).items()}
    made = results(form, form(**tensors, backend="tilelang", plan=schedule(form, 16, 32, 2)))
    for key, exact in results(form, form.reference(**tensors)).items():
        np.testing.assert_allclose(made[key], exact, rtol=2e-5, atol=2e-5)
