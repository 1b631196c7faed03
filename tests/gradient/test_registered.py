"""Derivatives of monoids that are registered with a rule, beside PyTorch's of what they compute, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import Max, exp, log, oo, sqrt
from torch.func import jvp

import redalg as ra
from redalg.monoids import MONOIDS

b, n = ra.axes("b n")
x, y = ra.tensors("x[b,n] y[b,n]")
Parts = tuple[Any, ...]
Tensors = dict[str, torch.Tensor]
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
"""PyTorch's own, of its first level of forward mode."""


def join_scaled(a: Parts, b: Parts) -> Parts:
    """Σ e^x as l·e^m."""
    m = Max(a[0], b[0])
    left, right = (ra.where(ra.eq(one[0], -oo), 0, one[1] * exp(one[0] - m)) for one in (a, b))
    return m, left + right


def join_moments(a: Parts, b: Parts) -> Parts:
    """Weight, mean and Σ of squares about it (Chan's)."""
    total = a[0] + b[0]
    share = ra.where(ra.eq(total, 0), 0, b[0] / total)
    return total, a[1] + (b[1] - a[1]) * share, a[2] + b[2] + (b[1] - a[1]) ** 2 * a[0] * share


def join_best(a: Parts, b: Parts) -> Parts:
    """The largest value, its place, and Σ of all values."""
    first = a[0] >= b[0]
    return ra.where(first, a[0], b[0]), ra.where(first, a[1], b[1]), a[2] + b[2]


def join_ends(a: Parts, b: Parts) -> Parts:
    """The first value, the last, and how many: it does not commute."""
    return ra.where(a[2] > 0, a[0], b[0]), ra.where(b[2] > 0, b[1], a[1]), a[2] + b[2]


RULES: dict[str, dict[str, Any]] = {
    "log_total": {
        "components": {"m": -oo, "l": 0}, "lift": lambda value, _: (value, 1), "combine": join_scaled,
        "lower": lambda m, l: m + log(l),
        "vjp": lambda total, one, g: (g[1] * one[1] * exp(one[0] - total[0]), g[1] * exp(one[0] - total[0])),
    },
    "moments": {
        "components": {"weight": 0, "mean": 0, "squares": 0}, "domain": ("positive", "finite"),
        "lift": lambda weight, value, _: (weight, value, 0), "combine": join_moments,
        "lower": lambda weight, mean, squares: (mean, sqrt(1 + squares / weight)), "results": ("mean", "spread"),
        "vjp": lambda total, one, g: (
            g[0] + g[1] * (one[1] - total[1]) / total[0] + g[2] * (one[1] - total[1]) ** 2,
            g[1] * one[0] / total[0] + 2 * g[2] * one[0] * (one[1] - total[1]),
            g[2],
        ),
    },
    "best": {
        "components": {"value": -oo, "place": -1, "total": 0}, "integers": ("place",), "combine": join_best,
        "lift": lambda value, place: (value, place, value),
        "vjp": lambda total, one, g: (ra.where(ra.eq(one[1], total[1]), g[0], 0), 0, g[2]), "commutative": False,
    },
    "product": {
        "components": {"value": 1}, "domain": "positive", "combine": lambda a, b: a[0] * b[0],
        "vjp": lambda total, one, g: g[0] * total[0] / one[0],
    },
}  # fmt: skip
TERM = x * y


def forms() -> dict[str, Any]:
    """An output of each monoid, nonlinear in its results."""
    mean, spread = ra.reduce("moments", exp(y), TERM, axis=n)
    value, _, total = ra.reduce("best", TERM, axis=n)
    logarithm, product = ra.reduce("log_total", TERM, axis=n), ra.reduce("product", exp(x / 4) + exp(y / 4), axis=n)
    return {
        "log_total": logarithm**2,
        "moments": mean * spread + ra.sum(x, n),
        "best": value * total,
        "product": product * ra.sum(y, n),
    }


def log_total(data: Tensors) -> torch.Tensor:
    return (data["x"] * data["y"]).logsumexp(1) ** 2


def moments(data: Tensors) -> torch.Tensor:
    weight, value = data["y"].exp(), data["x"] * data["y"]
    mean = (weight * value).sum(1) / weight.sum(1)
    squares = (weight * (value - mean[:, None]) ** 2).sum(1) / weight.sum(1)
    return mean * (1 + squares).sqrt() + data["x"].sum(1)


def best(data: Tensors) -> torch.Tensor:
    value = data["x"] * data["y"]
    return value.max(1).values * value.sum(1)


def product(data: Tensors) -> torch.Tensor:
    return ((data["x"] / 4).exp() + (data["y"] / 4).exp()).prod(1) * data["y"].sum(1)


DEFINITIONS: dict[str, Callable[[Tensors], torch.Tensor]] = {
    "log_total": log_total, "moments": moments, "best": best, "product": product,
}  # fmt: skip
each = pytest.mark.parametrize("name", RULES)
seeds = st.integers(0, 999)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    for name, rule in RULES.items():
        ra.register_monoid(name, **rule)
    yield
    for name in RULES:
        del MONOIDS[name]


