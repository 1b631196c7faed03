"""Gradients of the fuzzer's cascades, beside PyTorch's of the definition, node by node, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from sympy import exp

import redalg as ra
from redalg.definition import evaluate_definition
from redalg.errors import RedalgError
from redalg.expression import Scalar
from redalg.expression.contents import nodes_of
from tests.fuzz import one_axis, two_axes

SIZES = {"b": 3, "n": 6, "m": 4, "c": 2, "i": 2, "j": 2, "k": 3, "d": 2, "e": 2}
FIRST, CHUNK = range(7_000_000, 7_000_060, 10), 10
ONCE_WRONG = (7_000_097, 7_000_121, 7_000_132, 7_000_210, 7_000_296, 7_000_794)
"""Seeds of one axis: of an extremum of computed values the gradient was 0."""


@pytest.mark.sweep(2)
@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("module", [one_axis, two_axes], ids=["one axis", "two axes"])
def test_drawn_cascades_have_their_gradients(module: ModuleType, first: int) -> None:
    assert sum(is_compared(module.case(seed).outputs, seed) for seed in range(first, first + CHUNK)) > 1


def test_those_that_were_wrong() -> None:
    assert all(is_compared(one_axis.case(seed).outputs, seed) for seed in ONCE_WRONG)


class Drawn(NamedTuple):
    """A cascade that is fused, its derivative, and data for both."""

    form: ra.Fused
    derivative: Any
    data: dict[str, torch.Tensor]
    scalars: dict[str, float]
    sizes: dict[str, int]
    generator: np.random.Generator


def drawn(outputs: Mapping[str, Any], seed: int, derive: Callable[[ra.Fused], Any]) -> Drawn | None:
    """A drawn cascade with its derivative; None if it is refused, has none, or reads no tensor of the axes."""
    if "prod" in str(outputs):  # the definition's is one of mantissas, which PyTorch does not differentiate
        return None
    try:
        form = ra.fuse(dict(outputs))
        derivative = derive(form)
    except RedalgError:
        return None
    generator = np.random.default_rng(seed)
    elements = {one.name: one for one in form.cascade.elements()}
    if not elements or any(str(index) not in SIZES for one in elements.values() for index in one.indices):
        return None
    shapes = {name: [SIZES[str(index)] for index in one.indices] for name, one in elements.items()}
    data = {name: torch.as_tensor(generator.uniform(0.3, 1.7, shape).astype(np.float32)).double()
            for name, shape in shapes.items()}  # fmt: skip
    scalars = {one.name: 0.7 for _, expr in form.written for one in nodes_of(expr) if isinstance(one, Scalar)}
    sizes = {axis.name: SIZES[axis.name] for axis in form.cascade.axes()}
    return Drawn(form, derivative, data, scalars, sizes, generator)


def is_compared(
    outputs: Mapping[str, Any], seed: int, derive: Callable[[ra.Fused], Any] = ra.Fused.vjp, bound: float = 1e-8,
    share: float = 0.0,
) -> bool:  # fmt: skip
    """Compare the gradients of a cascade; False if it is refused, has none, or has no gradient in PyTorch.

    `bound` is relative to the largest gradient of a tensor, or to a share of the largest of all.
    """
    case = drawn(outputs, seed, derive)
    if case is None:
        return False
    form, backward, data, scalars, sizes, generator = case
    leaves = {name: one.requires_grad_() for name, one in data.items()}
    axes = [output.axes for output in form.cascade.outputs]
    written = {name: (expr, own) for (name, expr), own in zip(form.written, axes, strict=True)}
    made = {
        name: one for name, one in evaluate_definition(written, leaves, scalars, sizes).items() if one.requires_grad
    }
    if not made:
        return False
    cotangents = {name: torch.as_tensor(generator.standard_normal(tuple(one.shape))) for name, one in made.items()}
    total = sum((made[name] * one).sum() for name, one in cotangents.items())
    wanted = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    found = backward(cotangents, sizes=sizes, **{name: one.detach() for name, one in leaves.items()}, **scalars)
    exact = {name: torch.zeros_like(leaf) if one is None else one
             for (name, leaf), one in zip(leaves.items(), wanted, strict=True)}  # fmt: skip
    least = share * max(float(one.abs().max()) for one in exact.values())
    for name, one in exact.items():
        if one.isfinite().all():
            got = found.get(name, torch.zeros_like(one)).double()
            allowed = bound * max(float(one.abs().max()), least) + 1e-12
            torch.testing.assert_close(got, one, rtol=0, atol=allowed, msg=f"{name} of seed {seed}")
    return True


def test_an_extremum_of_computed_values_has_its_gradient() -> None:
    """It was compared with what another pass had computed otherwise, so that no element was the largest."""
    n = ra.axes("n")
    x, y = ra.tensors("x[b,n] y[b,n]")
    weight = exp(-(ra.sum(y, n) ** 2))
    form = ra.fuse(ra.max(exp(x / 4) * weight + weight, n), axes="b")
    for dtype in (torch.float64, torch.float32):
        data = {name: torch.randn(3, 7, generator=torch.Generator().manual_seed(0)).to(dtype) for name in "xy"}
        leaves = {name: one.clone().requires_grad_() for name, one in data.items()}
        w = torch.exp(-(leaves["y"].sum(1, keepdim=True) ** 2))
        wanted = torch.autograd.grad(((leaves["x"] / 4).exp() * w + w).amax(1).sum(), list(leaves.values()))
        found = form.vjp()(torch.ones(3, dtype=dtype), **data)
        for name, one in zip(leaves, wanted, strict=True):
            torch.testing.assert_close(found[name], one, rtol=1e-5, atol=1e-7)


def test_what_lacks_the_axis_counts_as_often_as_it_has_elements() -> None:
    n = ra.axes("n")
    x = ra.tensor("x[b,n]")
    square = ra.sum(x**2, n)
    form = ra.fuse(ra.sum(square * x, n) / 2 + ra.mean(square, n), axes="b")
    data = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    wanted = torch.autograd.grad(((data**2).sum(1) * (data.sum(1) / 2 + 1)).sum(), data)[0]
    torch.testing.assert_close(torch.autograd.grad(form(x=data).sum(), data)[0], wanted)
