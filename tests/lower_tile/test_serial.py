"""Rows on lanes and elements one after another: pairwise terms, of tensors of which none has both axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, Rational, exp, floor, oo, sqrt

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.compile.compile import compile_only
from redalg.runtime.known.stored import read_line, write_line
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.schedule import Schedule, numbers_of

i, j, b = ra.axes("i j b")
X, Y = ra.Tensor("x"), ra.Tensor("y")
D, M = ra.axes("d"), ra.axis("m", size=2)
w, L, B, P, R = ra.tensors("w[j] L[i] z[b,j] p[i,j] r[i,j]")
DIFFERENCES = [X[i, k] - Y[j, k] for k in range(3)]
SQUARE = sum(one**2 for one in DIFFERENCES)
DISTANCE = sqrt(SQUARE + Rational(1, 100))
K = exp(-SQUARE)
MEAN = ra.sum(K * w, j) / ra.sum(K, j)
SLOPE = ra.sum((DISTANCE - ra.sum(DISTANCE * w, j) / ra.sum(w * w, j) * w) ** 2, j)


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
V, E = ra.axes("v e")
APART = ra.sum((X[i, V] - Y[j, V]) ** 2, V)
COSINE = ra.sum(X[i, V] * Y[j, V], V) / sqrt(ra.sum(X[i, V] ** 2, V) * ra.sum(Y[j, V] ** 2, V) + 1)
VECTORS: dict[str, ra.Fused] = {
    "forces": ra.fuse(ra.sum(w * (X[i, E] - Y[j, E]) / (APART + Rational(1, 100)) ** Rational(3, 2), j), axes="i e"),
    "gaussian sum": ra.fuse(ra.sum(exp(-APART) * w, j), axes="i"),
    "mean shift": ra.fuse(ra.sum(exp(-APART) * Y[j, E], j) / ra.sum(exp(-APART), j), axes="i e"),
    "cosine kernel": ra.fuse(
        ra.sum(w * ra.sum(X[i, V] * Y[j, V], V) / sqrt(ra.sum(X[i, V] ** 2, V) * ra.sum(Y[j, V] ** 2, V) + 1), j),
        axes="i",
    ),
    "nearest": ra.fuse({"distance": (ra.min(APART, j), "i"), "place": (ra.argmin(APART, j), "i")}),
    "largest component": ra.fuse(ra.min(ra.max(abs(X[i, V] - Y[j, V]), V), j), axes="i"),
    "spread": ra.fuse(ra.var(Y[j, E] * exp(-abs(X[i, 0] - Y[j, 0])), j), axes="i e"),
    "softmax mean": ra.fuse(ra.sum(ra.softmax(-APART, j) * Y[j, E], j), axes="i e"),
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
    sizes = {"i": rows, "j": length, "b": 2, "v": 3, "e": 3}
    sizes = {axis.name: sizes[axis.name] for axis in form.cascade.axes()}
    return {"sizes": sizes, "dtypes": dtypes, "shapes": shapes}


def results(form: ra.Fused, found: Any) -> dict[str, np.ndarray]:
    """The outputs by name, as float64."""
    names = [one.name for one in form.form.outputs]
    by_name = found if isinstance(found, dict) else found._asdict() if len(names) > 1 else {names[0]: found}
    return {name: np.asarray(torch.as_tensor(by_name[name]).cpu(), np.float64) for name in names}


@pytest.mark.sweep(2)
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


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize(("rows", "length"), [(128, 70), (300, 1), (131, 257)])
def test_vectors_are_written_out(name: str, rows: int, length: int) -> None:
    """In the tile interpreter, under the rules' schedule for a GPU: no product of matrices, no padded component."""
    form, tensors = VECTORS[name], drawn(VECTORS[name], rows, length, 0)
    lowered = form.lower("H200", **known(form, rows, length))
    assert numbers_of(lowered.plan).is_serial
    found = interpret(
        lowered.program, {one.key: tensors[one.key] for one in lowered.program.parameters if one.role == "input"}
    )
    for key, exact in results(form, form.reference(**tensors)).items():
        np.testing.assert_allclose(results(form, found)[key], exact, rtol=3e-5, atol=3e-5)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", VECTORS)
