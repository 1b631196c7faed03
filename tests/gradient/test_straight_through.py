"""Gradients that pass roundings on request, beside PyTorch's that pass theirs; the true ones without it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import Abs, Expr, Float, Max, Min, Rational, ceiling, floor, sign, tanh
from torch.func import grad, jvp, vmap

import redalg as ra

m, k, n = ra.axes("m k n")
x, W, s = ra.tensors("x[m,k] W[n,k] s[m]")
Tensors = dict[str, torch.Tensor]
HALF = Rational(1, 2)
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
"""PyTorch's own, of its first level of forward mode."""


def passing(value: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """The value, with the gradient of the source."""
    return value.detach() + (source - source.detach())


def rounded(u: torch.Tensor) -> torch.Tensor:
    return passing((u + 0.5).floor(), u)


def clamped(u: torch.Tensor) -> torch.Tensor:
    """As torch.clamp: the whole gradient at a bound."""
    return u.clamp(-8, 7)


def as_int8(u: torch.Tensor) -> torch.Tensor:
    """Rounded to the nearest, and clamped."""
    return passing(u.round(), u).clamp(-128, 127)


def as_float8(u: torch.Tensor) -> torch.Tensor:
    """Saturating: what is rounded to the largest number is inside."""
    return passing(u.clamp(-448, 448).to(torch.float8_e4m3fn).double(), u.clamp(-464, 464))


def largest(data: Tensors) -> torch.Tensor:
    return data["x"].abs().amax(1, keepdim=True)


def scaled(data: Tensors) -> torch.Tensor:
    return data["x"] / data["s"][:, None]


def product(data: Tensors, codes: torch.Tensor) -> torch.Tensor:
    return codes @ data["W"].T


def quantized(codes: Expr, scale: Expr) -> Expr:
    return ra.sum(ra.straight_through(codes) * W, k) * scale


AMAX = ra.max(Abs(x), k)
CASES: dict[str, tuple[Expr, Callable[[Tensors], torch.Tensor]]] = {
    "clamped": (quantized(Min(Max(floor(x / s + HALF), -8), 7), s),
                lambda data: product(data, clamped(rounded(scaled(data)))) * data["s"][:, None]),
    "clamped before": (quantized(ceiling(Min(Max(x / s, -8), 7) - HALF), s),
                       lambda data: product(data, passing((clamped(scaled(data)) - 0.5).ceil(), clamped(scaled(data))))
                       * data["s"][:, None]),
    "int8": (quantized(ra.cast(40 * x / s, "int8"), s),
             lambda data: product(data, as_int8(40 * scaled(data))) * data["s"][:, None]),
    "float8": (quantized(ra.cast(200 * x / s, "float8_e4m3fn"), s),
               lambda data: product(data, as_float8(200 * scaled(data))) * data["s"][:, None]),
    "scale of the largest": (quantized(floor(7 * x / AMAX + HALF), AMAX),
                             lambda data: product(data, rounded(7 * data["x"] / largest(data))) * largest(data)),
    "float8 of the largest": (quantized(ra.cast(448 * x / AMAX, "float8_e4m3fn"), AMAX),
                              lambda data: product(data, as_float8(448 * data["x"] / largest(data))) * largest(data)),
    "a source": (ra.sum(ra.straight_through(sign(x), tanh(x)) * W, k),
                 lambda data: product(data, passing(data["x"].sign(), data["x"].tanh()))),
}  # fmt: skip
FORMS = {name: ra.fuse(expr, axes="m n", passes=2) for name, (expr, _) in CASES.items()}
each = pytest.mark.parametrize("name", CASES)


def drawn(seed: int) -> Tensors:
    """Data in float64, some of it beyond the range of every dtype."""
    generator = torch.Generator().manual_seed(seed)
    length = 1 + seed % 5
    data = {name: torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, shape in {"x": (3, length), "W": (2, length), "s": (3,)}.items()}  # fmt: skip
    return {**data, "x": 4 * data["x"], "s": data["s"].abs() + 0.3}


def own(name: str, data: Tensors) -> Tensors:
    return {one: data[one] for one in FORMS[name].cascade.inputs() if one in data} | {
        one: data[one] for part in FORMS[name].earlier for one in part.cascade.inputs() if one in data
    }


@each
@given(st.integers(0, 999))
def test_gradients_pass_the_roundings(name: str, seed: int) -> None:
    data = own(name, drawn(seed))
    leaves = [one.requires_grad_() for one in data.values()]
    made, wanted = FORMS[name](**data), CASES[name][1](data)
    torch.testing.assert_close(made, wanted)
    cotangent = torch.randn_like(wanted)
    exact = torch.autograd.grad(wanted, leaves, cotangent)
    for got, one in zip(torch.autograd.grad(made, leaves, cotangent), exact, strict=True):
        torch.testing.assert_close(got, one, rtol=1e-9, atol=1e-9 * float(one.abs().max()))


@pytest.mark.sweep(2)
@each
@given(st.integers(0, 999))
def test_tangents_pass_them(name: str, seed: int) -> None:
    data = own(name, drawn(seed))
    tangents = {one: torch.randn_like(tensor) for one, tensor in data.items()}
    made: Any = jvp(CASES[name][1], (data,), (tangents,))
    found = FORMS[name].jvp()(tangents, **data)["out"]
    torch.testing.assert_close(found, made[1], rtol=1e-9, atol=1e-9 * float(made[1].abs().max()))


@given(st.integers(0, 999))
def test_it_is_fake_quantization(seed: int) -> None:
    """Beside torch.fake_quantize_per_tensor_affine: in the range, beyond it, and at its bounds."""
    codes = ra.straight_through(Min(Max(floor(x / Float(0.25) + HALF), -8), 7))
    form = ra.fuse(ra.sum(codes * Float(0.25), k), axes="m")
    given_x = torch.randn(3, 9, generator=torch.Generator().manual_seed(seed)) * 2
    given_x[:, :2] = torch.tensor([1.75, -2.0])
    leaf = given_x.clone().requires_grad_()
    wanted = torch.fake_quantize_per_tensor_affine(leaf, 0.25, 0, -8, 7).sum(1)
    other = given_x.clone().requires_grad_()
    made = form(x=other)
    torch.testing.assert_close(made, wanted)
    wanted.sum().backward()
    made.sum().backward()
    torch.testing.assert_close(other.grad, leaf.grad)


TRUE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "floor": torch.floor, "ceiling": torch.ceil, "Cast": torch.round,
}  # fmt: skip
"""Rounding -> itself, which is the derivative of rounding(x)·x."""


