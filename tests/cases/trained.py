"""Patterns that people train through, each as it is written in PyTorch: losses, norms, statistics, attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from sympy import Abs, Max, Rational, exp, log, oo, sqrt, tanh
from torch.nn import functional

import redalg as ra

b, h, q, k, d, e, n, i, c, t = ra.axes("b h q k d e n i c t")
x, w, y, u, z = ra.tensors("x[b,n] w[b,n] y[b,n] u[n] z[n]")
Q, K, V, A, P = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e] A[b,h,q,k] P[e,n]")
X, Y, mass, scores = ra.tensors("X[i,d] Y[k,d] m[b,n] s[t,k]")
T = ra.Tensor
best, coordinate = ra.axis("j", 3), ra.axis("i", 3)
SHAPES = dict.fromkeys("xwy", (5, 33)) | dict.fromkeys("uz", (33,)) | {
    "Q": (2, 3, 17, 8), "K": (2, 3, 29, 8), "V": (2, 3, 29, 8), "A": (2, 3, 17, 29), "P": (7, 33), "X": (11, 6),
    "Y": (11, 6), "tau": (), "s": (6, 13),
}  # fmt: skip
"""Of the tensors, but where a pattern has another."""
INTEGERS = {"target": (33, (5,)), "length": (29, (2,)), "id": (9, (5, 6))}
"""The bounds of integers, which begin at 1, and their shapes."""
POSITIVE = ("m", "tau", "bw")


@final
@dataclass(frozen=True)
class Trained:
    """A pattern.

    Attributes:
        name: how people call it.
        outputs: name -> (expression, axes).
        written: the outputs in PyTorch, of tensors by name; one, or a tuple.
        shapes: those that `SHAPES` does not have.
        positive: tensors that are positive here.
        sizes: extents that no tensor tells.
        hostile: the tensor that hostile numbers stand in, if they do not stand in all that are not positive.
    """

    name: str
    outputs: Mapping[str, tuple[Any, str]]
    written: Callable[..., Any]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    positive: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    hostile: str = ""

    def data(self, form: ra.Fused, seed: int) -> dict[str, torch.Tensor]:
        """Its tensors: integers, and numbers of float32 in float64."""
        generator = torch.Generator().manual_seed(seed)
        found = dict[str, torch.Tensor]()
        for name in sorted(form.cascade.inputs()):
            if name in INTEGERS:
                end, shape = INTEGERS[name]
                found[name] = torch.randint(1, end, shape, generator=generator)
                continue
            drawn = torch.randn(self.shapes.get(name, SHAPES.get(name, ())), generator=generator).double()
            found[name] = drawn if self.is_free(name) else drawn.abs() + 0.5
        return found

    def is_free(self, name: str) -> bool:
        """Tell if a tensor holds numbers of either sign."""
        return name not in (*INTEGERS, *self.positive, *POSITIVE)


def row(name: str, expr: Any, written: Callable[..., Any], axes: str = "b", **more: Any) -> Trained:
    return Trained(name, {"out": (expr, axes)}, written, **more)


# ---- rows ------------------------------------------------------------------------------------------------------------

p_soft = ra.softmax(x, n)
kernel = exp(-((ra.tensor("at[q]") - ra.tensor("xs[n]")) ** 2) / (2 * ra.tensor("bw") ** 2))
centre = ra.sum(mass * T("r")[b, n, coordinate], n) / ra.sum(mass, n)
top = ra.max(x, n)


def moved(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(-1, True)


def about(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The variance under weights of sum 1."""
    return (p * (x - (p * x).sum(-1, True)) ** 2).sum(-1)


def smoothed(xs: torch.Tensor, ys: torch.Tensor, at: torch.Tensor, bw: torch.Tensor) -> torch.Tensor:
    weights = torch.exp(-((at[:, None] - xs) ** 2) / (2 * bw**2))
    return (weights * ys).sum(-1) / weights.sum(-1)


