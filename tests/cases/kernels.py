"""The cases that must run through every backend, as data: an expression, tensors, and the error that it may have.

Shared by the tests of the C target (CPU), of nvcc compilation, and of the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, final

import torch
from sympy import exp, log, oo, sqrt

import redalg as ra
from redalg import library
from redalg.library import mla_decode, routing
from tests.cases import attention as uses_of_attention
from tests.cases import wider

b, h, q, k, d, e, n, t, c = ra.axes("b h q k d e n t c")
Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
x, w, r, M, A, P, Y = ra.tensors("x[b,n] w[b,n] r[b,n,j] M[q,k] A[q,k] P[e,n] Y[n,e]")
G, B, N, X, W, WT = ra.tensors("G[n] B[n] N[b,n] X[t,c] W[c,n] W[n,c]")
Z = ra.tensor("Z[b,c,n]")
SCORE = ra.sum(Q * K, d) / sqrt(d.extent)
LOWEST = torch.finfo(torch.float32).min


@final
@dataclass(frozen=True)
class Case:
    """One run: `tolerance` is relative to the largest output, in float32; `sizes` of axes that no tensor carries."""

    name: str
    form: str
    tensors: Callable[[torch.Generator], Mapping[str, torch.Tensor]]
    tolerance: float = 2e-6
    empty: str = "nan"
    sizes: Mapping[str, int] = field(default_factory=dict)


def attention(score: Any) -> ra.Fused:
    """Softmax-weighted mean of V."""
    return ra.fuse(ra.sum(ra.softmax(score, k) * V, k), axes="b h q e")


@cache
def fused(form: str) -> ra.Fused:
    """The expression of that name, fused."""
    return FORMS[form]()


def moments() -> tuple[Any, Any]:
    """(Σ w, weighted mean)."""
    total = ra.sum(w, n)
    return total, ra.sum(w * x, n) / total


def weighted_variance() -> ra.Fused:
    """Σ w (x − μ)² / Σ w."""
    total, mean = moments()
    return ra.fuse(ra.sum(w * (x - mean) ** 2, n) / total)


def inertia() -> ra.Fused:
    """Σ w |r − c|² about the centre of mass, with j of size 3 inside the sum."""
    j = ra.axis("j", size=3)
    centre = ra.sum(w * r, n) / ra.sum(w, n)
    return ra.fuse(ra.sum(w * ra.sum((r - centre) ** 2, j), n))


def inertia_of_any_dimension() -> ra.Fused:
    """The same with j of a size that only the tensors tell."""
    j = ra.axis("j")
    centre = ra.sum(w * r, n) / ra.sum(w, n)
    return ra.fuse(ra.sum(w * ra.sum((r - centre) ** 2, j), n))


def weights_of_scores() -> ra.Fused:
    """A smoothed loss of scores: beside them a sum of weights that no row has, and one of a row's own."""
    scores, u, target = ra.sum(X * W, c), *ra.tensors("u[n] target[t]")
    total = ra.logsumexp(scores, n) * ra.sum(u, n) - ra.sum(u * scores, n)
    return ra.fuse(total + ra.sum(ra.where(ra.eq(n, target), u, 0), n), axes="t")


def top_and_denominator() -> ra.Fused:
    """The maximum, the denominator and the log-sum-exp of rows."""
    m = ra.let("m", ra.max(x, n))
    total = ra.let("l", ra.sum(exp(x - m), n))
    return ra.fuse({"top": (m, "b"), "denominator": (total, "b"), "lse": (m + log(total), "b")})


def best_of_rows(k: int) -> ra.Fused:
    """The k best of rows, and the place of the largest and of the least."""
    values, indices = ra.topk(x, n, ra.axis("j", size=k))
    outputs = {"values": (values, "b j"), "indices": (indices, "b j")}
    return ra.fuse(outputs | {"first": (ra.argmax(x, n), "b"), "least": (ra.argmin(x, n), "b")})


def rows_and_their_best() -> ra.Fused:
    """The softmax of rows, which carries their axis, beside its best elements."""
    p = ra.softmax(x, n)
    values, indices = ra.topk(p, n, ra.axis("j", size=3))
    return ra.fuse({"p": (p, "b n"), "values": (values, "b j"), "indices": (indices, "b j")})


