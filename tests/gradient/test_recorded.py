"""Calls on tensors that require a gradient: first and second derivatives, dtypes, and what PyTorch does with a call."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from sympy import exp, oo
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import redalg as ra

b, n, h, q, k, d, e = ra.axes("b n h q k d e")
x, y = ra.tensors("x[b,n] y[b,n]")
X, x_1 = ra.Tensor("x"), ra.axes("x_1")
SCORES = ra.sum(ra.tensor("Q[b,h,q,d]") * ra.tensor("K[b,h,k,d]"), d) / 4
VALUES = ra.tensor("V[b,h,k,e]")
GAIN, BIAS = ra.tensors("g[n] c[n]")
i, j, m = ra.axes("z_1 z_0 z_2")  # the names of z's dimensions in its gradient, in another order
NEAR = exp(-ra.sum((ra.tensor("X[q,d]") - ra.tensor("Y[k,d]")) ** 2, d))
FORMS = {
    "sum of squares": ra.fuse(ra.sum(x**2, n), axes="b"),
    "variance": ra.fuse(ra.var(x, n), axes="b"),
    "softmax": ra.fuse(ra.softmax(x, n), axes="b n"),
    "logsumexp": ra.fuse(ra.logsumexp(x, n), axes="b"),
    "maximum": ra.fuse(ra.max(x, n), axes="b"),
    "covariance": ra.fuse(ra.mean((x - ra.mean(x, n)) * (y - ra.mean(y, n)), n), axes="b"),
    "layer norm": ra.fuse(ra.layer_norm(x, n) * GAIN + BIAS, axes="b n"),
    "attention": ra.fuse(ra.sum(ra.softmax(SCORES, k) * VALUES, k), axes="b h q e"),
    "weighted mean of points": ra.fuse(ra.sum(NEAR * ra.tensor("Y[k,e]"), k) / ra.sum(NEAR, k), axes="q e"),
    "axes named as dimensions": ra.fuse(ra.sum(exp(ra.Tensor("z")[i, j]) * ra.Tensor("z")[i, m], i), axes="z_0 z_2"),
    "causal": ra.fuse(ra.sum(ra.softmax(ra.where(k <= q, SCORES, -oo), k) * VALUES, k), axes="b h q e"),
    "neighbours": ra.fuse(ra.sum(ra.where(n >= 1, (X[b, n] * X[b, n - 1]) ** 2, 0), n), axes="b"),
    "pairs": ra.fuse(ra.sum((X[b, n] - X[b, k]) ** 2 * X[b, k], n, k), axes="b"),
    "an axis named as a dimension is": ra.fuse(ra.sum(ra.where(x_1 >= 1, X[b, x_1] * X[b, x_1 - 1], 0), x_1), axes="b"),
}
SHAPES = {"x": (2, 5), "y": (2, 5), "g": (5,), "c": (5,), "Q": (1, 2, 3, 4), "K": (1, 2, 4, 4), "V": (1, 2, 4, 3),
          "X": (2, 3), "Y": (4, 3), "z": (3, 4)}  # fmt: skip


def tensors(form: ra.Fused, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    names = sorted({one.name for one in form.cascade.elements()})
    return {name: torch.randn(SHAPES[name], generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
            for name in names}  # fmt: skip


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "causal")) for name in FORMS])
def test_first_and_second_derivatives(name: str) -> None:
    call, values = by_position(FORMS[name])
    assert gradcheck(call, values)
    assert gradgradcheck(call, values)


def by_position(form: ra.Fused) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """A call of a form by position, and the tensors for it."""
    data = tensors(form)
    return lambda *values: form(**dict(zip(data, values, strict=True))), tuple(data.values())


@pytest.mark.parametrize("backend", ["torch", "tilelang", "numpy"])
def test_every_backend_is_recorded(backend: str) -> None:
    form, data = FORMS["attention"], tensors(FORMS["attention"], torch.float32)
    leaves = [data[one] for one in "QKV"]
    queries, keys, values = leaves
    wanted = torch.autograd.grad(((queries @ keys.mT / 4).softmax(-1) @ values).sum(), leaves)
    found = torch.autograd.grad(form(**data, backend=backend).sum(), leaves)
    for got, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_tensors_have_gradients_of_their_dtype(dtype: torch.dtype) -> None:
    """The row values are made again in float32: the gradient is rounded once."""
    form = FORMS["layer norm"]
    narrow = tensors(form, dtype)
    wide = {name: one.detach().double().requires_grad_() for name, one in narrow.items()}
    cotangent = torch.linspace(-1, 1, 10, dtype=torch.float64).reshape(2, 5).to(dtype)
    form(**narrow).backward(cotangent)
    form(**wide).backward(cotangent.double())
    for name, one in narrow.items():
        assert one.grad is not None
        assert one.grad.dtype == dtype
        torch.testing.assert_close(one.grad.double(), wide[name].grad, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


def test_outputs_of_which_one_is_used() -> None:
    form = ra.fuse({"mean": (ra.mean(x, n), "b"), "var": (ra.var(x, n), "b"), "place": (ra.argmax(x, n), "b")})
    data = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    made = form(x=data)
    assert not made.place.requires_grad
    (found,) = torch.autograd.grad(made.var.sum(), data)
    (wanted,) = torch.autograd.grad(data.var(1, correction=0).sum(), data)
    torch.testing.assert_close(found, wanted)


def test_a_loss_with_targets() -> None:
    scores, target = torch.randn(6, 9, dtype=torch.float64, requires_grad=True), torch.arange(6) % 9
    form = ra.fuse(ra.logsumexp(x, n) - ra.Tensor("x")[b, ra.tensor("target[b]")], axes="b")
    (found,) = torch.autograd.grad(form(x=scores, target=target).sum(), scores)
    (wanted,) = torch.autograd.grad(functional.cross_entropy(scores, target, reduction="sum"), scores)
    torch.testing.assert_close(found, wanted)


def test_under_no_grad_nothing_is_recorded_and_frozen_tensors_get_nothing() -> None:
    form, data = FORMS["covariance"], tensors(FORMS["covariance"])
    with torch.no_grad():
        assert not form(**data).requires_grad
    frozen = {"x": data["x"], "y": data["y"].detach()}
    form(**frozen).sum().backward()
    assert data["x"].grad is not None
    assert data["y"].grad is None


def test_checkpoint_and_hessian() -> None:
    form, data = FORMS["logsumexp"], tensors(FORMS["logsumexp"])["x"]
    (found,) = torch.autograd.grad(checkpoint(lambda x: form(x=x), data, use_reentrant=False).sum(), data)
    torch.testing.assert_close(found, data.softmax(1))
    hessian = torch.autograd.functional.hessian(lambda x: form(x=x).sum(), data)
    wanted = torch.autograd.functional.hessian(lambda x: x.logsumexp(1).sum(), data)
    torch.testing.assert_close(hessian, wanted)


def test_a_model_learns() -> None:
    """Weights of an attention over five keys, fitted by gradient descent through two fused functions."""
    form, loss = FORMS["attention"], ra.fuse(ra.mean(x**2, n), axes="b")
    generator = torch.Generator().manual_seed(0)
    data = {name: torch.randn(SHAPES[name], generator=generator).requires_grad_() for name in "QKV"}
    target = torch.randn(1, 2, 3, 3, generator=generator)
    optimizer = torch.optim.Adam(data.values(), lr=0.05)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        error = loss(x=(form(**data) - target).reshape(1, -1)).sum()
        error.backward()
        optimizer.step()
        losses.append(error.item())
    assert losses[-1] < 0.1 * losses[0]


def test_a_plan_without_row_values_is_refused() -> None:
    form, data = FORMS["softmax"], tensors(FORMS["softmax"], torch.float32)
    plan = form.plan({"b": 2, "n": 5}, "float32", "c")
    with pytest.raises(ra.GradientError, match=r"plan= belongs to a form without the row values"):
        form(**data, backend="tilelang", plan=plan)


def test_products_with_zeros_have_one_derivative() -> None:
    data = torch.tensor([[2.0, 3, 4], [0, 3, 4], [0, 0, 4]], dtype=torch.float64, requires_grad=True)
    form = ra.fuse(ra.prod(x, n), axes="b")
    (found,) = torch.autograd.grad(form(x=data).sum(), data)
    (wanted,) = torch.autograd.grad(data.prod(1).sum(), data)
    torch.testing.assert_close(found, wanted)
    (found,) = torch.autograd.grad(form(x=data).sum(), data, create_graph=True)
    torch.testing.assert_close(found, wanted)
    with pytest.raises(ra.GradientError, match="has no second derivative"):
        torch.autograd.grad(found.sum(), data)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, of what it imports for them
def test_transforms_take_the_one_derivative_of_a_product() -> None:
    """They ask for a graph of it, whether or not something differentiates that."""
    data, form = torch.rand(3, 4, dtype=torch.float64), ra.fuse(ra.prod(x, n), axes="b")
    found, wanted = (torch.func.jacrev(one)(data) for one in (lambda x: form(x=x), lambda x: x.prod(1)))
    torch.testing.assert_close(found, wanted)
    each = torch.func.vmap(torch.func.grad(lambda row: form(x=row[None]).sum()))
    torch.testing.assert_close(each(data), torch.func.grad(lambda x: x.prod(1).sum())(data))
    with pytest.raises(ra.GradientError, match="has no second derivative"):
        torch.func.vmap(torch.func.hessian(lambda row: form(x=row[None]).sum()))(data)
    with pytest.raises(ra.GradientError, match="has no second derivative"):
        torch.func.jacrev(each)(data)


def test_selected_elements_get_the_gradient() -> None:
    """Gates of a router: the best two scores, by which tokens weigh their experts."""
    j = ra.axis("j", size=2)
    values, places = ra.topk(x, n, j)
    form = ra.fuse({"gates": (values**2, "b j"), "places": (places, "b j")})
    data = torch.randn(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    weight = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
    (found,) = torch.autograd.grad((form(x=data).gates * weight).sum(), data)
    (wanted,) = torch.autograd.grad((data.topk(2, 1).values ** 2 * weight).sum(), data)
    torch.testing.assert_close(found, wanted)


def gradients_of(form: ra.Fused, seed: int) -> list[torch.Tensor]:
    """The gradients of a call on data of its own, recorded and run back in the thread that asks."""
    data = {name: (one.detach() * seed).requires_grad_() for name, one in tensors(form).items()}
    out = form(**data)
    return list(torch.autograd.grad(out, list(data.values()), torch.ones_like(out) * seed))


def test_threads_have_the_gradients_of_their_own_data() -> None:
    """Calls and backwards of many threads at once: nothing of a process is set for the time of a call."""
    jobs = [(FORMS[name], seed) for seed in range(1, 9) for name in ("layer norm", "causal", "logsumexp")]
    wanted = [gradients_of(*job) for job in jobs]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(gradients_of, *zip(*jobs * 3, strict=True)))
    for mine, right in zip(found, wanted * 3, strict=True):
        torch.testing.assert_close(mine, right)


ROWS = torch.randn(5, 300, generator=torch.Generator().manual_seed(2))
UNITS = torch.rand(300, generator=torch.Generator().manual_seed(3)) + 0.5
PEERS: dict[str, tuple[Callable[..., torch.Tensor], dict[str, torch.Tensor]]] = {
    "logsumexp": (lambda x: x.logsumexp(1), {"x": ROWS}),
    "softmax": (lambda x: x.softmax(1), {"x": ROWS}),
    "variance": (lambda x: x.var(1, correction=0), {"x": ROWS}),
    "layer norm": (lambda x, g, c: functional.layer_norm(x, (300,), g, c), {"x": ROWS, "g": UNITS, "c": UNITS}),
    "maximum": (lambda x: x.amax(1), {"x": ROWS}),
}
HOSTILE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda x: x,
    "far": lambda x: x + 1e3,
    "large": lambda x: x * 1e2,
    "ties": lambda x: x.round(),
    "one of 1e4": lambda x: torch.where(torch.arange(x.shape[-1]) == 1, 1e4, x),
}


def gradients_in(call: Callable[..., torch.Tensor], data: dict[str, torch.Tensor], kind: torch.dtype) -> Any:
    """The gradients by PyTorch of a sum with fixed weights, in float64."""
    leaves = {key: one.detach().to(kind).requires_grad_() for key, one in data.items()}
    out = call(**leaves)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(kind)
    return [one.double() for one in torch.autograd.grad(out, list(leaves.values()), weight)]


def check_errors(mine: Any, eager: Any, true: Any) -> None:
    """Errors against float64 of at most twice those of `eager`, and two roundings of the largest element."""
    for found, other, wanted in zip(mine, eager, true, strict=True):
        rounding = 2 * torch.finfo(torch.float32).eps * float(wanted.abs().max())
        assert float((found - wanted).abs().max()) <= 2 * float((other - wanted).abs().max()) + rounding


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("name", PEERS)
def test_gradients_of_float32_are_as_near_as_pytorchs(name: str, hostile: str) -> None:
    written, given = PEERS[name]
    data = {key: HOSTILE[hostile](one) if key == "x" else one for key, one in given.items()}
    mine, eager = (gradients_in(call, data, torch.float32) for call in (FORMS[name], written))
    check_errors(mine, eager, gradients_in(written, data, torch.float64))


SEEN = torch.ones(7, 40, dtype=torch.bool).tril(3)


def attended(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    return (Q @ K.mT / 4).masked_fill(~SEEN, -torch.inf).softmax(-1) @ V


def flash_gradients(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> list[torch.Tensor]:
    """FlashAttention-2's backward (Dao 2023, Algorithm 2), without its tiles."""
    scores = (Q @ K.mT / 4).masked_fill(~SEEN, -torch.inf)
    weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    cotangent = torch.randn(Q.shape[:-1] + V.shape[-1:], generator=torch.Generator().manual_seed(1))
    delta = (cotangent * (weights @ V)).sum(-1, keepdim=True)
    inner = weights * (cotangent @ V.mT - delta) / 4
    return [one.double() for one in (inner @ K, inner.mT @ Q, weights.mT @ cotangent)]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_gradients_of_attention_are_as_near_as_flash_attentions(hostile: str) -> None:
    """Of scores that a contraction makes: if one key has all the weight, a difference of 0 is a rounding in both."""
    form = ra.fuse(ra.sum(ra.softmax(ra.where(k <= q + 3, SCORES, -oo), k) * VALUES, k), axes="b h q e")
    drawn = {name: torch.randn(2, 3, rows, 16, generator=torch.Generator().manual_seed(place))
             for place, (name, rows) in enumerate((("Q", 7), ("K", 40), ("V", 40)))}  # fmt: skip
    data = drawn | {"Q": HOSTILE[hostile](drawn["Q"])}
    mine, true = gradients_in(form, data, torch.float32), gradients_in(attended, data, torch.float64)
    check_errors(mine, flash_gradients(**data), true)


def test_transforms_of_functions() -> None:
    form, data = FORMS["logsumexp"], tensors(FORMS["logsumexp"])["x"].detach()
    gradient = torch.func.grad(lambda x: form(x=x).sum())
    torch.testing.assert_close(gradient(data), data.softmax(1))
    second = torch.func.grad(lambda x: (gradient(x) ** 2).sum())(data)
    torch.testing.assert_close(second, torch.func.grad(lambda x: (x.softmax(1) ** 2).sum())(data))