def test_the_c_target_runs_vectors_that_are_written_out(name: str) -> None:
    form = VECTORS[name]
    tensors = {key: torch.from_numpy(array) for key, array in drawn(form, 130, 101, 1).items()}
    found = results(form, form(**tensors, backend="tilelang"))
    for key, exact in results(form, form.reference(**tensors)).items():
        np.testing.assert_allclose(found[key], exact, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("target", ["H200", "sm_86", "sm_80"])
@pytest.mark.parametrize("name", [*FORMS, *VECTORS])
def test_rules_have_a_schedule_for_every_target(name: str, target: str) -> None:
    """Also where a row's length bounds the tiles, so that no pipeline runs ahead."""
    for form in (one for one in (FORMS.get(name), VECTORS.get(name)) if one is not None):
        lowered = form.lower(target, **known(form, 3000, 5000))
        several = name == "of batches"  # several weights of one kernel are the columns of a product
        assert numbers_of(lowered.plan).is_serial is not several


def attention(group: int, *, causal: bool) -> ra.Fused:
    """Attention of queries and keys of few components, with heads that share keys."""
    h, q, k = ra.axes("h q k")
    Q, K, W = ra.Tensor("Q"), ra.Tensor("K"), ra.Tensor("W")
    score = ra.sum(Q[h, q, V] * K[floor(h / group), k, V], V)
    score = ra.where(k <= q, score, -oo) if causal else score
    return ra.fuse(ra.sum(ra.softmax(score, k) * W[floor(h / group), k, E], k), axes="h q e")


@pytest.mark.parametrize(("group", "causal"), [(1, False), (2, True)])
def test_attention_of_few_components_is_of_pairs(group: int, causal: bool) -> None:
    """In float32; in 16 bits its products are matrices', padded."""
    rng, form = np.random.default_rng(0), attention(group, causal=causal)
    shapes = {"Q": (4, 140, 3), "K": (4 // group, 90, 3), "W": (4 // group, 90, 3)}
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    sizes = {"h": 4, "q": 140, "k": 90, "v": 3, "e": 3}
    wide = form.lower("H200", sizes, dict.fromkeys("QKW", "float32"), shapes=shapes)
    assert numbers_of(wide.plan).is_serial
    found = interpret(
        wide.program, {one.key: tensors[one.key] for one in wide.program.parameters if one.role == "input"}
    )
    np.testing.assert_allclose(found["out"], form.reference(**tensors, sizes=sizes), rtol=3e-5, atol=3e-5)
    assert numbers_of(form.lower("H200", sizes, dict.fromkeys("QKW", "float16"), shapes=shapes).plan).tensor_cores


def test_a_batch_is_no_vector() -> None:
    """A short axis that is not the last of its tensors stays on the grid."""
    form = ra.fuse(ra.sum(B * exp(-abs(ra.tensor("a[b,i]") - ra.tensor("c[b,j]"))), j), axes="b i")
    lowered = form.lower("H200", {"b": 2, "i": 500, "j": 500}, dict.fromkeys("acz", "float32"))
    assert len(lowered.stages.loop.outputs) == 1


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["forces", "nearest", "kernel regression", "variance of distances", "of batches"])
def test_the_c_target_runs_rows_on_lanes(name: str) -> None:
    form = FORMS[name]
    tensors = {key: torch.from_numpy(array) for key, array in drawn(form, 45, 101, 0).items()}
    made = results(form, form(**tensors, backend="tilelang", plan=schedule(form, 16, 32, 2)))
    for key, exact in results(form, form.reference(**tensors)).items():
        np.testing.assert_allclose(made[key], exact, rtol=2e-5, atol=2e-5)


def test_threads_keep_rows_and_share_a_tile() -> None:
    """A row's inputs and sums lie in registers; one element of a tile in shared memory is read by all threads."""
    n = 20000
    source = str(FORMS["forces"].source("H200", **known(FORMS["forces"], n, n)))
    assert "Loop(j, 256, stages=2) Lanes(i, 128)" in source
    assert 'x_tile = fragment((512,), "float32")' in source
    assert 'y_tile = shared((768,), "float32")' in source
    loop = source[source.index("T.unroll") : source.index("sum_0_parts[z")]
    assert "reduce" not in loop
    assert loop.count("difference = ") == 1


@pytest.mark.parametrize(("length", "has_rest"), [(16384, False), (16383, True)])
def test_sums_are_rescaled_once_for_several_elements(length: int, has_rest: bool) -> None:
    """The maximum of eight elements comes first; those beyond the last eight are taken one at a time.

    The state's own sum is rescaled once more, at the end of a run.
    """
    source = str(FORMS["log density"].source("H200", **known(FORMS["log density"], 4096, length)))
    stream = source[source.index("T.Pipelined") : source.index("# merge the parts")]
    eight, *rest = stream.split("in T.unroll(T.max(")
    at_end = 0 if has_rest else 1
    assert [part.count("power_of_two(") for part in eight.split("unroll_factor=8")] == [0, 1, 1 + at_end]
    assert [part.count("power_of_two(") for part in rest] == [2 + 1] * has_rest


@pytest.mark.parametrize(("rows", "length"), [(20000, 20000), (1000, 1000), (130, 100_000), (100_000, 40)])
def test_rules_keep_every_multiprocessor_busy(rows: int, length: int) -> None:
    plan = numbers_of(FORMS["potential"].lower("H200", **known(FORMS["potential"], rows, length)).plan)
    blocks = -(-rows // plan.block_row) * plan.segments
    assert plan.is_serial
    assert blocks >= 132 or plan.block_row == plan.threads


@pytest.mark.parametrize(
    ("expr", "rows"),
    [
        (ra.sum(w / DISTANCE, j), 100),  # fewer rows than a block has threads
        (ra.sum(P * exp(-SQUARE), j), 5000),  # a tensor of both axes
        (ra.softmax(-SQUARE, j), 5000),  # an output of both axes
        (SLOPE, 5000),  # a slope that an element alone does not find
    ],
)
def test_other_terms_keep_their_schedules(expr: Expr, rows: int) -> None:
    form = ra.fuse(expr, axes="i j" if j in expr.free_symbols else "i")
    sizes = {"i": rows, "j": 4000}
    dtypes = dict.fromkeys(form.cascade.inputs(), "float32")
    shapes = {"x": (rows, 3), "y": (4000, 3)}
    assert not numbers_of(form.lower("H200", sizes, dtypes, shapes=shapes).plan).is_serial


def test_every_schedule_that_is_listed_builds() -> None:
    form = FORMS["nearest"]
    listed = [candidate.plan for candidate in form.plans(**known(form, 5000, 5000), device="H200")][:12]
    kernels = [plan for plan in listed if isinstance(plan, Schedule)]
    assert kernels
    assert all(numbers_of(plan).is_serial for plan in kernels)


def test_a_schedule_is_kept_in_files() -> None:
    plan = FORMS["potential"].lower("H200", **known(FORMS["potential"], 20000, 20000)).plan
    assert read_line(write_line(plan), plan.binding, plan.device) == plan


@pytest.mark.parametrize(
    ("expr", "why"),
    [
        (ra.sum((P - ra.sum(P * R, j) / ra.sum(R * R, j) * R) ** 2, j), "a pivot that an element does not find"),
        (ra.topk(SQUARE, j, M)[0], "ranks the elements"),
    ],
)
def test_what_no_thread_takes_alone_is_refused(expr: Expr, why: str) -> None:
    form = ra.fuse(expr, axes="i m" if M in expr.free_symbols else "i")
    sizes = {axis.name: axis.size or 64 for axis in form.cascade.axes()} | (
        {"d": 3} if D in form.cascade.axes() else {}
    )
    shapes = {name: (64, 3) for name in ("x", "y") if name in form.cascade.inputs()}
    grid = [Grid(axis.name, 64 if axis == i else 1) for axis in form.form.outputs[0].axes if axis != M]
    with pytest.raises(ra.PlanError, match=why):
        form.lower("H200", sizes, dict.fromkeys(form.cascade.inputs(), "float32"), shapes=shapes,
                   plan=Schedule(*grid, Loop("j", 32), Lanes("i", 32)))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forces", "gaussian sum", "nearest", "variance of distances"])
def test_nvcc_compiles_rows_on_lanes(name: str) -> None:
    form, n = FORMS[name], 20000
    plan = schedule(form, 512, 256, 16, threads=128)
    for resources in compile_only(form.lower("sm_90a", **known(form, n, n), plan=plan).source):
        assert resources.spill_bytes == 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("rows", "length"), [(5000, 3000), (300, 20_001)])
def test_a_gpu_runs_rows_on_lanes(name: str, rows: int, length: int) -> None:
    form = FORMS[name]
    tensors = {key: torch.from_numpy(array).cuda() for key, array in drawn(form, rows, length, 0).items()}
    found = form(**tensors)
    exact = results(form, form.reference(**{key: value.cpu() for key, value in tensors.items()}))
    for key, value in results(form, found).items():
        size = float(np.max(np.abs(exact[key][np.isfinite(exact[key])]), initial=0))
        np.testing.assert_allclose(value, exact[key], rtol=2e-5, atol=2e-5 * size)
