"""Accuracy of the cases that must run: each against its definition in extended precision, on the kinds of data that
break naive one-pass formulas (`tests/cases/data_kinds.py`), on every array backend and dtype.

Errors are relative to the largest output (for a sum, to the sum of its terms' magnitudes); where a figure is not the
issue's, it is eight roundings of the compute dtype.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from sympy import Rational, exp, log, oo, sqrt

import redalg as ra
from tests.cases.data_kinds import KINDS, LENGTH, make, weight_trap

BACKENDS = ("numpy", "torch")
b, n, c = ra.axes("b n c")
x, w, s = ra.tensors("x[n,c] w[n] s[n]")

LOGITS = [kind for role, kind in KINDS if role == "logit"]
VALUES = [kind for role, kind in KINDS if role == "value"]
EPS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
each_backend = pytest.mark.parametrize("backend", BACKENDS)
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


def error(got: Any, want: Any, scale: Any = None) -> float:
    """max |got − want| / scale, by default the largest |want|; infinities must agree, and NaN with NaN."""
    got, want = np.asarray(got, np.longdouble), np.asarray(want, np.longdouble)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    infinite = np.isinf(want)
    np.testing.assert_array_equal(got[infinite], want[infinite])
    live = np.isfinite(want)
    top = np.max(np.abs(want[live]), initial=0) if scale is None else np.broadcast_to(scale, want.shape)[live]
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(got[live] - want[live]) / np.maximum(top, 1e-300), initial=0))


# ---- moments ---------------------------------------------------------------------------------------------------------

variance = ra.fuse(ra.var(x, n), axes="c")
mean_value = ra.sum(w * x, n) / ra.sum(w, n)
weighted_mean = ra.fuse(mean_value, axes="c")
weighted_variance = ra.fuse(ra.sum(w * (x - mean_value) ** 2, n) / ra.sum(w, n), axes="c")


@each_backend
def test_variance_of_a_million_values_far_from_zero(backend: str) -> None:
    """1e6 values at 1e8 ± 30 in float32, in one pass: better than 1e-6 (raw moments give 8e6)."""
    row = ra.tensor("x[n]")
    data = (1e8 + 30 * np.random.default_rng(0).standard_normal(1_000_000)).astype(np.float32)
    got = ra.fuse(ra.var(row, n), axes="")(x=data, backend=backend)
    assert error(got, data.astype(np.longdouble).var()) < 1e-6


@each_backend
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("blocks", [(0, 1000), (0, 1, 130, 999, 1000), tuple(range(0, 1001, 100))], ids=len)
def test_variance(kind: str, backend: str, blocks: tuple[int, ...]) -> None:
    data = make("value", kind)
    exact = data.astype(np.longdouble)
    want = ((exact - exact.mean(0)) ** 2).mean(0)
    arrays = [data[start:stop] for start, stop in pairwise(blocks)]
    pieces: list[Any] = [torch.from_numpy(one) if backend == "torch" else one for one in arrays]
    states = [variance.leaf({"x": one}, start={n: start}) for one, start in zip(pieces, blocks, strict=False)]
    total = states[-1]
    for state in states[:-1]:
        total = variance.merge(total, state)
    assert error(variance.finish(total), want) < 1e-6
    assert error(variance(x=data, backend=backend), want) < 1e-6


@each_backend
@pytest.mark.parametrize("kind", VALUES)
def test_weighted_moments(kind: str, backend: str) -> None:
    data, weights = make("value", kind), make("weight")[:, 0]
    exact, heavy = data.astype(np.longdouble), weights.astype(np.longdouble)[:, None]
    mean = (heavy * exact).sum(0) / heavy.sum()
    spread = (heavy * (exact - mean) ** 2).sum(0) / heavy.sum()
    assert error(weighted_mean(x=data, w=weights, backend=backend), mean, np.abs(exact).max(0)) < 8 * EPS["float32"]
    assert error(weighted_variance(x=data, w=weights, backend=backend), spread) < 1e-6


@each_backend
def test_vanishing_weights_on_far_values(backend: str) -> None:
    """Weights exp(s − max s) that vanish where the values lie far away: a lagged pivot would lose 6e3."""
    p = ra.softmax(s, n)
    fused = ra.fuse(ra.sum(p * (x - ra.sum(p * x, n)) ** 2, n), axes="c")
    logit, value = weight_trap()
    weights = np.exp(logit.astype(np.longdouble) - logit.max())
    weights /= weights.sum()
    exact = value.astype(np.longdouble)
    want = (weights * (exact - (weights * exact).sum(0)) ** 2).sum(0)
    assert error(fused(s=logit[:, 0], x=value, backend=backend), want) < 1e-6


# ---- moment of inertia -----------------------------------------------------------------------------------------------

r, m = ra.Tensor("r"), ra.tensor("m[b,n]")
j, j3 = ra.axis("j"), ra.axis("j", size=3)


def written_out() -> Any:
    total = 0
    for place in range(3):
        at = r[b, n, place]
        total = total + ra.sum(m * (at - ra.sum(m * at, n) / ra.sum(m, n)) ** 2, n)
    return total


def inside(axis: Any) -> Any:
    at = r[b, n, axis]
    return ra.sum(m * ra.sum((at - ra.sum(m * at, n) / ra.sum(m, n)) ** 2, axis), n)


@each_backend
@pytest.mark.parametrize("spelling", ["written out", "sized", "unsized"])
def test_moment_of_inertia(spelling: str, backend: str) -> None:
    """Σ m |r − R|² about the centre of mass, far from the origin, in three spellings."""
    expr = {"written out": written_out, "sized": lambda: inside(j3), "unsized": lambda: inside(j)}[spelling]()
    rng = np.random.default_rng(3)
    mass = rng.uniform(0.1, 2, (2, 500)).astype(np.float32)
    place = (1e3 + rng.standard_normal((2, 500, 3))).astype(np.float32)
    heavy, exact = mass.astype(np.longdouble)[..., None], place.astype(np.longdouble)
    centre = (heavy * exact).sum(1, keepdims=True) / heavy.sum(1, keepdims=True)
    want = (heavy * (exact - centre) ** 2).sum((1, 2))
    assert error(ra.fuse(expr, axes="b")(m=mass, r=place, backend=backend), want) < 1e-6


# ---- exponentials ----------------------------------------------------------------------------------------------------

largest = ra.max(s, n)
denominator = ra.fuse({"top": (largest, ""), "total": (ra.sum(exp(s - largest), n), "")})
lse = ra.fuse(ra.logsumexp(s, n), axes="")


@each_backend
@pytest.mark.parametrize("kind", LOGITS)
def test_softmax_denominator_and_logsumexp(kind: str, backend: str) -> None:
    data = make("logit", kind)[:, 0]
    exact = data.astype(np.longdouble)
    top = exact.max()
    total = np.exp(exact - top).sum() if np.isfinite(top) else np.longdouble(0)
    out = denominator(s=data, backend=backend)
    assert out.top == top
    assert error(out.total, total) < 8 * EPS["float32"]
    with np.errstate(divide="ignore"):
        want = top + np.log(total)
    assert error(lse(s=data, backend=backend), want) < 8 * EPS["float32"]


@each_backend
@pytest.mark.parametrize("kind", LOGITS)
def test_entropy(kind: str, backend: str) -> None:
    """−Σ p log p, with 0·log 0 = 0, rank 2 over one exponential."""
    p = ra.softmax(s, n)
    fused = ra.fuse(-ra.sum(p * log(p), n), axes="")
    exact = make("logit", kind)[:, 0].astype(np.longdouble)
    with np.errstate(all="ignore"):
        weights = np.exp(exact - exact.max())
        shares = weights / weights.sum()
        want = -np.where(shares > 0, shares * np.log(np.where(shares > 0, shares, 1)), 0).sum()
    want = want if np.isfinite(exact.max()) else np.nan
    # an entropy near 0 is a difference of terms of the size of log Σ: relative to max(1, H)
    assert error(fused(s=exact.astype(np.float32), backend=backend), want, np.fmax(1, want)) < 16 * EPS["float32"]


# ---- attention -------------------------------------------------------------------------------------------------------

h, q, k, d, e = ra.axes("h q k d e")
Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
score = ra.sum(Q * K, d) / sqrt(d.extent)
MASKS = {
    "none": score,
    "causal": ra.where(k <= q, score, -oo),
    "boolean": ra.where(ra.tensor("M[q,k]"), score, -oo),
    "additive": score + ra.tensor("A[q,k]"),
}
ATTENTION = {name: ra.fuse(ra.sum(ra.softmax(one, k) * V, k), axes="b h q e") for name, one in MASKS.items()}


def inputs(keys: int, queries: int = 33, scale: float = 1.0, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {"Q": (2, 2, queries, 32), "K": (2, 2, keys, 32), "V": (2, 2, keys, 48)}
    made = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {**made, "Q": (made["Q"] * np.float32(scale)).astype(np.float32)}


def defined(data: dict[str, Any], bias: Any = 0.0) -> np.ndarray:
    """softmax(Q Kᵀ / √d + bias) V in float64 (NaN for a row that has no keys)."""
    Q64, K64, V64 = (data[name].astype(np.float64) for name in "QKV")
    scores = Q64 @ K64.swapaxes(-1, -2) / np.sqrt(Q64.shape[-1]) + bias
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ V64


@each_backend
@pytest.mark.parametrize("keys", [1, 77, 513, 1000])
def test_attention(keys: int, backend: str) -> None:
    data = inputs(keys)
    assert error(ATTENTION["none"](**data, backend=backend), defined(data)) < 2e-6


@each_backend
def test_causal_attention(backend: str) -> None:
    data = inputs(77, 90)
    bias = np.where(np.arange(77) <= np.arange(90)[:, None], 0, -np.inf)
    assert error(ATTENTION["causal"](**data, backend=backend), defined(data, bias)) < 2e-6


@each_backend
@pytest.mark.parametrize("empty", ["nan", "zero"])
def test_boolean_masks_with_empty_rows(empty: str, backend: str) -> None:
    data = inputs(130)
    mask = np.random.default_rng(1).uniform(size=(33, 130)) < 0.3
    mask[5], mask[7, :100] = False, False
    want = defined(data, np.where(mask, 0, -np.inf))
    assert np.isnan(want[:, :, 5]).all()
    if empty == "zero":
        want[:, :, 5] = 0
    assert error(ATTENTION["boolean"](**data, M=mask, empty=empty, backend=backend), want) < 2e-6


@each_backend
def test_masked_garbage_does_no_harm(backend: str) -> None:
    """What the domain leaves out for every query is never read: NaN and inf there change nothing."""
    data = inputs(130)
    mask = np.broadcast_to(np.arange(130) < 100, (33, 130)).copy()
    clean = ATTENTION["boolean"](**data, M=mask, backend=backend)
    dirty = {**data, "K": data["K"].copy(), "V": data["V"].copy()}
    dirty["K"][:, :, 100:], dirty["V"][:, :, 100:] = np.nan, np.inf
    np.testing.assert_array_equal(ATTENTION["boolean"](**dirty, M=mask, backend=backend), clean)


@each_backend
@pytest.mark.parametrize("low", [-np.inf, np.finfo(np.float32).min], ids=["inf", "finfo.min"])
@pytest.mark.parametrize("empty", ["nan", "zero"])
def test_additive_masks(low: float, empty: str, backend: str) -> None:
    """A row of -inf is empty; a row of finfo.min is uniform: it has no finite stand-in."""
    data = inputs(77)
    bias = np.where(np.random.default_rng(2).uniform(size=(33, 77)) < 0.5, 0, np.float32(low)).astype(np.float32)
    bias[4] = low
    want = defined(data, bias.astype(np.float64))
    if np.isinf(low) and empty == "zero":
        want[:, :, 4] = 0
    got = ATTENTION["additive"](**data, A=bias, empty=empty, backend=backend)
    assert error(got, want) < 2e-6


@each_backend
def test_rows_of_finfo_min_are_uniform(backend: str) -> None:
    """Scores vanish beside finfo.min in float32, so the row is the mean of V, to rounding."""
    data = inputs(77)
    bias = np.full((33, 77), np.finfo(np.float32).min)
    got = np.asarray(ATTENTION["additive"](**data, A=bias, backend=backend))
    want = np.broadcast_to(data["V"].astype(np.float64).mean(2, keepdims=True), got.shape)
    assert error(got, want) < 2e-6


@each_backend
def test_logits_of_ten_thousand(backend: str) -> None:
    """Scores of ±1e4: no overflow, and an error within what rounding the scores themselves commits."""
    data = inputs(200, scale=1e4 / 3)
    scores = np.abs(data["Q"].astype(np.float64)) @ np.abs(data["K"].astype(np.float64)).swapaxes(-1, -2)
    got = ATTENTION["none"](**data, backend=backend)
    assert np.isfinite(got).all()
    assert error(got, defined(data)) < EPS["float32"] * scores.max() / np.sqrt(32)


@pytest.mark.parametrize(("dtype", "backend"), [
    ("float64", "numpy"), ("float64", "torch"), ("float32", "numpy"), ("float32", "torch"),
    ("float16", "numpy"), ("float16", "torch"), ("bfloat16", "torch"),
])  # fmt: skip
def test_dtypes(dtype: str, backend: str) -> None:
    """16-bit inputs accumulate in float32: against the definition on the rounded inputs, one rounding of the output."""
    rounded: dict[str, Any] = {
        name: torch.from_numpy(one).to(getattr(torch, dtype)) for name, one in inputs(77).items()
    }
    want = defined({name: one.double().numpy() for name, one in rounded.items()})
    got = ATTENTION["none"](**rounded, backend=backend)
    assert str(got.dtype) == f"torch.{dtype}"
    assert error(got.double(), want) < {"float64": 2e-15, "float32": 2e-6}.get(dtype, EPS[dtype] + 2e-6)


@each_backend
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_wide_outputs(dtype: str, backend: str) -> None:
    """Maxima and logarithms are at least float32, so that a float16 row's lse of 9.2 keeps its digits."""
    data = np.random.default_rng(0).standard_normal(LENGTH).astype(dtype)
    got = np.asarray(lse(s=data, backend=backend))
    assert got.dtype == ("float64" if dtype == "float64" else "float32")
    want = np.log(np.exp(data.astype(np.longdouble)).sum())
    assert error(got, want) < 8 * EPS["float64" if dtype == "float64" else "float32"]


