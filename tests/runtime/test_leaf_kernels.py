"""States that kernels make: those that the operations of a library make, in one buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Eq, oo

import redalg as ra
from redalg.incremental.passes import Passes
from redalg.incremental.state_outputs import with_state_for_outputs
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.call import states
from redalg.runtime.call.dispatch import call
from redalg.runtime.call.sizes import lower
from redalg.runtime.lowering import lower_passes
from tests.runtime.test_state_bytes import FUNCTIONS, is_close, tensors_of
from tests.sweeps import draws

b, n, m, q, k, d, e = ra.axes("b n m q k d e")
Q, K, V = ra.tensors("Q[b,q,d] K[b,k,d] V[b,k,e]")
ATTENTION = ra.fuse(ra.sum(ra.softmax(ra.sum(Q * K, d) / 8, k) * V, k), axes="b q e")
FORMS = {**FUNCTIONS, "attention": ATTENTION}
SIZES = {"b": 2, "n": 300, "q": 16, "k": 100, "d": 32, "e": 32}


Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Starts = Mapping[str, int]


def numbers(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a form."""
    generator = np.random.default_rng(0)
    shapes = {one.name: [SIZES[str(axis)] for axis in one.indices] for one in FORMS[name].cascade.elements()}
    return {key: generator.normal(1, 1, shape).astype(np.float32) for key, shape in sorted(shapes.items())}


def is_same_state(name: str, found: ra.State, wanted: ra.State) -> bool:
    """Tell if two states have the same slots, places and outputs."""
    kinds = [{key: (tuple(one.shape), str(one.dtype)) for key, one in state.slots.items()} for state in (found, wanted)]
    alike = kinds[0] == kinds[1] and found.places == wanted.places and found.layout == wanted.layout
    outputs = [np.asarray(torch.as_tensor(FORMS[name].finish(state)).cpu()) for state in (found, wanted)]
    return alike and is_close(*outputs)


@pytest.mark.parametrize("target", ["c", "sm_90a"])
@pytest.mark.parametrize("name", FORMS)
def test_kernels_make_every_kind_of_state(name: str, target: str) -> None:
    fused, tensors = FORMS[name], numbers(name)
    form = with_state_for_outputs(fused.form, "float32")
    sizes = {one: size for one, size in SIZES.items() if one in {str(axis) for axis in form.cascade.axes()}}
    dtypes = dict.fromkeys(tensors, "float32")
    program = lower_passes(Passes((form,)), target, sizes, dtypes, each=lower)[-1].program
    found, wanted = interpret(program, tensors), fused.leaf(tensors)
    slots = {key: found[key].reshape(one.shape).astype(one.dtype) for key, one in wanted.slots.items()}
    assert is_same_state(name, replace(wanted, slots=slots), wanted)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", ["variance", "argmax", "recurrence"])
def test_compiled_kernels_on_the_cpu(name: str, library: str) -> None:
    data = tensors_of(name, library, 40, 2)
    first, second = ({key: one[:, part] for key, one in data.items()} for part in (slice(25), slice(25, 40)))
    state = FUNCTIONS[name].leaf(first, backend="tilelang")
    assert is_same_state(name, state, FUNCTIONS[name].leaf(first, backend="library"))
    whole = FUNCTIONS[name].merge(state, FUNCTIONS[name].leaf(second, start={n: 25}))
    assert is_close(FUNCTIONS[name].finish(whole), FUNCTIONS[name].reference(**data))


def test_a_nan_stays_in_the_sums_of_a_state() -> None:
    """No kernel counts NaN beside a maximum that scales a sum."""
    fused = FUNCTIONS["logsumexp"]
    data = tensors_of("logsumexp", "torch", 40, 0)
    data["x"][1, 7] = float("nan")
    state = fused.leaf(data, backend="tilelang")
    assert torch.isnan(fused.finish(state)).tolist() == [False, True]
    merged = fused.merge(state, fused.leaf(tensors_of("logsumexp", "torch", 9, 1)))
    assert torch.isnan(fused.finish(merged)).tolist() == [False, True]
    form, sizes = with_state_for_outputs(fused.form, "float32"), {"b": 2, "n": 300}
    program = lower_passes(Passes((form,)), "sm_90a", sizes, {"x": "float32"}, each=lower)[-1].program
    assert not any("nan" in one.name for kernel in program.kernels for one in kernel.buffers)