@pytest.fixture(scope="module")
def fused() -> Mapping[str, ra.Fused]:
    return {name: ra.fuse(expr, axes="b") for name, expr in forms().items()}


def drawn(seed: int) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(3, 1 + seed % 6, generator=generator, dtype=torch.float64) for name in "xy"}


@each
@given(seeds)
def test_first_and_second_derivatives(fused: Mapping[str, ra.Fused], name: str, seed: int) -> None:
    data = drawn(seed)
    leaves = [one.requires_grad_() for one in data.values()]

    def derivatives(made: torch.Tensor) -> list[torch.Tensor]:
        first = torch.autograd.grad(made.sum(), leaves, create_graph=True)
        total = torch.stack([one.square().sum() for one in first]).sum()
        return [*first, *torch.autograd.grad(total, leaves)]

    for got, exact in zip(derivatives(fused[name](**data)), derivatives(DEFINITIONS[name](data)), strict=True):
        torch.testing.assert_close(got, exact)


@each
@given(seeds)
def test_tangents(fused: Mapping[str, ra.Fused], name: str, seed: int) -> None:
    data = drawn(seed)
    tangents = {one: torch.randn_like(tensor) for one, tensor in data.items()}
    made: Any = jvp(DEFINITIONS[name], (data,), (tangents,))
    torch.testing.assert_close(fused[name].jvp()(tangents, **data)["out"], made[1])


@each
@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
def test_every_backend(fused: Mapping[str, ra.Fused], name: str, backend: str) -> None:
    data = {one: tensor.float().requires_grad_() for one, tensor in drawn(5).items()}
    wanted = torch.autograd.grad(DEFINITIONS[name](data).sum(), list(data.values()))
    found = torch.autograd.grad(fused[name](**data, backend=backend).sum(), list(data.values()))
    for got, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-4, atol=1e-5)


def test_components_are_saved_as_they_are(fused: Mapping[str, ra.Fused]) -> None:
    """A place stays an integer beside tensors of 16 bits; what `lower` hides is a row value."""
    form = ra.fuse(ra.sum(ra.reduce("best", x, axis=n)[0] * y, n), axes="b")
    data = {name: one.bfloat16() for name, one in drawn(5).items()}
    backward = form.vjp().for_tensors(data)
    made = dict(zip((*backward.outputs, *backward.saved), backward.forward(**data), strict=True))
    assert [one.dtype for name, one in made.items() if name.startswith("row_best")].count(torch.int64) == 1
    assert len(fused["log_total"].vjp().saved) == 3


def test_a_user_sees_no_component_that_lower_hides() -> None:
    assert len(ra.reduce("moments", x, y, axis=n)) == 2
    assert isinstance(ra.reduce("log_total", x, axis=n), ra.Reduce)


def test_a_backward_of_a_text_is_the_same(fused: Mapping[str, ra.Fused]) -> None:
    data = drawn(3)
    again = ra.from_json(fused["moments"].vjp().forward.to_json())
    for got, exact in zip(again(**data), fused["moments"].vjp().forward(**data), strict=True):
        torch.testing.assert_close(got, exact)


@each
@given(st.integers(0, 3), st.sampled_from([-1, 0, 2]))
def test_a_wrong_rule_is_an_error_with_its_case(name: str, component: int, factor: int) -> None:
    """One component of the rule times a number; of those that vary with an operand."""
    right = RULES[name]["vjp"]
    used = [place for place, one in enumerate(RULES[name]["components"]) if one not in ("place", "l", "squares")]
    place = used[component % len(used)]

    def wrong(total: Parts, one: Parts, g: Parts) -> Any:
        made = right(total, one, g)
        parts = made if isinstance(made, tuple) else (made,)
        return *parts[:place], factor * parts[place], *parts[place + 1 :]

    with pytest.raises(ra.LawViolation, match=f"the vjp of wrong_{name} is not its derivative") as error:
        ra.register_monoid(f"wrong_{name}", **{**RULES[name], "vjp": wrong})
    assert error.value.left != error.value.right
    assert f"wrong_{name}" not in MONOIDS


def test_without_a_rule_it_is_refused_with_what_to_pass() -> None:
    ra.register_monoid("ends", components={"first": 0, "last": 0, "count": 0}, lift=lambda one, _: (one, one, 1),
                       integers=("count",), combine=join_ends, commutative=False)  # fmt: skip
    try:
        form = ra.fuse(ra.reduce("ends", x, axis=n)[1], axes="b")
        for method in (form.vjp, form.jvp):
            with pytest.raises(ra.GradientError, match=r'Pass `vjp=` to `ra.register_monoid\("ends", …\)`'):
                method()
    finally:
        del MONOIDS["ends"]


def test_a_rule_gives_as_many_parts_as_an_element_has() -> None:
    with pytest.raises(ra.ExpressionError, match="vjp gives 1 parts, and 2 are due"):
        ra.register_monoid("wrong", **{**RULES["log_total"], "vjp": lambda _, one, g: g[0] * one[0]})
