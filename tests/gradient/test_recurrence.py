"""Derivatives of linear recurrences, beside PyTorch's of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import Rational, tanh
from torch.func import jvp

import redalg as ra

b, n = ra.axes("b n")
a, u, g = ra.tensors("a[b,n] u[b,n] g[b]")
Tensors = dict[str, torch.Tensor]
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
"""PyTorch's own, of its first level of forward mode."""

CASES: dict[str, tuple[tuple[Any, Any], Callable[[Tensors], tuple[torch.Tensor, torch.Tensor]]]] = {
    "tensors": ((a, u), lambda data: (data["a"], data["u"])),
    "terms": ((tanh(a) * g, u * a), lambda data: (data["a"].tanh() * data["g"][:, None], data["u"] * data["a"])),
    "a number": ((Rational(1, 2), u * g), lambda data: (data["u"] * 0 + 0.5, data["u"] * data["g"][:, None])),
    "one a row": ((g, a), lambda data: (data["g"][:, None] + 0 * data["a"], data["a"])),
}
each_case = pytest.mark.parametrize("name", CASES)
FORMS = {name: ra.fuse(ra.affine(*terms, n)[1], axes="b") for name, (terms, _) in CASES.items()}
SCALE = ra.fuse(ra.affine(a, u, n)[0], axes="b")


def loop(scales: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
    h = torch.zeros_like(scales[:, 0])
    for step in range(scales.shape[1]):
        h = scales[:, step] * h + shifts[:, step]
    return h


def drawn(form: ra.Fused, seed: int) -> Tensors:
    """Data in float64, with zeros among the scales."""
    generator = torch.Generator().manual_seed(seed)
    length = 1 + seed % 6
    data = {name: torch.randn(3, length, generator=generator, dtype=torch.float64) for name in "au"}
    data["a"] *= torch.rand(3, length, generator=generator) > 0.2
    data["g"] = torch.randn(3, generator=generator, dtype=torch.float64)
    return {name: data[name] for name in form.cascade.inputs()}


@each_case
@given(st.integers(0, 999))
def test_first_and_second_derivatives(name: str, seed: int) -> None:
    form, data = FORMS[name], drawn(FORMS[name], seed)
    leaves = [one.requires_grad_() for one in data.values()]

    def derivatives(made: torch.Tensor) -> list[torch.Tensor | None]:
        first = torch.autograd.grad((made**2).sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum((one**2).sum() for one in first), leaves)
        return [*first, *second]

    wanted = derivatives(loop(*CASES[name][1](data)))
    for got, exact in zip(derivatives(form(**data)), wanted, strict=True):
        torch.testing.assert_close(got, exact)


@each_case
@given(st.integers(0, 999))
def test_tangents_are_one_recurrence(name: str, seed: int) -> None:
    form, data = FORMS[name], drawn(FORMS[name], seed)
    tangents = {one: torch.randn_like(tensor) for one, tensor in data.items()}
    made: Any = jvp(lambda moving: loop(*CASES[name][1](moving)), (data,), (tangents,))
    forward = form.jvp()
    assert [len(stage.fused.passes) for stage in forward.stages] == [1]
    torch.testing.assert_close(forward(tangents, **data)["out"], made[1])


@given(st.integers(0, 999))
def test_the_product_of_the_scales(seed: int) -> None:
    data = drawn(SCALE, seed)
    leaf = data["a"].requires_grad_()
    wanted = torch.autograd.grad(data["a"].prod(1).sum(), leaf)[0]
    torch.testing.assert_close(torch.autograd.grad(SCALE(**data).sum(), leaf)[0], wanted)
    tangents = {"a": torch.randn_like(data["a"])}
    torch.testing.assert_close(SCALE.jvp(["a"])(tangents, **data)["out"], (wanted * tangents["a"]).sum(1))


@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
def test_every_backend(backend: str) -> None:
    form = FORMS["tensors"]
    data = {name: one.float().requires_grad_() for name, one in drawn(form, 5).items()}
    wanted = torch.autograd.grad(loop(data["a"], data["u"]).sum(), list(data.values()))
    found = torch.autograd.grad(form(**data, backend=backend).sum(), list(data.values()))
    for got, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, exact)


@given(st.integers(0, 999))
def test_derivatives_of_its_tangent(seed: int) -> None:
    """In reverse, and forward mode of forward mode."""
    form, data = FORMS["tensors"], drawn(FORMS["tensors"], seed)
    tangents = {one: torch.randn_like(tensor) for one, tensor in data.items()}
    leaves = [one.requires_grad_() for one in data.values()]

    def definition(moving: Tensors) -> Any:
        made: Any = jvp(lambda one: loop(one["a"], one["u"]), (moving,), (tangents,))
        return made[1]

    def derived(moving: Tensors) -> Any:
        return form.jvp()(tangents, **moving)["out"]

    found, wanted = (torch.autograd.grad(function(data).sum(), leaves, materialize_grads=True)
                     for function in (derived, definition))  # fmt: skip
    for got, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, exact)
    torch.testing.assert_close(jvp(derived, (data,), (tangents,))[1], jvp(definition, (data,), (tangents,))[1])
