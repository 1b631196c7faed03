"""Every rule means its operator: graphs of PyTorch, imported and interpreted, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import pytest
import torch
import torch.nn.functional as nnf
from torch import nn

from redalg.errors import GraphError
from redalg.graphs.interpret import interpret_program
from redalg.torch import moves
from redalg.torch.aten import Imported, import_graph

pytestmark = pytest.mark.filterwarnings("ignore")
GENERATOR = torch.Generator()


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    GENERATOR.manual_seed(len(shape) + sum(shape))
    return torch.randn(shape, generator=GENERATOR).to(dtype)


def check_gradients(model: nn.Module, given: torch.Tensor, found: torch.Tensor, atol: float) -> None:
    """Compare the gradients of what a model made when it was compiled with those of the model itself."""
    model.zero_grad(set_to_none=True)
    found.square().sum().backward()
    own = [one.grad for one in model.parameters()]
    model.zero_grad(set_to_none=True)
    model(given).square().sum().backward()
    for one, wanted in zip(own, model.parameters(), strict=True):
        torch.testing.assert_close(one, wanted.grad, rtol=1e-4, atol=atol)


class Called(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)


def exported(
    model: nn.Module, given: tuple[torch.Tensor, ...], *, core: bool = True
) -> tuple[Imported, dict[str, Any]]:
    """The program of a module, and the arrays of its inputs."""
    found = torch.export.export(model, given)
    found = found.run_decompositions() if core else found
    kept = {**found.state_dict, **found.constants}
    arrays, users = dict[str, Any](), iter(given)
    for spec in found.graph_signature.input_specs:
        arrays[spec.arg.name] = next(users) if spec.target is None else kept[spec.target].detach()
    return import_graph(found.graph), arrays


def check(
    model: nn.Module, given: tuple[torch.Tensor, ...], *, core: bool = True, external: Set[str] = frozenset()
) -> None:
    """The program of a module is the module, and leaves no more to PyTorch than is named."""
    imported, arrays = exported(model, given, core=core)
    assert {one.operator for one in imported.program.externals()} == external
    found = list(interpret_program(imported.program, arrays, imported.compute).values())
    with torch.no_grad():
        wanted = model(*given)
    for got, each in zip(found, [wanted] if isinstance(wanted, torch.Tensor) else wanted, strict=True):
        assert (got.shape, got.dtype) == (each.shape, each.dtype)
        torch.testing.assert_close(got, each, rtol=2e-6, atol=2e-6, equal_nan=True)


A, B, ROW = drawn(3, 4, 5), drawn(1, 4, 1) + 3, drawn(5)
WHOLE = torch.arange(-6, 6).reshape(3, 4)
PLACES = torch.tensor([[0, 2, 1, 2], [3, 0, 0, 1]])

ELEMENTWISE: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "arithmetic": (lambda a, b: (a + 2 * b) / (1 + b * b) - torch.rsub(a, 3), (A, B)),
    "alpha": (lambda a, b: torch.add(a, b, alpha=3) - torch.sub(a, b, alpha=0.5), (A, B)),
    "powers": (lambda a: (a**2, a.abs() ** 0.5, 2**a, a.abs() ** -1.5), (A,)),
    "functions": (lambda a: a.exp().log1p() + a.sin().cos() - a.tanh().expm1() + a.abs().sqrt().rsqrt(), (A + 5,)),
    "logarithms": (lambda a: a.abs().log2() + a.abs().log10() + a.exp2(), (A,)),
    "activations": (lambda a: nnf.silu(a) + nnf.gelu(a) - nnf.gelu(a, approximate="tanh") * nnf.relu(a), (A,)),
    "straight activations": (lambda a: nnf.hardtanh(a) + nnf.hardswish(a) + nnf.hardsigmoid(a) + nnf.relu6(a), (A,)),
    "bent activations": (lambda a: nnf.elu(a) + nnf.selu(a) + nnf.leaky_relu(a, 0.1) + nnf.softplus(a), (A,)),
    "positive parts of no number": (lambda a: nnf.relu(a.sqrt()) + nnf.leaky_relu(a.log()), (A,)),
    "bounds": (
        lambda a, b: (a.clamp(-1, 0.5), a.clamp_min(0.25), torch.maximum(a, b - 3), torch.minimum(a, b)),
        (A, B),
    ),
    "comparisons": (
        lambda a, b: (a > b, a <= 0.5, (a == a) & ~(b < 3), (a >= 0) | (b != 3), (a > 0) ^ (b > 3)),
        (A, B),
    ),
    "choices": (lambda a, b: (torch.where(a > 0, a, b), a.masked_fill(b > 3, -torch.inf)), (A, B)),
    "choices of truths": (lambda a, b: torch.where(a > 0, a > 1, b > 3), (A, B)),
    "casts": (lambda a: (a.to(torch.float64), (a * 3).to(torch.int64), a.to(torch.bool), (a > 0).float() * 2), (A,)),
    "casts of prims": (
        lambda a: tuple(
            torch.ops.prims.convert_element_type(one, to)
            for one in (a * 3, a > 0)
            for to in (torch.int64, torch.bool, torch.float64)
        ),
        (A,),
    ),
    "casts of 16 bits": (lambda a: (a.to(torch.bfloat16), a.to(torch.float16).float()), (A,)),
    "integers": (lambda w: (w + 3, w * w - 2, w % 5, w // 4, w.remainder(3), w.float() / 7), (WHOLE,)),
    "signed quotients": (lambda w: (torch.div(w, 4, rounding_mode="trunc"), torch.fmod(w, 4), w % -5), (WHOLE,)),
    "rounding": (lambda a: (a.floor(), a.ceil(), (a * 4).sign()), (A,)),
    "products added": (lambda a, b: torch.addcmul(a, b, a, value=0.5) + torch.addcdiv(a, a, b, value=2), (A, B)),
    "triangles": (lambda a: (a.tril(), a.triu(1), torch.tril(torch.ones(4, 4, dtype=torch.bool), -1) & True), (A,)),
}
MOVES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "views": (
        lambda a: (a.reshape(12, 5), a.reshape(2, 6, 5), a.reshape(-1), a.reshape(3, 2, 2, 5), a.reshape(5, 12)),
        (A,),
    ),
    "orders": (lambda a: (a.permute(2, 0, 1), a.transpose(0, -1), a[0].t(), a.flatten(1).T), (A,)),
    "sizes of one": (lambda a, b: (b.squeeze(), b.squeeze(0), a.unsqueeze(1), a.unsqueeze(-1)), (A, B)),
    "expansions": (lambda b, r: (b.expand(3, 4, 5), r.expand(2, 3, 5), r.repeat(2, 3), b.repeat(2, 1, 3)), (B, ROW)),
    "slices": (lambda a: (a[1:], a[:, -2:], a[..., ::2], a[:, 1], a[-1, :, 1:4:2], a[:, 1:100]), (A,)),
    "pieces": (lambda a: (*a.split(2, 1), *a.chunk(2, -1), *a.unbind(0), *a.split([1, 4], 2)), (A,)),
    "turns": (lambda a: (a.flip(0), a.flip(-1, 1), a.roll(2, 1), a.roll((1, -2), (0, 2))), (A,)),
    "joins": (lambda a, b: (torch.cat([a, a * 2, a[:, :1]], 1), torch.stack([a, a + 1, a * b], 2)), (A, B)),
    "halves turned": (lambda a: torch.cat([-a[..., 2:4], a[..., :2]], -1) * 3, (A,)),
    "pads": (lambda a: (nnf.pad(a, (1, 2)), nnf.pad(a, (0, 1, 2, 0), value=7.0)), (A,)),
    "scatters of slices": (lambda a: (a.slice_scatter(a[:, :2] * 5, 1, 1, 3), a.select_scatter(a[:, 0], 1, -1)), (A,)),
    "tables": (lambda t, i: (nnf.embedding(i, t), t[i], t[i, 1], t[:, i[0]]), (drawn(4, 6), PLACES)),
    "indices apart": (lambda a, i: a[i[0][:2], :, i[1][:2]], (drawn(4, 3, 4), PLACES)),
    "negative indices": (lambda t, i: t[-i - 1], (drawn(4, 6), PLACES)),
    "gathers": (lambda a, i: (a.gather(1, i), a.index_select(1, i[1])), (drawn(2, 4), PLACES)),
    "constants": (
        lambda a: (torch.zeros(2, 3) + a[0, 0, 0], torch.full((2,), 1.5) * a[0, 0, :2], torch.ones_like(a)),
        (A,),
    ),
    "counts": (
        lambda a: (torch.arange(5) + a, torch.arange(2, 9, 3), torch.arange(4)[:, None] <= torch.arange(4)),
        (A,),
    ),
}
SUMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "sums": (lambda a: (a.sum(), a.sum(1), a.sum((0, 2), keepdim=True), a.mean(-1), a.prod(1), a.mean()), (A,)),
    "extrema": (lambda a: (a.amax((0, 1)), a.amin(2, keepdim=True), a.max(), *a.max(1), *a.min(2, keepdim=True)), (A,)),
    "places": (lambda a: (a.argmax(1), a.argmin(-1, keepdim=True)), (A,)),
    "truths": (lambda a: ((a > 2).any(), (a > 0).any(1), (a > -1).all(2, keepdim=True)), (A,)),
    "variances": (
        lambda a: (a.var(1), a.var((0, 2), correction=0), *torch.var_mean(a, -1, keepdim=True), a.std(0)),
        (A,),
    ),
    "exponentials": (lambda a: (a.softmax(-1), a.log_softmax(1), a.logsumexp(1), a.logsumexp((0, 2), True)), (A * 9,)),
    "layer norms": (lambda a, r: (nnf.layer_norm(a, (5,), r, r + 1), nnf.layer_norm(a, (4, 5))), (A, ROW)),
    "group norms": (lambda x, w: (nnf.group_norm(x, 2, w, w), nnf.group_norm(x, 4)), (drawn(2, 4, 3, 3), drawn(4))),
    "products": (
        lambda a, b: (a[0] @ b[0].T, a @ b.transpose(-1, -2), a[0] @ b[0, 0], a[0, 0] @ b[1, 1]),
        (A, drawn(3, 6, 5)),
    ),
    "linear maps": (
        lambda a, w, r: (nnf.linear(a, w, r), torch.addmm(w, w, w, beta=0.5, alpha=2)),
        (A, drawn(5, 5), ROW),
    ),
    "sums of products": (
        lambda a, b: (
            torch.einsum("bij,bkj->bik", a, b),
            torch.baddbmm(a @ b.transpose(-1, -2), a, b.transpose(-1, -2)),
        ),
        (A, A + 1),
    ),
}
CASES = ELEMENTWISE | MOVES | SUMS


@pytest.mark.parametrize("name", CASES)
def test_a_rule_means_its_operator(name: str) -> None:
    function, given = CASES[name]
    check(Called(function), given)


HEADS = drawn(2, 4, 6, 8), drawn(2, 4, 7, 8), drawn(2, 4, 7, 3)
ATTENTION: dict[str, Callable[..., Any]] = {
    "plain": nnf.scaled_dot_product_attention,
    "causal": lambda q, k, v: nnf.scaled_dot_product_attention(q, k[:, :, :6], v[:, :, :6], is_causal=True, scale=0.3),
    "masked": lambda q, k, v: nnf.scaled_dot_product_attention(q, k, v, attn_mask=(k[0, :1, :, 0] > -1.0).expand(6, 7)),
    "no keys": lambda q, k, v: nnf.scaled_dot_product_attention(q, k, v, q[..., :1] > 0 * k[..., 0][:, :, None]),
    "biased": lambda q, k, v: nnf.scaled_dot_product_attention(q, k, v, attn_mask=(q @ k.transpose(-1, -2))[:1]),
    "grouped": lambda q, k, v: nnf.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True),
}


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("core", [False, True])
def test_attention_is_opened_by_its_definition(name: str, core: bool) -> None:
    check(Called(ATTENTION[name]), HEADS, core=core)


# ---- what stays with PyTorch -----------------------------------------------------------------------------------------


def test_an_operator_without_a_rule_stays_with_pytorch_and_says_why() -> None:
    def function(a: torch.Tensor) -> torch.Tensor:
        return nnf.max_pool2d(a.cumprod(1), 2) * 2

    imported, _ = exported(Called(function), (A,))
    reasons = {one.operator: one.reason for one in imported.program.externals()}
    window = "a window around each element, with its places"
    assert reasons == {"cumprod": "redalg has no expression for cumprod", "max_pool2d_with_indices": window}
    check(Called(function), (A,), external={"cumprod", "max_pool2d_with_indices"})


def test_a_view_of_sizes_that_are_not_understood_stays_with_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of whole quotients of whole quotients, which vary: the graph is not left for it."""

    def refuse(*_: Any) -> Any:
        raise GraphError("other numbers of elements")

    monkeypatch.setattr(moves, "reshape_place", refuse)
    imported, _ = exported(Called(lambda a: a.exp().view(-1)), (A,))
    assert [one.reason for one in imported.program.externals()] == ["other numbers of elements"]


