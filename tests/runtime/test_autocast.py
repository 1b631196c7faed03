"""Calls under autocast: operands of products of matrices are cast as PyTorch casts them, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from sympy import Abs, exp

import redalg as ra
from redalg.expression.products import multiplied_tensors

b, q, k, d, e, n, m, g = ra.axes("b q k d e n m g")
Q, K, V, B, x, w, P, y = ra.tensors("Q[b,q,d] K[b,k,d] V[b,k,e] bias[q,k] x[b,n] w[n] P[n,m] y[b,m]")
SCORES = ra.sum(Q * K, d) / 2
PLAIN = ra.fuse(ra.sum(ra.softmax(SCORES, k) * V, k), axes="b q e")
BIASED = ra.fuse(ra.sum(ra.softmax(SCORES + B, k) * V, k), axes="b q e")
NORM = ra.fuse(ra.layer_norm(x, n) * w, axes="b n")
SHAPES = {"Q": (2, 5, 4), "K": (2, 6, 4), "V": (2, 6, 3), "bias": (5, 6), "x": (2, 7), "w": (7,)}


def drawn(*names: str, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    made = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    return {name: made[name].to(dtype).requires_grad_() for name in names}


def cast(tensors: Mapping[str, torch.Tensor], names: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: one.to(dtype) if name in names else one for name, one in tensors.items()}


@pytest.mark.parametrize(("expr", "names"), [
    (ra.sum(ra.softmax(SCORES, k) * V, k), "K Q V"),
    (ra.sum(ra.softmax(ra.where(k <= q, SCORES + B, 0), k) * V, k), "K Q V"),
    (ra.sum(ra.where(k <= q, ra.let("s", Q * K * 3), 0), d), "K Q"),
    (ra.sum(Q * K + exp(Q) * ra.tensor("R[q,k,d]"), d), "K R"),
    (ra.sum(ra.layer_norm(x, n) * w * P, n), "P"),
    (ra.sum(x * w, n), ""),
    (ra.sum(x * x, n) + ra.var(x, n), ""),
    (ra.sum((Q - K) ** 2, d), ""),
    (ra.max(Q * K, d), ""),
    (ra.sum(Q * K, d) / ra.norm(Q, d), "K"),
    (ra.sum(exp(Q) * Abs(K), d), ""),
    (ra.sum(ra.sum(x * P, n) * ra.tensor("R[m,g]"), m), "P R x"),
    (ra.sum(ra.cast(x, "float16") * P, n), "P"),
    (ra.sum(ra.Tensor("K")[b, g // 2, d] * Q, d), "K Q"),
], ids=str)  # fmt: skip
def test_tensors_in_products_of_matrices(expr: Any, names: str) -> None:
    assert sorted(multiplied_tensors([expr])) == names.split()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_call_is_that_on_tensors_in_the_lower_dtype(dtype: torch.dtype) -> None:
    data = drawn("Q", "K", "V")
    wanted = PLAIN(**cast(data, "QKV", dtype))
    with torch.autocast("cpu", dtype):
        found = PLAIN(**data)
        beside = torch.softmax(data["Q"] @ data["K"].mT / 2, -1) @ data["V"]
        with torch.no_grad():
            assert torch.equal(PLAIN(**data), found)
    assert found.dtype == beside.dtype == dtype
    assert torch.equal(found, wanted)
    torch.testing.assert_close(found, beside, rtol=3e-2, atol=3e-2)


def test_what_meets_in_no_product_stays() -> None:
    data, row = drawn("Q", "K", "V", "bias"), drawn("x", "w")
    with torch.autocast("cpu", torch.bfloat16):
        found, norm = BIASED(**data), NORM(**row)
    assert torch.equal(found, BIASED(**cast(data, "QKV", torch.bfloat16)))
    assert found.dtype == norm.dtype == torch.float32
    assert torch.equal(norm, NORM(**row))


def test_states_are_those_of_their_tensors() -> None:
    """A slot is float32 at least, within autocast too."""
    data = {name: one.detach() for name, one in drawn("Q", "K", "V").items()}
    wanted = PLAIN.leaf(data)
    with torch.autocast("cpu", torch.bfloat16):
        state = PLAIN.leaf(data)
        assert torch.equal(PLAIN.finish(PLAIN.merge(state, state)), PLAIN.finish(PLAIN.merge(wanted, wanted)))
    for name, slot in wanted.slots.items():
        torch.testing.assert_close(state.slots[name], slot, rtol=0, atol=0)


def test_float64_and_integers_stay() -> None:
    data = drawn("Q", "K", "V", dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert PLAIN(**data).dtype == torch.float64
        assert (torch.zeros(2, 3, dtype=torch.float64) @ torch.zeros(3, 2, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("backward_inside", [False, True])
def test_gradients_are_those_of_the_lower_tensors(backward_inside: bool) -> None:
    data, again = drawn("Q", "K", "V", "bias"), drawn("Q", "K", "V", "bias")
    BIASED(**cast(again, "QKV", torch.bfloat16)).square().sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        loss = BIASED(**data).square().sum()
        if backward_inside:
            loss.backward()
    if not backward_inside:
        loss.backward()
    for name, tensor in data.items():
        assert tensor.grad is not None
        assert tensor.grad.dtype == torch.float32
        torch.testing.assert_close(tensor.grad, again[name].grad, rtol=0, atol=0)


def inside(**data: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return BIASED(**data)


def outside(**data: torch.Tensor) -> Any:
    return BIASED(**data)


@pytest.mark.sweep(1)
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", [inside, outside])
def test_graphs_cast_alike(function: Callable[..., Any], backend: str) -> None:
    data = drawn("Q", "K", "V", "bias")
    torch.compiler.reset()
    call = torch.compile(function, fullgraph=True, backend=backend)
    plain = call(**data)
    with torch.autocast("cpu", torch.bfloat16):
        found = call(**data)
    wanted = inside(**data)
    assert torch.equal(found, wanted)
    assert torch.equal(plain, wanted if function is inside else outside(**data))
    gradients = (torch.autograd.grad(one.square().sum(), list(data.values())) for one in (found, wanted))
    for mine, eager in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, eager, rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_kernels_take_the_lower_tensors(dtype: torch.dtype) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    data = {name: torch.randn(2, 200, 64, generator=generator, device="cuda").requires_grad_() for name in "QKV"}
    wanted = PLAIN(**cast(data, "QKV", dtype))
    with torch.autocast("cuda", dtype):
        found = PLAIN(**data)
        beside = torch.softmax(data["Q"] @ data["K"].mT / 2, -1) @ data["V"]
    assert found.dtype == beside.dtype == dtype
    assert torch.equal(found, wanted)
    torch.testing.assert_close(found, beside, rtol=3e-2, atol=3e-2)
    gradients = (torch.autograd.grad(one.square().sum(), list(data.values())) for one in (found, wanted))
    for mine, plain in zip(*gradients, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, plain)


def test_positional_tensors_and_options() -> None:
    form = ra.fuse(ra.sum(Q * K, d), axes="b q k", inputs=(Q, K))
    data = drawn("Q", "K")
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        found = form(data["Q"], K=data["K"], empty="zero")
    assert torch.equal(found, form(**cast(data, "QK", torch.bfloat16)).detach())


def test_an_exported_call_has_the_dtypes_that_it_says() -> None:
    """Within autocast the operator runs as it was traced, as PyTorch's own compiled graphs do."""

    class Plain(torch.nn.Module):
        def forward(self, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> Any:
            return PLAIN(Q=Q, K=K, V=V)

    data = {name: one.detach() for name, one in drawn("Q", "K", "V").items()}
    program = torch.export.export(Plain(), (), data).module()
    with torch.autocast("cpu", torch.bfloat16):
        found = program(**data)
    assert found.dtype == torch.float32
    assert torch.equal(found, PLAIN(**data))
