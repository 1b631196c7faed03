"""Additive masks as models write them: scores plus the least number of a dtype, −10⁹, −10⁴ or −∞, scaled or not.

Against the same expressions in float64, written out here by hand. A wholly masked row is uniform, NaN where the mask is
−∞. The tolerance is what float32 can hold of the largest score of a row: its roundoff times its size. Where that is
beyond 10⁶, the scores are rounded to float32 first, which leaves nothing of them beside the mask.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sympy import Expr, Rational, exp, oo, sqrt, tanh

import redalg as ra

b, n = ra.axes("b n")
s, v, M, P, B = ra.tensors("s[b,n] v[b,n] M[b,n] P[b,n] B[b,n]")
LEAST = {"float32": float(np.finfo(np.float32).min), "float16": -65504.0, "bfloat16": -3.3895313892515355e38,
         "-1e9": -1e9, "-1e4": -1e4, "-inf": -np.inf}  # fmt: skip
"""What is added where a mask is off."""


@pytest.fixture(autouse=True)
def floating_point_is_quiet() -> Iterator[None]:
    """A row of −∞ alone is 0/0, and twice the least number overflows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


z = ra.tensor("z[b]")
SLOPES = np.array([0.5, 0.25, 1, 2])
SCORES: dict[str, tuple[Callable[[Any], Expr], Callable[..., np.ndarray]]] = {
    "scaled before": (lambda w: s / 8 + w, lambda s, w, B: s / 8 + w),
    "by a float": (lambda w: s * 0.125 + w, lambda s, w, B: s / 8 + w),
    "by a root": (lambda w: s / sqrt(2) + w, lambda s, w, B: s / np.sqrt(2) + w),
    "scaled after": (lambda w: (s + w) / 8, lambda s, w, B: (s + w) / 8),
    "a third": (lambda w: s / 3 + w, lambda s, w, B: s / 3 + w),
    "three halves": (lambda w: s * Rational(3, 2) + w, lambda s, w, B: s * 1.5 + w),
    "capped": (lambda w: 50 * tanh(s / 50) + w, lambda s, w, B: 50 * np.tanh(s / 50) + w),
    "with a bias": (lambda w: s / 8 + B / 4 + w, lambda s, w, B: s / 8 + B / 4 + w),
    "with slopes": (
        lambda w: s / 8 - z * (b - n) + w,
        lambda s, w, B: s / 8 - SLOPES[:, None] * (np.arange(4)[:, None] - np.arange(9)) + w,
    ),
    "by places": (lambda w: s / 8 - n / 2 + w, lambda s, w, B: s / 8 - np.arange(9) / 2 + w),
}


def weights_of(u: np.ndarray) -> np.ndarray:
    made: np.ndarray = np.exp(u - u.max(-1, keepdims=True))
    return made / made.sum(-1, keepdims=True)


def logarithm_of(u: np.ndarray) -> np.ndarray:
    top = u.max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    made: np.ndarray = (np.log(np.exp(u - top).sum(-1, keepdims=True)) + top)[..., 0]
    return made


