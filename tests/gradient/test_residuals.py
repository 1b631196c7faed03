"""Sums of differences from a mean are left out of gradients of so few digits that they do not show."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, S, sqrt

import redalg as ra
from redalg.expression.contents import of_kind
from redalg.gradient.residuals import without_residuals
from redalg.gradient.stage import for_dtypes
from redalg.library import layer_norm
from tests.sweeps import draws

b, n = ra.axes("b n")
X, W, R, Q = ra.tensors("x[b,n] w[n] r[b] q[b]")
LENGTH = 48
TOTALS = {ra.sum(X, n): R, ra.sum(X**2, n): Q}
COUNT = ra.sum(S.One, n)
FUNCTIONS = {
    "variance": ra.fuse(ra.var(X, n), axes="b"),
    "layer norm": layer_norm(),
    "a centred root": ra.fuse((X - ra.mean(X, n)) / sqrt(ra.var(X, n) + 1), axes="b n"),
}


@pytest.mark.parametrize(("term", "is_left_out"), [
    (X - R / n.extent, True), (2 * X / COUNT - 2 * R / COUNT**2, True), (W * (X - R / n.extent), False),
    (X - 2 * R / n.extent, False), (X, False), (X**2 - Q / n.extent, False),
])  # fmt: skip
def test_a_sum_of_differences_from_a_mean_is_0(term: Expr, is_left_out: bool) -> None:
    found = without_residuals(3 + R * ra.sum(term, n), TOTALS, {"x": "bfloat16"})
    assert (found == 3) is is_left_out


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_elements_of_more_digits_keep_it(dtype: str) -> None:
    expr = ra.sum(X - R / n.extent, n)
    assert without_residuals(expr, TOTALS, {"x": dtype} if dtype == "float16" else {}) == expr


@pytest.mark.parametrize("name", FUNCTIONS)
def test_stages_of_bfloat16_have_one_sum_less(name: str) -> None:
    form = FUNCTIONS[name]
    names = ("x", "weight", "bias") if name == "layer norm" else ("x",)
    sums = list[int]()
    for dtype in ("float16", "bfloat16"):
        stages = for_dtypes(form.vjp(), dict.fromkeys((*names, "grad_out"), dtype)).stages
        exprs = [part.expr for stage in stages for part in stage.parts]
        sums.append(len(set[Expr]().union(*(of_kind(ra.Reduce, one) for one in exprs))))
    assert sums[1] == sums[0] - 1


@pytest.mark.parametrize("name", FUNCTIONS)
@given(
    st.sampled_from([0.0, 3.0, -1000.0]), st.sampled_from([0.01, 1.0, 30.0]), st.sampled_from([1.0, 300.0]),
    st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=draws(12), deadline=None)
def test_gradients_are_as_near_as_bfloat16_is(name: str, offset: float, spread: float, far: float, seed: int) -> None:
    """Within two roundings of a row's largest; one element of the last row is far from the others."""
    generator = torch.Generator().manual_seed(seed)
    x = offset + spread * torch.randn(3, LENGTH, generator=generator)
    x[2, 5] *= far
    tensors = {"x": x.bfloat16().requires_grad_()}
    if name == "layer norm":
        tensors |= {key: torch.randn(LENGTH, generator=generator).bfloat16() for key in ("weight", "bias")}
    out = FUNCTIONS[name](**tensors)
    grad = torch.randn(out.shape, generator=generator).to(out.dtype)
    [found] = torch.autograd.grad(out, tensors["x"], grad)
    exact = {key: one.detach().double() for key, one in tensors.items()}
    exact["x"].requires_grad_()
    [wanted] = torch.autograd.grad(written(name, exact), exact["x"], grad.double())
    error, largest = ((found - wanted).abs().amax(1), wanted.abs().amax(1))
    assert (error <= 2 * 2.0**-8 * largest).all(), (error, largest)


def written(name: str, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """The function in PyTorch."""
    x = tensors["x"]
    if name == "variance":
        return x.var(1, correction=0)
    if name == "layer norm":
        return torch.nn.functional.layer_norm(x, (LENGTH,), tensors["weight"], tensors["bias"], 1e-5)
    return (x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1).sqrt()
