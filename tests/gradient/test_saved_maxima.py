"""Maxima that a forward saves tell NaN by the sum of their exponentials: no kernel looks for NaN in every element."""

from typing import Any

import pytest
import torch
from sympy import exp

import redalg as ra
from redalg import library
from redalg.expression import Where
from redalg.expression.contents import of_kind

q, k = ra.axes("q k")
CAUSAL = library.attention(mask=k <= q)


def tensors(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(1, 2, 9, 4, generator=generator).to(dtype) for name in "QKV"}


def gradients(call: Any, data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    leaves = {name: one.clone().requires_grad_() for name, one in data.items()}
    out = call(**leaves)
    found = torch.autograd.grad(out, [*leaves.values()], torch.ones_like(out))
    return dict(zip(leaves, found, strict=True))


def unfused(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    """Attention step by step, whose products multiply masked weights of 0 with NaN as kernels do."""
    seen = torch.ones(Q.shape[2], K.shape[2], dtype=torch.bool).tril()
    scores = (Q @ K.mT / Q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
    return torch.softmax(scores, -1) @ V


def test_a_forward_that_saves_a_maximum_counts_no_nan() -> None:
    sizes = {"b": 1, "h": 2, "q": 128, "k": 128, "d": 64, "e": 64}
    recorded = CAUSAL.vjp().forward
    assert "NaN met" not in recorded.source("sm_90a", sizes=sizes, dtypes="bfloat16")
    told = ra.fuse({"top": (ra.max(ra.tensor("x[b,n]"), ra.axis("n")), "b")})
    assert "NaN met" in told.source("sm_90a", sizes={"b": 64, "n": 4096}, dtypes="bfloat16")  # a user's own does


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["Q", "K"])
def test_a_nan_of_the_scores_reaches_the_gradients_that_pytorch_has(name: str, dtype: torch.dtype) -> None:
    """One NaN in a query's row, or in a key that later rows see; in every key; in none. Of keys and values fewer may be
    NaN: PyTorch's weights of what a row's mask hides are NaN too."""
    limit = 0.05 if dtype is torch.bfloat16 else 1e-5
    for places in ([4], [0, 4], range(9), []):
        data = tensors(dtype)
        data[name][0, 0, list(places), 1] = torch.nan
        found, expected = gradients(CAUSAL, data), gradients(unfused, data)
        for tensor, one in expected.items():
            own, live = found[tensor].isnan(), ~one.isnan()
            assert own.any() == one.isnan().any(), (tensor, list(places))
            assert not (own & live).any(), (tensor, list(places))
            assert tensor != "Q" or torch.equal(own, ~live), list(places)
            torch.testing.assert_close(found[tensor][live], one[live], rtol=limit, atol=limit)


def test_a_maximum_with_another_sum_is_saved_as_it_is() -> None:
    """Σ e^(u − m) over what counts says nothing of the NaN of what does not."""
    n = ra.axis("n")
    x, y = ra.tensors("x[b,n] y[b,n]")
    weight = exp(x - ra.max(x, n))
    for form, marked in ((ra.sum(ra.where(y > 0, weight, 0), n), False), (ra.sum(weight, n) ** 2, True)):
        outputs = ra.fuse(form, axes="b").vjp().forward.cascade.outputs
        [saved] = [one for one in outputs if one.name.startswith("row_max")]
        assert bool(of_kind(Where, saved.expr)) == marked
