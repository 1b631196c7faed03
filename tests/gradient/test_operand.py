"""Products that share a computed operand: it is made once, a part at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sympy import Expr, Integer, Rational, exp
from sympy.logic.boolalg import Boolean
from torch.nn import functional

import redalg as ra
from redalg.gradient import operand
from redalg.gradient.operand import OperandStage, WeightedSum, weighted_sum
from redalg.library import linear_cross_entropy

b, v, d, k = ra.axes("b v d k")
T, U, BIAS = ra.tensors("t[b,d] u[v,d] bias[v]")
LABEL = ra.tensor("label[b]")
SCORES = ra.sum(T * U, d)
SIZES = {"b": 24, "v": 700, "d": 520}


def loss(scores: Expr) -> ra.Fused:
    """The cross entropy of scores and labels."""
    picked = ra.sum(ra.where(ra.eq(v, LABEL), scores, 0), v)
    return ra.fuse(ra.logsumexp(scores, v) - picked, axes="b")


def drawn(
    form: ra.Fused, dtype: torch.dtype = torch.bfloat16, rows: int = SIZES["b"], words: int = SIZES["v"]
) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    data = {name: torch.randn(number, SIZES["d"], generator=generator).to(dtype) / 10
            for name, number in (("t", rows), ("u", words))}  # fmt: skip
    data["label"] = torch.randint(0, words, (rows,), generator=generator)
    data["bias"] = torch.randn(words, generator=generator).to(dtype)
    return {name: one for name, one in data.items() if name in form.cascade.inputs()}


def gradients(
    form: ra.Fused, data: dict[str, torch.Tensor], cotangent: torch.Tensor, *, recorded: bool = False
) -> list[torch.Tensor]:
    leaves = {name: one.clone().requires_grad_(one.is_floating_point()) for name, one in data.items()}
    made, wanted = form(**leaves), [leaves[name] for name in "tu" if name in leaves]
    return list(torch.autograd.grad(made, wanted, cotangent.to(made.dtype), create_graph=recorded))


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
    assert [parts[0].start, *(one.stop for one in parts)] == [*(one.start for one in parts), SIZES["v"]]
    cotangent = torch.randn(SIZES["b"], generator=torch.Generator().manual_seed(1)).bfloat16()
    wide = {name: one.double() if one.is_floating_point() else one for name, one in data.items()}
    exact = gradients(form, wide, cotangent.double())
    for got, one in zip(gradients(form, data, cotangent), exact, strict=True):
        assert got.dtype == torch.bfloat16
        assert float((got.double() - one).norm() / one.norm()) < 5e-3


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("sizes", [(24, 700), (700, 24)], ids=["many words", "many rows"])
@pytest.mark.parametrize("mean", [False, True])
def test_lengths_are_those_of_the_whole(
    mean: bool, sizes: tuple[int, int], recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means over an axis that is taken in parts: of scores in the operand, of rows outside. By functions too."""
    smooth = ra.logsumexp(SCORES, v) - ra.sum(ra.where(ra.eq(v, LABEL), SCORES, 0), v) - 20 * ra.mean(SCORES, v)
    form = ra.fuse(ra.mean(smooth, b)) if mean else ra.fuse(smooth, axes="b")
    monkeypatch.setattr(operand, "PART_BYTES", 2 * 24 * 256)
    data = drawn(form, rows=sizes[0], words=sizes[1])
    cotangent = torch.randn(() if mean else sizes[0], generator=torch.Generator().manual_seed(1)).bfloat16()
    wide = {name: one.double() if one.is_floating_point() else one for name, one in data.items()}
    exact = gradients(form, wide, cotangent.double())
    for got, one in zip(gradients(form, data, cotangent, recorded=recorded), exact, strict=True):
        assert got.requires_grad == recorded
        assert float((got.detach().double() - one).norm() / one.norm()) < 5e-3


def test_a_tensor_that_is_both_factors_is_not_cut() -> None:
    """Rows of t beside rows of t: a part of one axis is no part of the other."""
    i, j = ra.axes("i j")
    rows = ra.Tensor("t")
    form = ra.fuse(ra.logsumexp(ra.sum(rows[i, d] * rows[j, d], d), j), axes="i")
    data = {"t": drawn(loss(SCORES))["t"].tile(30, 1)}
    cotangent = torch.ones(data["t"].shape[0], dtype=torch.bfloat16)
    [got], [exact] = gradients(form, data, cotangent), gradients(form, {"t": data["t"].double()}, cotangent.double())
    assert float((got.double() - exact).norm() / exact.norm()) < 5e-3


