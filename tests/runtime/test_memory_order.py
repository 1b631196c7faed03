"""Tensors that are dense in another order of their dimensions: kernels take them as they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from sympy import Expr

import redalg as ra
from redalg.library import attention
from redalg.runtime.bind.inputs import bind
from redalg.runtime.call import kernels
from redalg.runtime.call.memory_order import InMemoryOrder
from redalg.strategies.levels import Grid, Lanes, Loop
from redalg.strategies.schedule import Schedule

b, c, n, q, k = ra.axes("b c n q k")
X, Y = ra.tensors("x[b,c,n] y[b,c,n]")
X2 = ra.Tensor("x")
OPTIONS = {"empty": "nan", "precision": "ieee", "memory": None, "plan": None, "check": True}


def strided(array: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """A tensor of the same elements whose dimensions lie in an order."""
    return array.permute(*order).contiguous().permute(*np.argsort(order).tolist())


def step_on(form: ra.Fused, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The step that a call on tensors takes."""
    return kernels.step(form.form, bind(form.form.cascade, tensors), OPTIONS)


def copies(step: Any, tensors: Mapping[str, torch.Tensor]) -> bool:
    """Tell if a step hands its kernel other memory than the tensors'."""
    launch: Any
    orders, launch = (step.orders, step.step) if isinstance(step, InMemoryOrder) else ({}, step)
    moved = {name: one.permute(orders[name]) if name in orders else one for name, one in tensors.items()}
    taken = [(moved[name], moved[name] if make is None else make(moved[name])) for name, make in launch.recipe.inputs]
    return any(own.data_ptr() != other.data_ptr() for own, other in taken)


@pytest.mark.parametrize("order", list(permutations(range(3)))[1:])
@pytest.mark.parametrize(("name", "expr", "axes"), [
    ("rows", ra.var(X, n), "b c"), ("columns", ra.logsumexp(X, b), "c n"), ("planes", ra.mean(X * Y, (b, n)), "c"),
])  # fmt: skip
def test_reductions_take_tensors_as_they_lie(name: str, expr: Expr, axes: str, order: tuple[int, ...]) -> None:
    form, generator = ra.fuse(expr, axes=axes), torch.Generator().manual_seed(0)
    plain = {key: torch.randn(3, 5, 7, generator=generator) for key in ("x", "y")[: 2 if name == "planes" else 1]}
    tensors = {key: strided(one, order) for key, one in plain.items()}
    np.testing.assert_allclose(form(**tensors, backend="tilelang"), form.reference(**plain), rtol=2e-5, atol=2e-5)
    assert not copies(step_on(form, tensors), tensors)


def test_products_take_heads_behind_positions() -> None:
    form, generator = attention(), torch.Generator().manual_seed(0)
    plain = {name: torch.randn(2, 3, 20, 16, generator=generator) for name in "QKV"}
    tensors = {name: strided(one, (0, 2, 1, 3)) for name, one in plain.items()}
    np.testing.assert_allclose(form(**tensors, backend="tilelang"), form.reference(**plain), rtol=2e-5, atol=2e-5)
    step = step_on(form, tensors)
    assert isinstance(step, InMemoryOrder)
    assert not copies(step, tensors)


def test_shared_heads_and_shifts_are_taken_as_they_lie() -> None:
    """A dimension that is read at a computed place lies where it lies, too."""
    form, generator = attention(groups=3), torch.Generator().manual_seed(0)
    plain = {name: torch.randn(2, 6 if name == "Q" else 2, 20, 16, generator=generator) for name in "QKV"}
    tensors = {name: strided(one, (0, 2, 1, 3)) for name, one in plain.items()}
    np.testing.assert_allclose(form(**tensors, backend="tilelang"), form.reference(**plain), rtol=2e-5, atol=2e-5)
    assert not copies(step_on(form, tensors), tensors)
    x = torch.randn(5, 9, generator=generator)
    differences = ra.fuse(ra.sum(ra.where(n + 1 < n.extent, (X2[b, n + 1] - X2[b, n]) ** 2, 0), n), axes="b")
    found = differences(x=strided(x, (1, 0)), backend="tilelang")
    np.testing.assert_allclose(found, x.diff().square().sum(1), rtol=2e-5)
    assert not copies(step_on(differences, {"x": strided(x, (1, 0))}), {"x": strided(x, (1, 0))})


