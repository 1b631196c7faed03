"""States by group: each equals the user's formula on the rows of its group, whatever the keys, the pieces, the merges.

The reference is a Python loop over the groups: formulas of NumPy in float64 on the rows of a group, and of random
cascades the oracle, which shares no code with the engine.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg.incremental.grouped import grouped_form
from redalg.runtime.bind import groups as by_groups
from tests.cases import random_cascades
from tests.data.chunkings import cuts
from tests.oracle import Oracle
from tests.surface.test_random_cascades import assert_defined
from tests.sweeps import draws

b, n, e = ra.axes("b n e")
j = ra.axis("j", size=3)
x, y, X, V = ra.tensors("x[n] y[n] X[b,n] V[n,e]")
Rows = Mapping[str, np.ndarray]

# name -> (expression, its axes, formula of a group's rows and their places): rows have n last, but V[n, e]
FUNCTIONS: dict[str, tuple[Any, str | None, Callable[[Rows, np.ndarray], Any]]] = {
    "variance": (ra.var(x, n), None, lambda r, p: np.var(r["x"])),
    "variance of rows": (ra.var(X, n), None, lambda r, p: np.var(r["X"], -1)),
    "correlation": (
        ra.covariance(x, y, n) / (ra.std(x, n) * ra.std(y, n)), None,
        lambda r, p: np.mean((r["x"] - r["x"].mean()) * (r["y"] - r["y"].mean())) / (r["x"].std() * r["y"].std()),
    ),
    "third moment": (ra.mean((x - ra.mean(x, n)) ** 3, n), None, lambda r, p: np.mean((r["x"] - r["x"].mean()) ** 3)),
    "logsumexp": (ra.logsumexp(y, n), None, lambda r, p: np.log(np.sum(np.exp(r["y"] - r["y"].max()))) + r["y"].max()),
    "pooled": (
        ra.sum(ra.softmax(y, n) * V, n), None,
        lambda r, p: (np.exp(r["y"] - r["y"].max()) / np.exp(r["y"] - r["y"].max()).sum()) @ r["V"],
    ),
    "products": (ra.sum(X * V, n), "b e", lambda r, p: r["X"] @ r["V"]),
    "extrema": (ra.max(x, n) - ra.min(y, n), None, lambda r, p: r["x"].max() - r["y"].min()),
    "product": (ra.prod(1 + y / 8, n), None, lambda r, p: np.prod(1 + r["y"] / 8)),
    "truth": (ra.any(y > 1, n), None, lambda r, p: np.any(r["y"] > 1)),
    "argmax": (ra.argmax(X, n), None, lambda r, p: p[r["X"].argmax(-1)]),
    "topk": (ra.topk(y, n, j)[0], None, lambda r, p: padded(np.sort(r["y"])[::-1][:3], -np.inf)),
    "topk places": (
        ra.topk(y, n, j)[1], None, lambda r, p: padded(p[np.argsort(-r["y"], kind="stable")[:3]], -1),
    ),
    "first and last": (ra.first(x, n) - 2 * ra.last(y, n), None, lambda r, p: r["x"][0] - 2 * r["y"][-1]),
    "recurrence": (ra.affine(y / 4, x, n)[1], None, lambda r, p: affine(r["y"] / 4, r["x"])),
    "mask by place": (ra.sum(ra.where(n < 7, x, 0), n), None, lambda r, p: r["x"][p < 7].sum()),
    "mask by data": (
        ra.mean(ra.where(y > 0, x, 0), n), None, lambda r, p: np.where(r["y"] > 0, r["x"], 0).mean(),
    ),
}  # fmt: skip
KEPT: dict[str, tuple[Any, str, Callable[[Rows, np.ndarray], Any]]] = {
    "softmax": (
        ra.softmax(X, n), "b n",
        lambda r, p: np.exp(r["X"] - r["X"].max(-1, keepdims=True))
        / np.exp(r["X"] - r["X"].max(-1, keepdims=True)).sum(-1, keepdims=True),
    ),
    "centred": (x - ra.mean(x, n), "n", lambda r, p: r["x"] - r["x"].mean()),
    "share of a mask by place": (
        ra.where(n < 5, x, 0) / ra.sum(1 + y**2, n), "n",
        lambda r, p: np.where(p < 5, r["x"], 0) / (1 + r["y"] ** 2).sum(),
    ),
}  # fmt: skip
FUSED = {name: ra.fuse(expr, axes=axes) for name, (expr, axes, _) in {**FUNCTIONS, **KEPT}.items()}
TOLERANCE = {"float64": 1e-10, "float32": 2e-4, "bfloat16": 3e-2}
NO_ELEMENTS = {"variance": np.nan, "logsumexp": -np.inf, "argmax": -1, "product": 1, "truth": False, "topk places": -1}


def padded(array: np.ndarray, value: float) -> np.ndarray:
    return np.concatenate([array, np.full(3 - len(array), value)])


def affine(decay: np.ndarray, push: np.ndarray) -> float:
    state = 0.0
    for a, c in zip(decay, push, strict=True):
        state = a * state + c
    return state


def free_sizes(name: str) -> dict[str, int]:
    return {one: size for one, size in {"b": 2, "e": 3}.items() if one in map(str, FUSED[name].cascade.axes())}


def draw_keys(data: st.DataObject, length: int) -> tuple[np.ndarray, int]:
    """Keys of a length, and the number of groups: sorted or not, of few groups or many, some without an element."""
    groups = data.draw(st.sampled_from((1, 2, 5, 40)))
    used = data.draw(st.lists(st.integers(0, groups - 1), min_size=1, max_size=6))
    keys = np.array(data.draw(st.lists(st.sampled_from(used), min_size=length, max_size=length)), np.int64)
    return np.sort(keys) if data.draw(st.booleans()) else keys, groups


def numbers(name: str, length: int, seed: int, far: float = 3.0) -> dict[str, np.ndarray]:
    """Float64 data of a function, that bfloat16 holds."""
    generator, sizes = np.random.default_rng(seed), {"n": length, "b": 2, "e": 3}
    shapes = {one.name: [sizes[str(axis)] for axis in one.indices] for one in FUSED[name].cascade.elements()}
    return {key: np.round(generator.normal(size=shape) * 8) / 8 + far * (key in "xX") for key, shape in shapes.items()}


def of_rows(tensors: Rows, rows: Any) -> dict[str, np.ndarray]:
    """The elements along n that are chosen: the only dimension of x and y, the first of V, the last of the others."""
    return {name: one[rows] if name == "V" else one[..., rows] for name, one in tensors.items()}


def in_library(tensors: Rows, library: str, dtype: str) -> dict[str, Any]:
    if library == "numpy":
        return {name: one.astype(dtype) for name, one in tensors.items()}
    return {name: torch.from_numpy(one.copy()).to(getattr(torch, dtype)) for name, one in tensors.items()}


def keys_in(library: str, keys: np.ndarray) -> Any:
    return keys if library == "numpy" else torch.from_numpy(keys)


def as_numpy(array: Any) -> np.ndarray:
    return np.asarray(array.double() if hasattr(array, "double") and array.is_floating_point() else array)


def check_groups(found: Any, name: str, tensors: Rows, keys: np.ndarray, dtype: str) -> None:
    """Compare every group that has elements with the formula on its rows."""
    _, _, formula = FUNCTIONS[name]
    for group in np.unique(keys):
        places = np.flatnonzero(keys == group)
        with np.errstate(all="ignore"):
            want = formula(of_rows(tensors, places), places)
        np.testing.assert_allclose(as_numpy(found)[group], want, TOLERANCE[dtype], TOLERANCE[dtype], err_msg=name)


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=draws(40))
@given(st.data())
def test_every_group_is_its_formula(name: str, data: st.DataObject) -> None:
    fused, length = FUSED[name], data.draw(st.integers(1, 40))
    keys, groups = draw_keys(data, length)
    tensors = numbers(name, length, data.draw(st.integers(0, 99)))
    library = data.draw(st.sampled_from(("numpy", "torch")))
    dtype = data.draw(st.sampled_from(("float64", "float32", *(("bfloat16",) if library == "torch" else ()))))
    if name == "correlation":
        dtype = "float64"  # groups of two or three rows are ill-conditioned
        spread = (np.ptp(of_rows(tensors, keys == one)[key]) for one in np.unique(keys) for key in "xy")
        assume(all(spread))
    arrays, by = in_library(tensors, library, dtype), keys_in(library, keys)
    called = fused(**arrays, by=by, groups=groups)
    assert next(iter(called.shape)) == groups
    check_groups(called, name, tensors, keys, dtype)
    lengths = data.draw(cuts(length))
    ends = np.cumsum(lengths)
    pieces = [(stop - size, stop) for size, stop in zip(lengths, ends, strict=True)]
    states = [
        fused.leaf(of_any_rows(arrays, slice(start, stop)), {n: start}, by=by[start:stop], groups=groups)
        for start, stop in pieces
    ]
    if not fused.form.is_ordered:
        Random(length).shuffle(states)
    nothing = fused.empty_state(free_sizes(name), dict.fromkeys(arrays, dtype), library=library, groups=groups)
    state = fused.merge(nothing, *states)
    check_groups(fused.finish(ra.State.from_bytes(state.to_bytes())), name, tensors, keys, dtype)


def of_any_rows(arrays: Mapping[str, Any], rows: slice) -> dict[str, Any]:
    return {name: one[rows] if name == "V" else one[..., rows] for name, one in arrays.items()}


@pytest.mark.parametrize("name", KEPT)
@settings(max_examples=draws(30))
@given(st.data())
def test_outputs_of_elements_read_their_group(name: str, data: st.DataObject) -> None:
    fused, length = FUSED[name], data.draw(st.integers(1, 30))
    keys, groups = draw_keys(data, length)
    tensors = numbers(name, length, data.draw(st.integers(0, 99)))
    library, dtype = data.draw(st.sampled_from(("numpy", "torch"))), data.draw(st.sampled_from(("float64", "float32")))
    arrays, by = in_library(tensors, library, dtype), keys_in(library, keys)
    found = as_numpy(fused(**arrays, by=by, groups=groups))
    cut = data.draw(st.integers(0, length))
    pieces = [(0, cut), (cut, length)]
    state = fused.merge(*(
        fused.leaf(of_any_rows(arrays, slice(*piece)), {n: piece[0]}, by=by[slice(*piece)], groups=groups)
        for piece in pieces
    ))  # fmt: skip
    parts = [
        as_numpy(fused.finish(state, of_any_rows(arrays, slice(*piece)), start={n: piece[0]}, by=by[slice(*piece)]))
        for piece in pieces
    ]
    for group in np.unique(keys):
        places = np.flatnonzero(keys == group)
        want = KEPT[name][2](of_rows(tensors, places), places)
        for outputs in (found, np.concatenate(parts, -1)):
            np.testing.assert_allclose(outputs[..., places], want, TOLERANCE[dtype], TOLERANCE[dtype])


PLACES = {n >= b: ra.tensor("place[n]") >= b, n <= b: ra.tensor("place[n]") <= b, n < 11: ra.tensor("place[n]") < 11}


@settings(max_examples=draws(150))
@given(st.integers(0, 1999), st.data())
def test_random_cascades(seed: int, data: st.DataObject) -> None:
    outputs = {name: (expr.xreplace(PLACES), axes) for name, (expr, axes) in random_cascades.case(seed).outputs.items()}
    verdict: Any = ra.analyze(outputs)
    assume(hasattr(verdict, "fused") and "argmax" not in str(outputs))
    tensors = random_cascades.tensors(seed)
    length = tensors["x"].shape[1]
    tensors["place"] = np.arange(length)
    keys, groups = draw_keys(data, length)
    for group in np.unique(keys):  # a group with nothing in it is a 0/0: `test_preservation` has those
        first = int(np.argmax(keys == group))
        tensors["M"][:, first], tensors["s"][:, first] = True, 1.0
    fused = verdict.fused
    inputs = {name: tensors[name] for name in fused.cascade.inputs()}
    scalars = {one.name: random_cascades.SCALARS[one.name] for one in fused.cascade.scalars()}
    cut = data.draw(st.integers(0, length))
    states = [
        fused.leaf({**elements_of(inputs, np.arange(*piece)), **scalars}, {n: piece[0]}, by=keys[slice(*piece)],
                   groups=groups)
        for piece in ((cut, length), (0, cut))
    ]  # fmt: skip
    merged = fused.finish(fused.merge(*states), {**inputs, **scalars})
    for found in (fused(**inputs, **scalars, by=keys, groups=groups), merged):
        for group in np.unique(keys):
            rows = np.flatnonzero(keys == group)
            own, sizes = elements_of(tensors, rows), {**random_cascades.sizes(seed), "n": len(rows)}
            oracle = Oracle(own, random_cascades.SCALARS, sizes)
            for name, (expr, axes) in outputs.items():
                got = found[list(outputs).index(name)] if isinstance(found, tuple) else found
                assert_defined(got[group], *oracle.output(expr, axes))


def elements_of(tensors: Rows, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The elements of the tensors of random cascades that are chosen along n."""
    along = {"v": 0, "place": 0}
    return {name: one if name == "t" else one.take(rows, along.get(name, 1)) for name, one in tensors.items()}


