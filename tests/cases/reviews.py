"""The rows of two reviews that have a value: every expression that one found wrong, refused or raw, with its data."""

from __future__ import annotations

from typing import Any

import numpy as np
from sympy import Abs, Expr, Max, Min, Mod, cos, exp, log, oo, pi, sign, sqrt, tanh

import redalg as ra
from tests.cases.rows import Row

b, n, e = ra.axes("b n e")
j = ra.axis("j", size=2)
x, y, w, s, t, z, M = ra.tensors("x[b,n] y[b,n] w[b,n] s[b,n] t[b,n] z[b,n] M[b,n]")
q = ra.tensor("q[n]")
pt, gr, G, H = ra.tensors("pt[n] gr[n,e] G[n,e] H[n,e]")
ROWS, LENGTH = 3, 17
N = np.arange(LENGTH)
rng = np.random.default_rng(1)
mean, other, largest = ra.mean(x, n), ra.mean(y, n), ra.max(x, n)
amax, p = ra.max(Abs(x), n), ra.softmax(s, n)


# ---- definitions -----------------------------------------------------------------------------------------------------


def total(a: Any) -> Any:
    return a.sum(1, keepdims=True)


def average(a: Any) -> Any:
    return total(a) / a.dtype.type(a.shape[1])


def top(a: Any) -> Any:
    return a.max(1, keepdims=True)


def shares(a: Any) -> Any:
    weights = np.exp(a - top(a))
    return weights / total(weights)


def lse(a: Any) -> Any:
    return top(a) + np.log(total(np.exp(a - top(a))))


def rows(*names: str, offset: float = 0) -> dict[str, Any]:
    return {name: offset + rng.standard_normal((ROWS, LENGTH)) for name in names}


def row(expr: Expr, names: str, definition: Any, **options: Any) -> Row:
    return Row(expr, "b", rows(*names.split()), definition, **options)


# ---- section 3 of the algebra's review: said to have no state, and have one ------------------------------------------

