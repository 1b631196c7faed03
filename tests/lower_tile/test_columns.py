"""Lanes along the rows' axis: a thread has columns of its own, and the kernel means the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, exp, oo

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.compile.compile import compile_only
from redalg.runtime.known.stored import read_line, write_line
from redalg.strategies.levels import Grid, Lanes, Loop, Parts, Whole
from redalg.strategies.schedule import Schedule, numbers_of

n, c, b = ra.axes("n c b")
x, w, y, s = ra.tensors("x[n,c] w[n,c] y[b,n,c] s[b,n]")
L = ra.tensor("L[c]")
WEIGHTS = ra.softmax(w, n)


def some(term: Expr) -> Expr:
    """Σ over the elements that a mask leaves."""
    return ra.sum(ra.where(x > 0, term, 0), n)


FORMS: dict[str, ra.Fused] = {
    "mean": ra.fuse(ra.mean(x, n), axes="c"),
    "variance": ra.fuse(ra.var(x, n), axes="c"),
    "weighted variance": ra.fuse(ra.sum(exp(w) * (x - ra.sum(exp(w) * x, n) / ra.sum(exp(w), n)) ** 2, n), axes="c"),
    "masked variance": ra.fuse(ra.sum(ra.where(x > 0, (x - ra.mean(x, n)) ** 2, 0), n), axes="c"),
    "lengths": ra.fuse(ra.logsumexp(ra.where(n < L, x, -oo), n), axes="c"),
    "fourth moment": ra.fuse(ra.mean((x - ra.mean(x, n)) ** 4, n), axes="c"),
    "softmax mean": ra.fuse(ra.sum(WEIGHTS * x, n), axes="c"),
    "maximum": ra.fuse(ra.max(x, n), axes="c"),
    "argmax": ra.fuse(ra.argmax(x, n), axes="c"),
    "first": ra.fuse(ra.first(x, n), axes="c"),
    "about a maximum": ra.fuse(ra.sum(ra.where(x > 0, (x - ra.max(w, n)) ** 2, 0), n), axes="c"),
    "slope": ra.fuse(ra.sum((x - ra.sum(x * w, n) / ra.sum(w * w, n) * w) ** 2, n), axes="c"),
    "slope of some": ra.fuse(some((x - some(x * w) / some(w * w) * w) ** 2), axes="c"),
    "normalised": ra.fuse(ra.softmax(x, n), axes="n c"),
    "normalised and turned": ra.fuse(ra.softmax(x, n), axes="c n"),
    "centred and turned": ra.fuse(y - ra.mean(y, n), axes="b c n"),
    "of batches": ra.fuse(ra.var(y, n), axes="b c"),
    "weighted by rows": ra.fuse(ra.sum(ra.softmax(s, n) * y, n), axes="b c"),
    "beside rows": ra.fuse({"out": (ra.sum(ra.softmax(s, n) * y, n), "b c"), "of_rows": (ra.logsumexp(s, n), "b")}),
}


def drawn(form: ra.Fused, length: int, columns: int, seed: int, offset: float) -> dict[str, np.ndarray]:
    rng, sizes = np.random.default_rng(seed), {"n": length, "c": columns, "b": 2}
    found = {}
    for element in form.cascade.elements():
        shape = [sizes[str(axis)] for axis in element.indices]
        lengths = rng.integers(0, length + 1, shape).astype(np.float32)
        values = rng.normal(offset, 1, shape).astype(np.float32)
        found[element.name] = lengths if element.name == "L" else values
    return found


def schedule(form: ra.Fused, columns: int, tile: int, parts: int) -> Schedule:
    grid = [Grid(axis.name, columns if axis == c else 1) for axis in (b, c) if axis in form.form.outputs[0].axes]
    return Schedule(*grid, *([Parts("n", parts)] if parts > 1 else []), Lanes("c", 1), Loop("n", tile))


def known(form: ra.Fused, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    sizes = {axis.name: size for element in form.cascade.elements()
             for axis, size in zip(element.indices, tensors[element.name].shape, strict=True)}  # fmt: skip
    return {"sizes": sizes, "dtypes": {name: str(array.dtype) for name, array in tensors.items()}}


@pytest.mark.parametrize("name", FORMS)
@given(st.data())
@settings(max_examples=4)
def test_any_tile_of_columns_means_the_definition(name: str, data: st.DataObject) -> None:
    """In the tile interpreter: lengths of 1 and ragged ones, columns beyond the edge, parts that hold nothing."""
    form = FORMS[name]
    length, columns = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 11))
    tensors = drawn(form, length, columns, data.draw(st.integers(0, 9)), data.draw(st.sampled_from([0.0, 30.0])))
    plan = schedule(
        form, data.draw(st.sampled_from([4, 8])), data.draw(st.sampled_from([2, 8])), data.draw(st.integers(1, 3))
    )
    lowered = form.lower("c", **known(form, tensors), plan=plan)
    assert numbers_of(lowered.plan).along_rows
    found, reference = interpret(lowered.program, tensors), form.reference(**tensors)
    references = reference if isinstance(reference, tuple) else (reference,)
    for output, result in zip(form.form.outputs, references, strict=True):
        wanted = np.asarray(result, np.float64)
        out, finite = found[output.name], np.isfinite(wanted)
        scale = float(np.max(np.abs(wanted), initial=1e-6, where=finite))  # a residual of one element is a rounding
        np.testing.assert_array_equal(np.isfinite(out), finite)
        np.testing.assert_allclose(out[finite] / scale, wanted[finite] / scale, atol=3e-5)


@pytest.mark.parametrize("name", ["lengths", "of batches", "weighted by rows"])
def test_the_c_target_runs_lanes_along_columns(name: str) -> None:
    form = FORMS[name]
    tensors = {key: torch.from_numpy(array) for key, array in drawn(form, 101, 37, 0, 3.0).items()}
    out = form(**tensors, backend="tilelang", plan=schedule(form, 16, 8, 2))
    torch.testing.assert_close(out.double(), form.reference(**tensors).double(), rtol=1e-5, atol=1e-5)


def test_a_tile_of_columns_is_read_and_reduced_column_by_column() -> None:
    """Neighbouring threads read neighbouring columns, straight into registers; nothing is merged before the end."""
    form, sizes = FORMS["variance"], {"n": 65536, "c": 1024}
    source = str(form.source("H200", sizes=sizes, dtypes={"x": "float32"}))
    assert 'x_tile_1 = fragment((32, 64), "float32")' in source
    assert "for j, i in parallel(32, 64):" in source
    loop = source[source.index("T.Pipelined") : source.index("T.reduce_sum")]
    assert "reduce" not in loop
    assert "dim=0)" in source
    assert "dim=1)" not in source


def test_rules_lay_lanes_along_what_lies_side_by_side() -> None:
    wide = {"n": 65536, "c": 1024}
    columns = FORMS["variance"].lower("H200", wide, {"x": "float32"}).plan
    assert any(isinstance(level, Lanes) and level.axis == "c" for level in columns.levels)
    rows = ra.fuse(ra.var(ra.tensor("x[c,n]"), n), axes="c").lower("H200", wide, {"x": "float32"}).plan
    assert all(level.axis == "n" for level in rows.levels if isinstance(level, Lanes))


@pytest.mark.slow
def test_every_schedule_of_columns_that_is_listed_has_lanes_along_them() -> None:
    form, sizes = FORMS["variance"], {"n": 4096, "c": 256}
    candidates = [candidate.plan for candidate in form.plans(sizes, {"x": "float32"}, "H200")][:40]
    kernels = [plan for plan in candidates if isinstance(plan, Schedule)]
    assert kernels
    assert all(numbers_of(plan).along_rows for plan in kernels)
    for plan in kernels[:3]:
        form.lower("H200", sizes, {"x": "float32"}, plan=plan)


def test_a_schedule_of_columns_is_kept_in_files() -> None:
    schedule = FORMS["variance"].lower("H200", {"n": 65536, "c": 1024}, {"x": "float32"}).plan
    assert read_line(write_line(schedule), schedule.binding, schedule.device) == schedule


def test_one_tile_has_no_lanes_of_columns() -> None:
    with pytest.raises(ra.PlanError, match="holds the streamed axis in one tile and has lanes along the rows"):
        FORMS["variance"].lower("H200", {"n": 64, "c": 64}, {"x": "float32"},
                                plan=Schedule(Grid("c", 64), Whole("n", 64), Lanes("c", 128)))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["variance", "softmax mean", "argmax"])
def test_nvcc_compiles_lanes_along_columns(name: str) -> None:
    form, dtypes = FORMS[name], dict.fromkeys(FORMS[name].cascade.inputs(), "float32")
    plan = Schedule(Grid("c", 64), Parts("n", 16), Lanes("c", 512), Loop("n", 32))
    for resources in compile_only(form.lower("sm_90a", {"n": 65536, "c": 1024}, dtypes, plan=plan).source):
        assert resources.spill_bytes == 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", FORMS)
def test_a_gpu_runs_lanes_along_columns(name: str) -> None:
    form = FORMS[name]
    tensors = {key: torch.from_numpy(array).cuda() for key, array in drawn(form, 5000, 200, 0, 3.0).items()}
    outputs, references = form(**tensors), form.reference(**tensors)
    for out, wanted in zip(*(one if isinstance(one, tuple) else (one,) for one in (outputs, references)), strict=True):
        torch.testing.assert_close(out.double(), wanted.double().cuda(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("dtype", "row"), [("float32", 65), ("bfloat16", 66)])
def test_an_output_that_runs_along_the_rows_is_turned_in_shared_memory(dtype: str, row: int) -> None:
    """Neighbouring threads read neighbouring columns, and write neighbouring elements; each row has its own banks."""
    plan = Schedule(Grid("b", 1), Grid("c", 64), Lanes("c", 512), Loop("n", 32))
    given: dict[str, Any] = {"sizes": {"b": 4, "n": 96, "c": 70}, "dtypes": {"y": dtype}, "plan": plan}
    turned = FORMS["centred and turned"].source("sm_90a", **given)
    assert f'out_shared = shared((32, {row}), "{dtype}")' in turned
    assert (
        "for i, j in parallel(64, 32):\n                if c_block * 64 + i < 70:\n                    out[b, "
        in turned
    )
    assert "out_shared" not in ra.fuse(y - ra.mean(y, n), axes="b n c").source("sm_90a", **given)