@pytest.mark.parametrize("codes", [floor(x), ceiling(x), ra.cast(x, "int8")], ids=["floor", "ceiling", "cast"])
def test_without_it_the_derivative_is_the_true_one(codes: Expr) -> None:
    form, data = ra.fuse(ra.sum(codes * x, k), axes="m"), drawn(3)["x"].requires_grad_()
    form(x=data).sum().backward()
    assert data.grad is not None
    torch.testing.assert_close(data.grad, TRUE[type(codes).__name__](data.detach()))


def test_second_derivatives_pass_them() -> None:
    form, data = ra.fuse(ra.sum(ra.straight_through(floor(x)) ** 3, k), axes="m"), drawn(3)["x"].requires_grad_()

    def second(made: torch.Tensor) -> torch.Tensor:
        [first] = torch.autograd.grad(made.sum(), data, create_graph=True)
        return torch.autograd.grad(first.sin().sum(), data)[0]

    torch.testing.assert_close(second(form(x=data)), second((passing(data.floor(), data) ** 3).sum(1)))

    def tangent(one: torch.Tensor) -> Any:
        return grad(lambda moving: form(x=moving).sum())(one)

    made: Any = jvp(tangent, (data.detach(),), (torch.ones_like(data),))
    torch.testing.assert_close(made[1], 6 * data.detach().floor())


def test_a_maximum_within_it_is_no_pivot() -> None:
    """The value is the same for every scale, but for rounding, and the gradient is not."""
    backward = FORMS["scale of the largest"].vjp()
    assert not backward.proofs
    assert any("row_max" in name for name in (*backward.saved, *(stage.name for stage in backward.stages)))


def test_it_is_a_node_of_the_text_and_of_a_batch() -> None:
    form, data = FORMS["clamped"], own("clamped", drawn(4))
    for again in (ra.from_json(form.to_json()), pickle.loads(pickle.dumps(form))):
        assert again.written == form.written
    batch = {one: torch.stack([tensor, 2 * tensor]) for one, tensor in data.items()}

    def loss(x: torch.Tensor, W: torch.Tensor, s: torch.Tensor) -> Any:
        return form(x=x, W=W, s=s).square().sum()

    found: Any = vmap(grad(loss))(batch["x"], batch["W"], batch["s"])
    leaf = data["x"].clone().requires_grad_()
    form(**{**data, "x": leaf}).square().sum().backward()
    torch.testing.assert_close(found[0], leaf.grad)


def test_what_is_computed_is_the_value() -> None:
    plain = ra.fuse(ra.sum(floor(x) * W, k), axes="m n")
    through = ra.fuse(ra.sum(ra.straight_through(floor(x)) * W, k), axes="m n")
    assert through.cascade == plain.cascade
    sizes = {"m": 64, "n": 64, "k": 256}
    assert through.source(sizes=sizes, dtypes="float32") == plain.source(sizes=sizes, dtypes="float32")
    assert str(ra.straight_through(Max(floor(x), 0))) == "straight_through(Max(0, floor(x[m, k])))"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ra.straight_through(x + 1), "has no rounding"),
        (lambda: ra.straight_through(ra.cast(x, "bfloat16")), "has no rounding"),
        (lambda: ra.straight_through(floor(x), W), "source has W"),
        (lambda: ra.straight_through(floor(s), ra.Tensor("s")[k]), "source has k"),
        (lambda: ra.straight_through("x"), "a str is not an expression"),
    ],
)
def test_what_it_cannot_pass_is_refused(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ra.ExpressionError, match=said):
        call()