REFUSED_ONCE = {
    "max (x − m)² spelt out": row(
        ra.max(x**2 - 2 * x * mean + mean**2, n), "x", lambda x: ((x - average(x)) ** 2).max(1)
    ),
    "max x² + m·x": row(ra.max(x**2 + largest * x, n), "x", lambda x: (x * x + top(x) * x).max(1)),
    "max log p + t": row(ra.max(log(p) + t, n), "s t", lambda s, t: (np.log(shares(s)) + t).max(1)),
    "softmax of log p + t": row(
        ra.sum(ra.softmax(log(p) + t, n) * y, n), "s t y", lambda s, t, y: (shares(s + t) * y).sum(1)
    ),
    "softmaxes nested by logarithms": row(
        ra.sum(ra.softmax(log(ra.softmax(log(p) + t, n)) + z, n) * y, n), "s t y z",
        lambda s, t, y, z: (shares(s + t + z) * y).sum(1),
    ),
    "max x + m·sign y": row(ra.max(x + largest * sign(y), n), "x y", lambda x, y: (x + top(x) * np.sign(y)).max(1)),
    "max x + m·Mod(n, 2)": row(ra.max(x + largest * Mod(n, 2), n), "x", lambda x: (x + top(x) * (N % 2)).max(1)),
    "max x + m·(−1)^n": row(ra.max(x + largest * (-1) ** n, n), "x", lambda x: (x + top(x) * (1 - 2 * (N % 2))).max(1)),
    "max exp(x)·Σ exp + x": row(
        ra.max(exp(x) * ra.sum(exp(x), n) + x, n), "x", lambda x: (np.exp(x) * total(np.exp(x)) + x).max(1)
    ),
    "max where(x > m, x, −∞), m the mean": row(
        ra.max(ra.where(x > mean, x, -oo), n), "x", lambda x: np.where(x > average(x), x, -np.inf).max(1)
    ),
    "max where(x > m, x, −∞), m of others": row(
        ra.max(ra.where(x > other, x, -oo), n), "x y", lambda x, y: np.where(x > average(y), x, -np.inf).max(1)
    ),
    "max Max(x, d)": row(ra.max(Max(x, other), n), "x y", lambda x, y: np.maximum(x, average(y)).max(1)),
    "max where(x > d, x, d)": row(
        ra.max(ra.where(x > other, x, other), n), "x y", lambda x, y: np.maximum(x, average(y)).max(1)
    ),
    "Σ |log_softmax|·y": row(
        ra.sum(Abs(ra.log_softmax(s, n)) * y, n), "s y", lambda s, y: (np.abs(s - lse(s)) * y).sum(1)
    ),
    "Σ |s − lse|": row(ra.sum(Abs(s - ra.logsumexp(s, n)), n), "s", lambda s: np.abs(s - lse(s)).sum(1)),
    "Σ Min(p, 1)": row(ra.sum(Min(p, 1), n), "s", lambda s: np.ones(ROWS, s.dtype)),
    "Σ |1 − share|": row(
        ra.sum(Abs(1 - Abs(x) / ra.sum(Abs(x), n)), n), "x", lambda x: np.abs(1 - np.abs(x) / total(np.abs(x))).sum(1)
    ),
    "Σ |x² − Σ x²|": row(
        ra.sum(Abs(x**2 - ra.sum(x**2, n)), n), "x", lambda x: np.abs(x * x - total(x * x)).sum(1)
    ),
    "Σ Max(x, second largest)": row(
        ra.sum(Max(x, ra.max(ra.where(x < largest, x, -oo), n)), n), "x",
        lambda x: np.maximum(x, np.sort(x, 1)[:, -2:-1]).sum(1), passes=2,
    ),
    "Σ exp(x·max sign y)": row(
        ra.sum(exp(x * ra.max(sign(y), n)), n), "x y", lambda x, y: np.exp(x * top(np.sign(y))).sum(1)
    ),
    "Σ exp(x·max [y > 0])": row(
        ra.sum(exp(x * ra.max(ra.where(y > 0, 1, 0), n)), n), "x y", lambda x, y: np.exp(x * top(y > 0)).sum(1)
    ),
}  # fmt: skip


def boosted(w: Any, y: Any) -> Any:
    wrong = total(np.where(y < 0, w, 0)) / total(w)
    return (w * np.exp(-np.log((1 - wrong) / wrong) / 2 * np.sign(y))).sum(1)


def decayed(x: Any, alpha: float) -> Any:
    weights = (1 - x.dtype.type(alpha)) ** (LENGTH - 1 - N).astype(x.dtype)
    return (weights * x).sum(1) / weights.sum()