# ---- blocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("block", [16, 128])  # fewer and more elements than groups
@pytest.mark.parametrize("name", ["correlation", "pooled", "argmax", "recurrence", "third moment", "mask by data"])
def test_blocks_are_merged_into_their_groups(
    monkeypatch: pytest.MonkeyPatch, name: str, block: int, ascending: bool, library: str
) -> None:
    monkeypatch.setattr(by_groups, "BLOCK_ELEMENTS", {"cpu": block})
    tensors, keys = numbers(name, 900, 5), np.random.default_rng(1).integers(0, 20, 900) * 2 + 1
    keys = np.sort(keys) if ascending else keys
    arrays, by = in_library(tensors, library, "float64"), keys_in(library, keys)
    check_groups(FUSED[name](**arrays, by=by, groups=43), name, tensors, keys, "float64")
    halves = [(0, 100), (100, 900)]
    states = [FUSED[name].leaf(of_any_rows(arrays, slice(*half)), {n: half[0]}, by=by[slice(*half)], groups=43)
              for half in halves]  # fmt: skip
    check_groups(FUSED[name].finish(FUSED[name].merge(*states)), name, tensors, keys, "float64")


def test_lines_are_found_within_runs() -> None:
    """Residuals about a line keep their digits in a group far longer than a run, among others."""
    line = ra.fuse(ra.covariance(x, y, n) / ra.var(x, n))
    slope = next((fused for fused in (line, regression()) if any(one.slopes for one in fused.form.pivots)), None)
    assert slope is not None
    generator = np.random.default_rng(0)
    keys = np.where(generator.uniform(size=3000) < 0.7, 1, generator.integers(0, 5, 3000))
    data = {"x": generator.normal(size=3000), "y": generator.normal(size=3000)}
    data["y"] = 3 * data["x"] + 1e-3 * data["y"] + 1e4
    found = slope(**data, by=keys, groups=6)
    for group in range(5):
        rows = keys == group
        np.testing.assert_allclose(found[group], slope.reference(**{k: v[rows] for k, v in data.items()}), rtol=1e-7)


