"""Epilogues over another axis, outputs that repeat along an axis, and outputs that are alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from sympy import exp
from torch.func import jvp, vjp

import redalg as ra
from redalg.definition import evaluate_definition

b, i, k, d, e, n, q = ra.axes("b i k d e n q")
X, P, Y, V, G = ra.tensors("X[i,d] P[i,d] Y[k,d] V[k,e] G[i,e]")
x, w, h, L, D = ra.tensors("x[b,n] w[b,k] h[e] L[i] D[i]")
SIZES = {"b": 5, "i": 6, "k": 7, "d": 4, "e": 50, "n": 9, "q": 3}

Arrays = Mapping[str, np.ndarray]


def lse(scores: np.ndarray) -> np.ndarray:
    largest = scores.max(-1, keepdims=True)
    return (largest + np.log(np.exp(scores - largest).sum(-1, keepdims=True)))[..., 0]


def softmax(scores: np.ndarray) -> np.ndarray:
    return np.exp(scores - lse(scores)[..., None])


CASES: dict[str, tuple[Any, str | None, Callable[[Arrays], Any]]] = {
    "a score beside a logsumexp": (
        ra.logsumexp(ra.sum(X * Y, d), k) - ra.sum(X * P, d), "i",
        lambda a: lse(a["X"] @ a["Y"].T) - (a["X"] * a["P"]).sum(1),
    ),
    "a sum over another axis": (
        ra.logsumexp(x, n) - ra.sum(w, k), "b", lambda a: lse(a["x"]) - a["w"].sum(1),
    ),
    "sums over two axes": (
        ra.sum(x, n) * ra.sum(V, k), "b e", lambda a: np.outer(a["x"].sum(1), a["V"].sum(0)),
    ),
    "two products, pointwise": (
        exp(ra.sum(X * Y, d) - L) * (ra.sum(G * V, e) - D), "i k",
        lambda a: np.exp(a["X"] @ a["Y"].T - a["L"][:, None]) * (a["G"] @ a["V"].T - a["D"][:, None]),
    ),
    "a row for many columns": (
        ra.sum(x, n) * h, "b e", lambda a: np.outer(a["x"].sum(1), a["h"]),
    ),
    "repeated along the reduced axis": (
        ra.sum(x, n), "b n", lambda a: np.repeat(a["x"].sum(1)[:, None], 9, 1),
    ),
    "repeated along another axis": (
        ra.sum(x, n), "q b", lambda a: np.repeat(a["x"].sum(1)[None], 3, 0),
    ),
    "a row that is written, repeated": (
        ra.softmax(x, n), "b q n", lambda a: np.repeat(softmax(a["x"])[:, None], 3, 1),
    ),
    "elements, repeated": (2 * h, "e q", lambda a: np.repeat(2 * a["h"][:, None], 3, 1)),
    "the same output twice": (
        {"one": (ra.sum(x, n), "b"), "two": (ra.sum(x, n), "b")}, None, lambda a: [a["x"].sum(1)] * 2,
    ),
    "the same row twice, transposed": (
        {"one": (ra.softmax(x, n), "b n"), "two": (ra.softmax(x, n), "n b")}, None,
        lambda a: [softmax(a["x"]), softmax(a["x"]).T],
    ),
}  # fmt: skip


def arrays_of(form: ra.Fused) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {one.name: [SIZES[str(axis)] for axis in one.indices] for one in form.cascade.elements()}
    return {name: rng.normal(size=shape) for name, shape in sorted(shapes.items())}


def sizes_of(form: ra.Fused) -> dict[str, int]:
    return {axis.name: SIZES[axis.name] for axis in form.cascade.axes()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", ["tilelang", "torch", "numpy"])
def test_every_backend(name: str, backend: str) -> None:
    expr, axes, value = CASES[name]
    form = ra.fuse(expr, axes=axes)
    arrays = arrays_of(form)
    wanted = value(arrays)
    for made in (form(**arrays, backend=backend, sizes=sizes_of(form)), form.reference(**arrays, sizes=sizes_of(form))):
        for found, one in zip((made,) if form.single else made, (wanted,) if form.single else wanted, strict=True):
            np.testing.assert_allclose(found, one, rtol=1e-11, atol=1e-12)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", [name for name, (_, axes, _) in CASES.items() if axes is not None])
def test_gradients_and_tangents(name: str) -> None:
    """Beside functorch's, of the definition as it is written."""
    expr, axes, _ = CASES[name]
    form = ra.fuse(expr, axes=axes)
    tensors = {name: torch.from_numpy(one) for name, one in arrays_of(form).items()}
    sizes, names = sizes_of(form), list(tensors)
    written = {"out": (form.written[0][1], form.cascade.outputs[0].axes)}

    def call(*given: torch.Tensor) -> Any:
        return form(**dict(zip(names, given, strict=True)), sizes=sizes)

    def defined(*given: torch.Tensor) -> Any:
        return evaluate_definition(written, dict(zip(names, given, strict=True)), {}, sizes)["out"]

    generator = torch.Generator().manual_seed(0)
    given = tuple(tensors.values())
    directions = tuple(torch.randn(one.shape, generator=generator, dtype=one.dtype) for one in given)
    wanted: Any = jvp(defined, given, directions)
    torch.testing.assert_close(jvp(call, given, directions), wanted, rtol=1e-10, atol=1e-10)
    out = wanted[0]
    cotangent = torch.randn(out.shape, generator=generator, dtype=out.dtype)
    found, gradients = (vjp(function, *given)[1](cotangent) for function in (call, defined))
    torch.testing.assert_close(found, gradients, rtol=1e-10, atol=1e-10)


def test_rows_are_reduced_once_for_many_columns() -> None:
    form = ra.fuse(ra.sum(x, n) * ra.sum(V, k), axes="b e")
    lowered = form.lower("sm_90a", {"b": 64, "e": 512, "n": 512, "k": 40}, {"x": "float32", "V": "float32"})
    *_, last = lowered.stages.forms
    assert last.is_elementwise
    assert len(lowered.stages.forms) == 3
