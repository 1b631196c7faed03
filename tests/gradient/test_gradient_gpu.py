"""Gradients on a GPU: the stages are kernels, and their errors are at most twice those of PyTorch's own backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sympy import Rational, oo
from torch.nn import functional

import redalg as ra

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # PyTorch's own matrix product warns so in the first backward of a process, whose thread has no context yet.
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),
]

b, n, h, g, q, k, d, e = ra.axes("b n h g q k d e")
x, y, gain, bias = ra.tensors("x[b,n] y[b] w[n] c[n]")
SCORES = ra.sum(ra.tensor("Q[b,h,q,d]") * ra.tensor("K[b,h,k,d]"), d) / 8
VALUES = ra.tensor("V[b,h,k,e]")
HEADS = {"Q": (2, 4, 200, 64), "K": (2, 4, 333, 64), "V": (2, 4, 333, 64)}
ROWS = {"x": (77, 3001)}
Function = Callable[..., torch.Tensor]


def attended(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    scores = Q @ K.mT / 8
    return (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1) @ V


def causal(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    return attended(Q, K, V, torch.ones(Q.shape[2], K.shape[2], dtype=torch.bool, device=Q.device).tril())


FORMS: dict[str, Any] = {
    "attention": (ra.fuse(ra.sum(ra.softmax(SCORES, k) * VALUES, k), axes="b h q e"), HEADS, attended),
    "causal": (ra.fuse(ra.sum(ra.softmax(ra.where(k <= q, SCORES, -oo), k) * VALUES, k), axes="b h q e"), HEADS,
               causal),
    "layer norm": (ra.fuse(ra.layer_norm(x, n) * gain + bias, axes="b n"), ROWS | {"w": (3001,), "c": (3001,)},
                   lambda x, w, c: functional.layer_norm(x, (3001,), w, c)),
    "rms norm": (ra.fuse(ra.rms_norm(x, n, eps=Rational(1, 100000)) * gain, axes="b n"), ROWS | {"w": (3001,)},
                 lambda x, w: functional.rms_norm(x, (3001,), w, eps=1e-5)),
    "softmax": (ra.fuse(ra.softmax(x, n), axes="b n"), ROWS, lambda x: x.softmax(1)),
    "logsumexp": (ra.fuse(ra.logsumexp(x, n), axes="b"), ROWS, lambda x: x.logsumexp(1)),
    "variance": (ra.fuse(ra.var(x, n), axes="b"), ROWS, lambda x: x.var(1, correction=0)),
    "covariance": (ra.fuse(ra.mean((x - ra.mean(x, n)) * (gain - ra.mean(gain, n)), n), axes="b"),
                   ROWS | {"w": (3001,)}, lambda x, w: ((x - x.mean(1, keepdim=True)) * (w - w.mean())).mean(1)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_the_gradient_is_pytorchs(name: str, dtype: torch.dtype) -> None:
    form, shapes, written = FORMS[name]
    generator = torch.Generator("cuda").manual_seed(0)
    data = {key: torch.randn(shape, generator=generator, device="cuda").to(dtype) for key, shape in shapes.items()}

    def gradients(call: Function, kind: torch.dtype) -> list[torch.Tensor]:
        leaves = {key: one.detach().to(kind).requires_grad_() for key, one in data.items()}
        out = call(**leaves)
        weight = torch.randn(out.shape, generator=torch.Generator("cuda").manual_seed(1), device="cuda")
        return [one.double() for one in torch.autograd.grad(out, list(leaves.values()), weight.to(dtype).to(out.dtype))]

    wanted = gradients(written, torch.float64)
    for mine, eager, true in zip(gradients(form, dtype), gradients(written, dtype), wanted, strict=True):
        largest, step = float(true.abs().max()), torch.finfo(dtype).eps
        assert float((mine - true).abs().max()) <= 2 * float((eager - true).abs().max()) + step * largest


@pytest.mark.parametrize("depth", [64, 640])
def test_the_gradient_of_a_loss_of_products(depth: int) -> None:
    """Of few columns in one kernel; of many by a product whose epilogue makes the operand of the next."""
    v, t = ra.axes("v"), ra.tensor("label[b]")
    s = ra.sum(ra.tensor("x[b,d]") * ra.tensor("w[v,d]"), d)
    form = ra.fuse(ra.logsumexp(s, v) - ra.sum(ra.where(ra.eq(v, t), s, 0), v), axes="b")
    generator = torch.Generator("cuda").manual_seed(0)
    label = torch.randint(0, 1000, (200,), generator=generator, device="cuda")
    x, w = (torch.randn(n, depth, generator=generator, device="cuda").bfloat16() for n in (200, 1000))

    def gradients(kind: torch.dtype, *, derived: bool) -> list[torch.Tensor]:
        leaves = [one.to(kind).requires_grad_() for one in (x, w)]
        written = functional.cross_entropy((leaves[0] @ leaves[1].T).to(max_precision(kind)), label, reduction="none")
        out = form(x=leaves[0], w=leaves[1], label=label) if derived else written
        return [one.double() for one in torch.autograd.grad(out.sum(), leaves)]

    wanted = gradients(torch.float64, derived=False)
    pairs = zip(gradients(torch.bfloat16, derived=True), gradients(torch.bfloat16, derived=False), wanted, strict=True)
    for mine, eager, true in pairs:
        step = torch.finfo(torch.bfloat16).eps * float(true.abs().max())
        assert float((mine - true).abs().max()) <= 2 * float((eager - true).abs().max()) + step


def max_precision(kind: torch.dtype) -> torch.dtype:
    """The dtype of a loss's arithmetic."""
    return torch.float64 if kind == torch.float64 else torch.float32