def test_a_kernel_writes_into_the_buffer_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[dict[str, torch.Tensor]]()

    def call_and_keep(*given: Any) -> dict[str, torch.Tensor]:
        made.append(call(*given))
        return made[-1]

    monkeypatch.setattr(states, "call", call_and_keep)
    state = FUNCTIONS["variance"].leaf(tensors_of("variance", "torch", 40, 0), backend="tilelang")
    assert {one.data_ptr() for one in made[0].values()} == {one.data_ptr() for one in state.slots.values()}
    assert state.buffer.untyped_storage().nbytes() == state.buffer.numel()


def test_counts_beyond_float32_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "MOST_COUNTED", 30)
    state = FUNCTIONS["variance"].leaf(tensors_of("variance", "torch", 40, 0), backend="tilelang")
    assert int(state.slots["count"]) == 40


def gathered() -> ra.Fused:
    """A function that reads a tensor at a place computed of the axis that it reduces."""
    return ra.fuse(ra.sum(ra.tensor("x[n]") * ra.tensor("y[m]").subs(m, n % 3), n))


def causal(tensors: Arrays, start: Starts) -> Array:
    """The masked attention of a piece of the queries and keys."""
    scores = np.einsum("bqd,bkd->bqk", tensors["Q"], tensors["K"]) / 8
    seen = numbers_along(start, "k", 40)[None] <= numbers_along(start, "q", 16)[:, None]
    weights = np.where(seen, np.exp(scores), 0)
    return np.einsum("bqk,bke->bqe", weights, tensors["V"]) / weights.sum(2)[..., None]


def numbers_along(start: Starts, axis: str, length: int) -> Array:
    """The places along an axis, in the whole."""
    return start.get(axis, 0) + np.arange(length)


