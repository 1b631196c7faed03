"""Gradients that reduce nothing are kernels: cross entropy over given logits, masks, maxima, and their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Max, exp

import redalg as ra
from redalg.gradient.stage import own_sizes

b, v = ra.axes("b v")
x, y, g = ra.tensors("x[b,v] y[b,v] g[b]")
CROSS_ENTROPY = ra.fuse(ra.logsumexp(x, v) - ra.Tensor("x")[b, ra.tensor("t[b]")], axes="b")
MASKED = ra.fuse(ra.sum(ra.where(x > y, Max(x, 0) * exp(y) * g, 0), v), axes="b")
TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 1e-2}


def kernels_of(backward: Any, known: dict[str, torch.Tensor], sizes: dict[str, int]) -> dict[str, torch.Tensor]:
    """The results of all stages, each by the kernel of the C target."""
    for stage in backward.stages:
        read = {name: one for name, one in known.items() if name in stage.inputs}
        known[stage.name] = stage.fused(**read, sizes=own_sizes(stage.fused, sizes), backend="tilelang")
    return known


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from((1, 3, 8)), st.sampled_from((1, 7, 130, 515)), st.sampled_from(list(TOLERANCE)), st.integers(0, 9)
)
def test_cross_entropy(rows: int, columns: int, dtype: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, columns, generator=generator) * 5).to(dtype)
    targets = torch.randint(0, columns, (rows,), generator=generator)
    cotangent = torch.randn(rows, generator=generator, dtype=torch.float64)
    leaf = logits.double().requires_grad_()
    torch.nn.functional.cross_entropy(leaf, targets, reduction="none").backward(cotangent)
    assert leaf.grad is not None
    backward = CROSS_ENTROPY.vjp().for_tensors({"x": logits, "t": targets})
    made = backward.forward(x=logits, t=targets)
    given = cotangent.to(made[0].dtype)
    known = dict(zip((*backward.outputs, *backward.saved), made, strict=True)) | {"x": logits, "t": targets}
    sizes = {"b": rows, "v": columns, "x_0": rows, "x_1": columns}
    by_kernel = kernels_of(backward, known | {backward.cotangents["out"]: given}, sizes)[backward.gradients["x"]]
    by_call = backward(given, x=logits, t=targets)["x"]
    for found in (by_kernel, by_call):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), leaf.grad, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_the_gradient_of_cross_entropy_is_one_kernel_that_reads_the_rows() -> None:
    backward = CROSS_ENTROPY.vjp()
    [stage] = backward.stages
    assert stage.function.form.is_elementwise
    assert backward.saved == ("row_max_0", "row_sum_0")
    assert "(element by element)" in str(backward)
    narrow = backward.for_tensors({"x": torch.zeros(1, 1, dtype=torch.bfloat16)})
    dtypes = {"x": "bfloat16", "t": "int64"} | dict.fromkeys([*narrow.saved, "grad_out"], "float32")
    source = narrow.source(sizes={"b": 64, "v": 5000, "x_0": 64, "x_1": 5000}, dtypes=dtypes)["grad_x"]
    assert source.count("T.Kernel(") == 1
    assert 'out: T.Tensor((64, 5000), "bfloat16")' in source


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (1, 1), (5, 33)])
def test_masks_and_maxima(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    data = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name in "xy"}
    data["g"] = torch.randn(shape[0], generator=generator, dtype=torch.float64)
    leaves = {name: one.clone().requires_grad_() for name, one in data.items()}
    u, w, scale = leaves.values()
    product = torch.maximum(u, torch.zeros_like(u)) * w.exp() * scale[:, None]
    total = torch.where(u > w, product, 0).sum(1)
    cotangent = torch.randn(shape[0], generator=generator, dtype=torch.float64)
    wanted = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values()), cotangent), strict=True))
    backward = MASKED.vjp()
    assert [stage.function.form.is_elementwise for stage in backward.stages].count(True) == 2  # of x and of y
    found = backward(cotangent, **data)
    for name, one in wanted.items():
        torch.testing.assert_close(found[name], one, rtol=1e-12, atol=1e-12)


def test_derivatives_of_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    targets, direction = torch.tensor([1, 0, 4]), torch.randn(3, 5, generator=generator, dtype=torch.float64)

    def second(loss: Any) -> torch.Tensor:
        leaf = logits.clone().requires_grad_()
        [first] = torch.autograd.grad((loss(leaf) ** 2).sum(), leaf, create_graph=True)
        return torch.autograd.grad((first * direction).sum(), leaf)[0]

    wanted = second(lambda leaf: torch.nn.functional.cross_entropy(leaf, targets, reduction="none"))
    torch.testing.assert_close(second(lambda leaf: CROSS_ENTROPY(x=leaf, t=targets)), wanted)


def test_a_gradient_that_repeats_is_no_copy() -> None:
    """The gradient of a sum is the cotangent, along an axis that it lacks."""
    total = ra.fuse(ra.sum(x, v), axes="b")
    found = total.vjp()(torch.tensor([2.0, 3.0]), x=torch.zeros(2, 4))["x"]
    assert found.stride() == (1, 0)
    np.testing.assert_array_equal(found, [[2] * 4, [3] * 4])


def test_an_elementwise_call_has_derivatives() -> None:
    form = ra.fuse(ra.where(x > 0, x * y, 0) * g, axes="b v")
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
              for shape in ((3, 4), (3, 4), (3,))]  # fmt: skip
    assert torch.autograd.gradcheck(lambda u, w, s: form(x=u, y=w, g=s), leaves)
    assert torch.autograd.gradgradcheck(lambda u, w, s: form(x=u, y=w, g=s), leaves)
