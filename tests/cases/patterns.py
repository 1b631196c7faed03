"""Patterns of models and papers that nothing in the engine knows, with small tensors for every CPU backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from sympy import Abs, Rational, exp, log, oo, sqrt, tanh

import redalg as ra

b, h, q, k, d, e, n = ra.axes("b h q k d e n")
Q, K, V, slope, sink, length = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e] slope[h] sink[h] length[b]")
x, y, z, W = ra.tensors("x[b,n] y[b,n] z[n,e] W[n,e]")
keys, values, page, past = (ra.Tensor(name) for name in ("K", "V", "page", "x"))
cap, scale = ra.scalars("cap", positive=True), ra.scalars("scale")
eps = Rational(1, 10**6)
SCORE = ra.sum(Q * K, d) / sqrt(d.extent)
TOP = ra.max(SCORE, k)
WEIGHT = exp(SCORE - TOP)
P, R = ra.softmax(x, n), ra.softmax(y, n)


def attend(score: Any) -> Any:
    """Softmax-weighted mean of V."""
    return ra.sum(ra.softmax(score, k) * V, k)


@final
@dataclass(frozen=True)
class Pattern:
    """An expression and its tensors."""

    expr: Any
    axes: str | None
    tensors: Mapping[str, Any]
    tolerance: float = 2e-6
    options: Mapping[str, Any] = field(default_factory=dict)


def randn(*shape: int) -> torch.Tensor:
    """Seeded by the shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


QKV = {"Q": randn(1, 4, 33, 16), "K": randn(1, 4, 50, 16), "V": randn(1, 4, 50, 24)}
ROWS = {"x": randn(5, 300), "y": randn(6, 300)[1:] + 0.5}
SHARED = {"Q": QKV["Q"], "K": randn(1, 2, 50, 16), "V": randn(1, 2, 50, 24)}
PAGES = {"page": torch.arange(5).flip(0)[None] + 1, "K": randn(7, 10, 4, 16)}

PATTERNS = {
    "ALiBi (Press 2022)": Pattern(attend(SCORE - slope * Abs(k - q)), "b h q e", QKV | {"slope": randn(4).abs()}),
    "sliding window (Beltagy 2020)": Pattern(
        attend(ra.where(ra.logical_and(k <= q, q - k < 8), SCORE, -oo)), "b h q e", QKV
    ),
    "softcap (Gemma 2)": Pattern(attend(cap * tanh(SCORE / cap)), "b h q e", QKV | {"cap": 5.0}),
    "run-time scale": Pattern(attend(SCORE * scale), "b h q e", QKV | {"scale": 0.3}),
    "sink (gpt-oss)": Pattern(
        ra.sum(WEIGHT * V, k) / (ra.sum(WEIGHT, k) + exp(sink - TOP)), "b h q e", QKV | {"sink": randn(4)}
    ),
    "sigmoid weights (Ramapuram 2024)": Pattern(ra.sum(V / (1 + exp(-SCORE)), k), "b h q e", QKV),
    "cosine scores (Swin v2)": Pattern(
        attend(ra.sum(Q * K, d) / sqrt(ra.sum(Q**2, d) * ra.sum(K**2, d))), "b h q e", QKV
    ),
    "Gaussian kernel regression (KeOps)": Pattern(attend(-ra.sum((Q - K) ** 2, d)), "b h q e", QKV, 5e-6),
    "linear attention (Katharopoulos 2020)": Pattern(ra.sum(ra.sum(Q * K, d) * V, k), "b h q e", QKV),
    "grouped heads (Ainslie 2023)": Pattern(
        ra.sum(ra.softmax(ra.sum(Q * keys[b, h // 2, k, d], d), k) * values[b, h // 2, k, e], k), "b h q e", SHARED
    ),
    "variable lengths": Pattern(
        attend(ra.where(k < length, SCORE, -oo)), "b h q e", QKV | {"length": torch.tensor([20])}
    ),
    "paged keys (vLLM)": Pattern(attend(ra.sum(Q * keys[page[b, k // 10], k % 10, h, d], d)), "b h q e", QKV | PAGES),
    "no maximum written": Pattern(ra.sum(exp(SCORE) * V, k) / ra.sum(exp(SCORE), k), "b h q e", QKV),
    "log-sum-exp and top logit": Pattern(
        {"o": (attend(SCORE), "b h q e"), "lse": (ra.logsumexp(SCORE, k), "b h q"), "top": (TOP, "b h q")}, None, QKV
    ),
    "variance under softmax": Pattern(
        ra.sum(ra.softmax(SCORE, k) * (V - attend(SCORE)) ** 2, k), "b h q e", QKV
    ),
    "entropy": Pattern(-ra.sum(P * log(P), n), "b", {"x": ROWS["x"]}),
    "variance of one softmax": Pattern(ra.sum(P * (y - ra.sum(P * y, n)) ** 2, n), "b", ROWS),
    "Kullback-Leibler": Pattern(ra.sum(P * (log(P) - log(R)), n), "b", ROWS, 5e-6),
    "covariance": Pattern(ra.mean((x - ra.mean(x, n)) * (y - ra.mean(y, n)), n), "b", ROWS, 2e-6),
    "skewness (Pébay 2008)": Pattern(
        ra.mean((x - ra.mean(x, n)) ** 3, n) / ra.var(x, n) ** Rational(3, 2), "b", {"x": ROWS["x"] ** 2}
    ),
    "RMSNorm, dot product": Pattern(ra.sum(x * y / sqrt(ra.mean(x**2, n) + eps), n), "b", ROWS, 5e-6),
    "LayerNorm, matrix product": Pattern(
        ra.sum((x - ra.mean(x, n)) / sqrt(ra.var(x, n) + eps) * W, n),
        "b e",
        {"x": ROWS["x"], "W": randn(300, 7)},
        5e-6,
    ),
    "min-max normalised sum": Pattern(
        ra.sum((x - ra.min(x, n)) / (ra.max(x, n) - ra.min(x, n)) * y, n), "b", ROWS, 5e-6
    ),
    "sum of squares": Pattern(ra.sum(ra.tensor("t[n]") ** 2, n), None, {"t": randn(1000)}),
    "lag-one product": Pattern(ra.sum(ra.where(n >= 1, x * past[b, n - 1], 0), n), "b", {"x": ROWS["x"]}, 5e-6),
    "log-sum-exp of columns": Pattern(ra.logsumexp(z, n), "e", {"z": randn(100, 37)}),
    "product": Pattern(ra.prod(x, n), "b", {"x": 1 + 0.01 * ROWS["x"]}),
}  # fmt: skip