def test_bits_of_integers_stay_with_pytorch() -> None:
    check(Called(lambda w: (w & 3) + 1), (WHOLE,), external={"bitwise_and"})


def test_rows_that_may_be_written_twice_stay_with_pytorch() -> None:
    found = torch.export.export(Called(lambda a, i: a.index_put((i,), a[:2] * 2)), (A, PLACES[0][:2]))
    [one] = import_graph(found.run_decompositions().graph).program.externals()
    assert one.reason == "a place may be written twice, and which of both stays is PyTorch's choice"


# ---- whole models ----------------------------------------------------------------------------------------------------


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions: pairs of halves turned by an angle of the position."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10.0 ** (-torch.arange(half) / half)
    cos, sin = (torch.cat([one, one], -1) for one in (angle.cos(), angle.sin()))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Decoder(nn.Module):
    """A block of a language model: root-mean-square norms, grouped heads, rotary positions, a causal mask, gates."""

    def __init__(self, width: int = 24, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 40, bias=False) for _ in range(2))
        self.down, self.first, self.second = nn.Linear(40, width), nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        y = self.first(x)
        q = rotated(self.q(y).view(b, n, self.heads, self.size).transpose(1, 2))
        k, v = (one(y).view(b, n, self.groups, self.size).transpose(1, 2) for one in (self.k, self.v))
        k, v = (one.repeat_interleave(self.heads // self.groups, 1) for one in (rotated(k), v))
        mask = torch.full((n, n), torch.finfo(x.dtype).min).triu(1)
        p = (q @ k.transpose(2, 3) / self.size**0.5 + mask).softmax(-1, dtype=torch.float32)
        x = x + self.o((p @ v).transpose(1, 2).reshape(b, n, -1))
        y = self.second(x)
        return x + self.down(nnf.silu(self.gate(y)) * self.up(y))


class Vision(nn.Module):
    """Patches by a convolution, a class token, an encoder's layer, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 16, 4, 4), nn.Parameter(drawn(1, 1, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu", norm_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        return self.head(self.layer(x)[:, 0])


def residual() -> nn.Module:
    """Convolutions, norms by running statistics, squeeze and excitation by a mean."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8),
        nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4), nn.Sigmoid(),
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...], Set[str]]] = {
    "encoder": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (drawn(2, 7, 32),), set()),
    "decoder": (Decoder, (drawn(2, 9, 24),), set()),
    "vision": (Vision, (drawn(2, 3, 8, 8),), {"convolution"}),
    "convolutions": (residual, (drawn(2, 3, 9, 9),), {"convolution"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_its_program(name: str) -> None:
    torch.manual_seed(0)
    model, given, external = MODELS[name]
    check(model().eval(), given, external=external)


def test_sizes_may_be_symbols() -> None:
    """One program for every batch and length; its sizes are the graph's own symbols."""
    torch.manual_seed(0)
    model, dims = (
        Decoder().eval(),
        {"x": {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("length", max=512)}},
    )
    found = torch.export.export(model, (drawn(3, 9, 24),), dynamic_shapes=dims).run_decompositions()
    imported, kept = import_graph(found.graph), found.state_dict
    assert any(size.free_symbols for each in imported.program.types.values() for size in each.shape)
    for shape in ((3, 9, 24), (2, 5, 24), (1, 16, 24)):
        given = drawn(*shape)
        arrays = {spec.arg.name: given if spec.target is None else kept[spec.target].detach()
                  for spec in found.graph_signature.input_specs}  # fmt: skip
        [out] = interpret_program(imported.program, arrays).values()
        torch.testing.assert_close(out, model(given).detach(), rtol=2e-6, atol=2e-6)


def test_an_operator_of_which_some_results_are_none() -> None:
    """As backward operators are, of what nobody asks for."""

    def back(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        mean, rstd = x.mean(-1, keepdim=True), x.var(-1, keepdim=True).rsqrt()
        asked = [True, False, False]
        return torch.ops.aten.native_layer_norm_backward(g, x, [x.shape[-1]], mean, rstd, None, None, asked)[0]

    found = torch.export.export(Called(back), (A, A + 1))
    program = import_graph(found.graph).program
    assert [len(one.names) for one in program.externals() if "backward" in one.operator] == [1]
