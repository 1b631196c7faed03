"""Statistics whose means go over axes of other names: the length of an axis is that of the axis in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sympy import Expr, exp, sqrt

import redalg as ra

b, n, k, l, i, j = ra.axes("b n k l i j")
x, y, w = (ra.Tensor(name) for name in "xyw")
RNG = np.random.default_rng(0)
DATA = {"x": RNG.normal(2, 1, (3, 6)), "y": RNG.normal(1, 1, (3, 6)), "w": RNG.normal(size=6)}
X, Y, W = DATA.values()
MEAN, OTHER = ra.mean(x[b, k], k), ra.mean(y[b, l], l)
ABOUT, SPREAD = X - X.mean(1, keepdims=True), X.std(1, keepdims=True)
LIFTED = np.exp(X - X.max(1, keepdims=True))
STATISTICS: dict[str, tuple[Expr, Any]] = {
    "layer norm": ((x[b, n] - MEAN) / sqrt(ra.mean((x[b, l] - MEAN) ** 2, l)), ABOUT / SPREAD),
    "variance": (ra.mean((x[b, l] - MEAN) ** 2, l), X.var(1)),
    "unbiased": (ra.sum((x[b, n] - MEAN) ** 2, n) / (k.extent - 1), X.var(1, ddof=1)),
    "standard error": (sqrt(ra.mean((x[b, n] - MEAN) ** 2, n) / (k.extent - 1)), X.std(1, ddof=1) / sqrt(6.0)),
    "kurtosis": (ra.mean((x[b, n] - MEAN) ** 4, n) / ra.mean((x[b, l] - MEAN) ** 2, l) ** 2,
                 (ABOUT**4).mean(1) / X.var(1) ** 2),
    "covariance": (ra.mean((x[b, n] - MEAN) * (y[b, n] - OTHER), n), (ABOUT * Y).mean(1)),
    "correlation": (ra.sum((x[b, n] - MEAN) * (y[b, n] - OTHER), n)
                    / sqrt(ra.sum((x[b, l] - MEAN) ** 2, l) * ra.sum((y[b, k] - OTHER) ** 2, k)),
                    [np.corrcoef(*pair)[0, 1] for pair in zip(X, Y, strict=True)]),
    "weighted": (ra.sum((x[b, n] - MEAN) ** 2 * w[n], n) / ra.sum((x[b, l] - MEAN) ** 2, l),
                 (ABOUT**2 @ W) / (ABOUT**2).sum(1)),
    "softmax": (exp(x[b, n] - ra.max(x[b, k], k)) / ra.sum(exp(x[b, l] - ra.max(x[b, k], k)), l),
                LIFTED / LIFTED.sum(1, keepdims=True)),
    "about all": (ra.mean((x[b, n] - ra.mean(x[i, j], i, j)) ** 2, b, n), X.var()),
    "columns": (ra.mean((x[b, n] - ra.mean(x[i, n], i)) ** 2, b), X.var(0)),
    "Gini": (ra.sum(abs(x[b, i] - x[b, j]), i, j) / (2 * i.extent * ra.sum(x[b, k], k)),
             abs(X[:, :, None] - X[:, None]).sum((1, 2)) / (12 * X.sum(1))),
    "signal to noise": (ra.mean(x[b, k], k) ** 2 / ra.mean((x[b, n] - ra.mean(x[b, l], l)) ** 2, n),
                        X.mean(1) ** 2 / X.var(1)),
}  # fmt: skip


@pytest.mark.parametrize("name", STATISTICS)
def test_a_call_needs_no_sizes(name: str) -> None:
    expr, exact = STATISTICS[name]
    fused = ra.fuse(expr)
    given = {key: DATA[key] for key in fused.cascade.inputs()}
    for found in (fused(**given), fused.reference(**given)):
        np.testing.assert_allclose(np.asarray(found), np.asarray(exact, float), rtol=1e-9, atol=1e-12)


def test_names_do_not_change_the_cascade() -> None:
    """A variance whose mean goes over another name is one about its mean."""
    one, other = (ra.fuse(ra.var(x[b, n], n)), ra.fuse(ra.mean((x[b, n] - MEAN) ** 2, n)))
    assert one.cascade == replace(other.cascade, aliases=())
    assert other.cascade.aliases == (("k", "n"),)