def centred_product() -> ra.Fused:
    """The rows of x, less their mean and by their deviation, times the rows of P."""
    return ra.fuse(ra.sum((x - ra.mean(x, n)) / sqrt(ra.var(x, n) + 1) * P, n), axes="b e")


def product_of_range() -> ra.Fused:
    """The rows of x, brought to [0, 1] by their least and largest elements, times the rows of P."""
    least, largest = ra.min(x, n), ra.max(x, n)
    return ra.fuse(ra.sum((x - least) / (largest - least + 1) * P, n), axes="b e")


def weights_and_mean() -> ra.Fused:
    """The weights themselves, which carry the keys, beside what they weight."""
    p = ra.softmax(SCORE, k)
    return ra.fuse({"p": (p, "b h q k"), "o": (ra.sum(p * V, k), "b h q e")})


def variance_of_values() -> ra.Fused:
    """The variance of every column of Y under the softmax of every row of x."""
    p = ra.softmax(x, n)
    return ra.fuse(ra.sum(p * (Y - ra.sum(p * Y, n)) ** 2, n), axes="b e")


def covariance() -> ra.Fused:
    """The covariance of every row of x with every column of Y."""
    return ra.fuse(ra.mean((x - ra.mean(x, n)) * (Y - ra.mean(Y, n)), n), axes="b e")


def batch_norm() -> ra.Fused:
    """Every channel of images of planes, less its mean over all images and by its deviation."""
    mean, variance = ra.mean(Z, b, n), ra.var(Z, b, n)
    return ra.fuse({"out": ((Z - mean) / sqrt(variance + 1), "b c n"), "mean": (mean, "c"), "var": (variance, "c")})


def distance_of_values() -> ra.Fused:
    """The mean of values from the greatest of w, weighted along their columns."""
    return ra.fuse(ra.sum(ra.softmax(x, n) * (w - ra.max(x, n)) * Y, n), axes="b e")


def regression() -> ra.Fused:
    """What a line in x leaves of w, with a penalty on its slope."""
    place, level = ra.mean(x, n), ra.mean(w, n)
    slope = ra.mean((x - place) * (w - level), n) / (ra.mean((x - place) ** 2, n) + 1)
    return ra.fuse(ra.sum((w - level - slope * (x - place)) ** 2, n))


FORMS: dict[str, Callable[[], ra.Fused]] = {
    "attention": lambda: attention(SCORE),
    "causal": lambda: attention(ra.where(k <= q, SCORE, -oo)),
    "masked": lambda: attention(ra.where(M, SCORE, -oo)),
    "additive": lambda: attention(SCORE + A),
    "rows": top_and_denominator,
    "logsumexp": lambda: ra.fuse(ra.logsumexp(x, n)),
    "product": lambda: ra.fuse(ra.sum(x * P, n), axes="b e"),
    "centred product": centred_product,
    "product of the range": product_of_range,
    "variance of values": variance_of_values,
    "covariance": covariance,
    "distance of values": distance_of_values,
    "regression": regression,
    "variance": lambda: ra.fuse(ra.mean((x - ra.mean(x, n)) ** 2, n)),
    "weighted mean": lambda: ra.fuse(moments()[1]),
    "weighted variance": weighted_variance,
    "powers of 2": lambda: ra.fuse(ra.sum(2 ** (ra.min(x, n) - x), n)),
    "norm": lambda: ra.fuse(ra.norm(x, n)),
    "cosine": lambda: ra.fuse(ra.cosine_similarity(x, w, n)),
    "divergence": lambda: ra.fuse(ra.sum(ra.softmax(x, n) * (ra.log_softmax(x, n) - ra.log_softmax(w, n)), n)),
    "inertia": inertia,
    "best of rows": lambda: best_of_rows(3),
    "20 best of rows": lambda: best_of_rows(20),
    "rows and their best": rows_and_their_best,
    "latent": mla_decode,
    "routing": lambda: routing(6),
    "routing to one": lambda: routing(1),
    "long inner axis": lambda: ra.fuse(ra.logsumexp(ra.sum(X * W, c), n)),
    "long inner axis, transposed": lambda: ra.fuse(ra.logsumexp(ra.sum(X * WT, c), n)),
    "long inner axis, maximum": lambda: ra.fuse({"out": (ra.sum(ra.max(X + W, c), n), "t")}),
    "weights of scores": weights_of_scores,
    "inertia, any dimension": inertia_of_any_dimension,
    "any": lambda: ra.fuse(ra.any(x > 3, n)),
    "all": lambda: ra.fuse(ra.all(x > -3, n)),
    "argmax": lambda: ra.fuse(ra.argmax(x, n)),
    "argmin": lambda: ra.fuse(ra.argmin(x, n)),
    "argmax and maximum": lambda: ra.fuse({"at": (ra.argmax(x, n), "b"), "top": (ra.max(x, n), "b")}),
    "first": lambda: ra.fuse(ra.first(x, n)),
    "last": lambda: ra.fuse(ra.last(x, n)),
    "prod": lambda: ra.fuse(ra.prod(x, n)),
    "compensated": lambda: ra.fuse(ra.compensated_sum(x, n)),
    "batch norm of planes": batch_norm,
    "cross_entropy": library.cross_entropy,
    "softmax": lambda: ra.fuse(ra.softmax(x, n), axes="b n"),
    "masked softmax": lambda: ra.fuse(ra.softmax(ra.where(N, x, -oo), n), axes="b n"),
    "log_softmax": lambda: ra.fuse(ra.log_softmax(x, n), axes="b n"),
    "layer_norm": lambda: ra.fuse(ra.layer_norm(x, n, weight=G, bias=B), axes="b n"),
    "rms_norm": lambda: ra.fuse(ra.rms_norm(x, n, weight=G), axes="b n"),
    "normalize": lambda: ra.fuse(ra.normalize(x, n, p=1), axes="b n"),
    "weights and mean": weights_and_mean,
    **uses_of_attention.FORMS,
    **{name: wider.FORMS[name] for name in wider.TAKEN},
}


