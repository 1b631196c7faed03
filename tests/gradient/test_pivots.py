"""Shares whose denominator has terms beside the sum: maxima without a gradient, and rows of which nothing counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import Max, exp, oo

import redalg as ra

b, n = ra.axes("b n")
x, y, t, w = ra.tensors("x[b,n] y[b,n] t[b] w[b,n]")
DATA = {"x": (4, 6), "y": (4, 6), "t": (4,), "w": (4, 6)}


def drawn(seed: int) -> dict[str, torch.Tensor]:
    """Data in float64; of the second row nothing counts."""
    generator = torch.Generator().manual_seed(seed)
    data = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in DATA.items()}
    data["w"][1] = -1
    return data


def share(seen: float, power: int, beside: int, constant: int) -> ra.Fused:
    """Σ e^(x − m)·y / (Σ e^(x − m) + beside·e^(power·(t − m)) + constant), where w is above `seen`."""
    s = ra.where(w > seen, x, -oo)
    m = ra.max(s, n)
    total = ra.sum(exp(s - m), n) + beside * exp(power * (t - m)) + constant
    return ra.fuse(ra.sum(exp(s - m) / total * y, n), axes="b")


def by_hand(data: dict[str, torch.Tensor], seen: float, power: int, beside: int, constant: int) -> torch.Tensor:
    """The shares of the rows of which something counts."""
    live = (data["w"] > seen).any(1)
    s, t, y = (data[name][live] for name in "xty")
    s = s.masked_fill(data["w"][live] <= seen, -torch.inf)
    m = s.amax(1, keepdim=True)
    total = (s - m).exp().sum(1, keepdim=True) + beside * (power * (t[:, None] - m)).exp() + constant
    return ((s - m).exp() / total * y).sum()


@given(st.integers(0, 99), st.sampled_from([-0.5, 0.5]), st.sampled_from([1, 2]), st.integers(0, 2), st.integers(0, 1))
def test_a_maximum_is_a_pivot_if_every_term_holds_it_alike(
    seed: int, seen: float, power: int, beside: int, constant: int
) -> None:
    form, data = share(seen, power, beside, constant), drawn(seed)
    alike = not constant and (not beside or power == 1)
    assert bool(form.vjp().proofs) == alike
    leaves = [data[name].requires_grad_() for name in ("xyt" if beside else "xy")]
    wanted = torch.autograd.grad(by_hand(data, seen, power, beside, constant), leaves)
    live = (data["w"] > seen).any(1)
    made = form(**{name: one for name, one in data.items() if beside or name != "t"}, empty="zero")
    found = torch.autograd.grad(made[live].sum(), leaves)
    for got, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("sinks", [0, 1])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_gathered_tensor_has_no_nan_of_an_empty_row(groups: int, sinks: int) -> None:
    """The denominator of the empty row is 0 (0 + 0 with sinks); a gathered tensor's gradient is summed over it too."""
    h, k, e = ra.axes("h k e")
    s = ra.where(ra.ne(ra.tensor("M[q,k]"), 0), ra.tensor("s[h,q,k]"), -oo)
    m = ra.max(s, k)
    total = ra.sum(exp(s - m), k) + sinks * exp(ra.tensor("t[h]") - m)
    form = ra.fuse(ra.sum(exp(s - m) / total * ra.Tensor("V")[h // groups, k, e], k), axes="h q e")
    generator = torch.Generator().manual_seed(0)
    shapes: dict[str, Any] = {"s": (2, 3, 5), "V": (2 // groups, 5, 4), "t": (2,)}
    data = {name: torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
            for name, shape in shapes.items() if sinks or name != "t"}  # fmt: skip
    seen = torch.ones(3, 5, dtype=torch.bool)
    seen[1] = False
    found = torch.autograd.grad(form(**data, M=seen, empty="zero").sum(), list(data.values()))
    sink = data["t"] if sinks else torch.full((2,), -torch.inf, dtype=torch.float64)
    logits = torch.cat([data["s"][:, [0, 2]], sink[:, None, None].expand(2, 2, 1)], 2)
    values = data["V"].repeat_interleave(groups, 0)
    wanted = torch.autograd.grad((logits.softmax(2)[..., :-1] @ values).sum(), list(data.values()))
    for got, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, exact)


def test_the_best_shares_of_a_row_do_not_depend_on_its_maximum() -> None:
    """Neither do their places: a factor leaves their order. Were it differentiated, all scores would be stored."""
    form = ra.fuse(ra.topk(ra.softmax(x, n), n, ra.axis("j", size=2))[0], axes="b j")
    assert len(form.vjp().proofs) == 1
    data = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    made = form(x=data)
    weights = torch.arange(8, dtype=torch.float64).reshape(4, 2)
    best = data.softmax(1).topk(2, 1)[0]
    found, wanted = (torch.autograd.grad(one, data, weights)[0] for one in (made, best))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("beside", [0, t])
def test_the_larger_of_a_maximum_and_of_a_term_beside_is_a_pivot(beside: Any) -> None:
    """Σ e^(x - m)·y / (Σ e^(x - m) + e^(t - m)), m = max(t, max x): it is in the numerator and in both terms below."""
    m = Max(beside, ra.max(x, n))
    form = ra.fuse(ra.sum(exp(x - m) * y, n) / (ra.sum(exp(x - m), n) + exp(beside - m)), axes="b")
    assert len(form.vjp().proofs) == 1
    names = "xyt" if beside is t else "xy"
    data = {name: drawn(0)[name].requires_grad_() for name in names}
    sink = data["t"] if "t" in data else torch.zeros(4, dtype=torch.float64)
    wanted = (torch.cat([data["x"], sink[:, None]], 1).softmax(1)[:, :-1] * data["y"]).sum(1)
    found, exact = (torch.autograd.grad(made.sum(), list(data.values())) for made in (form(**data), wanted))
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-13)