missed = ra.sum(ra.where(y < 0, w, 0), n) / ra.sum(w, n)
alpha = ra.scalars("alpha")
weight_of_place = (1 - alpha) ** (n.extent - 1 - n)
UNDECIDED_ONCE = {
    "clip of x/amax": row(
        ra.sum(Max(-1, Min(1, x / amax)) * y, n), "x y", lambda x, y: (x / top(np.abs(x)) * y).sum(1)
    ),
    "clip of x/norm": row(
        ra.sum(Max(-1, Min(1, x / ra.norm(x, n))) * y, n), "x y", lambda x, y: (x / np.sqrt(total(x * x)) * y).sum(1)
    ),
    "|N − n|": row(ra.sum(Abs(n.extent - n) * x, n), "x", lambda x: ((LENGTH - N) * x).sum(1)),
    "where(n + 1 < N, x, 0)": row(ra.sum(ra.where(n + 1 < n.extent, x, 0), n), "x", lambda x: x[:, :-1].sum(1)),
    "where(n = N − 1, x, 0)": row(ra.sum(ra.where(ra.eq(n, n.extent - 1), x, 0), n), "x", lambda x: x[:, -1]),
    "Max(u, 0) − Max(−u, 0)": row(
        ra.sum((Max(x - mean, 0) - Max(mean - x, 0)) * y, n), "x y", lambda x, y: ((x - average(x)) * y).sum(1)
    ),
    "AdaBoost": Row(
        ra.sum(w * exp(-log((1 - missed) / missed) / 2 * sign(y)), n), "b",
        {"w": rng.random((ROWS, LENGTH)), "y": np.sign(rng.standard_normal((ROWS, LENGTH)))}, boosted,
    ),
    "Π where(M, w·d, 1)": row(
        ra.prod(ra.where(M > 0, w * other, 1), n), "M w y",
        lambda M, w, y: np.where(M > 0, w * average(y), 1).prod(1), passes=2,
    ),
    "Σ_e f·P": Row(
        ra.sum(ra.mean(G, n) * ra.mean(H, n), e), "", {"G": rng.random((LENGTH, 4)), "H": rng.random((LENGTH, 4))},
        lambda G, H: (G.mean(0) * H.mean(0)).sum(),
    ),
    "Σ_e P²": Row(
        ra.sum(ra.mean(G, n) ** 2, e), "", {"G": rng.random((LENGTH, 4))}, lambda G: (G.mean(0) ** 2).sum()
    ),
    "a bin of the transform": row(
        ra.sum(x * cos(6 * pi * n / n.extent), n), "x",
        lambda x: (x * np.cos(6 * x.dtype.type(np.pi) * N.astype(x.dtype) / LENGTH)).sum(1), close=1e-9,
    ),
    "Hann's window": row(
        ra.sum(x * (1 - cos(2 * pi * n / n.extent)) / 2, n), "x",
        lambda x: (x * (1 - np.cos(2 * x.dtype.type(np.pi) * N.astype(x.dtype) / LENGTH)) / 2).sum(1),
    ),
    "mean weighted by (1 − α)^(N − 1 − n)": row(
        ra.sum(weight_of_place * x, n) / ra.sum(weight_of_place, n), "x", decayed, scalars={"alpha": 0.25}
    ),
    "that with 1 − α negative": row(
        ra.sum(weight_of_place * x, n) / ra.sum(weight_of_place, n), "x", decayed, scalars={"alpha": 1.5}
    ),
}  # fmt: skip

# ---- sections 2 and 4: wrong or raw ----------------------------------------------------------------------------------

THREE = {"x": np.array([[1.0, 3, 2]]), "y": np.array([[0, np.nan, 0]])}
code = ra.cast(127 * x / amax, "int8")


def codes(x: Any) -> Any:
    return np.rint(127 * x / top(np.abs(x)))


third = (ra.mean(x * y * z, n) - mean * ra.mean(y * z, n) - other * ra.mean(x * z, n)
         - ra.mean(z, n) * ra.mean(x * y, n) + 2 * mean * other * ra.mean(z, n))  # fmt: skip


def coskewness(x: Any, y: Any, z: Any) -> Any:
    u, v, w = (one - average(one) for one in (x, y, z))
    return (u * v * w).mean(1) / np.sqrt((u * u).mean(1) * (v * v).mean(1) * (w * w).mean(1))


