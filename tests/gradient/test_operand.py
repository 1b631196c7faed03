"""Products that share a computed operand: it is made once, a part at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sympy import Expr
from torch.nn import functional

import redalg as ra
from redalg.gradient import operand
from redalg.gradient.operand import OperandStage, weighted_sum

b, v, d, k = ra.axes("b v d k")
T, U, BIAS = ra.tensors("t[b,d] u[v,d] bias[v]")
LABEL = ra.tensor("label[b]")
SCORES = ra.sum(T * U, d)
SIZES = {"b": 24, "v": 700, "d": 520}


def loss(scores: Expr) -> ra.Fused:
    """The cross entropy of scores and labels."""
    picked = ra.sum(ra.where(ra.eq(v, LABEL), scores, 0), v)
    return ra.fuse(ra.logsumexp(scores, v) - picked, axes="b")


def drawn(form: ra.Fused, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    data = {name: torch.randn(SIZES[row], SIZES["d"], generator=generator).to(dtype) / 10
            for name, row in (("t", "b"), ("u", "v"))}  # fmt: skip
    data["label"] = torch.randint(0, SIZES["v"], (SIZES["b"],), generator=generator)
    data["bias"] = torch.randn(SIZES["v"], generator=generator).to(dtype)
    return {name: one for name, one in data.items() if name in form.cascade.inputs()}


def gradients(form: ra.Fused, data: dict[str, torch.Tensor], cotangent: torch.Tensor) -> list[torch.Tensor]:
    leaves = {name: one.clone().requires_grad_(one.is_floating_point()) for name, one in data.items()}
    made = form(**leaves)
    return list(torch.autograd.grad(made, [leaves["t"], leaves["u"]], cotangent.to(made.dtype)))


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("biased", [False, True])
def test_parts_make_the_gradients_of_the_whole(number: int, biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels are compared with places of the whole axis, in every part of it."""
    form = loss(SCORES / 3 + BIAS if biased else SCORES)
    data = drawn(form)
    monkeypatch.setattr(operand, "PART_BYTES", 2 * SIZES["b"] * 256 * (4 - number))
    stage = form.vjp(["t", "u"]).for_tensors(data).stages[-1]
    assert isinstance(stage, OperandStage)
    parts = [*stage.parts_of(v, SIZES)]
    assert len(parts) == number
    assert [parts[0][0], *(stop for _, stop in parts)] == [*(start for start, _ in parts), SIZES["v"]]
    cotangent = torch.randn(SIZES["b"], generator=torch.Generator().manual_seed(1)).bfloat16()
    wide = {name: one.double() if one.is_floating_point() else one for name, one in data.items()}
    exact = gradients(form, wide, cotangent.double())
    for got, one in zip(gradients(form, data, cotangent), exact, strict=True):
        assert got.dtype == torch.bfloat16
        assert float((got.double() - one).norm() / one.norm()) < 5e-3


def test_the_loss_is_pytorchs() -> None:
    form, cotangent = loss(SCORES), torch.ones(SIZES["b"], dtype=torch.bfloat16)
    data = drawn(form)
    leaves = {name: one.double().requires_grad_(one.is_floating_point()) for name, one in data.items()}
    made = functional.cross_entropy(leaves["t"] @ leaves["u"].mT, data["label"], reduction="sum")
    for got, one in zip(gradients(form, data, cotangent), torch.autograd.grad(made, [leaves["t"], leaves["u"]]),
                        strict=True):  # fmt: skip
        assert float((got.double() - one).norm() / one.norm()) < 5e-3


def test_arrays_of_numpy_are_taken_in_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    form = loss(SCORES)
    data = {name: one.numpy() for name, one in drawn(form, torch.float16).items()}
    backward = form.vjp(["t", "u"])
    whole = backward(np.ones(SIZES["b"], np.float16), **data)
    monkeypatch.setattr(operand, "PART_BYTES", 2 * SIZES["b"] * 256)
    for name, one in backward(np.ones(SIZES["b"], np.float16), **data).items():
        np.testing.assert_allclose(one, whole[name], rtol=2e-3, atol=2e-3)


def test_few_columns_make_their_operands_themselves() -> None:
    stage = loss(SCORES).vjp(["t", "u"]).for_tensors(drawn(loss(SCORES))).stages[-1]
    assert [stage.serves(SIZES | {"d": columns}) for columns in (512, 513)] == [False, True]


def test_a_product_is_read_with_its_mask_and_its_number() -> None:
    weight = ra.cast(ra.sum(T * U, d) ** 2, "bfloat16")
    read = weighted_sum(3 * ra.sum(ra.where(v < 5, weight * ra.tensor("X[v,k]"), 0), v))
    assert read == (3, ra.cast(ra.where(v < 5, ra.sum(T * U, d) ** 2, 0), "bfloat16"), ra.tensor("X[v,k]"), (v,))
    for other in (ra.sum(T, b, d), ra.sum(weight, v), ra.max(T, d), ra.sum(weight * ra.Tensor("X")[v + 1, k], v)):
        assert weighted_sum(other) is None
