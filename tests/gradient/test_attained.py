"""Derivatives of what is joined at the maximum of u, below it, or beside the first place of it, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import exp, oo
from torch.func import grad, hessian, jvp, vmap

import redalg as ra

b, n, d = ra.axes("b n d")
x, y, u = ra.tensors("x[b,n] y[b,n] u[b,n]")
Tensors = dict[str, torch.Tensor]
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
"""PyTorch's own, of its first level of forward mode."""
PLUS = ("sum", "max", "min")
IDENTITY = {"sum": 0.0, "max": -torch.inf, "min": torch.inf}
KINDS = [f"{plus}_{where}" for where in ("at_max", "below_max", "beside_argmax") for plus in PLUS]
TERM = exp(x / 2) * y
MASK = {"sum": 0, "max": -oo, "min": oo}
FORMS = {kind: ra.fuse(ra.reduce(kind, u, TERM, axis=n), axes="b") for kind in KINDS}
MASKED = {kind: ra.fuse(ra.reduce(kind, u, ra.where(y > 0, TERM, MASK[kind[:3]]), axis=n), axes="b") for kind in KINDS}
SQUARES = {kind: ra.fuse(ra.reduce(kind, u, TERM, axis=n) ** 2 * ra.sum(x * y, n), axes="b") for kind in KINDS}
each_kind = pytest.mark.parametrize("kind", KINDS)
seeds = st.integers(0, 999)


def is_joined(kind: str, row: torch.Tensor) -> torch.Tensor:
    """The mask of the elements of a row that are joined."""
    if kind.endswith("_argmax"):
        return torch.arange(len(row)) != row.argmax()
    return row == row.amax() if "_at_" in kind else row != row.amax()


def defined(kind: str, chosen_by: torch.Tensor, term: torch.Tensor) -> torch.Tensor:
    """The reduction, row by row of the elements that are joined: nothing of the others."""
    plus, rows = kind[:3], list[torch.Tensor]()
    for row, own in zip(chosen_by, term, strict=True):
        joined = own[is_joined(kind, row)]
        empty = own.new_tensor(IDENTITY[plus])
        rows.append(empty if not len(joined) else joined.sum() if plus == "sum"
                    else joined.amax() if plus == "max" else joined.amin())  # fmt: skip
    return torch.stack(rows)


def term_of(data: Tensors, kind: str = "") -> torch.Tensor:
    term = (data["x"] / 2).exp() * data["y"]
    return torch.where(data["y"] > 0, term, IDENTITY[kind[:3]]) if kind else term


def drawn(seed: int, shortest: int = 1) -> Tensors:
    """Data in float64 with ties in u and in the terms; one row of u is −∞, and one is of equal numbers."""
    generator = torch.Generator().manual_seed(seed)
    shape = (5, shortest + seed % 7)
    data = {name: torch.randint(-1, 3, shape, generator=generator).double() for name in "xyu"}
    data["u"][1], data["u"][2] = -torch.inf, 0.5
    data["u"][3, 0] = -torch.inf
    return data


@each_kind
@given(seeds)
def test_gradients_go_to_what_is_joined(kind: str, seed: int) -> None:
    data = drawn(seed)
    leaves = [data[one].requires_grad_() for one in "xy"]
    data["u"].requires_grad_()
    cotangent = torch.linspace(1, 2, 5, dtype=torch.float64)
    for form, term in ((FORMS[kind], term_of(data)), (MASKED[kind], term_of(data, kind))):
        exact = defined(kind, data["u"].detach(), term) + 0 * data["x"].sum()
        wanted = torch.autograd.grad(exact, leaves, cotangent, materialize_grads=True)
        *found, by_u = torch.autograd.grad(form(**data), [*leaves, data["u"]], cotangent, materialize_grads=True)
        for got, one in zip(found, wanted, strict=True):
            torch.testing.assert_close(got, one)
        assert not by_u.any()


@pytest.mark.sweep(4)
@each_kind
@given(seeds)
def test_tangents_are_those_of_what_is_joined(kind: str, seed: int) -> None:
    data = drawn(seed)
    tangents = {one: torch.randn_like(data[one]) for one in "xy"}
    moving = ({one: data[one] for one in "xy"},)
    for form, masked in ((FORMS[kind], ""), (MASKED[kind], kind)):
        made: Any = jvp(lambda own, as_=masked: defined(kind, data["u"], term_of(own, as_)), moving, (tangents,))
        assert list(form.jvp().names) == ["x", "y"]
        torch.testing.assert_close(form.jvp()(tangents, **data)["out"], made[1])
        called: Any = jvp(lambda own, form=form: form(u=data["u"], **own), moving, (tangents,))
        torch.testing.assert_close(called[1], made[1])


