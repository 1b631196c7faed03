"""Properties of the rewrites of exponents and scales: rates of either sign, sums of which one term is the largest.

Data lie at 2^40 in eighths, so that differences are exact and a product k·x is not: a rate that is rounded into x costs
40 bits. Of the sums the exponents are such that no exponential but the largest's stays in range.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np
from sympy import Expr, S, exp, log, sqrt

import redalg as ra

b, n = ra.axes("b n")
x, y, t = ra.tensors("x[b,n] y[b,n] t[b]")
k, u = ra.scalars("k u")
SCALARS = ("k", "u")
EPSILON = 2.0**-53
FAR = 2.0**40
LENGTH = 40

Arrays = dict[str, Any]


def eighths(seed: int) -> np.ndarray:
    """In eighths, of mean 0."""
    made = np.random.default_rng(seed).integers(-16, 17, (4, LENGTH // 2)) / 8
    return np.concatenate([made, -made], axis=1)


def everywhere(expr: Expr, **given: Any) -> list[np.ndarray]:
    """The outputs of an expression on both libraries, and of pieces of which the first holds nothing."""
    fused = ra.fuse(expr, axes="b")
    given = {name: one for name, one in given.items() if name in {*fused.cascade.inputs(), *SCALARS}}
    made = [np.asarray(fused(**given, backend=backend)) for backend in ("numpy", "torch")]
    parts = [fused.leaf({name: one[:, start:end] if name in "xy" else one for name, one in given.items()},
                        start={n: start}) for start, end in pairwise((0, 0, 1, 7, LENGTH))]  # fmt: skip
    state = fused.merge(fused.merge(parts[0], parts[3]), fused.merge(parts[1], parts[2]))
    return [*made, np.asarray(fused.finish(state, given))]


def close(expr: Expr, wanted: np.ndarray, **given: Any) -> None:
    for got in everywhere(expr, **given):
        np.testing.assert_allclose(got, wanted, rtol=64 * EPSILON, atol=0)


@np.errstate(all="ignore")
def rates_of_either_sign() -> None:
    near, beside = eighths(0), np.abs(eighths(1)) + 1
    top = near.max(1, keepdims=True)
    for rate in (0.3, -0.3, 0.0):
        weights, centred = np.exp(rate * (near - top)), np.exp(rate * near)
        given = {"x": near + FAR, "y": beside, "k": rate}
        scores = exp(k * (x - ra.max(x, n)))
        close(ra.sum(scores * y, n) / ra.sum(scores, n), (weights * beside).sum(1) / weights.sum(1), **given)
        close(ra.sum(scores * y, n), (weights * beside).sum(1), **given)
        close(ra.sum(exp(k * (x - ra.mean(x, n))) * y, n), (centred * beside).sum(1), **given)
        close(ra.logsumexp(k * (x - ra.max(x, n)), n), np.log(weights.sum(1)), **given)


@np.errstate(all="ignore")
def what_is_not_finite_stays() -> None:
    """A rate of 0 hides no infinity and no NaN, as a pivot of 0·x must not."""
    near = eighths(0)
    near[2, 5], near[3] = np.nan, -np.inf
    scores = exp(k * (x - ra.max(x, n)))
    for rate in (0.0, 0.5, -0.5):
        near[1, 3] = np.inf if rate >= 0 else -np.inf  # the other weighs nothing
        for got in everywhere(ra.sum(scores * y, n) / ra.sum(scores, n), x=near, y=eighths(1), k=rate):
            assert np.isfinite(got).tolist() == [True, False, False, False]


def differences_of_two_rates() -> None:
    """Beside each other, each has its own pivot, and neither is rounded at the size of x."""
    near, top = eighths(0), eighths(0).max(1, keepdims=True)
    wanted = np.exp(0.3 * (near - top)).sum(1) + np.exp(-0.2 * (near - top) / 7).sum(1)
    given = {"x": near + FAR, "k": 0.3, "u": -0.2}
    low = near.min(1, keepdims=True)
    both = np.exp(0.3 * (near - top)).sum(1) + np.exp(-0.3 * (near - low)).sum(1)
    close(ra.sum(exp(k * (x - ra.max(x, n))), n) + ra.sum(exp(-k * (x - ra.min(x, n))), n), both, x=near + FAR, k=0.3)
    close(ra.sum(exp(k * (x - ra.max(x, n))), n) + ra.sum(exp(u * (x - ra.max(x, n)) / 7), n), wanted, **given)


SHARES: tuple[tuple[Expr, Arrays, float], ...] = (
    (S.One, {}, 1.0), (exp(k), {"k": 900.0}, 1.0), (3 * exp(k) + exp(u), {"k": 900.0, "u": 1.0}, 3.0),
    (exp(t), {"t": np.array([-900.0, 0.0, 3.0, 900.0])}, 1.0),
)  # fmt: skip
"""A share of the weights that no element takes, its parameters, and how many times its largest exponential it is."""


@np.errstate(all="ignore")
def about_the_largest() -> None:
    """Weights beside such a share, and the logarithm of their sum."""
    weights = ra.sum(exp(x), n)
    for far, (share, given, times) in product((0.0, 2000.0, -2000.0, -np.inf), SHARES):
        near, beside = eighths(0) + far, eighths(1)
        exponent = np.broadcast_to(given.get("k", given.get("t", 0.0)), 4)
        top = np.maximum(near.max(1), exponent)
        parts = np.exp(near - top[:, None])
        total = times * np.exp(exponent - top) + parts.sum(1)
        wanted = (parts * beside).sum(1) / total
        close(ra.sum(exp(x) * y, n) / (share + weights), wanted, x=near, y=beside, **given)
        close(ra.sum(exp(x) * y / (share + weights), n), wanted, x=near, y=beside, **given)
        close(log(share + weights), top + np.log(total), x=near, **given)


def scaled_and_shifted() -> None:
    """Deviations and fourth moments about weighted means, whose powers leave the range."""
    weights = 1 + np.abs(eighths(1))
    total, centre = ra.sum(y, n), ra.sum(y * x, n) / ra.sum(y, n)
    for size in (1.0, 2.0**600, 2.0**-600):
        share = weights / weights.sum(1, keepdims=True)
        z = eighths(0) - (share * eighths(0)).sum(1, keepdims=True)
        second, fourth = ((share * z**power).sum(1) for power in (2, 4))
        given = {"x": size * eighths(0), "y": weights}
        deviation = sqrt(ra.sum(y * (x - centre) ** 2, n) / total)
        close(deviation / size, np.sqrt(second), **given)
        close(ra.sum(y * (x - centre) ** 4, n) / total / deviation**4, fourth / second**2, **given)


def about_the_pivot_of_a_scale() -> None:
    """An output that carries the axis, far from 0."""
    fused = ra.fuse((x - ra.mean(x, n)) / ra.std(x, n), axes="b n")
    for size in (1.0, 2.0**600, 2.0**-600):
        data = 2.0**20 + eighths(0)
        z = data - data.mean(1, keepdims=True)
        wanted = z / np.sqrt((z**2).mean(1, keepdims=True))
        for backend in ("numpy", "torch"):
            np.testing.assert_allclose(fused(x=size * data, backend=backend), wanted, rtol=64 * EPSILON, atol=1e-14)


PROPERTIES: dict[str, Callable[[], None]] = {
    "exp(k·v)": rates_of_either_sign,
    "k·c − k·d": what_is_not_finite_stays,
    "|k|·c − k·d": differences_of_two_rates,
    "Σ exp(λ)·v": about_the_largest,
    "f(Σ w·(u − v)^p)": scaled_and_shifted,
    "→ m·(q·(u/m − c) + δ)": about_the_pivot_of_a_scale,
}