def regression() -> ra.Fused:
    """The mean squared residual of a regression."""
    slope = ra.covariance(x, y, n) / ra.var(x, n)
    return ra.fuse(ra.mean((y - ra.mean(y, n) - slope * (x - ra.mean(x, n))) ** 2, n))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_correlations_far_from_zero(dtype: str) -> None:
    generator = np.random.default_rng(0)
    keys, scale = generator.integers(0, 7, 4000), 1.0 if dtype == "float64" else 2.0**10
    first = generator.normal(size=4000)
    pair = np.stack([first, first + generator.normal(size=4000)]) * scale + 1e8
    data = dict(zip("xy", pair.astype(dtype), strict=True))
    found = FUSED["correlation"](**data, by=keys, groups=7)
    for group in range(7):
        want = np.corrcoef(
            data["x"][keys == group].astype("float64") - 1e8, data["y"][keys == group].astype("float64") - 1e8
        )
        np.testing.assert_allclose(found[group], want[0, 1], rtol=1e-7 if dtype == "float64" else 1e-5)


# ---- empty groups, and states as states ------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", NO_ELEMENTS)
def test_groups_without_elements(name: str, library: str) -> None:
    tensors, keys = numbers(name, 6, 0), np.array([2, 2, 0, 2, 0, 2])
    found = FUSED[name](**in_library(tensors, library, "float64"), by=keys_in(library, keys), groups=4)
    for group in (1, 3):
        np.testing.assert_array_equal(as_numpy(found)[group], np.full_like(as_numpy(found)[group], NO_ELEMENTS[name]))
    if name == "variance":
        zero = FUSED[name](x=tensors["x"], by=keys, groups=4, empty="zero")
        np.testing.assert_array_equal(zero[[1, 3]], 0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_elements_at_all(name: str) -> None:
    tensors = {key: one.astype("float32") for key, one in numbers(name, 0, 0).items()}
    fused = FUSED[name]
    state = fused.leaf(tensors, by=np.zeros(0, np.int32), groups=3)
    nothing = fused.empty_state(free_sizes(name), library="numpy", groups=3)
    for one in (state, fused.merge(state, nothing)):
        np.testing.assert_array_equal(fused.finish(one), fused.finish(nothing))


def test_a_state_by_group_is_a_state() -> None:
    fused, tensors = FUSED["variance of rows"], numbers("variance of rows", 12, 3)
    keys = np.arange(12) % 3
    state = fused.leaf(tensors, by=keys, groups=3)
    again = pickle.loads(pickle.dumps(state))
    assert (state.covers, state.sizes["groups"], state.slots["count"].shape) == ((0, 12), 3, (3,))
    assert str(state) == str(again)
    running = fused.empty_state({"b": 2}, "float64", library="numpy", groups=3)
    buffer = running.buffer
    for start in (0, 5):
        part = {"X": tensors["X"][:, start : 5 if start == 0 else 12]}
        running = fused.update(running, part, by=keys[start : 5 if start == 0 else 12])
    assert running.buffer is buffer
    np.testing.assert_allclose(fused.finish(running), fused.finish(state), rtol=1e-12)
    value, kappa = fused.finish(state, condition=True)
    np.testing.assert_array_equal(value, fused.finish(state))
    assert kappa.shape == (3, 2)
    assert (kappa >= 1).all()


def test_a_kernel_merges_states_by_group() -> None:
    fused, tensors = FUSED["variance of rows"], numbers("variance of rows", 12, 3)
    arrays, keys = in_library(tensors, "torch", "float32"), torch.arange(12) % 5
    halves = [fused.leaf({"X": arrays["X"][:, rows]}, by=keys[rows], groups=6) for rows in (slice(0, 7), slice(7, 12))]
    found, want = (fused.finish(fused.merge(*halves, backend=backend)) for backend in ("tilelang", "library"))
    np.testing.assert_allclose(found, want, rtol=1e-5)


def test_every_form_by_group_is_a_form() -> None:
    for fused in FUSED.values():
        grouped = grouped_form(fused.form)
        grouped.verify()
        assert [slot.axes[0].name for slot in grouped.slots] == ["groups"] * len(fused.form.slots)
        assert [slot.axes[1:] for slot in grouped.slots] == [slot.axes for slot in fused.form.slots]


def test_an_axis_of_that_name() -> None:
    groups = ra.axes("groups")
    fused = ra.fuse(ra.sum(ra.tensor("z[groups,n]"), n))
    z = np.arange(6.0).reshape(2, 3)
    state = fused.leaf({"z": z}, by=np.array([1, 0, 1]), groups=2)
    assert state.sizes == {"groups": 2, "groups_0": 2}
    np.testing.assert_array_equal(fused.finish(state), [[1, 4], [2, 8]])
    assert groups in fused.cascade.axes()


# ---- elsewhere -------------------------------------------------------------------------------------------------------


def test_a_compiled_caller_runs_it_apart() -> None:
    @torch.compile(backend="eager")
    def double(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        return 2 * FUSED["variance"](x=x, by=by, groups=3)

    data, keys = torch.arange(6.0), torch.tensor([0, 0, 1, 2, 2, 2])
    np.testing.assert_allclose(double(data, keys), 2 * FUSED["variance"](x=data, by=keys, groups=3), rtol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", [None, "tilelang"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_groups_on_a_gpu(name: str, dtype: str, backend: str | None) -> None:
    if backend is not None and FUSED[name].form.structures:
        pytest.skip("a slot has several components, of which no kernel makes states by group")
    keys = np.random.default_rng(2).integers(0, 30, 5000) * 3
    tensors = numbers(name, 5000, 7)
    if name in ("product", "recurrence"):
        tensors["y"] = tensors["y"] / 64
    arrays = {key: one.cuda() for key, one in in_library(tensors, "torch", dtype).items()}
    by = torch.from_numpy(keys).cuda()
    halves = [slice(0, 1234), slice(1234, 5000)]
    states = [FUSED[name].leaf(of_any_rows(arrays, rows), {n: rows.start}, backend=backend, by=by[rows], groups=100)
              for rows in halves]  # fmt: skip
    called = FUSED[name](**arrays, by=by, groups=100, backend=backend)
    for found in (called, FUSED[name].finish(FUSED[name].merge(*states))):
        rounded = {key: as_numpy(one.cpu()) for key, one in arrays.items()}
        check_groups(found.cpu(), name, rounded, keys, dtype)