def inertia(m: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    about_centre = r - (m[..., None] * r).sum(1, True) / m.sum(1)[:, None, None]
    return (m * about_centre.pow(2).sum(-1)).sum(-1)


def gathered(E: torch.Tensor, **places: torch.Tensor) -> torch.Tensor:
    return E[places["id"]].sum(1)


ROWS = (
    row("softmax", ra.softmax(x, n), lambda x: x.softmax(-1), "b n"),
    row("softmax, as a ratio", exp(x) / ra.sum(exp(x), n), lambda x: x.softmax(-1), "b n"),
    row("log-softmax", ra.log_softmax(x, n), lambda x: x.log_softmax(-1), "b n"),
    row("logsumexp", ra.logsumexp(x, n), lambda x: x.logsumexp(-1)),
    row("logsumexp, as a logarithm", log(ra.sum(exp(x), n)), lambda x: x.logsumexp(-1)),
    row("cross entropy", ra.logsumexp(x, n) - T("x")[b, ra.tensor("target[b]")],
        lambda x, target: functional.cross_entropy(x, target, reduction="none")),
    row("entropy of a softmax", ra.entropy(p_soft, n), lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)),
    row("divergence of softmaxes", ra.sum(p_soft * (ra.log_softmax(x, n) - ra.log_softmax(y, n)), n),
        lambda x, y: (x.softmax(-1) * (x.log_softmax(-1) - y.log_softmax(-1))).sum(-1)),
    row("sum", ra.sum(x, n), lambda x: x.sum(-1)),
    row("mean of all cubes", ra.mean(x**3, b, n), lambda x: (x**3).mean(), ""),
    row("variance", ra.var(x, n), lambda x: x.var(-1, correction=0)),
    row("standard deviation", ra.std(x, n), lambda x: x.std(-1, correction=0)),
    row("weighted variance", ra.sum(w * (x - ra.sum(w * x, n) / ra.sum(w, n)) ** 2, n) / ra.sum(w, n),
        lambda x, w: about(w / w.sum(-1, True), x), positive=("w",)),
    row("covariance", ra.covariance(x, y, n), lambda x, y: (moved(x) * moved(y)).mean(-1)),
    row("correlation", ra.covariance(x, y, n) / sqrt(ra.var(x, n) * ra.var(y, n)),
        lambda x, y: functional.cosine_similarity(moved(x), moved(y), dim=-1)),
    row("layer norm", ra.layer_norm(x, n, weight=u, bias=z),
        lambda x, u, z: functional.layer_norm(x, x.shape[-1:], u, z, 1e-5), "b n"),
    row("RMS norm", ra.rms_norm(x, n, eps=Rational(1, 10**5), weight=u),
        lambda x, u: functional.rms_norm(x, x.shape[-1:], u, 1e-5), "b n"),
    row("layer norm, then a product", ra.sum(ra.layer_norm(x, n, weight=u, bias=z) * P, n),
        lambda x, u, z, P: functional.layer_norm(x, x.shape[-1:], u, z, 1e-5) @ P.T, "b e"),
    row("norm", ra.norm(x, n), lambda x: x.norm(dim=-1)),
    row("normalized rows", ra.normalize(x, n), lambda x: functional.normalize(x, dim=-1), "b n"),
    row("cosine similarity", ra.cosine_similarity(x, y, n), lambda x, y: functional.cosine_similarity(x, y, dim=-1)),
    row("mean under a softmax", ra.sum(ra.softmax(w, n) * x, n), lambda x, w: (w.softmax(-1) * x).sum(-1)),
    row("weighted mean", ra.sum(w * x, n) / ra.sum(w, n), lambda x, w: (w * x).sum(-1) / w.sum(-1), positive=("w",)),
    row("moment of inertia", ra.sum(mass * ra.sum((T("r")[b, n, coordinate] - centre) ** 2, coordinate), n), inertia,
        shapes={"m": (4, 21), "r": (4, 21, 3)}),
    row("kernel regression", ra.sum(kernel * ra.tensor("ys[n]"), n) / ra.sum(kernel, n), smoothed, "q",
        shapes={"xs": (23,), "ys": (23,), "at": (9,)}),
    row("maximum", top, lambda x: x.amax(-1)),
    Trained("maximum and the sum above it", {"top": (top, "b"), "l": (ra.sum(exp(x - top), n), "b")},
            lambda x: (x.amax(-1), (x - x.amax(-1, True)).exp().sum(-1))),
    row("scaled to the range", (x - ra.min(x, n)) / (top - ra.min(x, n)),
        lambda x: (x - x.amin(-1, True)) / (x.amax(-1, True) - x.amin(-1, True)), "b n"),
    row("product", ra.prod(x, n), lambda x: x.prod(-1), shapes={"x": (5, 7)}),
    row("mean absolute value", ra.mean(Abs(x), n), lambda x: x.abs().mean(-1)),
    row("hinge", ra.sum(Max(0, 1 - x * y), n), lambda x, y: torch.maximum(x.new_zeros(()), 1 - x * y).sum(-1)),
    row("skewness", ra.mean(((x - ra.mean(x, n)) / ra.std(x, n)) ** 3, n),
        lambda x: ((moved(x) / x.std(-1, correction=0, keepdim=True)) ** 3).mean(-1)),
    row("variance under a softmax", ra.sum(ra.softmax(w, n) * (x - ra.sum(ra.softmax(w, n) * x, n)) ** 2, n),
        lambda x, w: about(w.softmax(-1), x)),
    row("product scaled by the largest", ra.sum(x / ra.max(Abs(x), n) * P, n) * ra.max(Abs(x), n),
        lambda x, P: x @ P.T, "b e"),
    row("differences of neighbours", ra.sum(ra.where(n > 0, (x - T("x")[b, n - 1]) ** 2, 0), n),
        lambda x: (x[:, 1:] - x[:, :-1]).pow(2).sum(-1)),
    row("gathered rows", ra.sum(T("E")[ra.tensor("id[b,n]"), d], n), gathered, "b d",
        shapes={"E": (9, 4)}, sizes={"n": 6}),
)  # fmt: skip

