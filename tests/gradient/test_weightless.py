"""Elements of −∞ among scores: their weight is 0, and so is their gradient, whatever is computed beside it.

PyTorch has NaN there, of 0·∞. The limit is what its derivatives approach at scores of −700.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sympy import Expr, Ne, log

import redalg as ra
from redalg.library import kl_divergence, perplexity, renyi_entropy, softmax_entropy

b, n = ra.axes("b n")
x, y, v = ra.tensors("x[b,n] y[b,n] v[b,n]")
p, q = ra.softmax(x, n), ra.softmax(y, n)
Tensors = tuple[torch.Tensor, ...]


def log_p(scores: torch.Tensor) -> torch.Tensor:
    return scores.log_softmax(1)


def entropy(s: torch.Tensor) -> torch.Tensor:
    return -(s.softmax(1) * log_p(s)).sum(1)


def middle(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Jensen-Shannon: the entropy of the mean less the mean of the entropies."""
    mean = (a.softmax(1) + c.softmax(1)) / 2
    return -torch.special.xlogy(mean, mean).sum(1) - (entropy(a) + entropy(c)) / 2


def fuse(expr: Expr) -> ra.Fused:
    return ra.fuse(expr, axes="b", passes=2)


MEAN = (p + q) / 2
FORMS: dict[str, tuple[Callable[[], Any], str, Callable[..., torch.Tensor]]] = {
    "entropy": (softmax_entropy, "s", entropy),
    "entropy, by its logarithm": (lambda: fuse(-ra.sum(p * ra.log_softmax(x, n), n)), "x", entropy),
    "entropy of a distribution": (lambda: fuse(ra.entropy(p, n)), "x", entropy),
    "perplexity": (perplexity, "s", lambda s: entropy(s).exp()),
    "Kullback-Leibler": (kl_divergence, "xy", lambda a, c: (c.softmax(1) * (log_p(c) - log_p(a))).sum(1)),
    "Jensen-Shannon": (lambda: fuse(ra.sum((p * log(p) + q * log(q)) / 2 - MEAN * log(MEAN), n)), "xy", middle),
    "cross entropy of soft targets": (lambda: fuse(-ra.sum(q * ra.log_softmax(x, n), n)), "xy",
                                      lambda a, c: -(c.softmax(1) * log_p(a)).sum(1)),
    "mean by weights": (lambda: fuse(ra.sum(p * v, n)), "xv", lambda a, c: (a.softmax(1) * c).sum(1)),
}  # fmt: skip


def gradients(call: Callable[..., torch.Tensor], data: Tensors) -> Tensors:
    leaves = [tensor.clone().requires_grad_() for tensor in data]
    made = call(*leaves)
    weights = torch.arange(1, 1 + len(made), dtype=made.dtype)
    return made.detach(), *torch.autograd.grad((made * weights).sum(), leaves)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", FORMS)
def test_what_has_no_weight_has_no_gradient(name: str, kind: torch.dtype) -> None:
    make, names, written = FORMS[name]
    form, generator = make(), torch.Generator().manual_seed(0)
    numbers = [torch.randn(3, 6, generator=generator, dtype=torch.float64) for _ in names]
    masked = torch.tensor([[0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]], dtype=torch.bool)
    limit = gradients(written, tuple(one.masked_fill(masked, -700) for one in numbers))
    data = tuple(one.masked_fill(masked, torch.nan if key == "v" else -torch.inf).to(kind)
                 for key, one in zip(names, numbers, strict=True))  # fmt: skip
    found = gradients(lambda *tensors: form(**dict(zip(names, tensors, strict=True))), data)
    for got, exact in zip(found, limit, strict=True):
        near = 1e-12 if kind is torch.float64 else 1e-6
        torch.testing.assert_close(got.double(), exact, rtol=near, atol=near)


@pytest.mark.parametrize("offset", [0, 1e3, -1e3])
def test_an_entropy_of_any_order_is_in_range(offset: float) -> None:
    """(e^(s − m)/l)^α: e^m stands in the power too, which was 0 beside e^(α·m). Its maximum is a pivot."""
    alpha = ra.scalars("alpha", positive=True)
    form = fuse(log(ra.sum(p**alpha, n)) / (1 - alpha))
    assert len(form.vjp().proofs) == 1
    scores = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + offset
    found = gradients(lambda s: form(x=s, alpha=1.5), (scores,))
    wanted = gradients(lambda s: ((1.5 * s).logsumexp(1) - 1.5 * s.logsumexp(1)) / -0.5, (scores,))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-11)
    torch.testing.assert_close(renyi_entropy()(s=scores, alpha=1.5), wanted[0], rtol=1e-11, atol=1e-11)


def test_weights_beside_cotangents_alone_are_not_asked() -> None:
    """Neither does a mask of labels: kernels of losses compare no element with −∞."""
    label = ra.tensor("label[b]")
    loss = ra.logsumexp(x, n) - ra.sum(ra.where(ra.eq(n, label), x, 0), n)
    for expr in (p, loss):
        parts = (part for stage in ra.fuse(expr).vjp(["x"]).stages for part in stage.parts)
        assert not any(asked.has(x) for part in parts for asked in part.expr.atoms(Ne))