WRONG_ONCE = {
    "W1, a threshold of an inner maximum": Row(
        ra.sum(ra.where(pt < ra.sum(ra.max(gr, n), e), pt, 0), n), "",
        {"pt": np.array([1.0, 2, 3]), "gr": np.full((3, 1), 5.0)}, lambda pt, gr: pt.sum(), passes=2,
    ),
    "W2, argmax of a factor that is NaN": Row(
        ra.argmax(x * (1 + ra.sum(y**2, n)), n), "b", THREE, lambda x, y: np.zeros(1)
    ),
    "W2, topk of it": Row(
        ra.topk(x * (1 + ra.sum(y**2, n)), n, j)[1], "b j", THREE, lambda x, y: np.array([[0, 1]])
    ),
    "W2, argmax beside a NaN": Row(ra.argmax(x - ra.max(y, n), n), "b", THREE, lambda x, y: np.zeros(1)),
    "W2, topk beside it": Row(ra.topk(x - ra.max(y, n), n, j)[1], "b j", THREE, lambda x, y: np.array([[0, 1]])),
    "W4, Max(cast, 0)": row(
        ra.sum(Max(code, 0) * y, n), "x y", lambda x, y: (np.maximum(codes(x), 0) * y).sum(1), passes=2
    ),
    "W4, |cast|": row(ra.sum(Abs(code) * y, n), "x y", lambda x, y: (np.abs(codes(x)) * y).sum(1), passes=2),
    "W4, sign of a cast": row(
        ra.sum(sign(code) * y, n), "x y", lambda x, y: (np.sign(codes(x)) * y).sum(1), passes=2
    ),
    "W5, a NaN whose weight underflows": Row(
        ra.sum(ra.softmax(s, n) * y, n), "b", {"s": [[0.0, -200, 0, 0]], "y": [[1.0, np.nan, 1, 1]]},
        lambda s, y: np.full(1, np.nan),
    ),
    "S5, product of shares": row(ra.prod(p, n), "s", lambda s: shares(s).prod(1), kernel=False),
    "K2, argmax of a row's tensor": Row(
        ra.argmax(q + ra.sum(x, n), n), "b", rows("x") | {"q": rng.standard_normal(LENGTH)},
        lambda x, q: (q + total(x)).argmax(1),
    ),
    "K2, topk of it": Row(
        ra.topk(q + ra.sum(x, n), n, j)[1], "b j", rows("x") | {"q": rng.standard_normal(LENGTH)},
        lambda x, q: np.argsort(-(q + total(x)), 1)[:, :2],
    ),
    "S5, sum at a maximum of a clip of indicators": row(
        ra.sum_at_max(s, Max(0, ra.sum(x * ra.where(y > 0, 1, 0), n)), n), "s x y",
        lambda s, x, y: np.maximum(0, (x * (y > 0)).sum(1)),
    ),
    "S5, first of an inner sum": Row(
        ra.first(ra.sum(gr, e) * pt, n), "", {"gr": rng.random((5, 2)), "pt": rng.random(5)},
        lambda gr, pt: gr[0].sum() * pt[0],
    ),
    "S5, affine of an inner sum": Row(
        ra.affine(tanh(pt), ra.sum(gr, e), n)[1], "", {"gr": rng.random((2, 2)), "pt": rng.random(2)},
        lambda gr, pt: np.tanh(pt[1]) * gr[0].sum() + gr[1].sum(),
    ),
    "S6, variance of places": Row(
        ra.sum(w * (n - ra.sum(w * n, n) / ra.sum(w, n)) ** 2, n) / ra.sum(w, n), "b", {"w": np.ones((1, 4))},
        lambda w: np.full(1, 1.25),
    ),
    "coskewness by three variances": Row(
        third / (sqrt(ra.var(x, n)) * sqrt(ra.var(y, n)) * sqrt(ra.var(z, n))), "b",
        {name: 1e12 + 1e8 * one for name, one in rows("x", "y", "z").items()}, coskewness, close=1e-7,
    ),
    "K2, argmin of it": Row(
        ra.argmin(q - ra.sum(x, n), n), "b", rows("x") | {"q": rng.standard_normal(LENGTH)},
        lambda x, q: (q - total(x)).argmin(1),
    ),
    "K2, topk values of it": Row(
        ra.topk(q + ra.sum(x, n), n, j)[0], "b j", rows("x") | {"q": rng.standard_normal(LENGTH)},
        lambda x, q: -np.sort(-(q + total(x)), 1)[:, :2],
    ),
}  # fmt: skip

VALUES = REFUSED_ONCE | UNDECIDED_ONCE | WRONG_ONCE
