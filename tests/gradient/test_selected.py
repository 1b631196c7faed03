"""Derivatives of reductions that select an element by its place, and of compensated sums, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import exp
from torch.func import jvp

import redalg as ra

b, n = ra.axes("b n")
x, y, w = ra.tensors("x[b,n] y[b,n] w[b,n]")
Tensors = dict[str, torch.Tensor]
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
"""PyTorch's own, of its first level of forward mode."""
EMPTY = 1
"""The row in which nothing counts."""
TERM = exp(x / 2) * y


def chosen(data: Tensors, place: torch.Tensor) -> torch.Tensor:
    """The term at a place of every row but the empty one."""
    term = (data["x"] / 2).exp() * data["y"]
    return term.gather(1, place[:, None])[:, 0] * (data["w"] > 0).any(1)


def first_of(data: Tensors) -> torch.Tensor:
    return chosen(data, (data["w"] > 0).int().argmax(1))


def last_of(data: Tensors) -> torch.Tensor:
    return chosen(data, data["w"].shape[1] - 1 - (data["w"] > 0).flip(1).int().argmax(1))


def at_largest(data: Tensors) -> torch.Tensor:
    return chosen(data, data["w"].argmax(1))


def total(data: Tensors) -> torch.Tensor:
    return ((data["x"] / 2).exp() * data["y"]).sum(1)


KINDS: dict[str, tuple[ra.Reduce, Callable[[Tensors], torch.Tensor]]] = {
    "first": (ra.first(TERM, n, where=w > 0), first_of),
    "last": (ra.last(TERM, n, where=w > 0), last_of),
    "at_argmax": (ra.where(ra.any(w > 0, n), ra.reduce("at_argmax", w, TERM, axis=n), 0), at_largest),
    "compensated_sum": (ra.compensated_sum(TERM, n), total),
}
each_kind = pytest.mark.parametrize("name", KINDS)
seeds = st.integers(0, 999)
FORMS = {name: ra.fuse(expr, axes="b") for name, (expr, _) in KINDS.items()}
SQUARES = {name: ra.fuse(expr**2 * ra.sum(x * y, n), axes="b") for name, (expr, _) in KINDS.items()}


def drawn(seed: int) -> Tensors:
    """Data in float64, whose `w` has ties; in the row `EMPTY` none is positive."""
    generator = torch.Generator().manual_seed(seed)
    length = 1 + seed % 7
    data = {name: torch.randn(3, length, generator=generator, dtype=torch.float64) for name in "xy"}
    data["w"] = torch.randint(-1, 3, (3, length), generator=generator).double()
    data["w"][EMPTY] = -1
    return data


def used(name: str, data: Tensors) -> Tensors:
    return {one: tensor for one, tensor in data.items() if one in FORMS[name].cascade.inputs()}


@each_kind
@given(seeds)
def test_gradients_go_to_what_is_selected(name: str, seed: int) -> None:
    data = drawn(seed)
    leaves = [data[one].requires_grad_() for one in "xy"]
    wanted = torch.autograd.grad(KINDS[name][1](data).sum(), leaves)
    found = torch.autograd.grad(FORMS[name](**used(name, data)).sum(), leaves)
    for got, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, exact)


@each_kind
@given(seeds)
def test_tangents_are_those_of_what_is_selected(name: str, seed: int) -> None:
    data = drawn(seed)
    tangents = {one: torch.randn_like(data[one]) for one in "xy"}
    made: Any = jvp(lambda moving: KINDS[name][1]({**data, **moving}), ({one: data[one] for one in "xy"},), (tangents,))
    forward = FORMS[name].jvp(["x", "y"])
    assert [len(stage.fused.passes) for stage in forward.stages] == [1]
    torch.testing.assert_close(forward(tangents, **used(name, data))["out"], made[1])


@each_kind
@given(seeds)
def test_second_derivatives(name: str, seed: int) -> None:
    data = {one: tensor[[0, 2]] for one, tensor in drawn(seed).items()}
    data["w"][:, 0] = 1  # the value of an empty row is NaN
    leaves = [data[one].requires_grad_() for one in "xy"]

    def second(made: torch.Tensor) -> tuple[torch.Tensor, ...]:
        by_x, by_y = torch.autograd.grad(made.sum(), leaves, create_graph=True)
        return torch.autograd.grad((by_x * by_y.cos()).sum(), leaves)

    wanted = second(KINDS[name][1](data) ** 2 * (data["x"] * data["y"]).sum(1))
    for got, exact in zip(second(SQUARES[name](**used(name, data))), wanted, strict=True):
        torch.testing.assert_close(got, exact)


@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
@pytest.mark.parametrize("name", ["first", "last"])
def test_without_a_condition_it_is_the_end_of_the_row(name: str, backend: str) -> None:
    form = ra.fuse(getattr(ra, name)(x * y, n), axes="b")
    data = {one: tensor.float() for one, tensor in drawn(6).items() if one != "w"}
    leaves = {one: tensor.requires_grad_() for one, tensor in data.items()}
    form(**leaves, backend=backend).sum().backward()
    wanted = torch.zeros(3, 7)
    at = 0 if name == "first" else 6
    wanted[:, at] = data["y"][:, at]
    torch.testing.assert_close(data["x"].grad, wanted)


def test_a_place_is_saved_as_an_integer_beside_16_bits() -> None:
    """float32 has no place beyond 2^24."""
    form = ra.fuse({"out": (ra.sum(ra.last(x, n, where=w > 0) * y, n), "b")})
    data = {one: tensor.bfloat16() for one, tensor in drawn(6).items()}
    backward = form.vjp().for_tensors(data)
    made = dict(zip((*backward.outputs, *backward.saved), backward.forward(**data), strict=True))
    assert made["row_last_place_0"].dtype == torch.int64


def test_places_are_reductions_of_their_own() -> None:
    """They are −1 in a row in which nothing counts."""
    counts = ra.where(w > 0, 1, 0)
    form = ra.fuse({name: (ra.reduce(name, counts, axis=n), "b") for name in ("first_place", "last_place")})
    data = {"w": torch.tensor([[0.0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]])}
    for backend in ("numpy", "torch", "tilelang"):
        found = form(**data, backend=backend)
        assert found.first_place.tolist() == [1, -1, 0]
        assert found.last_place.tolist() == [2, -1, 3]
    assert form.reference(**data).first_place.tolist() == [1, -1, 0]
    assert form.reference(**data).last_place.tolist() == [2, -1, 3]
