"""Kernels of states by group, on the CPU: the states that the tensors' library makes, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sympy import Abs, exp, log

import redalg as ra
from redalg.incremental.combine.programs import group_program, programs, starts_at_centres
from redalg.incremental.combine.sweeps import sweeps_of
from redalg.runtime.call import group_kernels
from redalg.runtime.call.group_kernels import sources_of_sweeps
from tests.cases.refusals import Case, each

b, n, e = ra.axes("b n e")
x, y, X, V, t = ra.tensors("x[n] y[n] X[b,n] V[n,e] t[b]")
positive = ra.where(y > 0, y, 0)
FUNCTIONS: dict[str, tuple[Any, int]] = {  # name -> (expression, number of sweeps)
    "variance": (ra.var(x, n), 2),
    "correlation": (ra.covariance(x, y, n) / (ra.std(x, n) * ra.std(y, n)), 3),
    "weighted mean": (ra.sum(ra.softmax(y, n) * x, n), 2),
    "weighted variance": (ra.sum(ra.softmax(y, n) * (x - ra.sum(ra.softmax(y, n) * x, n)) ** 2, n), 4),
    "extrema and truth": (ra.max(x, n) - ra.min(y, n) + ra.any(y > 1, n), 1),
    "masks": (ra.mean(ra.where(ra.logical_and(n < 700, x > 9), y, 0), n), 1),
    "logarithms": (ra.mean(log(x), n) - ra.sum(Abs(y) * exp(-(y**2)), n), 2),
    "products with logarithms of 0": (ra.sum(y * log(ra.where(y > 0, Abs(y), 1)) + positive * log(positive), n), 1),
    "pooled": (ra.sum(ra.softmax(y, n) * V, n), 2),
    "variance of rows": (ra.var(X, n), 2),
    "rows beside their numbers": (ra.mean(ra.where(t < X, (X - t) ** 2, y), n) * t, 1),
    "rows beside a column": (ra.covariance(X, y, n) / ra.std(y, n) + ra.max(X, n) - ra.logsumexp(x, n), 2),
}
FUSED = {name: ra.fuse(expr) for name, (expr, _) in FUNCTIONS.items()}


def data(dtype: str = "float64", length: int = 2000) -> tuple[dict[str, np.ndarray], np.ndarray]:
    generator = np.random.default_rng(0)
    tensors = {"x": generator.normal(size=length) + 10, "y": generator.normal(size=length),
               "X": generator.normal(size=(3, length)) + 7, "t": np.array([6.0, 7, 8]),
               "V": generator.normal(size=(length, 5))}  # fmt: skip
    return {name: one.astype(dtype) for name, one in tensors.items()}, generator.integers(0, 9, length) * 2


def read(name: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {key: tensors[key] for key in FUSED[name].cascade.inputs()}


def of_rows(arrays: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {key: one[:, rows] if key == "X" else one if key == "t" else one[rows] for key, one in arrays.items()}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_make_what_the_library_makes(name: str) -> None:
    fused, (tensors, keys) = FUSED[name], data()
    arrays = read(name, tensors)
    state = fused.leaf(arrays, by=keys, groups=20, backend="tilelang")
    again = fused.leaf(arrays, by=keys, groups=20, backend="library")
    assert (state.layout, state.places, state.sizes) == (again.layout, again.places, again.sizes)
    for slot, array in again.slots.items():
        assert state.slots[slot].dtype == array.dtype
    tail = {key: arrays[key] for key in "t" if key in arrays}
    np.testing.assert_allclose(fused.finish(state, tail), fused.finish(again, tail), rtol=1e-11)
    if name != "masks":  # whose places count from 0
        halves = [
            fused.leaf(of_rows(arrays, rows), {n: rows.start}, by=keys[rows], groups=20, backend=backend)
            for rows, backend in ((slice(0, 900), "tilelang"), (slice(900, 2000), "library"))
        ]  # fmt: skip
        np.testing.assert_allclose(fused.finish(fused.merge(*halves), tail), fused.finish(again, tail), rtol=1e-10)


@pytest.mark.parametrize("name", ["variance", "weighted mean"])
def test_kernels_take_tensors_of_float32(name: str) -> None:
    fused, (tensors, keys) = FUSED[name], data("float32")
    arrays = {key: torch.from_numpy(one).repeat_interleave(2)[::2] for key, one in read(name, tensors).items()}
    by = torch.from_numpy(keys).int()
    found = fused(**arrays, by=by, groups=20, backend="tilelang")
    assert (found.dtype, type(found)) == (torch.float32, torch.Tensor)
    want = FUSED[name].reference(**{key: one[by == 4] for key, one in arrays.items()})
    np.testing.assert_allclose(found[4], want, rtol=1e-6)
    assert found[1].isnan()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_threads_take_parts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    fused, (tensors, keys) = FUSED[name], data()
    arrays = read(name, tensors)
    tail = {key: arrays[key] for key in "t" if key in arrays}
    want = fused.finish(fused.leaf(arrays, by=keys, groups=20, backend="tilelang"), tail)
    monkeypatch.setattr(group_kernels, "ELEMENTS_OF_A_PART", 300)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert group_kernels.number_of_parts(fused.form, 2000) == (1 if name == "masks" else 3)
    found = fused.finish(fused.leaf(arrays, by=keys, groups=20, backend="tilelang"), tail)
    np.testing.assert_allclose(found, want, rtol=1e-11)


HARD: dict[str, Callable[[np.ndarray], Any]] = {
    "a NaN": lambda a: np.put(a, 5, np.nan),
    "an infinity": lambda a: np.put(a, 5, np.inf),
    "minus infinity": lambda a: np.put(a, [5, 6, 7], -np.inf),
    "far": lambda a: np.add(a, 1e8, out=a),
    "zeros": lambda a: a.fill(0),
    "all masked": lambda a: a.fill(-np.inf),
}


@pytest.mark.parametrize("name", ["variance", "correlation", "weighted mean", "extrema and truth", "pooled"])
@pytest.mark.parametrize("hard", HARD)
def test_hard_data(hard: str, name: str) -> None:
    fused, (tensors, keys) = FUSED[name], data()
    arrays = read(name, tensors)
    for one in arrays.values():
        HARD[hard](one)
    found, want = (fused.finish(fused.leaf(arrays, by=keys, groups=20, backend=one)) for one in ("tilelang", "library"))
    np.testing.assert_allclose(found, want, rtol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sweeps_are_few(name: str) -> None:
    form = FUSED[name].form
    sweeps = sweeps_of(programs(form).of(group_program), n)
    assert sweeps is not None
    assert len(sweeps[0]) == FUNCTIONS[name][1]
    assert starts_at_centres(form) == (name != "weighted variance")


def test_the_text_of_a_sweep() -> None:
    *_, (first, last) = sources_of_sweeps(FUSED["variance"].form, {"x": "float32"})
    assert "group_found[group_keys[j], 0] = group_found[group_keys[j], 0] + 1.0" in first.text
    assert 'difference = T.cast(x[j], "float64") - group_known[group_keys[j], 0]' in last.text


DATA, KEYS = data(length=8)


def leave(reason: str) -> str:
    advice = 'Leave backend="tilelang" out: the tensors\' library makes them.'
    return f"leaf: no kernel makes these states by group: {reason}. {advice}"


def leaf(expr: Any, tensors: dict[str, Any], **how: Any) -> Any:
    keys = KEYS[: tensors[max(tensors)].shape[-1]]
    return ra.fuse(expr).leaf(tensors, by=keys, groups=20, backend="tilelang", **how)


REFUSED: dict[str, Case] = {
    "rows": Case(
        lambda: leaf(ra.sum(X * V, n), {"X": DATA["X"], "V": DATA["V"]}), ra.BackendError,
        leave("a tensor has other axes or indices than n and one more"),
    ),
    "a scalar": Case(
        lambda: leaf(ra.sum(exp(x * ra.scalars("a")), n), {"x": DATA["x"], "a": 1.0}), ra.BackendError,
        leave("the expression holds run-time scalars, or sums within its terms"),
    ),
    "integers": Case(
        lambda: leaf(ra.sum(ra.where(ra.ne(y, 0), x, 0), n), {"x": DATA["x"], "y": DATA["y"] > 0}), ra.BackendError,
        leave("a tensor is not of float64 or float32"),
    ),
    "an index": Case(
        lambda: leaf(ra.argmax(x, n), {"x": DATA["x"]}), ra.BackendError,
        leave("a slot has several components (an index, an order, a product)"),
    ),
    "places": Case(
        lambda: leaf(ra.sum(ra.where(n < 3, x, 0), n), {"x": DATA["x"]}, start={n: 8}), ra.BackendError,
        leave("the places along axis n matter, and kernels count from 0"),
    ),
    "nothing": Case(
        lambda: leaf(ra.sum(x, n), {"x": DATA["x"][:0]}), ra.BackendError,
        leave("a kernel takes from 1 to 2147483647 elements, and one row at least"),
    ),
}  # fmt: skip


@each(REFUSED)
def test_messages(case: Case) -> None:
    case.check()
