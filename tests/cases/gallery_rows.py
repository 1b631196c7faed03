"""Checks of the patterns of rows: losses, normalizations, routing, quantization, statistics, series, information."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.gallery import Check
from tests.cases.review_patterns import average, focal, lse, moment, picked, shares, sigmoid, smoothed, total, unit

rng = np.random.default_rng(7)
N = 41


def rows(scale: float = 1, offset: float = 0) -> Any:
    return offset + scale * rng.standard_normal((3, N))


def positive(spread: float = 1) -> Any:
    return np.exp(spread * rng.standard_normal((3, N)))


def chances() -> Any:
    made = positive(3)
    made[:, ::5] = 0
    return made / total(made)


def truths() -> Any:
    return (rows() > 0) * 1.0


def mean(a: Any) -> Any:
    return average(a)[..., 0]


def std(a: Any) -> Any:
    return np.sqrt(moment(a, 2))


def standard(v: Any) -> Any:
    return (v - average(v)) / np.sqrt(average((v - average(v)) ** 2))


def covariance(x: Any, y: Any) -> Any:
    return mean((x - average(x)) * (y - average(y)))


def times_log(p: Any, ratio: Any) -> Any:
    return np.where(p == 0, 0, p * np.log(np.where(p == 0, 1, ratio)))


X, FAR, HUGE, TINY = {"x": rows()}, {"x": rows(1, 1e4)}, {"x": rows(1e25)}, {"x": rows(1e-25)}
XY = {"x": rows(), "y": rows()}
APART = {"x": rows(1, 1e4), "y": rows(1, -1e4)}
LABELS = {"label": np.array([3, 0, 40])}
SCORES, HIGH = {"s": rows(3)}, {"s": rows(300)}
MASKED = {"s": np.where(rows() > 0, -np.inf, rows(10))}
EPS = 1e-5

# ---- losses ----------------------------------------------------------------------------------------------------------


def margin(x: Any, label: Any) -> Any:
    others = x.copy()
    others[np.arange(3), label] = -np.inf
    return np.maximum(0, 1 + others.max(1) - picked(x, label))


def heads(h: Any, w: Any) -> Any:
    return h @ w.T


def word_loss(h: Any, w: Any, target: Any) -> Any:
    s = heads(h, w)
    return (lse(s)[:, 0] - picked(s, target)).mean()


def divergence(s: Any, t: Any) -> Any:
    """Of the distributions of scores: KL(t ‖ s)."""
    return (shares(t) * (t - lse(t) - s + lse(s))).sum(-1)


def word_distillation(h: Any, w: Any, teacher_h: Any, teacher_w: Any) -> Any:
    return divergence(heads(h, w), heads(teacher_h, teacher_w)).mean()


def contrast(x: Any, y: Any, tau: float) -> Any:
    s = unit(x) @ unit(y).T / x.dtype.type(tau)
    return lse(s)[:, 0] - np.diag(s)


def tversky(p: Any, y: Any) -> Any:
    found, one = (p * y).sum(1), p.dtype.type(10)
    return 1 - found / (found + (3 * (p * (1 - y)).sum(1) + 7 * ((1 - p) * y).sum(1)) / one)


def huber(x: Any, y: Any, delta: float) -> Any:
    e = np.abs(x - y)
    return mean(np.where(e <= delta, e**2 / 2, delta * (e - delta / 2)))


def log_cosh(x: Any, y: Any) -> Any:
    e = np.abs(x - y)
    return mean(e + np.log1p(np.exp(-2 * e)) - np.log(e.dtype.type(2)))


def distortion(x: Any, y: Any) -> Any:
    aligned = total(x * y) / total(y**2) * y
    return (aligned**2).sum(1) / ((aligned - x) ** 2).sum(1)


def triplet(x: Any, y: Any, z: Any, margin: float) -> Any:
    return np.maximum(0, np.sqrt(((x - y) ** 2).sum(1)) - np.sqrt(((x - z) ** 2).sum(1)) + margin)


HEADS = {"h": rng.standard_normal((5, 8)), "w": rng.standard_normal((11, 8))}
LOSSES = {
    "cross_entropy": Check(lambda x, target: lse(x)[:, 0] - picked(x, target), {**X, "target": LABELS["label"]},
                           ({"x": rows(300)},)),
    "label_smoothing": Check(smoothed, X | LABELS, ({"x": rows(300)},)),
    "focal_loss": Check(focal, X | LABELS, ({"x": rows(20)},)),
    "margin_loss": Check(margin, X | LABELS, ({"x": rows(1e30)},)),
    "info_nce": Check(contrast, {"x": rng.standard_normal((6, 8)), "y": rng.standard_normal((6, 8))},
                      ({"x": 1e-30 * rng.standard_normal((6, 8)), "y": 1e30 * rng.standard_normal((6, 8))},),
                      {"tau": 0.01}),
    "dice_loss": Check(
        lambda x, y: 1 - 2 * (sigmoid(x) * y).sum(1) / (sigmoid(x).sum(1) + y.sum(1)), {**X, "y": truths()},
        ({"x": rows(1000)},)),
    "tversky_loss": Check(tversky, {"p": sigmoid(rows()), "y": truths()}, ({"p": truths()},)),
    "distillation": Check(lambda s, t, T: T**2 * divergence(s / T, t / T), {**SCORES, "t": rows(3)},
                          ({"s": rows(1, 1e4), "t": rows(1, -1e4)},), {"T": 2.0}),
    "huber_loss": Check(huber, XY, ({"x": rows(1e6)},), {"delta": 0.5}),
    "log_cosh_loss": Check(log_cosh, XY, ({"x": rows(100)},)),
    "binary_cross_entropy": Check(
        lambda s, y: mean(np.maximum(s, 0) - s * y + np.log1p(np.exp(-np.abs(s)))), {**SCORES, "y": truths()}, (HIGH,)),
    "pinball_loss": Check(lambda x, y, tau: mean(np.maximum(tau * (y - x), (tau - 1) * (y - x))), XY,
                          ({"x": rows(1e8)},), {"tau": 0.9}),
    "preference_loss": Check(
        lambda x, y, u, v, beta: np.logaddexp(0, -beta * (x - y - u + v).sum(1)),
        {name: rows() for name in "xyuv"}, ({"x": rows(1, -500)},), {"beta": 0.1}),
    "signal_distortion_ratio": Check(distortion, XY, ({"x": rows(1, 3)},)),
    "triplet_loss": Check(triplet, XY | {"z": rows()}, ({"x": rows(1e4)},), {"margin": 0.5}),
    "masked_mean_loss": Check(lambda x, y, M: ((x - y) ** 2 * M).sum(1) / M.sum(1), XY | {"M": truths()},
                              ({"x": rows(1e6)},)),
    "linear_cross_entropy": Check(word_loss, {**HEADS, "target": np.array([0, 3, 10, 3, 1])},
                                  ({"h": 100 * HEADS["h"]},)),
    "linear_distillation": Check(
        word_distillation, {**HEADS, "teacher_h": HEADS["h"] + 1, "teacher_w": HEADS["w"] * 2},
        ({"h": 30 * HEADS["h"]},)),
}  # fmt: skip

# ---- normalization, routing, quantization ----------------------------------------------------------------------------


def weights(x: Any) -> Any:
    return shares(x)


def directions(x: Any) -> Any:
    return unit(x)


def layer(x: Any, weight: Any, bias: Any, eps: float = EPS) -> Any:
    return (x - average(x)) / np.sqrt(average((x - average(x)) ** 2) + eps) * weight + bias


def over_groups(x: Any, weight: Any, bias: Any) -> Any:
    flat = x.reshape(*x.shape[:2], -1)
    made = (flat - average(flat)) / np.sqrt(average((flat - average(flat)) ** 2) + EPS)
    return made.reshape(x.shape) * weight[..., None] + bias[..., None]


def over_places(x: Any) -> Any:
    return np.swapaxes(layer(np.swapaxes(x, 1, 2), 1, 0), 1, 2)


def response(x: Any) -> Any:
    norm = np.sqrt((x**2).sum(1, keepdims=True))
    return x * norm / (average(norm) + EPS)


def best(s: Any, k: int, bias: Any = 0) -> tuple[Any, Any]:
    places = np.argsort(-(s + bias), axis=-1, kind="stable")[:, :k]
    return np.take_along_axis(s + bias, places, -1), places


def load(s: Any) -> tuple[Any, Any]:
    return np.eye(s.shape[1], dtype=s.dtype)[s.argmax(1)].mean(0), shares(s).mean(0)


IMAGE = rng.standard_normal((2, 30, 4))
ROUTER = {"x": rng.standard_normal((6, 5)), "W": rng.standard_normal((5, 20))}
NORMS = {
    "softmax": Check(weights, X, ({"x": rows(1000)}, {"x": MASKED["s"]})),
    "log_softmax": Check(lambda x: x - lse(x), X, ({"x": rows(1000)},)),
    "layer_norm": Check(layer, X | {"weight": rows()[0], "bias": rows()[0]}, (FAR,)),
    "rms_norm": Check(lambda x, weight: x / np.sqrt(average(x**2) + EPS) * weight, X | {"weight": rows()[0]}, (FAR,)),
    "l2_normalize": Check(directions, X, (HUGE, TINY, {"x": rows(1e160)})),
    "group_norm": Check(over_groups, {"x": rng.standard_normal((2, 3, 2, 9)), "weight": rng.random((3, 2)),
                                      "bias": rng.random((3, 2))}, ({"x": 1e4 + rng.standard_normal((2, 3, 2, 9))},)),
    "weight_norm": Check(lambda v, g: g[:, None] * unit(v), {"v": rows(), "g": rng.random(3)}, ({"v": rows(1e160)},)),
    "weight_standardization": Check(standard, {"v": rows()}, ({"v": rows(1, 1e4)}, {"v": rows(1e160)})),
    "batch_statistics": Check(lambda x: (x.mean((0, 1)), x.var((0, 1))), {"x": IMAGE}, ({"x": IMAGE + 1e4},)),
    "instance_norm": Check(over_places, {"x": IMAGE}, ({"x": IMAGE + 1e4},)),
    "min_max_scaling": Check(lambda x: (x - x.min(1, keepdims=True)) / np.ptp(x, 1)[:, None], X, (FAR,)),
    "response_norm": Check(response, {"x": IMAGE}, ({"x": IMAGE * 1e8},)),
    "routing": Check(lambda x, W: best(shares(x @ W), 8), ROUTER, ({"W": 300 * ROUTER["W"]},)),
    "sigmoid_routing": Check(lambda x, W, bias: best(sigmoid(x @ W), 8, bias), ROUTER | {"bias": rng.random(20)},
                             ({"bias": 1e-3 * rng.random(20)},)),
    "router_z_loss": Check(lambda x, W: (lse(x @ W) ** 2).mean(), ROUTER, ({"W": 300 * ROUTER["W"]},)),
    "expert_load": Check(load, {"s": rows(3)}, (HIGH,)),
    "greedy_choice": Check(lambda x: (x.argmax(1), x.max(1) - lse(x)[:, 0]), X, ({"x": rows(1, 1e4)},)),
    "row_quantization": Check(
        lambda x: (np.rint(x / (np.abs(x).max(1) / 127)[:, None]), np.abs(x).max(1) / 127), X, (FAR, HUGE)),
    "quantization_error": Check(lambda x, y: ((x - y) ** 2).sum(1) / (x**2).sum(1), XY, (APART,)),
}  # fmt: skip

# ---- statistics ------------------------------------------------------------------------------------------------------


def weighted(x: Any, w: Any, power: int) -> Any:
    return ((x - total(w * x) / total(w)) ** power * w).sum(1) / w.sum(1)


def skewness(x: Any) -> Any:
    return moment(x, 3) / moment(x, 2) ** x.dtype.type(1.5)


def kurtosis(x: Any) -> Any:
    return moment(x, 4) / moment(x, 2) ** 2


def about(x: Any, w: Any = 1.0) -> Any:
    w = np.broadcast_to(np.asarray(w, x.dtype), len(x))[:, None]
    centred = x - (w * x).sum(0) / w.sum()
    return (w * centred).T @ centred / w.sum()


def correlations(x: Any) -> Any:
    spread = np.sqrt(np.diag(about(x)))
    return about(x) / spread / spread[:, None]


def line(x: Any, y: Any) -> tuple[Any, Any, Any]:
    slope = covariance(x, y) / moment(x, 2)
    return slope, mean(y) - slope * mean(x), covariance(x, y) ** 2 / (moment(x, 2) * moment(y, 2))


def concordance(x: Any, y: Any) -> Any:
    return 2 * covariance(x, y) / (moment(x, 2) + moment(y, 2) + (mean(x) - mean(y)) ** 2)


def circular(x: Any) -> tuple[Any, Any]:
    return np.arctan2(mean(np.sin(x)), mean(np.cos(x))), np.hypot(mean(np.sin(x)), mean(np.cos(x)))


def winsorized(x: Any, width: float) -> Any:
    reach = width * std(x)[:, None]
    return mean(np.clip(x, average(x) - reach, average(x) + reach))


def clipped(x: Any, width: float) -> Any:
    near = np.abs(x - average(x)) <= width * std(x)[:, None]
    return (x * near).sum(1) / near.sum(1)


def beyond(x: Any) -> Any:
    apart = np.abs(x - average(x))
    return mean((apart > average(apart)).astype(x.dtype))


W = {"w": positive()}
TALL = rng.standard_normal((50, 4))
STATISTICS = {
    "variance": Check(lambda x: moment(x, 2), X, (FAR,)),
    "weighted_mean": Check(lambda x, w: (w * x).sum(1) / w.sum(1), X | W, (FAR, {"w": positive(100)})),
    "weighted_variance": Check(lambda x, w: weighted(x, w, 2), X | W, (FAR,)),
    "weighted_skewness": Check(
        lambda x, w: weighted(x, w, 3) / weighted(x, w, 2) ** x.dtype.type(1.5), X | W, (FAR,), close=1e-8),
    "logsumexp": Check(lambda x: lse(x)[:, 0], X, ({"x": rows(1000)},)),
    "softmax_denominator": Check(lambda x: (x.max(1), np.exp(x - x.max(1)[:, None]).sum(1)), X, ({"x": rows(1000)},)),
    "moments": Check(lambda x: (mean(x), moment(x, 2), skewness(x), kurtosis(x)), X, (FAR,), close=1e-8),
    "skewness": Check(skewness, X, (FAR,), close=1e-8),
    "kurtosis": Check(kurtosis, X, (FAR,), close=1e-8),
    "correlation": Check(lambda x, y: covariance(x, y) / (std(x) * std(y)), XY, (APART,)),
    "covariance_matrix": Check(lambda x: about(x) * len(x) / (len(x) - 1), {"x": TALL}, ({"x": TALL + 1e4},)),
    "correlation_matrix": Check(correlations, {"x": TALL}, ({"x": TALL + 1e4},)),
    "weighted_covariance": Check(about, {"x": TALL, "w": positive()[0, :1] + rng.random(50)}, ({"x": TALL + 1e4},)),
    "concordance": Check(concordance, XY, ({"x": rows(1, 1e4), "y": rows(1, 1e4)},)),
    "least_squares_line": Check(line, XY, ({"x": rows(1, 1e4)},), close=1e-8),
    "geometric_mean": Check(lambda x: np.exp(mean(np.log(x))), {"x": positive()}, ({"x": positive(100)},)),
    "harmonic_mean": Check(lambda x: 1 / mean(1 / x), {"x": positive()}, ({"x": positive(100)},)),
    "circular_mean": Check(circular, X, ({"x": rows(1, 100)},)),
    "coefficient_of_variation": Check(lambda x: std(x) / mean(x), {"x": positive()}, (FAR, {"x": positive() * 1e200})),
    "mean_absolute_deviation": Check(lambda x: mean(np.abs(x - average(x))), X, (FAR,)),
    "semivariance": Check(lambda x: mean(np.minimum(x - average(x), 0) ** 2), X, (FAR,)),
    "winsorized_mean": Check(winsorized, X, (FAR,), {"width": 1.0}),
    "clipped_mean": Check(clipped, X, (FAR,), {"width": 1.0}),
    "share_beyond_mean_deviation": Check(beyond, X, (FAR,)),
    "mean_without_extremes": Check(lambda x: np.sort(x)[:, 1:-1].mean(1), X, (FAR,)),
    "gini_index": Check(lambda x: np.abs(x[:, None] - x).sum() / (2 * len(x) ** 2 * x.mean()), {"x": positive()[0]},
                        ({"x": positive(5)[0]},)),
    "theil_index": Check(lambda x: mean(times_log(x / average(x), x / average(x))), {"x": positive()}, (FAR,),
                         close=1e-7),
    "atkinson_index": Check(lambda x: 1 - np.exp(mean(np.log(x))) / mean(x), {"x": positive()}, ({"x": positive(5)},)),
    "effective_sample_size": Check(lambda w: w.sum(1) ** 2 / (w**2).sum(1), W, ({"w": positive(30)},)),
}  # fmt: skip

# ---- time series -----------------------------------------------------------------------------------------------------


def lagged(x: Any) -> Any:
    centred = x - average(x)
    return (centred[:, 1:] * centred[:, :-1]).sum(1) / (centred**2).sum(1)


def recurrence(a: Any, x: Any) -> Any:
    made = np.zeros(len(x), x.dtype)
    for factor, term in zip(a.T, x.T, strict=True):
        made = factor * made + term
    return made


def faded(x: Any, rate: float) -> Any:
    weights = x.dtype.type(rate) ** np.arange(N)[::-1].astype(x.dtype)
    return (weights * x).sum(1) / weights.sum()


def spectrum(x: Any) -> Any:
    phase = 2 * np.pi * np.outer(np.arange(5), np.arange(N)).astype(x.dtype) / N
    return ((x @ np.cos(phase).T) ** 2 + (x @ np.sin(phase).T) ** 2) / N


def trend(x: Any) -> Any:
    places = np.arange(N).astype(x.dtype) - (N - 1) // 2
    return (x * places).sum(1) / (places**2).sum()


SERIES = {
    "autocorrelation": Check(lagged, X, (FAR,), close=1e-8),
    "exponential_smoothing": Check(lambda x, rate: recurrence(np.full_like(x, rate), (1 - x.dtype.type(rate)) * x), X,
                                   (FAR,), {"rate": 0.75}),
    "exponentially_weighted_mean": Check(faded, X, (FAR,), {"rate": 0.75}),
    "linear_recurrence": Check(recurrence, X | {"a": rows(0.5)}, ({"a": rows(3)},)),
    "discounted_return": Check(
        lambda x, discount: (x.dtype.type(discount) ** np.arange(N).astype(x.dtype) * x).sum(1), X, (FAR,),
        {"discount": 0.75}),
    "durbin_watson": Check(lambda x: (np.diff(x) ** 2).sum(1) / (x**2).sum(1), X, ({"x": rows(1e8)},)),
    "total_variation": Check(lambda x: np.abs(np.diff(x)).sum(1), X, (FAR,)),
    "linear_trend": Check(trend, X, (FAR,), close=1e-8),
    "periodogram": Check(spectrum, X, ({"x": rows(1e8)},), sizes={"f": 5}),
    "spectral_flatness": Check(lambda x: (np.exp(mean(np.log(x))) / mean(x), x.max(1) / mean(x)), {"x": positive()},
                               ({"x": positive(100)},)),
    "sharpe_ratio": Check(lambda x: (mean(x) / std(x), x[:, -1]), {"x": rows(1, 1)}, (FAR,)),
}  # fmt: skip

# ---- information -----------------------------------------------------------------------------------------------------


def entropy(s: Any) -> Any:
    """Of scores, those of −∞ among them."""
    return -times_log(shares(s), shares(s)).sum(-1)


def apart(x: Any, y: Any) -> Any:
    return divergence(x, y)


def jensen_shannon(p: Any, q: Any) -> Any:
    return (times_log(p, 2 * p / (p + q)) + times_log(q, 2 * q / (p + q))).sum(1) / 2


def mutual(p: Any) -> Any:
    apart = p.sum(1, keepdims=True) * p.sum(2, keepdims=True)
    return times_log(p, p / np.where(apart == 0, 1, apart)).sum((1, 2))


JOINT = rng.random((2, 6, 7)) ** 4
JOINT[0, 2] = 0
JOINT /= JOINT.sum((1, 2), keepdims=True)
P = {"p": chances(), "q": chances()}
COUNTS = {"p": positive(), "q": positive()}
INFORMATION = {
    "shannon_entropy": Check(lambda p: -times_log(p, p).sum(1), {"p": chances()}, ({"p": np.eye(3, N)},)),
    "softmax_entropy": Check(entropy, SCORES, ({"s": rows(1, 1e4)},), close=1e-8),
    "perplexity": Check(lambda s: np.exp(entropy(s)), SCORES, ({"s": rows(1, 1e4)},), close=1e-8),
    "kl_divergence": Check(apart, XY, (APART,), close=1e-8),
    "js_divergence": Check(jensen_shannon, {"p": shares(rows()), "q": shares(rows())}, (P,)),
    "mutual_information": Check(mutual, {"p": JOINT}),
    "renyi_entropy": Check(lambda s, alpha: np.log((shares(s) ** alpha).sum(1)) / (1 - alpha), SCORES,
                           ({"s": rows(1, 1e4)}, MASKED), {"alpha": 2.0}),
    "tsallis_entropy": Check(lambda s: 1 - (shares(s) ** 2).sum(1), SCORES, ({"s": rows(1, 1e4)}, MASKED)),
    "hellinger_distance": Check(lambda p, q: np.sqrt(1 - np.sqrt(p * q).sum(1) / np.sqrt(p.sum(1) * q.sum(1))), COUNTS,
                                (P,)),
    "chi_square": Check(lambda p, q: ((p - q) ** 2 / q).sum(1), COUNTS, ({"q": positive(10)},)),
    "variation_distance": Check(lambda p, q: np.abs(p - q).sum(1) / 2, P),
}  # fmt: skip

CHECKS = LOSSES | NORMS | STATISTICS | SERIES | INFORMATION