x, y, lengths = ra.tensor("x[b,n]"), ra.tensor("y[b,n]"), ra.tensor("lengths[b]")
SCORES = ra.where(k <= q, ra.sum(Q * K, d) / 8, -oo)
PIECES: dict[str, tuple[Any, Callable[[Arrays, Starts], Array]]] = {
    "causal": (ra.sum(ra.softmax(SCORES, k) * V, k), causal),
    "first places": (ra.sum(ra.where(n < 60, x, 0), n),
                     lambda t, s: (t["x"] * (numbers_along(s, "n", 40) < 60)).sum(1)),
    "every third": (ra.sum(ra.where(Eq(n % 3, 1), x, 0), n),
                    lambda t, s: (t["x"] * (numbers_along(s, "n", 40) % 3 == 1)).sum(1)),
    "a length": (ra.sum(ra.where(n < lengths, x, 0), n) ** 2,
                 lambda t, s: (t["x"] * (numbers_along(s, "n", 40) < t["lengths"][:, None])).sum(1) ** 2),
    "a number compared": (ra.sum(ra.where(n < 50 * x, 1, 0) * y, n),
                          lambda t, s: (t["y"] * (numbers_along(s, "n", 40) < 50 * t["x"])).sum(1)),
    "weights": (ra.sum(n * x, n) / ra.sum(x, n),
                lambda t, s: (t["x"] * numbers_along(s, "n", 40)).sum(1) / t["x"].sum(1)),
    "the total": (ra.sum(ra.where(2 * n < n.extent, x, 0), n),
                  lambda t, s: (t["x"] * (2 * numbers_along(s, "n", 40) < 100)).sum(1)),
    "a place": (ra.argmax(x, n), lambda t, s: t["x"].argmax(1) + s.get("n", 0)),
    "places": (ra.topk(x, n, ra.axis("j", size=3))[1],
               lambda t, s: (-t["x"]).argsort(1, kind="stable")[:, :3] + s.get("n", 0)),
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", PIECES)
def test_pieces_number_elements_from_where_they_start(name: str, device: str) -> None:
    expr, reference = PIECES[name]
    axes = {"causal": "b q e", "places": "b j"}.get(name, "b")
    fused, generator = ra.fuse(expr, axes=axes), np.random.default_rng(0)
    sizes = SIZES | {"n": 40, "k": 40}
    shapes = {one.name: [sizes[str(axis)] for axis in one.indices] for one in fused.cascade.elements()}
    tensors: Arrays = {key: generator.normal(1, 1, shape).astype(np.float32) for key, shape in sorted(shapes.items())}
    if "lengths" in tensors:
        tensors["lengths"] = np.array([50, 1000])
    extents = {n: 100} if fused.cascade.extents() else None
    for first in (0, 1, 30, 59, 900):
        start = {"k": first, "q": first + 7} if "Q" in tensors else {"n": first}
        given = {key: torch.from_numpy(one).to(device) for key, one in tensors.items()}
        state = fused.leaf(tensors if device == "cpu" else given, start, extents, backend="tilelang")
        exact = {key: one.astype(np.float64) for key, one in tensors.items()}
        found = torch.as_tensor(fused.finish(state)).cpu()
        np.testing.assert_allclose(found, reference(exact, start), rtol=2e-5, atol=1e-6)
        assert state.covers == (first, first + 40)


def refuse_to_read(*_: Any) -> None:
    """Stand where a piece is read, for leaves that should not read it again."""
    raise AssertionError("the piece is read again")


def test_leaves_of_tensors_alike_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = ra.scalars("scale", positive=True)
    fused = ra.fuse(ra.sum(scale * ra.tensor("x[n]"), n))
    data = torch.arange(12, dtype=torch.float32)
    fused.leaf({"x": data, "scale": 2.0}, backend="tilelang")
    monkeypatch.setattr(states, "read_piece", refuse_to_read)
    state = fused.leaf({"x": data + 1, "scale": 3.0}, start={n: 12}, backend="tilelang")
    assert state.covers == (12, 24)
    assert state.scalars == {"scale": 3.0}
    assert float(fused.finish(state)) == 3 * 78
    assert state.buffer.data_ptr() == state.slots[fused.form.slots[0].name].data_ptr()
    with pytest.raises(ra.InputError, match="was declared positive, and is -1"):
        fused.leaf({"x": data, "scale": -1.0}, backend="tilelang")
    with pytest.raises(ra.InputError, match="reach beyond place"):
        fused.leaf({"x": data, "scale": 1.0}, start={n: 2**62}, backend="tilelang")
    with pytest.raises(ra.InputError, match="The axes are n"):
        fused.leaf({"x": data, "scale": 1.0}, start={"m": 1}, backend="tilelang")
    for other in (data[:5], data.double(), data.requires_grad_()):
        with pytest.raises(AssertionError, match="read again"):
            fused.leaf({"x": other, "scale": 1.0}, backend="tilelang")


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_a_tangent_is_refused_of_tensors_that_had_none() -> None:
    fused = ra.fuse(ra.sum(ra.tensor("x[n]"), n))
    data = torch.ones(4)
    fused.leaf({"x": data}, backend="tilelang")
    with torch.autograd.forward_ad.dual_level(), pytest.raises(ra.InputError, match="has a tangent"):
        fused.leaf({"x": torch.autograd.forward_ad.make_dual(data, data)}, backend="tilelang")


X = np.ones(8, np.float32)
REFUSED = {
    "a computed place": (lambda: gathered().leaf({"x": X, "y": X}, {n: 3}, backend="tilelang"),
                         "a tensor is read at a place computed of axis n"),
    "far places": (lambda: ra.fuse(ra.sum(ra.where(n < m, ra.tensor("x[n]"), 0), n), axes="m").leaf(
                       {"x": X}, {n: 2**30}, {m: 2}, backend="tilelang"), "places beyond 1073741824 matter"),
    "far numbers": (lambda: ra.fuse(ra.sum(n * ra.tensor("x[n]"), n)).leaf({"x": X}, {n: 2**24}, backend="tilelang"),
                    "places beyond 16777216 matter"),
    "no elements": (lambda: ra.fuse(ra.sum(ra.tensor("x[n]"), n)).leaf({"x": X[:0]}, backend="tilelang"),
                    "the piece has no elements"),
    "another backend": (lambda: ra.fuse(ra.sum(ra.tensor("x[n]"), n)).leaf({"x": X}, backend="cuda"),
                        "backend='cuda' is not known. Use 'tilelang' or 'library'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_kernel_makes_is_refused_where_one_is_asked_for(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ra.BackendError, match=message):
        make()


def masked_attention(mask: Any) -> ra.Fused:
    """Attention of keys that a mask leaves."""
    scores = ra.where(mask, ra.sum(Q * K, d), -oo)
    return ra.fuse(ra.sum(ra.softmax(scores, k) * V, k), axes="b q e")


COMPARED = {
    "causal": masked_attention(k <= q),
    "a window": masked_attention((k <= q) & (k > q - 5)),
    "lengths": masked_attention(k < ra.tensor("length[b]")),
    "lines": masked_attention(k // 3 <= q // 3),
    "backwards": masked_attention(3 * k + 2 >= 40 - q),
    "variance before a place": ra.fuse(ra.var(ra.where(n < 30, ra.tensor("x[b,n]"), 0), n), axes="b"),
}
"""Functions of places."""


def pieces_of(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a piece."""
    generator = np.random.default_rng(0)
    sizes = {"b": 2, "q": 16, "k": 24, "d": 8, "e": 8, "n": 20}
    shapes = {one.name: [sizes[str(axis)] for axis in one.indices] for one in COMPARED[name].cascade.elements()}
    arrays = {key: generator.normal(0, 1, shape).astype(np.float32) for key, shape in sorted(shapes.items())}
    return {**arrays, "length": np.array([20, 43])} if "length" in arrays else arrays


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", COMPARED)
@settings(max_examples=draws(60))
@given(starts=st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_kernels_make_the_states_of_pieces_at_any_place(name: str, starts: tuple[int, int]) -> None:
    fused, tensors = COMPARED[name], pieces_of(name)
    start = {n: starts[0]} if "x" in tensors else {q: starts[0], k: starts[1]}
    found, wanted = (fused.leaf(tensors, start, backend=backend) for backend in ("tilelang", "library"))
    assert (found.places, found.starts) == (wanted.places, wanted.starts)
    for slot in wanted.slots if name != "variance before a place" else ():
        np.testing.assert_allclose(found.slots[slot], wanted.slots[slot], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fused.finish(found), fused.finish(wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", FORMS)
def test_leaves_on_a_gpu(name: str, dtype: str) -> None:
    tensors = {key: torch.from_numpy(one).to("cuda", getattr(torch, dtype)) for key, one in numbers(name).items()}
    found, wanted = (FORMS[name].leaf(tensors, backend=backend) for backend in (None, "library"))
    outputs = [FORMS[name].finish(state).float() for state in (found, wanted)]
    torch.testing.assert_close(*outputs, rtol=2e-2 if dtype != "float32" else 1e-4, atol=2e-2)
    assert found.places == wanted.places
    arrived = ra.State.from_bytes(found.to_bytes(), device="cuda")
    torch.testing.assert_close(FORMS[name].finish(arrived).float(), outputs[0], rtol=0, atol=0)


@pytest.mark.gpu
def test_a_leaf_is_captured_in_a_graph() -> None:
    x = torch.randn(64, 4096, device="cuda")
    FUNCTIONS["variance"].leaf({"x": x})
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        state = FUNCTIONS["variance"].leaf({"x": x})
    x.copy_(torch.randn(64, 4096, device="cuda") + 3)
    graph.replay()
    torch.testing.assert_close(FUNCTIONS["variance"].finish(state), x.var(1, correction=0), rtol=1e-4, atol=1e-5)