# ---- products and attention ------------------------------------------------------------------------------------------


class Flash(torch.autograd.Function):
    """softmax(s)·V, differentiated as FlashAttention-2 does (Dao 2023, Algorithm 2), without its tiles."""

    @staticmethod
    def forward(ctx: Any, s: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        lse = s.logsumexp(-1, keepdim=True)
        out = (s - lse).exp() @ V
        ctx.save_for_backward(s, lse, V, out)
        return out

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (s, lse, V, out), [cotangent] = ctx.saved_tensors, cotangents
        weights, delta = (s - lse).exp(), (cotangent * out).sum(-1, keepdim=True)
        return weights * (cotangent @ V.mT - delta), (weights.mT @ cotangent).sum_to_size(V.shape)


def weighted(s: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = Flash.apply(s, V)
    return made


S = ra.sum(Q * K, d) / sqrt(d.extent)
TOP = ra.max(S, k)
GROUPED = ra.sum(Q * T("K")[b, h // 3, k, d], d) / sqrt(d.extent)
GROUPS = {"Q": (2, 6, 17, 8), "K": (2, 2, 29, 8), "V": (2, 2, 29, 8)}
cosines = ra.sum(X * Y, d) / sqrt(ra.sum(X**2, d) * ra.sum(Y**2, d)) / ra.tensor("tau")
own = ra.sum(X * T("Y")[i, d], d) / sqrt(ra.sum(X**2, d) * ra.sum(T("Y")[i, d] ** 2, d)) / ra.tensor("tau")
gates, highest = ra.topk(ra.softmax(scores, k), k, best)[0], ra.topk(scores, k, best)[0]
routed, experts = ra.topk(ra.softmax(ra.sum(ra.tensor("x[t,c]") * ra.tensor("W[c,n]"), c), n), n, best)


def attend(s: Any, values: Any = V) -> Any:
    return ra.sum(ra.softmax(s, k) * values, k)


def products(Q: torch.Tensor, K: torch.Tensor) -> torch.Tensor:
    return Q @ K.mT / Q.shape[-1] ** 0.5


def causal(s: torch.Tensor) -> torch.Tensor:
    return s.masked_fill(torch.arange(s.shape[-1]) > torch.arange(s.shape[-2])[:, None], -torch.inf)


def of_groups(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    s = causal(products(Q, K.repeat_interleave(3, 1)))
    return weighted(s, V.repeat_interleave(3, 1)), s.logsumexp(-1)


def with_slopes(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    apart = (torch.arange(17)[:, None] - torch.arange(29)).abs()
    return weighted(products(Q, K) - slope[:, None, None] * apart, V)


def within_length(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    return weighted(products(Q, K).masked_fill(torch.arange(29) >= length[:, None, None, None], -torch.inf), V)


def of_one_latent(q: torch.Tensor, L: torch.Tensor) -> torch.Tensor:
    return weighted(q @ L.mT / 8**0.5, L)


def with_sinks(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    """The sink is a score beside a value of 0."""
    s = torch.cat([products(Q, K), sink[None, :, None, None].expand(2, 3, 17, 1)], -1)
    return weighted(s, functional.pad(V, (0, 0, 0, 1)))


def contrast(X: torch.Tensor, Y: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    s = (X / X.norm(dim=-1, keepdim=True)) @ (Y / Y.norm(dim=-1, keepdim=True)).T / tau
    return s.logsumexp(-1) - s.diagonal()


def best_gates(s: torch.Tensor) -> torch.Tensor:
    """Of equal ones the first, as redalg has them; `torch.topk` may take any."""
    return s.softmax(-1).sort(dim=-1, descending=True, stable=True)[0][..., :3]


def attention(name: str, s: Any, written: Callable[..., Any], hostile: str = "Q", **more: Any) -> Trained:
    return row(name, attend(s), written, "b h q e", hostile=hostile, **more)


PRODUCTS = (
    attention("attention", S, lambda Q, K, V: weighted(products(Q, K), V)),
    attention("attention, causal", ra.where(k <= q, S, -oo), lambda Q, K, V: weighted(causal(products(Q, K)), V)),
    Trained("attention and its logsumexp", {"out": (attend(S), "b h q e"), "lse": (ra.logsumexp(S, k), "b h q")},
            lambda Q, K, V: (weighted(products(Q, K), V), products(Q, K).logsumexp(-1)), hostile="Q"),
    attention("attention, bias", S + A, lambda Q, K, V, A: weighted(products(Q, K) + A, V), hostile="A"),
    attention("attention, bias of all batches", S + ra.tensor("A[h,q,k]"),
              lambda Q, K, V, A: weighted(products(Q, K) + A, V), hostile="A", shapes={"A": (3, 17, 29)}),
    Trained("attention, grouped, causal, and its logsumexp",
            {"out": (attend(ra.where(k <= q, GROUPED, -oo), T("V")[b, h // 3, k, e]), "b h q e"),
             "lse": (ra.logsumexp(ra.where(k <= q, GROUPED, -oo), k), "b h q")}, of_groups, GROUPS, hostile="Q"),
    attention("attention, softcap", 20 * tanh(S / 20),
              lambda Q, K, V: weighted(20 * torch.tanh(products(Q, K) / 20), V)),
    attention("attention, learned slopes", S - ra.tensor("slope[h]") * Abs(q - k), with_slopes, shapes={"slope": (3,)}),
    attention("attention, lengths", ra.where(k < ra.tensor("length[b]"), S, -oo), within_length),
    row("attention, one latent",
        ra.sum(ra.softmax(ra.sum(T("q")[b, h, c] * T("L")[b, k, c], c) / sqrt(c.extent), k) * T("L")[b, k, e], k),
        of_one_latent, "b h e", hostile="q", shapes={"q": (2, 4, 8), "L": (2, 19, 8)}),
    row("attention with sinks",
        ra.sum(exp(S - TOP) / (ra.sum(exp(S - TOP), k) + exp(ra.tensor("sink[h]") - TOP)) * V, k), with_sinks,
        "b h q e", hostile="Q", shapes={"sink": (3,)}),
    row("contrast of cosines", ra.logsumexp(cosines - own, k), contrast, "i", hostile="X"),
    row("gates of experts", gates, best_gates, "t j"),
    row("gates of experts, of the best scores", exp(highest - ra.logsumexp(scores, k)), best_gates, "t j"),
    Trained("routing to experts", {"gates": (routed, "t j"), "experts": (experts, "t j")},
            lambda x, W: best_gates(x @ W), {"x": (6, 5), "W": (5, 13)}, hostile="x"),
    row("chained product", ra.sum(ra.sum(ra.tensor("A[t,k]") * ra.tensor("B[k,n]"), k) * ra.tensor("C[n,c]"), n),
        lambda A, B, C: A @ B @ C, "t c", hostile="A", shapes={"A": (5, 6), "B": (6, 7), "C": (7, 8)}),
)  # fmt: skip
TRAINED = ROWS + PRODUCTS