@pytest.mark.parametrize("mask", [v <= b, ra.eq(v, LABEL), (v - b) * BIAS < 3], ids=str)
def test_places_are_the_wholes(mask: Boolean, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are compared, with others and with labels, and are numbers; a part begins elsewhere."""
    value = SCORES * ra.where(mask, 2, -1) * exp((b - v) / Rational(300)) + v / Rational(700)
    form = ra.fuse(ra.sum(value**2, v), axes="b")
    data = drawn(form)
    monkeypatch.setattr(operand, "PART_BYTES", 2 * SIZES["b"] * 256)
    wide = {name: one.double() if one.is_floating_point() else one for name, one in data.items()}
    cotangent = torch.randn(SIZES["b"], generator=torch.Generator().manual_seed(1)).bfloat16()
    stage = form.vjp(["t", "u"]).for_tensors(data).stages[-1]
    assert isinstance(stage, OperandStage)
    for got, one in zip(gradients(form, data, cotangent), gradients(form, wide, cotangent.double()), strict=True):
        assert float((got.double() - one).norm() / one.norm()) < 5e-3


def test_numbers_that_rows_gather_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """weight[label[b]] is of the row, wherever a part begins."""
    picked = ra.sum(ra.where(ra.eq(v, LABEL), SCORES, 0), v)
    form = ra.fuse((ra.logsumexp(SCORES, v) - picked) * ra.Tensor("weight")[LABEL], axes="b")
    monkeypatch.setattr(operand, "PART_BYTES", 2 * 24 * 256)
    for rows, words in ((24, 700), (700, 24)):
        data = drawn(form, rows=rows, words=words)
        data["weight"] = torch.rand(words, generator=torch.Generator().manual_seed(2)).bfloat16()
        wide = {name: one.double() if one.is_floating_point() else one for name, one in data.items()}
        cotangent = torch.randn(rows, generator=torch.Generator().manual_seed(1)).bfloat16()
        assert isinstance(form.vjp(["t", "u"]).for_tensors(data).stages[-1], OperandStage)
        for got, one in zip(gradients(form, data, cotangent), gradients(form, wide, cotangent.double()), strict=True):
            assert float((got.double() - one).norm() / one.norm()) < 5e-3


def test_a_tensor_may_have_the_name_of_a_number_of_parts() -> None:
    length = ra.tensor("v_length[b]")
    form = ra.fuse(ra.sum((SCORES / length) ** 2 * ra.mean(SCORES, v), v), axes="b")
    data = drawn(form) | {"v_length": torch.full((SIZES["b"],), 3.0).bfloat16()}
    wide = {name: one.double() for name, one in data.items()}
    cotangent = torch.ones(SIZES["b"], dtype=torch.bfloat16)
    for got, one in zip(gradients(form, data, cotangent), gradients(form, wide, cotangent.double()), strict=True):
        assert float((got.double() - one).norm() / one.norm()) < 1e-2


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
    masked = ra.cast(ra.where(v < 5, ra.sum(T * U, d) ** 2, 0), "bfloat16")
    assert read == WeightedSum(Integer(3), masked, ra.tensor("X[v,k]"), v, (v < 5,))
    for other in (ra.sum(T, b, d), ra.sum(weight, v), ra.max(T, d), ra.sum(weight * ra.Tensor("X")[v + 1, k], v)):
        assert weighted_sum(other) is None


@pytest.mark.parametrize("recorded", [False, True])
def test_what_a_mask_of_rows_hides_has_no_part(recorded: bool) -> None:
    """Rows without a target may hold anything."""
    form = ra.fuse(ra.where(LABEL >= 0, ra.logsumexp(SCORES, v) - ra.sum(ra.where(ra.eq(v, LABEL), SCORES, 0), v), 0),
                   axes="b")  # fmt: skip
    data = drawn(form)
    data["label"][::3] = -1
    assert isinstance(form.vjp(["t", "u"]).for_tensors(data).stages[-1], OperandStage)
    hidden = data | {"t": data["t"].clone()}
    hidden["t"][::3] = torch.nan
    cotangent = torch.randn(SIZES["b"], generator=torch.Generator().manual_seed(1)).bfloat16()
    for got, plain in zip(gradients(form, hidden, cotangent, recorded=recorded), gradients(form, data, cotangent),
                          strict=True):  # fmt: skip
        torch.testing.assert_close(got, plain, rtol=0.02, atol=1e-3)


def test_masks_of_elements_leave_the_products_alone() -> None:
    form = ra.fuse(ra.sum(ra.where(v <= b, SCORES**2, 0), v), axes="b")
    assert not any(isinstance(one, OperandStage) for one in form.vjp(["t", "u"]).for_tensors(drawn(form)).stages)


def test_a_mean_loss_has_a_gradient_within_a_transform() -> None:
    """Its cotangent has no axes, nor has a stage that is made of it: no column joins it."""
    data, mean = drawn(loss(SCORES)), linear_cross_entropy(weighted=True)
    h, target, weight = data["t"], data["label"], torch.rand(SIZES["v"]).bfloat16()
    found = torch.func.grad(lambda w: mean(h=h, w=w, target=target, weight=weight))(data["u"])
    leaf = data["u"].double().requires_grad_()
    functional.cross_entropy(h.double() @ leaf.mT, target, weight.double()).backward()
    assert leaf.grad is not None
    assert float((found.double() - leaf.grad).abs().max()) <= 0.02 * float(leaf.grad.abs().max())
