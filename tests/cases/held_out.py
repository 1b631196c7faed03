"""Cascades that were drawn up after the engine, on data that are hostile to them, beside plain definitions.

Each kind of data has its own weakness: logits of ±1e4, an offset, an outlier, equal elements, masked places that hold
NaN, a row that no element enters, and one element alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sympy import Expr, Max, Min, Rational, exp, log, sqrt

import redalg as ra

b, n = ra.axes("b n")
x, y, w, s, t, z = ra.tensors("x[b,n] y[b,n] w[b,n] s[b,n] t[b,n] z[b,n]")
ROWS, LENGTH = 3, 17


# ---- definitions -----------------------------------------------------------------------------------------------------


def total(a: Any) -> Any:
    return a.sum(1, keepdims=True)


def average(a: Any) -> Any:
    return total(a) / a.dtype.type(a.shape[1])


def lse(a: Any) -> Any:
    top = a.max(1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    return top + np.log(total(np.exp(a - top)))


def shares(a: Any) -> Any:
    return np.exp(a - lse(a))


def spread(a: Any) -> Any:
    return ((a - average(a)) ** 2).mean(1)


def relative_spread(logarithms: Any) -> Any:
    values = np.exp(logarithms - logarithms.max(1, keepdims=True))
    return spread(values) / average(values)[:, 0] ** 2


def chosen(z: Any, a: Any) -> Any:
    return np.where(z > 0, a, -np.inf)


# ---- exponentials under masks, and sums of them ----------------------------------------------------------------------

LOGITS = {"plain": (0, 1), "at 1000": (1000, 1), "of ±1e4": (0, 1e4), "at −1e4": (-1e4, 1)}
marked = ra.where(z > 0, exp(s), 0)
both = exp(s) + exp(t)
EXPONENTIALS: dict[str, tuple[Expr, str, Callable[..., Any]]] = {
    "share of the marked": (
        ra.sum(marked, n) / ra.sum(exp(s), n), "s z", lambda s, z: np.where(z > 0, shares(s), 0).sum(1)
    ),
    "weighted share of the marked": (
        ra.sum(ra.where(z > 0, exp(s) * y, 0), n) / ra.sum(exp(s), n), "s z y",
        lambda s, z, y: np.where(z > 0, shares(s) * y, 0).sum(1),
    ),
    "logarithm of the share": (
        log(ra.sum(ra.where(z > 0, exp(-2 * s), 0), n) / ra.sum(exp(-2 * s), n)), "s z",
        lambda s, z: (lse(chosen(z, -2 * s)) - lse(-2 * s))[:, 0],
    ),
    "log (1 + Σ negatives·Σ positives)": (
        log(1 + ra.sum(ra.where(z > 0, exp(-s), 0), n) * ra.sum(ra.where(z > 0, 0, exp(s)), n)), "s z",
        lambda s, z: np.logaddexp(0, (lse(chosen(z, -s)) + lse(np.where(z > 0, -np.inf, s)))[:, 0]),
    ),
    "sum of weighted twins": (
        ra.sum(exp(s) * x + exp(s) * y, n) / ra.sum(exp(s), n), "s x y", lambda s, x, y: (shares(s) * (x + y)).sum(1)
    ),
    "logarithm of a sum of two": (
        log(ra.sum(both, n)), "s t", lambda s, t: np.logaddexp(lse(s), lse(t))[:, 0]
    ),
    "logarithm of cosh": (
        log(ra.sum(exp(s) + exp(-s), n)), "s", lambda s: np.logaddexp(lse(s), lse(-s))[:, 0]
    ),
    "difference beside a sum": (
        ra.sum(exp(s) * x - exp(t) * y, n) / ra.sum(both, n), "s t x y",
        lambda s, t, x, y: (np.exp(s - np.logaddexp(lse(s), lse(t))) * x
                            - np.exp(t - np.logaddexp(lse(s), lse(t))) * y).sum(1),
    ),
    "spread of what is marked": (
        ra.var(marked, n) / ra.mean(marked, n) ** 2, "s z", lambda s, z: relative_spread(chosen(z, s))
    ),
    "spread of a sum of two": (
        ra.var(both, n) / ra.mean(both, n) ** 2, "s t", lambda s, t: relative_spread(np.logaddexp(s, t))
    ),
}  # fmt: skip


MASKED = {
    "marked": (ra.sum(ra.where(z > 0, exp(s) * y, 0), n), lambda s, z, y: np.where(z > 0, np.exp(s) * y, 0).sum(1)),
    "its mean": (
        ra.sum(ra.where(z > 0, exp(s) * y, 0), n) / ra.sum(marked, n),
        lambda s, z, y: np.where(z > 0, np.exp(s) * y, 0).sum(1) / np.where(z > 0, np.exp(s), 0).sum(1),
    ),
}


# ---- of several passes, of which each counts the elements for itself -------------------------------------------------


def standardised(x: Any) -> Any:
    return (x - average(x)) / np.sqrt(spread(x))[:, None]


scores = (x - ra.mean(x, n)) / ra.std(x, n)
TWO_PASSES = {
    "softmax of standardised scores": (
        ra.sum(ra.softmax(scores, n) * y, n), lambda x, y: (shares(standardised(x)) * y).sum(1)
    ),
    "entropy of standardised scores": (
        ra.entropy(ra.softmax(scores, n), n) + ra.mean(y, n),
        lambda x, y: (shares(standardised(x)) * (lse(standardised(x)) - standardised(x))).sum(1) + y.mean(1),
    ),
    "softmax of scores scaled by a mean": (
        ra.sum(ra.softmax(scores * ra.mean(y, n), n) * y, n),
        lambda x, y: (shares(standardised(x) * average(y)) * y).sum(1),
    ),
}  # fmt: skip


# ---- statistics, losses and signals ----------------------------------------------------------------------------------

mean = ra.mean(x, n)
centre = ra.sum(w * x, n) / ra.sum(w, n)
lowest, span = ra.min(x, n), ra.max(x, n) - ra.min(x, n)


def by_weight(w: Any, x: Any) -> Any:
    away = x - total(w * x) / total(w)
    return (w * away**4).sum(1) * w.sum(1) / (w * away**2).sum(1) ** 2


def spread_by_weight(p: Any, a: Any) -> Any:
    return (p * (a - total(p * a)) ** 2).sum(1)


SEVERAL: dict[str, tuple[Expr, str, Callable[..., Any]]] = {
    "coefficient of variation": (
        ra.std(x, n) / mean, "x", lambda x: np.sqrt(spread(x)) / average(x)[:, 0]
    ),
    "fifth moment": (
        ra.mean((x - mean) ** 5, n) / ra.var(x, n) ** Rational(5, 2), "x",
        lambda x: ((x - average(x)) ** 5).mean(1) / spread(x) ** x.dtype.type(2.5),
    ),
    "power mean": (
        ra.mean(w**50, n) ** Rational(1, 50), "w",
        lambda w: (w.max(1) * ((w / w.max(1, keepdims=True)) ** 50).mean(1) ** (w.dtype.type(1) / 50)),
    ),
    "Welch": (
        (mean - ra.mean(y, n)) / sqrt(ra.var(x, n) / n.extent + ra.var(y, n) / n.extent), "x y",
        lambda x, y: (average(x) - average(y))[:, 0] / np.sqrt((spread(x) + spread(y)) / LENGTH),
    ),
    "concordance": (
        2 * ra.covariance(x, y, n) / (ra.var(x, n) + ra.var(y, n) + (mean - ra.mean(y, n)) ** 2), "x y",
        lambda x, y: 2 * ((x - average(x)) * (y - average(y))).mean(1)
        / (spread(x) + spread(y) + (average(x) - average(y))[:, 0] ** 2),
    ),
    "weighted kurtosis": (
        ra.sum(w * (x - centre) ** 4, n) * ra.sum(w, n) / ra.sum(w * (x - centre) ** 2, n) ** 2, "w x", by_weight
    ),
    "slope of a trend": (
        ra.sum((n - (n.extent - 1) / 2) * (x - mean), n) / ra.sum((n - (n.extent - 1) / 2) ** 2, n), "x",
        lambda x: ((np.arange(LENGTH) - LENGTH // 2) * (x - average(x))).sum(1)
        / ((np.arange(LENGTH) - LENGTH // 2) ** 2).sum(),
    ),
    "squares between the extremes": (
        ra.sum(((x - lowest) / span) ** 2, n), "x",
        lambda x: (((x - x.min(1, keepdims=True)) / np.ptp(x, 1)[:, None]) ** 2).sum(1),
    ),
    "varentropy": (
        ra.sum(ra.softmax(s, n) * ra.log_softmax(s, n) ** 2, n)
        - ra.sum(ra.softmax(s, n) * ra.log_softmax(s, n), n) ** 2, "s",
        lambda s: spread_by_weight(shares(s), s - lse(s)),
    ),
    "spread of a place": (
        ra.sum(ra.softmax(s, n) * n**2, n) - ra.sum(ra.softmax(s, n) * n, n) ** 2, "s",
        lambda s: spread_by_weight(shares(s), np.arange(LENGTH)),
    ),
    "information of a proportional hazard": (
        ra.sum(exp(s) * x**2, n) / ra.sum(exp(s), n) - (ra.sum(exp(s) * x, n) / ra.sum(exp(s), n)) ** 2, "s x",
        lambda s, x: spread_by_weight(shares(s), x),
    ),
    "entropy of order 2": (
        -log(ra.sum(ra.softmax(s, n) ** 2, n)), "s", lambda s: (2 * lse(s) - lse(2 * s))[:, 0]
    ),
    "divergence of two softmaxes": (
        ra.sum(ra.softmax(s, n) * (ra.log_softmax(s, n) - ra.log_softmax(t, n)), n), "s t",
        lambda s, t: (shares(s) * ((s - lse(s)) - (t - lse(t)))).sum(1),
    ),
    "χ² of counts": (
        ra.sum((w - z * ra.sum(w, n) / ra.sum(z, n)) ** 2 / (z * ra.sum(w, n) / ra.sum(z, n)), n), "w z",
        lambda w, z: ((w - z * total(w) / total(z)) ** 2 / (z * total(w) / total(z))).sum(1),
    ),
    "downside": (
        mean / sqrt(ra.mean(Min(x, 0) ** 2, n)), "x",
        lambda x: average(x)[:, 0] / np.sqrt((np.minimum(x, 0) ** 2).mean(1)),
    ),
    "hinge of a deviation": (
        Max(0, 1 - sqrt(ra.var(x, n) + Rational(1, 10**4))), "x",
        lambda x: np.maximum(0, 1 - np.sqrt(spread(x) + x.dtype.type(1e-4))),
    ),
    "signal to noise": (
        log(ra.sum(y**2, n) / ra.sum((x - y) ** 2, n)), "x y",
        lambda x, y: np.log((y * y).sum(1) / ((x - y) ** 2).sum(1)),
    ),
}  # fmt: skip
DATA: dict[str, Callable[[str, np.ndarray], np.ndarray]] = {
    "plain": lambda name, a: a,
    "offset": lambda name, a: a + (1e4 if name in "st" else 1e8),
    "outlier": lambda name, a: np.where(np.arange(LENGTH) == 5, 1e4 if name in "st" else 1e8, a),
    "logits": lambda name, a: 1e4 * a,
}