@each_backend
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 700, 999])
def test_live_elements_that_are_not_finite_show(bad: float, place: int, backend: str) -> None:
    """A non-finite live element makes every output that it reaches non-finite."""
    logit, value = make("logit")[:, 0].copy(), make("value").copy()
    logit[place], value[place, 0] = bad, bad
    p = ra.softmax(s, n)
    outputs = {"mean": (ra.sum(p * x, n), "c"), "spread": (ra.sum(p * (x - ra.sum(p * x, n)) ** 2, n), "c")}
    out = ra.fuse({**outputs, "share": (1 / ra.sum(exp(s - ra.max(s, n)), n), "")})(s=logit, x=value, backend=backend)
    assert not np.isfinite(np.asarray(out.mean)).any()
    assert not np.isfinite(np.asarray(out.spread)).any()
    assert not np.isfinite(np.asarray(out.share))
    plain = np.asarray(variance(x=value, backend=backend))
    assert not np.isfinite(plain[0])
    assert np.isfinite(plain[1:]).all()


@each_backend
@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind not in ("zeros", "constant")])
def test_standardized_moments(kind: str, backend: str) -> None:
    """Skewness and kurtosis: THEORY section 6 measured 2e-6."""
    power, centred = Rational(3, 2), x - ra.mean(x, n)
    skew = ra.fuse(ra.mean(centred**3, n) / ra.var(x, n) ** power, axes="c")
    kurtosis = ra.fuse(ra.mean(centred**4, n) / ra.var(x, n) ** 2, axes="c")
    data = make("value", kind)
    exact = data.astype(np.longdouble)
    z = (exact - exact.mean(0)) / exact.std(0)
    assert error(skew(x=data, backend=backend), (z**3).mean(0), (np.abs(z) ** 3).mean(0)) < 2e-6
    assert error(kurtosis(x=data, backend=backend), (z**4).mean(0)) < 2e-6