def qkv(*sizes: int) -> Callable[[torch.Generator], dict[str, torch.Tensor]]:
    """Random Q, K, V of sizes b, h, q, k, d, e."""
    return uses_of_attention.qkv(dict(zip("bhqkde", sizes, strict=True)))


def latent(nb: int, nh: int, nk: int, nc: int, nr: int) -> Callable[[torch.Generator], dict[str, torch.Tensor]]:
    """Random queries and a latent tensor, each with a part of its own, of sizes b, h, k, c, r."""
    shapes = {"q": (nb, nh, nc), "q_rope": (nb, nh, nr), "latent": (nb, nk, nc), "k_rope": (nb, nk, nr)}
    return lambda g: {name: torch.randn(shape, generator=g) for name, shape in shapes.items()}


def with_(
    make: Callable[[torch.Generator], dict[str, torch.Tensor]], **more: Callable[[torch.Generator], torch.Tensor]
) -> Any:
    """Tensors, and more of them."""
    return lambda g: make(g) | {name: one(g) for name, one in more.items()}


def randn(*shape: int, scale: float = 1.0, shift: float = 0.0) -> Callable[[torch.Generator], torch.Tensor]:
    """shift + scale · normal."""
    return lambda g: shift + scale * torch.randn(shape, generator=g)


