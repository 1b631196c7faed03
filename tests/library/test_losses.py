"""Losses of two heads' scores: PyTorch's, with their gradients, in one pass over the vocabulary."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from sympy import tanh
from torch.nn import functional

import redalg as ra
from redalg.gradient.operand import OperandStage
from redalg.library import linear_cross_entropy, linear_distillation
from redalg.strategies.levels import Loop, TensorCores

ROWS, WORDS, WIDTH = 6, 11, 5
IGNORED = -100
Tensors = dict[str, torch.Tensor]


def drawn(form: ra.Fused) -> Tensors:
    generator = torch.Generator().manual_seed(0)
    shapes = {"h": (ROWS, WIDTH), "w": (WORDS, WIDTH), "bias": (WORDS,), "weight": (WORDS,), "teacher_h": (ROWS, 3),
              "teacher_w": (WORDS, 3)}  # fmt: skip
    data = {name: torch.rand(shape, generator=generator).double() for name, shape in shapes.items()}
    data = {name: one if name == "weight" else 4 * one - 2 for name, one in data.items()}
    data["target"] = torch.randint(0, WORDS, (ROWS,), generator=generator)
    return {name: one for name, one in data.items() if name in form.cascade.inputs()}


def compare(form: ra.Fused, data: Tensors, definition: Any) -> None:
    """The loss and its gradients, of a drawn cotangent."""
    own, other = ({name: one.clone().requires_grad_(one.is_floating_point() and name != "weight")
                   for name, one in data.items()} for _ in range(2))  # fmt: skip
    made, wanted = form(**own), definition(**other)
    torch.testing.assert_close(made, wanted, rtol=1e-12, atol=1e-12)
    cotangent = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1)).double()
    leaves = [name for name, one in own.items() if one.requires_grad]
    found = torch.autograd.grad(made, [own[name] for name in leaves], cotangent)
    exact = torch.autograd.grad(wanted, [other[name] for name in leaves], cotangent)
    for name, got, one in zip(leaves, found, exact, strict=True):
        torch.testing.assert_close(got, one, rtol=1e-11, atol=1e-12, msg=name)


CHOICES = list(product((0.0, 0.2), (False, True), (False, True), ("mean", "sum", "none"), (False, True)))


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("smoothing", "weighted", "biased", "reduction", "capped"), CHOICES)
def test_the_cross_entropy_is_pytorchs(
    smoothing: float, weighted: bool, biased: bool, reduction: str, capped: bool
) -> None:
    def definition(h: Any, w: Any, target: Any, bias: Any = None, weight: Any = None) -> Any:
        scores = functional.linear(h, w, bias)
        scores = 3 * torch.tanh(scores / 3) if capped else scores
        return functional.cross_entropy(scores, target, weight, label_smoothing=smoothing, reduction=reduction)

    form = linear_cross_entropy((lambda s: 3 * tanh(s / 3)) if capped else None, label_smoothing=smoothing,
                                weighted=weighted, biased=biased, reduction=reduction)  # fmt: skip
    data = drawn(form)
    data["target"][2] = IGNORED
    compare(form, data, definition)
    assert len(form.passes) == 1
    assert str(form.form.cascade.axis) == "v"


def test_the_z_loss_counts_rows() -> None:
    def definition(h: Any, w: Any, target: Any) -> Any:
        scores, counts = h @ w.mT, target != IGNORED
        return functional.cross_entropy(scores, target) + 0.1 * (scores.logsumexp(1)[counts] ** 2).mean()

    form = linear_cross_entropy(z_loss=0.1)
    data = drawn(form)
    data["target"][:3] = IGNORED
    compare(form, data, definition)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_divergence_of_two_heads_is_pytorchs(reduction: str) -> None:
    def definition(h: Any, w: Any, teacher_h: Any, teacher_w: Any) -> Any:
        student, teacher = (functional.log_softmax(one / 2, 1) for one in (h @ w.mT, teacher_h @ teacher_w.mT))
        rows = 4 * functional.kl_div(student, teacher, reduction="none", log_target=True).sum(1)
        return rows if reduction == "none" else rows.mean() if reduction == "mean" else rows.sum()

    form = linear_distillation(temperature=2, reduction=reduction)
    compare(form, drawn(form), definition)
    assert len(form.passes) == 1


@pytest.mark.parametrize("target", [-1, WORDS])
def test_a_target_that_is_no_word_is_told(target: int) -> None:
    form = linear_cross_entropy(reduction="none")
    data = drawn(form)
    data["target"][1] = target
    assert torch.isnan(form(**data)).tolist() == [False, True, *[False] * (ROWS - 2)]


def test_no_row_that_counts() -> None:
    """As PyTorch: the mean of no rows is NaN, their sum 0."""
    for reduction, wanted in (("mean", float("nan")), ("sum", 0.0)):
        form = linear_cross_entropy(reduction=reduction)
        data = drawn(form) | {"target": torch.full((ROWS,), IGNORED)}
        np.testing.assert_equal(float(form(**data)), wanted)


@pytest.mark.parametrize("options", [
    {}, {"weighted": True, "biased": True}, {"label_smoothing": 0.1, "z_loss": 1e-4}, {"reduction": "none"},
])  # fmt: skip
def test_kernels_make_scores_once_and_products_share_their_operand(options: dict[str, Any]) -> None:
    form = linear_cross_entropy(**options)
    dtypes = {name: "int64" if name == "target" else "bfloat16" for name in form.cascade.inputs()}
    known = {"shapes": {"weight": (32000,)}} if "weight" in dtypes else {}
    schedule = form.plan({"i": 4096, "v": 32000, "d": 2048}, dtypes, "H200", **known)
    assert isinstance(schedule, ra.Schedule)
    assert any(isinstance(level, TensorCores) for level in schedule.levels)
    assert [level.axis for level in schedule.levels if isinstance(level, Loop)] == ["v", "d"]
    shapes = {"h": (1, 1), "w": (1, 1), "bias": (1,), "weight": (1,), "target": (1,)}
    data = {name: torch.empty(shapes[name], dtype=getattr(torch, one)) for name, one in dtypes.items()}
    stages = form.vjp(["h", "w"]).for_tensors(data).stages
    assert isinstance(stages[-1], OperandStage)


def test_what_is_no_loss_is_refused() -> None:
    with pytest.raises(ra.ExpressionError, match="reduction='average' is none of 'mean', 'sum', 'none'"):
        linear_cross_entropy(reduction="average")
    with pytest.raises(ra.ExpressionError, match="label_smoothing=2 should be from 0 to 1"):
        linear_cross_entropy(label_smoothing=2)
    with pytest.raises(ra.ExpressionError, match="linear_distillation: reduction='batchmean'"):
        linear_distillation(reduction="batchmean")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ignored_rows_may_hold_anything(reduction: str, dtype: torch.dtype) -> None:
    """PyTorch's gradient of w is NaN there: 0·NaN."""
    form, generator = linear_cross_entropy(reduction=reduction), torch.Generator().manual_seed(0)
    h, w = (torch.randn(rows, 520, generator=generator).to(dtype) / 8 for rows in (ROWS, WORDS))
    target = torch.tensor([1, 2, IGNORED, 3, 4, 5])
    plain, hidden = (one.clone().requires_grad_() for one in (h, h))
    hidden.data[2] = torch.nan
    found = []
    for rows in (plain, hidden):
        own = w.clone().requires_grad_()
        found.append(torch.autograd.grad(form(h=rows, w=own, target=target).sum(), (rows, own)))
    for got, one in zip(*found, strict=True):
        torch.testing.assert_close(got, one, rtol=0.02, atol=1e-3)