@pytest.mark.sweep(2)
@each_kind
@given(seeds)
def test_second_derivatives(kind: str, seed: int) -> None:
    data = {one: tensor[[0, 4]] for one, tensor in drawn(seed, 2).items()}
    data["u"][:, 0], data["u"][:, 1] = 3, -2  # an element of the row is joined
    leaves = [data[one].requires_grad_() for one in "xy"]

    def second(made: torch.Tensor) -> tuple[torch.Tensor, ...]:
        by_x, by_y = torch.autograd.grad(made.sum(), leaves, create_graph=True)
        return torch.autograd.grad((by_x * by_y.cos()).sum(), leaves)

    wanted = second(defined(kind, data["u"], term_of(data)) ** 2 * (data["x"] * data["y"]).sum(1))
    for got, exact in zip(second(SQUARES[kind](**data)), wanted, strict=True):
        torch.testing.assert_close(got, exact)


@pytest.mark.parametrize("kind", ["max_at_max", "sum_below_max", "min_beside_argmax"])
def test_hessians_and_gradients_of_samples(kind: str) -> None:
    data = {one: tensor[4] for one, tensor in drawn(5).items()}
    row = ra.fuse(ra.reduce(kind, ra.tensor("u[n]"), ra.tensor("x[n]") ** 2, axis=n))

    def exact(x: torch.Tensor) -> torch.Tensor:
        return defined(kind, data["u"][None], x[None] ** 2)[0]

    torch.testing.assert_close(hessian(lambda x: row(x=x, u=data["u"]))(data["x"]), hessian(exact)(data["x"]))
    batch = torch.stack([data["x"], data["y"], data["x"] + 1])
    found = vmap(grad(lambda x: row(x=x, u=data["u"])))(batch)
    torch.testing.assert_close(found, torch.stack([grad(exact)(one) for one in batch]))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("backend", ["numpy", "tilelang"])
@pytest.mark.parametrize("kind", ["min_at_max", "sum_below_max", "max_beside_argmax"])
def test_other_backends_run_the_stages(kind: str, backend: str) -> None:
    data = {name: one.float() for name, one in drawn(6).items()}
    leaves = [data[one].requires_grad_() for one in "xy"]
    wanted = torch.autograd.grad(defined(kind, data["u"], term_of(data)).sum(), leaves, materialize_grads=True)
    found = torch.autograd.grad(FORMS[kind](**data, backend=backend).sum(), leaves)
    for got, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, exact)
    tangents = {one: torch.ones_like(data[one]) for one in "xy"}
    moving = ({one: data[one].detach() for one in "xy"},)
    made: Any = jvp(lambda own: defined(kind, data["u"], term_of(own)), moving, (tangents,))
    called: Any = jvp(lambda own: FORMS[kind](u=data["u"], **own, backend=backend), moving, (tangents,))
    torch.testing.assert_close(called[1], made[1])


@pytest.mark.sweep(6)
@each_kind
@pytest.mark.parametrize("backend", ["torch", "tilelang"])
def test_a_maximum_of_what_is_computed_is_found_again(kind: str, backend: str) -> None:
    """A stage compares the products that it makes with the largest of them, not with one of another kernel."""
    scores = ra.sum(ra.tensor("Q[b,d]") * ra.tensor("K[n,d]"), d)
    form = ra.fuse(ra.reduce(kind, scores, scores * ra.tensor("x[n]"), axis=n), axes="b")
    generator = torch.Generator().manual_seed(0)
    data = {name: torch.randn(shape, generator=generator).requires_grad_()
            for name, shape in {"Q": (9, 33), "K": (70, 33), "x": (70,)}.items()}  # fmt: skip
    wide = {name: one.detach().double().requires_grad_() for name, one in data.items()}
    products = wide["Q"] @ wide["K"].mT
    wanted = torch.autograd.grad(defined(kind, products.detach(), products * wide["x"]).sum(), [*wide.values()])
    found = torch.autograd.grad(form(**data, backend=backend).sum(), [*data.values()])
    for got, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-4)


def test_a_maximum_of_a_tensor_is_saved() -> None:
    """Then the gradient of a sum is one kernel that reduces nothing."""
    backward = FORMS["sum_below_max"].vjp(["y"])
    assert backward.saved == ("row_max_0",)
    [stage] = backward.stages
    assert stage.function.form.is_elementwise


def test_the_second_largest_has_a_gradient() -> None:
    """As the sort of distinct numbers has it; of none below the largest it is 0."""
    form = ra.fuse(ra.reduce("max_below_max", x, x, axis=n), axes="b")
    data = torch.tensor([[1.0, 5, 3, 2], [4, 4, 1, 1], [7, 7, 7, 7]], dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(form(x=data).sum(), data)
    assert found.tolist() == [[0, 0, 1, 0], [0, 0, 0.5, 0.5], [0, 0, 0, 0]]
    wanted: Any = jvp(lambda x: x.sort(1).values[:, -2], (data[:1].detach(),), (torch.ones_like(data[:1]),))
    called: Any = jvp(lambda x: form(x=x), (data[:1].detach(),), (torch.ones_like(data[:1]),))
    torch.testing.assert_close(called[1], wanted[1])