def tenths(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    """Normal numbers of one decimal, so that many are equal."""
    return lambda g: torch.randn(shape, generator=g).round(decimals=1)


def with_nan(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    """Normal numbers, and two NaN in the first row."""

    def make(g: torch.Generator) -> torch.Tensor:
        made = torch.randn(shape, generator=g)
        made[0, [7, 200]] = torch.nan
        return made

    return make


def halves(rows: int, columns: int) -> Callable[[torch.Generator], torch.Tensor]:
    """Numbers above 1, then their reciprocals in another order, of random signs: products of about 1."""

    def make(g: torch.Generator) -> torch.Tensor:
        above = 1 + 3 * torch.rand(rows, columns // 2, generator=g)
        signs = torch.where(torch.rand(rows, columns, generator=g) < 0.5, -1.0, 1.0)
        return signs * torch.cat([above, 1 / above.flip(1)], 1)

    return make


def far(rows: int, columns: int) -> Callable[[torch.Generator], torch.Tensor]:
    """Numbers about 1e8 and about −1e8 in turn: their sums are exact in twice the digits, and far off in one."""
    signs = torch.tensor([1.0, -1.0]).repeat(columns)[:columns]
    return lambda g: signs * (1e8 + 30 * torch.randn(rows, columns, generator=g))


def places(rows: int, columns: int) -> Callable[[torch.Generator], torch.Tensor]:
    """A place of each row."""
    return lambda g: torch.randint(0, columns, (rows,), generator=g)


def whole(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    """Small integers: their sums and products are exact, so that ties are ties."""
    return lambda g: torch.randint(-2, 3, shape, generator=g).float()


def doubles(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    """Small integers in float64, and now and then the next double beside one."""
    even = whole(*shape)
    return lambda g: even(g).double() * (1 + torch.randint(0, 2, shape, generator=g) * torch.finfo(torch.float64).eps)


def weights(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    """Positive weights."""
    return lambda g: torch.randn(shape, generator=g).abs() + 0.1


def mask(rows: int, columns: int, dead: int = -1) -> Callable[[torch.Generator], torch.Tensor]:
    """A random boolean mask; row `dead` is masked whole."""
    return lambda g: (torch.rand(rows, columns, generator=g) < 0.6) & (torch.arange(rows) != dead)[:, None]


def additive(rows: int, columns: int) -> Callable[[torch.Generator], torch.Tensor]:
    """0, finfo.min and -inf; row 1 all finfo.min (uniform), the last row all -inf (empty)."""

    def make(g: torch.Generator) -> torch.Tensor:
        drawn = torch.randint(0, 3, (rows, columns), generator=g)
        made = torch.tensor([0.0, LOWEST, -torch.inf])[drawn]
        made[:, 0] = 0.0
        made[1 % rows] = LOWEST
        made[rows - 1] = -torch.inf
        return made

    return make


def one(**tensors: Callable[[torch.Generator], torch.Tensor]) -> Any:
    """Named tensors."""
    return lambda g: {name: make(g) for name, make in tensors.items()}


CASES = (
    Case("ragged, d ≠ e", "attention", qkv(1, 2, 33, 77, 32, 48)),
    Case("one of everything", "attention", qkv(1, 1, 1, 1, 8, 8)),
    Case("513 x 1000", "attention", qkv(1, 2, 513, 1000, 64, 64)),
    Case("odd widths", "attention", qkv(1, 2, 70, 90, 36, 20)),
    Case("width 80", "attention", qkv(1, 2, 128, 256, 80, 80)),
    Case("width 128", "attention", qkv(1, 2, 256, 384, 128, 128)),
    Case("one query", "attention", qkv(2, 3, 1, 513, 64, 64)),
    Case("huge logits", "attention", with_(qkv(1, 2, 33, 77, 32, 48), Q=randn(1, 2, 33, 32, scale=1e3)), 1e-4),
    Case("causal", "causal", qkv(1, 2, 200, 200, 64, 64)),
    Case("causal, more keys", "causal", qkv(1, 2, 77, 300, 32, 32)),
    Case("boolean mask", "masked", with_(qkv(1, 2, 33, 77, 32, 48), M=mask(33, 77))),
    Case("masked row, nan", "masked", with_(qkv(1, 2, 33, 77, 32, 48), M=mask(33, 77, dead=5))),
    Case("masked row, zero", "masked", with_(qkv(1, 2, 33, 77, 32, 48), M=mask(33, 77, dead=5)), empty="zero"),
    Case("additive mask", "additive", with_(qkv(1, 2, 33, 77, 32, 48), A=additive(33, 77))),
    Case("rows", "rows", one(x=randn(5, 1000, scale=10.0)), 1e-6),
    Case("rows of one", "rows", one(x=randn(7, 1)), 1e-6),
    Case("rows, huge logits", "rows", one(x=randn(5, 1000, scale=1e4)), 1e-6),
    Case("logsumexp", "logsumexp", one(x=randn(300, 77, scale=10.0)), 1e-6),
    Case("product", "product", one(x=randn(37, 300), P=randn(150, 300)), 4e-6),
    Case("centred product", "centred product", one(x=randn(37, 300, shift=1e3), P=randn(150, 300)), 4e-6),
    Case("product of the range", "product of the range", one(x=randn(70, 129), P=randn(33, 129)), 4e-6),
    Case("variance of values", "variance of values", one(x=randn(37, 129), Y=randn(129, 50, shift=1e3)), 4e-6),
    Case("covariance", "covariance", one(x=randn(37, 129, shift=1e3), Y=randn(129, 50, shift=1e3)), 4e-6),
    Case("distance of values", "distance of values", one(x=randn(37, 129), w=weights(37, 129), Y=randn(129, 50)), 4e-6),
    Case("regression", "regression", one(x=randn(5, 1000, shift=1e3), w=randn(5, 1000, shift=1e4)), 1e-6),
    Case("variance", "variance", one(x=randn(5, 1000)), 1e-6),
    Case("variance, 1e8 ± 30", "variance", one(x=randn(2, 1_000_000, scale=30.0, shift=1e8)), 1e-6),
    Case("weighted mean", "weighted mean", one(x=randn(5, 1000), w=weights(5, 1000)), 1e-6),
    Case("weighted variance", "weighted variance", one(x=randn(5, 1000, shift=1e4), w=weights(5, 1000)), 1e-6),
    Case("powers of 2 at 1e8", "powers of 2", one(x=randn(5, 300, scale=30.0, shift=1e8)), 1e-6),
    Case("norm beyond the root of the range", "norm", one(x=randn(5, 300, scale=1e30)), 1e-6),
    Case("norm below the root of the range", "norm", one(x=randn(5, 300, scale=1e-30)), 1e-6),
    Case(
        "cosine of what differs in scale",
        "cosine",
        one(x=randn(5, 300, scale=1e-30), w=randn(5, 300, scale=1e30)),
        1e-6,
    ),
    Case("divergence far from zero", "divergence", one(x=randn(5, 300, scale=30.0, shift=1e8), w=randn(5, 300)), 1e-6),
    Case("inertia", "inertia", one(r=randn(5, 1000, 3, shift=1e3), w=weights(5, 1000)), 1e-6),
    Case("any", "any", one(x=randn(70, 100)), 0),
    Case("all", "all", one(x=randn(70, 100)), 0),
    Case("argmax of equal numbers", "argmax", one(x=tenths(9, 1000)), 0),
    Case("argmax, a NaN first", "argmax", one(x=with_nan(5, 300)), 0),
    Case("argmin of equal numbers", "argmin", one(x=tenths(9, 1000)), 0),
    Case("argmax and maximum", "argmax and maximum", one(x=tenths(5, 77)), 0),
    Case("first", "first", one(x=randn(5, 1000)), 0),
    Case("last", "last", one(x=randn(5, 1000)), 0),
    Case("prod, of which parts overflow", "prod", one(x=halves(5, 1000)), 1000 * 2.0**-24),
    Case("compensated, 1e8 of both signs", "compensated", one(x=far(5, 1000)), 0),
    Case("compensated, a long row", "compensated", one(x=far(2, 40000)), 0),
    Case("argmax of a long row", "argmax", one(x=tenths(2, 40000)), 0),
    Case("last of a long row", "last", one(x=randn(2, 40000)), 0),
    Case("batch norm of planes", "batch norm of planes", one(Z=randn(3, 5, 33, shift=1e3)), 1e-6),
    Case("cross_entropy", "cross_entropy", one(x=randn(9, 1000, scale=10.0), target=places(9, 1000)), 1e-6),
    Case("softmax", "softmax", one(x=randn(5, 1000, scale=10.0)), 1e-6),
    Case("softmax, huge logits", "softmax", one(x=randn(5, 77, scale=1e4)), 1e-6),
    Case("masked softmax, nan", "masked softmax", one(x=randn(9, 77), N=mask(9, 77, dead=5)), 1e-6),
    Case("masked softmax, zero", "masked softmax", one(x=randn(9, 77), N=mask(9, 77, dead=5)), 1e-6, empty="zero"),
    Case("log_softmax", "log_softmax", one(x=randn(300, 77, scale=10.0)), 1e-6),
    Case("layer_norm", "layer_norm", one(x=randn(5, 1000, shift=1e4), G=randn(1000), B=randn(1000)), 1e-6),
    Case("rms_norm", "rms_norm", one(x=randn(5, 1000), G=randn(1000)), 1e-6),
    Case("normalize, tiny", "normalize", one(x=randn(5, 77, scale=1e-37)), 1e-6),
    Case("weights and mean", "weights and mean", qkv(1, 2, 33, 77, 32, 48)),
    Case("long inner axis", "long inner axis", one(X=randn(70, 777, scale=0.1), W=randn(777, 100, scale=0.1))),
    Case(
        "long inner axis, transposed",
        "long inner axis, transposed",
        one(X=randn(33, 1030, scale=0.1), W=randn(40, 1030, scale=0.1)),
    ),
    Case("long inner axis, maximum", "long inner axis, maximum", one(X=randn(33, 530), W=randn(530, 40))),
    Case("best of rows", "best of rows", one(x=whole(33, 600)), 0.0),
    Case("best of rows, too few", "best of rows", one(x=whole(5, 2)), 0.0),
    Case("best of rows of doubles", "best of rows", one(x=doubles(33, 600)), 0.0),
    Case("20 best of rows of doubles", "20 best of rows", one(x=doubles(7, 1000)), 0.0),
    Case("rows and their best", "rows and their best", one(x=whole(33, 600)), 1e-6),
    Case("20 best of rows", "20 best of rows", one(x=whole(7, 1000)), 0.0),
    Case("latent", "latent", latent(2, 5, 77, 32, 16)),
    Case("latent, one of everything", "latent", latent(1, 1, 1, 16, 8)),
    Case("latent, wide", "latent", latent(1, 70, 130, 320, 64)),
    Case("routing", "routing", one(x=whole(70, 300), W=whole(300, 100))),
    Case("routing, long tokens", "routing", one(x=whole(20, 1030), W=whole(1030, 64))),
    Case("routing to one", "routing to one", one(x=whole(70, 96), W=whole(96, 128))),
    Case("inertia in 2-D", "inertia, any dimension", one(r=randn(5, 777, 2, shift=1e3), w=weights(5, 777)), 1e-6),
    *(Case(**one) for one in (*uses_of_attention.CASES, *wider.CASES)),
    Case("weights of scores", "weights of scores", one(X=randn(9, 70), W=randn(70, 99), u=randn(99), target=whole(9))),
)


def tensors_of(case: Case, device: str = "cpu") -> dict[str, torch.Tensor]:
    """The case's tensors, seeded by its name."""
    generator = torch.Generator().manual_seed(sum(map(ord, case.name)))
    return {name: array.to(device) for name, array in case.tensors(generator).items()}


def problem(
    form: ra.Fused, tensors: Mapping[str, torch.Tensor], extents: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """What `lower` and `compile` need to know of tensors: sizes by axis, dtypes and shapes by name."""
    sizes = dict(extents or {}) | {
        index.name: size
        for one in form.cascade.elements()
        for index, size in zip(one.indices, tensors[one.name].shape, strict=True)
        if isinstance(index, ra.Axis)
    }
    dtypes = {name: str(array.dtype).removeprefix("torch.") for name, array in tensors.items()}
    return {"sizes": sizes, "dtypes": dtypes, "shapes": {name: tuple(array.shape) for name, array in tensors.items()}}


def cast(tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Floating-point tensors in another dtype (a mask of finfo.min becomes that dtype's own)."""
    return {name: _cast(array, dtype) if array.is_floating_point() else array for name, array in tensors.items()}


def _cast(array: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    lowest = torch.tensor(torch.finfo(dtype).min, dtype=dtype, device=array.device)
    return torch.where(array == LOWEST, lowest, array.to(dtype))


def outputs_of(made: Any) -> dict[str, torch.Tensor]:
    """Outputs by name, whether one or several."""
    return dict(made._asdict()) if hasattr(made, "_asdict") else {"out": made}


def worst_error(made: Any, wanted: Any, empty: str = "nan") -> float:
    """Largest |made − wanted| / max|wanted| over the outputs, which must be non-finite in the same places."""
    worst = 0.0
    for name, expected in outputs_of(wanted).items():
        got, want = outputs_of(made)[name].double().cpu(), expected.double().cpu()
        want = torch.where(want.isnan(), 0.0, want) if empty == "zero" else want
        assert got.shape == want.shape, f"{name}: shape {tuple(got.shape)}, wanted {tuple(want.shape)}"
        assert torch.equal(got.isfinite(), want.isfinite()), f"{name}: non-finite in other places"
        kept = want.isfinite()
        if kept.any():
            scale = want[kept].abs().max().clamp_min(1e-30)
            worst = max(worst, float((got[kept] - want[kept]).abs().max() / scale))
    return worst
