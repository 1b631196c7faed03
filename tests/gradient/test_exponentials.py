"""Derivatives of sums of exponentials that are written without a maximum: in range, and with their digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import Expr, exp, log, sqrt

import redalg as ra
from redalg.definition import evaluate_definition
from redalg.gradient.exponentials import with_pivots

b, n, k, d, q, e = ra.axes("b n k d q e")
x, y, z, w = ra.tensors("x[b,n] y[b,n] z[b,n] w[b]")
Q, K, V = ra.tensors("Q[q,d] K[k,d] V[k,e]")
SCORES = ra.sum(Q * K, d)
Tensors = dict[str, torch.Tensor]
TOTAL, WEIGHTED = ra.sum(exp(x), n), ra.sum(exp(x) * y, n)


def attention(data: Tensors) -> torch.Tensor:
    return (data["Q"] @ data["K"].T).softmax(1) @ data["V"]


def share(beside: Callable[[Tensors], torch.Tensor]) -> Callable[[Tensors], torch.Tensor]:
    """Σ e^x·y over the sum of e^x and of exponentials of other columns."""
    return lambda data: (torch.cat([data["x"], beside(data)], 1).softmax(1)[:, : data["x"].shape[1]] * data["y"]).sum(1)


def log_share(data: Tensors) -> torch.Tensor:
    return data["x"].logsumexp(1) - data["z"].logsumexp(1)


CASES: dict[str, tuple[Expr, str, Callable[[Tensors], torch.Tensor]]] = {
    "ratio": (WEIGHTED / TOTAL, "b", lambda data: (data["x"].softmax(1) * data["y"]).sum(1)),
    "logarithm": (log(TOTAL) ** 2 * ra.sum(y, n), "b", lambda data: data["x"].logsumexp(1) ** 2 * data["y"].sum(1)),
    "softplus": (log(1 + TOTAL), "b", lambda data: torch.nn.functional.pad(data["x"], (0, 1)).logsumexp(1)),
    "sink": (WEIGHTED / (exp(w) + TOTAL), "b", share(lambda data: data["w"][:, None])),
    "two sums": (WEIGHTED / (TOTAL + ra.sum(exp(z), n)), "b", share(lambda data: data["z"])),
    "one over another": (log(TOTAL / ra.sum(exp(z), n)), "b", log_share),
    "root": (sqrt(ra.sum(exp(2 * x), n)) / TOTAL, "b",
             lambda data: ((2 * data["x"]).logsumexp(1) / 2 - data["x"].logsumexp(1)).exp()),
    "carried": (exp(x) / TOTAL * y, "b n", lambda data: data["x"].softmax(1) * data["y"]),
    "attention": (ra.sum(exp(SCORES) * V, k) / ra.sum(exp(SCORES), k), "q e", attention),
}  # fmt: skip
FORMS = {name: ra.fuse(expr, axes=axes) for name, (expr, axes, _) in CASES.items()}
each = pytest.mark.parametrize("name", CASES)


def drawn(seed: int, offset: float) -> Tensors:
    """Data in float64, whose exponents are about an offset."""
    generator = torch.Generator().manual_seed(seed)
    length = 1 + seed % 6
    shapes = {"x": (3, length), "y": (3, length), "z": (3, length), "w": (3,), "Q": (3, 4), "K": (length, 4),
              "V": (length, 2)}  # fmt: skip
    data = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    data |= {name: data[name] + offset for name in "xzw"}
    return data | {"K": data["K"] + offset, "Q": data["Q"].abs() + 0.1}


def leaves_of(name: str, data: Tensors) -> list[torch.Tensor]:
    return [data[one].requires_grad_() for one in FORMS[name].cascade.inputs()]


@pytest.mark.sweep(2)
@each
@given(st.integers(0, 999), st.sampled_from([-1000, 0, 50, 1000]))
def test_first_and_second_derivatives(name: str, seed: int, offset: float) -> None:
    data = drawn(seed, offset)
    leaves = leaves_of(name, data)

    def derivatives(made: torch.Tensor) -> list[torch.Tensor]:
        first = torch.autograd.grad(made.square().sum(), leaves, create_graph=True)
        total = torch.stack([one.square().sum() for one in first]).sum()
        return [*first, *torch.autograd.grad(total, leaves)]

    found = derivatives(FORMS[name](**{one: data[one] for one in FORMS[name].cascade.inputs()}))
    wanted = derivatives(CASES[name][2](data))
    largest = [max(float(one.detach().abs().max()) for one in part) for part in (wanted[: len(leaves)], wanted)]
    for place, (got, exact) in enumerate(zip(found, wanted, strict=True)):
        scale = largest[place >= len(leaves)]
        torch.testing.assert_close(got, exact, rtol=1e-9, atol=1e-10 * scale + 1e-12)


@pytest.mark.parametrize("name", ["ratio", "logarithm", "sink"])
@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_digits_are_kept_where_exponents_are_large(name: str, offset: float) -> None:
    """The maximum and the sum are saved apart: their logarithm, rounded, would cost 3e-3 of a weight at 1e5."""
    data = {one: tensor.float() for one, tensor in drawn(5, offset).items()}
    leaves = leaves_of(name, data)
    made = FORMS[name](**{one: data[one] for one in FORMS[name].cascade.inputs()})
    found = torch.autograd.grad(made.sum(), leaves)
    exact = {one: tensor.detach().double() for one, tensor in data.items()}
    by_exact = leaves_of(name, exact)
    wanted = torch.autograd.grad(CASES[name][2](exact).sum(), by_exact)
    for got, one in zip(found, wanted, strict=True):
        torch.testing.assert_close(got.double(), one, rtol=1e-6, atol=1e-6 * float(one.abs().max()))


@each
@given(st.integers(0, 999))
def test_what_is_rewritten_has_its_value(name: str, seed: int) -> None:
    expr, axes, _ = CASES[name]
    made, pivots = with_pivots({"out": expr})
    assert pivots
    data, order = drawn(seed, 0), tuple(map(ra.Axis, axes.split()))
    sizes = {"b": 3, "n": data["x"].shape[1], "q": 3, "k": data["x"].shape[1], "d": 4, "e": 2}
    old, new = (evaluate_definition({"out": (one, order)}, data, {}, sizes)["out"] for one in (expr, made["out"]))
    torch.testing.assert_close(new, old)


@pytest.mark.parametrize(
    "expr",
    [
        WEIGHTED * w + ra.sum(exp(z), n),
        ra.sum(ra.softmax(x, n) * y, n),
        ra.sum(exp(-((x - w) ** 2)) * y, n) / ra.sum(exp(-((x - w) ** 2)), n),
        log(TOTAL + TOTAL**2),
        log(ra.sum(exp(w) * y**2, n)),
    ],
    ids=["linear", "written with it", "at most 1", "powers that differ", "no exponent of a row"],
)
def test_others_stay_as_they_are(expr: Any) -> None:
    assert with_pivots({"out": expr}) == ({"out": expr}, ())


@given(st.integers(0, 999), st.sampled_from([0, 1000]))
def test_a_row_of_which_nothing_counts_has_gradients_of_zero(seed: int, offset: float) -> None:
    above, below = (ra.sum(ra.where(y > 0, term, 0), n) for term in (exp(x) * z, exp(x)))
    form, data = ra.fuse(above / below, axes="b"), drawn(seed, offset)
    data["z"] -= offset
    data["y"][1] = -1
    leaves = [data["x"].requires_grad_(), data["z"].requires_grad_()]
    live = (data["y"] > 0).any(1)
    if not live.any():
        return
    weights = data["x"][live].masked_fill(data["y"][live] <= 0, -torch.inf).softmax(1)
    wanted = torch.autograd.grad((weights * data["z"][live]).sum(), leaves)
    made = form(**{name: data[name] for name in "xyz"}, empty="zero")
    found = torch.autograd.grad(made.sum(), leaves)
    for got, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, exact)


def test_it_says_why_the_maximum_has_no_gradient() -> None:
    backward = FORMS["attention"].vjp()
    assert {"row_max_0", "row_sum_0", "row_sum_1"} == set(backward.saved)
    assert "Σ e^u is e^m·Σ e^(u − m) for every number m" in str(backward)
    sources = backward.source(sizes={"q": 128, "k": 128, "d": 64, "e": 64}, dtypes="float16")
    assert all("def main(" in text for text in sources.values())