OUTPUTS: dict[str, tuple[Callable[[Expr], Expr], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "softmax": (lambda u: ra.sum(ra.softmax(u, n) * v, n), lambda u, v: (weights_of(u) * v).sum(-1)),
    "naive": (lambda u: ra.sum(exp(u) * v, n) / ra.sum(exp(u), n), lambda u, v: (weights_of(u) * v).sum(-1)),
    "logsumexp": (lambda u: ra.logsumexp(u, n), lambda u, v: logarithm_of(u)),
    "log_softmax": (lambda u: ra.sum(ra.softmax(u, n) * ra.log_softmax(u, n), n), lambda u, v: negated_entropy(u)),
}


def negated_entropy(u: np.ndarray) -> np.ndarray:
    p = weights_of(u)
    made: np.ndarray = np.where(p == 0, 0, p * np.log(p)).sum(-1)
    return made


def tensors(dtype: str) -> dict[str, np.ndarray]:
    """Rows masked in part, wholly and not at all; P is all off in another."""
    random = np.random.default_rng(0)
    made = {"s": random.normal(0, 3, (4, 9)), "v": random.normal(0, 1, (4, 9)), "B": random.normal(0, 1, (4, 9))}
    given = {name: one.astype(dtype) for name, one in made.items()}
    given |= {"M": random.random((4, 9)) < 0.5, "P": random.random((4, 9)) < 0.7}
    given["z"] = SLOPES.astype(dtype)
    given["M"][2], given["M"][3], given["P"][1] = False, True, False
    return given


def in_pieces(made: ra.Fused, given: dict[str, np.ndarray]) -> Any:
    parts = pairwise((0, 1, 4, 9))
    pieces = [{name: one[..., start:stop] if one.ndim > 1 else one for name, one in given.items()}
              for start, stop in parts]  # fmt: skip
    states = [made.leaf(one, start={n: start}) for one, start in zip(pieces, (0, 1, 4), strict=True)]
    whole = made.merge(states[2], made.merge(states[1], states[0]))
    return made.finish(whole, {name: one for name, one in given.items() if one.ndim == 1})


RUNS: dict[str, Callable[[ra.Fused, dict[str, np.ndarray]], Any]] = {
    "numpy": lambda made, given: made(**given, backend="numpy"),
    "torch": lambda made, given: made(**given, backend="torch"),
    "in pieces": in_pieces,
}


def check(score: Expr, u: np.ndarray, output: str, given: dict[str, np.ndarray], runs: dict[str, Any]) -> None:
    build, by_hand = OUTPUTS[output]
    made = ra.fuse(build(score))
    given = {name: one for name, one in given.items() if name in made.cascade.inputs()}
    size = np.abs(u.max(-1))
    u = np.where((size > 1e6)[:, None], u.astype(given["s"].dtype if given["s"].dtype == float else "float32"), u)
    want = by_hand(u, given["v"].astype(float) if "v" in given else u)
    size = np.where(size < 1e6, size, 0)
    eps = np.finfo(np.float64 if given["s"].dtype == np.float64 else np.float32).eps
    allowed = 32 * eps * (4 + size) + 2.0**-10 * (given["s"].dtype == np.float16)
    for name, run in runs.items():
        got = np.asarray(run(made, given)).astype(float)
        close = np.isclose(got, want, rtol=32 * eps, atol=0, equal_nan=True) | (np.abs(got - want) <= allowed)
        assert close.all(), f"{name}: {output} of {score}: {got}, in float64 {want}"


def mask_of(least: float) -> tuple[Expr, Callable[[dict[str, np.ndarray]], np.ndarray]]:
    return ra.where(M, 0, -oo if np.isinf(least) else least), lambda given: np.where(given["M"], 0, least)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("spelling", SCORES)
@pytest.mark.parametrize("least", LEAST)
def test_masked_rows_are_those_of_float64(least: str, spelling: str, output: str) -> None:
    given, (score, by_hand), (w, of_data) = tensors("float32"), SCORES[spelling], mask_of(LEAST[least])
    u = by_hand(given["s"].astype(float), of_data(given), given["B"].astype(float))
    check(score(w), u, output, given, {name: RUNS[name] for name in ("numpy", "in pieces")})


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("spelling", SCORES)
@pytest.mark.parametrize("least", LEAST)
def test_masked_rows_of_other_dtypes(least: str, spelling: str, dtype: str) -> None:
    given, (score, by_hand), (w, of_data) = tensors(dtype), SCORES[spelling], mask_of(LEAST[least])
    u = by_hand(given["s"].astype(float), of_data(given), given["B"].astype(float))
    for output in OUTPUTS:
        check(score(w), u, output, given, RUNS)


@pytest.mark.parametrize("output", OUTPUTS)
def test_causal_and_padding_masks_add_up(output: str) -> None:
    given, least = tensors("float32"), LEAST["float32"]
    score = s / 8 + ra.where(n <= b, 0, least) + ra.where(P, 0, -1e4)
    causal = np.where(np.arange(9) <= np.arange(4)[:, None], 0, least)
    u = given["s"].astype(float) / 8 + causal + np.where(given["P"], 0, -1e4)
    check(score, u, output, given, RUNS)


@pytest.mark.parametrize("output", ["softmax", "logsumexp"])
def test_kernels_mask_alike(output: str) -> None:
    given, (w, of_data) = tensors("float32"), mask_of(LEAST["float32"])
    u = given["s"].astype(float) / 8 + of_data(given)
    check(s / 8 + w, u, output, given, {"C target": lambda made, given: made(**given, backend="tilelang")})