def test_gathered_tensors_are_taken_as_they_lie() -> None:
    """A cache of pages whose heads lie before positions; the pages' own numbers are copied."""
    form, generator = attention(groups=2, page=4), torch.Generator().manual_seed(0)
    plain = {"Q": torch.randn(2, 4, 1, 16, generator=generator), "pages": torch.randperm(10)[:6].reshape(2, 3)}
    plain |= {name: torch.randn(10, 4, 2, 16, generator=generator) for name in "KV"}
    tensors = {name: strided(one, (0, 2, 1, 3)) if name in "KV" else one for name, one in plain.items()}
    tensors["pages"] = strided(plain["pages"], (1, 0))
    found = form(**tensors, sizes={"k": 12}, backend="tilelang")
    np.testing.assert_allclose(found, form.reference(**plain, sizes={"k": 12}), rtol=2e-5, atol=2e-5)
    step = kernels.step(form.form, bind(form.form.cascade, tensors, {"k": 12}), OPTIONS)
    assert isinstance(step, InMemoryOrder)
    assert sorted(step.orders) == ["K", "V"]


def test_columns_of_products_and_mixed_orders_are_copied() -> None:
    """Neighbours in memory must be neighbours of the last axis of every tensor."""
    form, generator = attention(), torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(2, 3, 20, 16, generator=generator) for name in "QKV"}
    tensors["K"] = strided(tensors["K"], (0, 1, 3, 2))
    assert copies(step_on(form, tensors), tensors)
    both = ra.fuse(ra.sum(X * Y, n), axes="b c")
    pair = {name: torch.randn(3, 5, 7, generator=generator) for name in ("x", "y")}
    for order, copied in (((2, 1, 0), True), ((1, 0, 2), False)):
        given = {**pair, "y": strided(pair["y"], order)}
        assert copies(step_on(both, given), given) is copied


def test_a_plan_that_is_given_takes_the_last_dimension() -> None:
    """A plan says which axis neighbouring threads take: a tensor whose last dimension lies elsewhere is copied."""
    form, plan = ra.fuse(ra.sum(X, n), axes="b c"), Schedule(Grid(b), Grid(c, 4), Loop(n, 8), Lanes(n, 1))
    plain = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0))
    for order, copied in (((2, 1, 0), True), ((1, 0, 2), False)):
        tensors = {"x": strided(plain, order)}
        step = kernels.step(form.form, bind(form.form.cascade, tensors), {**OPTIONS, "plan": plan})
        assert copies(step, tensors) is copied
        np.testing.assert_allclose(step(tensors)["out"], form.reference(x=plain), rtol=2e-5, atol=2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("mask", [None, k <= q])
@pytest.mark.parametrize("depth", [64, 128])
def test_heads_behind_positions_on_a_gpu(mask: Any, depth: int) -> None:
    form = attention(mask=mask)
    tensors = [torch.randn(2, 1000, 4, depth, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(3)]
    given = [one.detach().requires_grad_() for one in tensors]
    wanted = [one.detach().float().requires_grad_() for one in tensors]
    out = form(**dict(zip("QKV", given, strict=True)))
    queries, keys, values = wanted
    exact = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=mask is not None)
    torch.testing.assert_close(out.float(), exact, rtol=2e-2, atol=2e-2)
    cotangent = torch.randn(2, 1000, 4, depth, device="cuda").transpose(1, 2)
    found = torch.autograd.grad(out, given, cotangent.to(out.dtype))
    for one, other in zip(found, torch.autograd.grad(exact, wanted, cotangent), strict=True):
        torch.testing.assert_close(one.float(), other, rtol=4e-2, atol=4e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transposed_matrices_on_a_gpu(dtype: torch.dtype) -> None:
    form = ra.fuse({"v": (ra.var(ra.tensor("x[q,k]"), k), "q"), "m": (ra.max(ra.tensor("x[q,k]"), k), "q")})
    matrix = torch.randn(3000, 700, device="cuda").to(dtype)
    for tensor in (matrix, matrix.T):
        step = step_on(form, {"x": tensor})
        assert isinstance(step, InMemoryOrder) != tensor.is_contiguous()
        found = form(x=tensor)
        torch.testing.assert_close(found.v.float(), tensor.float().var(1, correction=0), rtol=1e-2, atol=1e-4)
        torch.testing.assert_close(found.m.float(), tensor.float().amax(1), rtol=0, atol=0)


def test_elements_here_and_there_are_copied() -> None:
    """Of every second element no order is dense."""
    form = ra.fuse(ra.sum(X, n), axes="b c")
    tensor = torch.randn(3, 5, 14, generator=torch.Generator().manual_seed(0))[:, :, ::2]
    assert not isinstance(step_on(form, {"x": tensor}), InMemoryOrder)
    np.testing.assert_allclose(form(x=tensor, backend="tilelang"), tensor.double().sum(2), rtol=2e-5, atol=2e-5)
