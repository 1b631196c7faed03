"""Kernels that finish states: the outputs that the operations of a library make of the same slots."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import redalg as ra
from redalg.errors import PlanError
from redalg.incremental.passes import Passes
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.bind.inputs import array_dtype
from redalg.runtime.call import finish_kernels
from redalg.runtime.call.finish_kernels import finish_form
from redalg.runtime.call.sizes import lower
from redalg.runtime.compile.compile import compile_only
from redalg.runtime.lowered import Lowered
from redalg.runtime.lowering import lower_passes
from tests.cases.corpus import Pattern
from tests.cases.literature import PATTERNS
from tests.runtime.test_leaf_kernels import FORMS as SLOTS_ALONE
from tests.runtime.test_state_bytes import is_close

b, n, q, k, d, e = ra.axes("b n q k d e")
x = ra.tensor("x[b,n]")
Q, K, V = ra.tensors("Q[b,q,d] K[b,k,d] V[b,k,e]")
power = ra.scalars("power", positive=True)
FORMS = {
    **SLOTS_ALONE,
    "softmax": ra.fuse(ra.softmax(x, n), axes="b n"),
    "layer norm": ra.fuse(ra.layer_norm(x, n), axes="b n"),
    "tensors beside": ra.fuse(ra.mean(x, n) * ra.tensor("gain[b]") + ra.tensor("shift[e]"), axes="b e"),
    "a number": ra.fuse(ra.var(ra.tensor("z[n]"), n)),
    "scalars": ra.fuse(power * ra.logsumexp(x / power, n), axes="b"),
    "truths": ra.fuse(ra.any(x > 0, n), axes="b"),
    "several": ra.fuse({"m": (ra.mean(x, n), "b"), "p": (ra.softmax(x, n), "b n"), "at": (ra.argmax(x, n), "b")}),
    "masked by row": ra.fuse(ra.where(b < 1, ra.mean(x, n), 0), axes="b"),
}  # fmt: skip
SIZES = {"b": 2, "n": 300, "q": 16, "k": 100, "d": 32, "e": 32}
SCALARS = {"power": 1.5}
REASONS = (
    "is reduced when a state is finished",
    "the total of a reduced axis",
    "under two indices",
    "places along axis",
)
"""Why no kernel finishes some states."""
CORPUS = [one for one in PATTERNS if one.verdict == "Exact"]


def numbers(name: str) -> dict[str, Any]:
    """The tensors and scalars of a form."""
    generator = np.random.default_rng(0)
    shapes = {one.name: [SIZES[str(axis)] for axis in one.indices] for one in FORMS[name].cascade.elements()}
    data: dict[str, Any] = {key: generator.normal(1, 1, shape).astype(np.float32) for key, shape in shapes.items()}
    return data | {one.name: SCALARS[str(one.name)] for one in FORMS[name].cascade.scalars()}


def beside(fused: ra.Fused, tensors: dict[str, Any]) -> dict[str, Any]:
    """The tensors that stand in the outputs themselves."""
    names = {one.name for one in finish_form(fused.form, "float32", "float32", "nan").form.cascade.elements()}
    return {key: one for key, one in tensors.items() if key in names}


def outputs_of(found: Any) -> tuple[Any, ...]:
    """The outputs of a finish, one or several."""
    return tuple(found) if isinstance(found, tuple) else (found,)


def lowered_finish(fused: ra.Fused, state: ra.State, given: dict[str, Any], target: str, empty: str) -> Lowered:
    """The kernel that finishes a state."""
    finishing = finish_form(fused.form, "float32", state.result, empty)
    cascade = finishing.form.cascade
    arrays = inputs_of(fused, state, given, empty)
    sizes = {str(axis): size for one in cascade.elements() for axis, size in zip(one.indices, arrays[one.name].shape,
             strict=True)}  # fmt: skip
    sizes = {str(axis.name): sizes.get(str(axis), axis.size or 1) for axis in cascade.axes()}
    dtypes = {key: array_dtype(arrays[key]) for key in cascade.inputs()}
    return lower_passes(Passes((finishing.form,)), target, sizes, dtypes, each=lower)[-1]


def inputs_of(fused: ra.Fused, state: ra.State, given: dict[str, Any], empty: str) -> dict[str, Any]:
    """The inputs of the kernel that finishes a state."""
    finishing = finish_form(fused.form, "float32", state.result, empty)
    slots = {name: state.slots[slot] for name, slot in finishing.slots.items()}
    return {**given, **state.scalars, **slots}


@pytest.mark.parametrize("target", ["c", "sm_90a"])
@pytest.mark.parametrize("name", FORMS)
def test_kernels_finish_every_kind_of_state(name: str, target: str) -> None:
    fused, tensors = FORMS[name], numbers(name)
    state = fused.leaf(tensors)
    given = beside(fused, tensors)
    program = lowered_finish(fused, state, given, target, "nan").program
    read = {one.key for one in program.parameters if one.role in ("input", "scalar")}
    arrays = {key: one for key, one in inputs_of(fused, state, given, "nan").items() if key in read}
    found = interpret(program, {key: one if np.ndim(one) else np.reshape(one, (1,)) if hasattr(one, "dtype") else one
                                for key, one in arrays.items()})  # fmt: skip
    for output, wanted in zip(fused.form.outputs, outputs_of(fused.finish(state, given)), strict=True):
        assert is_close(found[output.name].reshape(np.shape(wanted)), wanted)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(
    "name", ["variance", "layer norm", "tensors beside", "a number", "scalars", "truths", "several"]
)
def test_compiled_kernels_on_the_cpu(name: str, library: str) -> None:
    fused, tensors = FORMS[name], numbers(name)
    if library == "torch":
        tensors = {key: torch.from_numpy(one) if isinstance(one, np.ndarray) else one for key, one in tensors.items()}
    state, given = fused.leaf(tensors), beside(fused, tensors)
    pairs = [outputs_of(fused.finish(state, given, backend=backend)) for backend in ("tilelang", "library")]
    for found, wanted in zip(*pairs, strict=True):
        assert (type(found), found.shape, found.dtype) == (type(np.asarray(wanted) if library == "numpy" else wanted),
                                                           wanted.shape, wanted.dtype)  # fmt: skip
        assert is_close(np.asarray(found), np.asarray(wanted))


@pytest.mark.sweep(6)
@pytest.mark.parametrize("pattern", CORPUS, ids=lambda one: one.name)
def test_patterns_are_finished_by_a_kernel_or_it_says_why_not(pattern: Pattern) -> None:
    fused = pattern.fuse()
    names = {one.name for one in fused.cascade.elements()}
    tensors = {key: one for key, one in pattern.tensors("float64").items() if key in names}
    try:
        state = fused.leaf({**tensors, **pattern.scalars})
        read = {key: tensors[key] for key in beside(fused, tensors)}
        wanted = fused.finish(state, read, backend="library")
    except (ra.InputError, PlanError):  # of several passes, of totals; producers in the outputs
        return
    try:
        found = fused.finish(state, read, backend="tilelang")
    except ra.BackendError as error:
        if any(reason in str(error) for reason in REASONS):
            return
        raise
    for one, other in zip(outputs_of(found), outputs_of(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["logsumexp", "layer norm", "several"])
def test_outputs_have_the_dtype_of_a_call(name: str, dtype: str) -> None:
    tensors = {key: torch.from_numpy(one).to(getattr(torch, dtype)) for key, one in numbers(name).items()}
    state = FORMS[name].leaf(tensors)
    pairs = [outputs_of(FORMS[name].finish(state, beside(FORMS[name], tensors), backend=backend))
             for backend in ("tilelang", "library")]  # fmt: skip
    for found, wanted in zip(*pairs, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("empty", ["nan", "zero"])
@pytest.mark.parametrize("name", ["variance", "softmax", "attention", "logsumexp"])
def test_nothing_is_finished_as_the_library_does(name: str, empty: str) -> None:
    fused, tensors = FORMS[name], {key: torch.from_numpy(one) for key, one in numbers(name).items()}
    free = {str(axis) for slot in fused.form.slots for axis in slot.axes}
    nothing = fused.empty_state({axis: SIZES[axis] for axis in free | ({"d"} if name == "attention" else set())})
    found, wanted = (fused.finish(nothing, beside(fused, tensors), empty, backend=backend)
                     for backend in ("tilelang", "library"))  # fmt: skip
    torch.testing.assert_close(found, wanted, equal_nan=True)


def test_infinite_sums_and_nan_are_finished_as_the_library_does() -> None:
    data = torch.tensor([[1.0, float("inf")], [float("nan"), 2], [-float("inf"), -float("inf")], [1e30, -1e30]])
    for name in ("variance", "logsumexp", "argmax", "softmax"):
        state = FORMS[name].leaf({"x": data})
        given = {"x": data} if name == "softmax" else {}
        found, wanted = (FORMS[name].finish(state, given, backend=backend) for backend in ("tilelang", "library"))
        assert (torch.isfinite(found) == torch.isfinite(wanted)).all()
        assert torch.allclose(found[torch.isfinite(found)], wanted[torch.isfinite(wanted)])


def test_pieces_of_outputs_are_made_one_after_another() -> None:
    data = torch.randn(3, 100)
    fused = FORMS["softmax"]
    state = fused.leaf({"x": data})
    parts = [
        fused.finish(state, {"x": data[:, i : i + 25]}, start={n: i}, backend="tilelang") for i in range(0, 100, 25)
    ]
    torch.testing.assert_close(torch.cat(parts, 1), data.softmax(1))


def refuse_to_read(*_: Any) -> None:
    """Stand where the tensors of a finish are read, for those of a kind that was read before."""
    raise AssertionError("the tensors are read again")


def test_states_and_tensors_of_a_kind_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fused, data = FORMS["tensors beside"], numbers("tensors beside")
    state, given = fused.leaf(data), {key: data[key] for key in ("gain", "shift")}
    fused.finish(state, given, backend="tilelang")
    monkeypatch.setattr(finish_kernels, "read_request", refuse_to_read)
    other = fused.leaf({**data, "x": data["x"] + 1})
    found = fused.finish(other, {**given, "gain": 2 * given["gain"]}, backend="tilelang")
    scaled = (data["x"] + 1).mean(1, keepdims=True) * 2 * data["gain"][:, None]
    np.testing.assert_allclose(found, scaled + data["shift"], rtol=1e-5)
    for different in ({}, {**given, "gain": given["gain"][:1]}, {**given, "gain": given["gain"].astype(np.int64)}):
        with pytest.raises(AssertionError, match="read again"):
            fused.finish(other, different, backend="tilelang")
    with pytest.raises(AssertionError, match="read again"):
        fused.finish(other, given, "zero", backend="tilelang")


def test_values_are_checked_every_time() -> None:
    fused, data = FORMS["scalars"], numbers("scalars")
    state = fused.leaf(data)
    fused.finish(state, backend="tilelang")
    with pytest.raises(ra.InputError, match="scalar `power` is 2"):
        fused.finish(state, {"power": 2.0}, backend="tilelang")
    nothing = fused.empty_state({"b": 2}, library="numpy")
    with pytest.raises(ra.InputError, match="which an empty state has not"):
        fused.finish(nothing, backend="tilelang")
    softmax = FORMS["softmax"]
    rows = softmax.leaf({"x": data["x"]})
    softmax.finish(rows, {"x": data["x"]}, backend="tilelang")
    with pytest.raises(ra.InputError, match="reach beyond place"):
        softmax.finish(rows, {"x": data["x"]}, start={n: 2**62}, backend="tilelang")


@pytest.mark.parametrize("name", ["c_0", "sum_0_acc"])
def test_a_slot_named_as_a_tensor_is_told_from_it(name: str) -> None:
    fused = ra.fuse(ra.var(ra.tensor("z[n]"), n) * ra.tensor(f"{name}[b]"), axes="b")
    assert name in {slot.name for slot in fused.form.slots}
    data = {"z": np.arange(4.0), name: np.array([2.0, 3.0])}
    found = fused.finish(fused.leaf(data), {name: data[name]}, backend="tilelang")
    np.testing.assert_allclose(found, 1.25 * data[name])


def in_two_places() -> Any:
    """Outputs of a later piece, whose places stand in a mask."""
    fused = ra.fuse(ra.where(n < 3, x - ra.max(x, n), 0), axes="b n")
    data = {"x": np.ones((2, 4), np.float32)}
    return fused.finish(fused.leaf(data), data, start={n: 4}, backend="tilelang")


def of_products() -> Any:
    """Outputs that sum products of tensors themselves."""
    fused = ra.fuse(ra.softmax(ra.sum(Q * K, d), k), axes="b q k")
    data = {"Q": np.ones((1, 2, 4), np.float32), "K": np.ones((1, 3, 4), np.float32)}
    return fused.finish(fused.leaf(data), data, backend="tilelang")


def with_condition() -> Any:
    """Outputs beside their condition numbers."""
    state = FORMS["variance"].leaf(numbers("variance"))
    return FORMS["variance"].finish(state, condition=True, backend="tilelang")


def without_rows() -> Any:
    """Outputs that have no elements."""
    state = FORMS["variance"].leaf({"x": np.ones((0, 4), np.float32)})
    return FORMS["variance"].finish(state, backend="tilelang")


@pytest.mark.parametrize(("make", "message"), [
    (in_two_places, "the places along axis n matter, and kernels count from 0"),
    (of_products, "is reduced when a state is finished"),
    (with_condition, "condition numbers are asked for"),
    (without_rows, "the outputs have no elements"),
])  # fmt: skip
def test_what_no_kernel_finishes_is_refused_where_one_is_asked_for(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ra.BackendError, match=message):
        make()


@pytest.mark.sweep(1)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", ["variance", "attention", "softmax", "several", "top 3", "tensors beside"])
def test_nvcc_compiles(name: str) -> None:
    fused, tensors = FORMS[name], numbers(name)
    lowered = lowered_finish(fused, fused.leaf(tensors), beside(fused, tensors), "sm_90a", "nan")
    assert all(one.spill_bytes == 0 for one in compile_only(lowered.source))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", FORMS)
def test_finishes_on_a_gpu(name: str, dtype: str) -> None:
    tensors = {key: torch.from_numpy(one).to("cuda", getattr(torch, dtype)) if isinstance(one, np.ndarray) else one
               for key, one in numbers(name).items()}  # fmt: skip
    state, given = FORMS[name].leaf(tensors), beside(FORMS[name], tensors)
    pairs = [outputs_of(FORMS[name].finish(state, given, backend=backend)) for backend in ("tilelang", "library")]
    for found, wanted in zip(*pairs, strict=True):
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found.float(), wanted.float(), rtol=1e-2 if dtype != "float32" else 1e-4, atol=1e-2)


@pytest.mark.gpu
def test_leaf_merge_and_finish_are_captured_in_a_graph() -> None:
    fused, data = FORMS["variance"], torch.randn(64, 4096, device="cuda")

    def whole() -> Any:
        halves = [fused.leaf({"x": part.contiguous()}) for part in data.chunk(2, 1)]
        return fused.finish(fused.merge(*halves))

    whole()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = whole()
    data.copy_(torch.randn(64, 4096, device="cuda") + 3)
    graph.replay()
    torch.testing.assert_close(found, data.var(1, correction=0), rtol=1e-4, atol=1e-5)


def test_a_state_of_no_common_buffer_is_finished_too() -> None:
    state = FORMS["variance"].leaf({"x": torch.randn(2, 9)})
    apart = replace(state, slots={key: one.clone() for key, one in state.slots.items()})
    torch.testing.assert_close(FORMS["variance"].finish(apart, backend="tilelang"), FORMS["variance"].finish(state))
