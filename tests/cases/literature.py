"""Patterns from the literature, with their sources: losses, normalizations, information, statistics, attention, scans.

`PATTERNS` fuse; `CARRIED` fuse into an output that carries the reduced axis; `NOES` have no state of fixed size, and
`why` is what the reason must say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sympy import Abs, Max, Min, Rational, atan2, cos, cosh, exp, log, oo, pi, sin, sqrt, tanh

import redalg as ra
from tests.cases.corpus import Pattern

b, h, q, k, n, m, c, d, e, f = ra.axes("b h q k n m c d e f")
i, j = ra.axis("i", size=3), ra.axis("j", size=3)
x, y, z, s, t, w, p, g = ra.tensors("x[b,n] y[b,n] z[b,n] s[b,n] t[b,n] w[b,n] p[b,n] g[b,n]")
image, label, rate = ra.tensors("image[b,n,c] label[b] rate[h]")
Q, K, V, Q2, K2 = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e] Q2[b,h,q,f] K2[b,h,k,f]")
shared, shared_values, bias, past = (ra.Tensor(name) for name in ("shared", "shared_values", "bias", "past"))
tau, delta, beta, alpha = ra.scalars("tau delta beta alpha", positive=True)
eps, half = Rational(1, 10**6), Rational(1, 2)
N = n.extent
SCORE = ra.sum(Q * K, d) / sqrt(d.extent)
QKV = {"Q": "free", "K": "free", "V": "free"}


def total(expr: Any) -> Any:
    return ra.sum(expr, n)


def mean(expr: Any) -> Any:
    return ra.mean(expr, n)


def dev(expr: Any) -> Any:
    return expr - mean(expr)


def moment(power: int) -> Any:
    """The central moment."""
    return mean(dev(x) ** power)


def share(expr: Any) -> Any:
    """Normalised to sum to 1."""
    return expr / total(expr)


def lse(expr: Any) -> Any:
    return ra.logsumexp(expr, n)


def picked(expr: Any) -> Any:
    """expr at the row's label."""
    return total(ra.where(ra.eq(n, label), expr, 0))


def attend(score: Any) -> Any:
    return ra.sum(ra.softmax(score, k) * V, k)


def normalised(weight: Any) -> Any:
    return ra.sum(weight * V, k) / ra.sum(weight, k)


def labels(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.integers(0, 77, shape)


def series(rng: Any, shape: tuple[int, ...]) -> Any:
    """The same for every tensor: `past[b, n - 1]` is the element before x[b, n]."""
    return np.random.default_rng(1).standard_normal((2, 77))


def yes(name: str, source: str, expr: Any, roles: Any, axes: str = "b", **more: Any) -> Pattern:
    return Pattern(name, lambda: expr, axes, roles, source, **more)


X, XY, S, SY, W, P = ({"x": "value"}, {"x": "free", "y": "free"}, {"s": "logit"}, {"s": "logit", "t": "logit"},
                      {"w": "weight"}, {"p": "weight", "g": "weight"})  # fmt: skip
SL = {"s": "logit", "label": labels}
SERIES = {"x": series, "past": series}
ERROR = x - y
PP, PG, PW = Abs(p), Abs(g), Abs(w)
"""Counts: of weights of unknown sign a state holds too whether any had the other one."""
PS, PT = ra.softmax(s, n), ra.softmax(t, n)
ELU_Q, ELU_K = (ra.where(one > 0, one + 1, exp(one)) for one in (Q, K))

LOSSES = (
    yes("cross entropy", "Bridle 1990", lse(s) - picked(s), SL),
    yes("label smoothing", "Szegedy et al. 2016", lse(s) - Rational(9, 10) * picked(s) - mean(s) / 10, SL),
    yes("z-loss", "Zoph et al. 2022, ST-MoE", lse(s) - picked(s) + lse(s) ** 2 / 10**4, SL),
    yes("focal loss", "Lin et al. 2017", (1 - exp(picked(s) - lse(s))) ** 2 * (lse(s) - picked(s)), SL),
    yes("InfoNCE", "van den Oord et al. 2018",
        ra.logsumexp(SCORE / tau, k) - ra.sum(ra.where(ra.eq(k, q), SCORE / tau, 0), k),
        {"Q": "free", "K": "free"}, "b h q", scalars={"tau": 0.5}),
    yes("preference optimisation (DPO)", "Rafailov et al. 2023",
        log(1 + exp(-beta * (total(x) - total(y) - total(z) + total(w)))),
        {"x": "free", "y": "free", "z": "free", "w": "weight"}, scalars={"beta": 0.1}),
    yes("distillation", "Hinton et al. 2015", tau**2 * total(
        ra.softmax(s / tau, n) * (s / tau - lse(s / tau) - t / tau + lse(t / tau))), SY, scalars={"tau": 2.0}),
    yes("Huber loss", "Huber 1964", total(ra.where(
        Abs(ERROR) < delta, ERROR**2 / 2, delta * (Abs(ERROR) - delta / 2))), XY, scalars={"delta": 1.0}),
    yes("log-cosh loss", "Green 1990", mean(log(cosh(ERROR))), XY),
    yes("hinge loss", "Cortes and Vapnik 1995", mean(Max(0, 1 - z * x)), {"x": "free", "z": "sign"}),
    yes("multiclass margin", "Crammer and Singer 2001",
        Max(0, 1 + ra.max(ra.where(ra.ne(n, label), s, -oo), n) - picked(s)), SL),
    yes("pinball loss", "Koenker and Bassett 1978", mean(Max(beta * ERROR, (beta - 1) * ERROR)), XY,
        scalars={"beta": 0.1}),
    yes("binary cross entropy with logits", "Goodfellow et al. 2016, section 6.2.2",
        mean(Max(s, 0) - s * p + log(1 + exp(-Abs(s)))), {"s": "logit", "p": "probability"}),
    yes("soft Dice loss", "Milletari et al. 2016", 1 - 2 * total(p * g) / (total(p**2) + total(g**2)), P),
    yes("Tversky loss", "Salehi et al. 2017",
        1 - total(p * g) / (total(p * g) + 3 * total(p * (1 - g)) / 10 + 7 * total((1 - p) * g) / 10),
        {"p": "probability", "g": "probability"}),
    yes("Poisson likelihood", "Nelder and Wedderburn 1972", mean(exp(x) - y * x), XY),
    yes("Gaussian likelihood", "Nix and Weigend 1994", total(log(w) + ERROR**2 / w) / 2, XY | W),
    yes("triplet loss", "Schroff et al. 2015", Max(0, total(ERROR**2) - total((x - z) ** 2) + delta),
        XY | {"z": "free"}, scalars={"delta": 0.2}),
    yes("scale-invariant log error", "Eigen et al. 2014",
        mean((log(p) - log(g)) ** 2) - mean(log(p) - log(g)) ** 2 / 2, P),
    yes("scale-invariant SDR", "Le Roux et al. 2019",
        total((total(x * y) / total(y**2) * y) ** 2) / total((total(x * y) / total(y**2) * y - x) ** 2), XY),
    yes("variational KL", "Kingma and Welling 2014", -total(1 + x - y**2 - exp(x)) / 2, XY),
)  # fmt: skip

INFORMATION = (
    yes("perplexity of a softmax", "Jelinek et al. 1977", exp(lse(s) - total(PS * s)), S),
    yes("Rényi entropy of order 3", "Rényi 1961", -log(total(PS**3)) / 2, S),
    yes("Rényi entropy of any order", "Rényi 1961", log(total(PS**alpha)) / (1 - alpha), S, scalars={"alpha": 1.5}),
    yes("Tsallis entropy", "Tsallis 1988", 1 - total(PS**2), S),
    yes("Hellinger distance", "Hellinger 1909", sqrt(1 - total(sqrt(share(PP) * share(PG)))), P),
    yes("Bhattacharyya distance of softmaxes", "Bhattacharyya 1943", -log(total(sqrt(PS * PT))), SY),
    yes("χ² divergence", "Pearson 1900", total((share(p) - share(g)) ** 2 / share(g)), P),
    yes("Kullback-Leibler of counts", "Kullback and Leibler 1951", total(share(PP) * log(share(PP) / share(PG))), P),
    yes("total variation of distributions", "Levin et al. 2009", total(Abs(p - g)) / 2, P),
    yes("effective sample size", "Kish 1965", total(w) ** 2 / total(w**2), W),
    yes("Gini impurity", "Breiman et al. 1984", 1 - total(share(w) ** 2), W),
    yes("Theil index", "Theil 1967", mean(PW / mean(PW) * log(PW / mean(PW))), W),
    yes("Atkinson index", "Atkinson 1970", 1 - exp(mean(log(w))) / mean(w), W),
)

STATISTICS = (
    yes("excess kurtosis", "Fisher 1930", moment(4) / moment(2) ** 2 - 3, X),
    yes("bimodality coefficient", "Pfister et al. 2013",
        ((moment(3) / moment(2) ** Rational(3, 2)) ** 2 + 1) / (moment(4) / moment(2) ** 2), X),
    yes("fifth central moment", "Pébay 2008", moment(5), {"x": "free"}),
    yes("weighted skewness", "Rimoldini 2014", total(w * (x - total(w * x) / total(w)) ** 3) / total(w)
        / (total(w * (x - total(w * x) / total(w)) ** 2) / total(w)) ** Rational(3, 2), {"x": "free", "w": "weight"}),
    yes("weighted covariance", "Price 1972",
        total(w * (x - total(w * x) / total(w)) * (y - total(w * y) / total(w))) / total(w), XY | W),
    yes("concordance", "Lin 1989", 2 * mean(dev(x) * dev(y)) / (
        mean(dev(x) ** 2) + mean(dev(y) ** 2) + (mean(x) - mean(y)) ** 2), {"x": "value", "y": "value"}),
    Pattern("least squares line", lambda: {
        "slope": (total(dev(x) * dev(y)) / total(dev(x) ** 2), "b"),
        "intercept": (mean(y) - total(dev(x) * dev(y)) / total(dev(x) ** 2) * mean(x), "b"),
        "r2": (total(dev(x) * dev(y)) ** 2 / (total(dev(x) ** 2) * total(dev(y) ** 2)), "b"),
    }, "", {"x": "value", "y": "value"}, "Gauss 1809"),
    yes("model efficiency", "Nash and Sutcliffe 1970", 1 - total(ERROR**2) / total(dev(x) ** 2), XY),
    yes("geometric mean", "Hardy et al. 1934", exp(mean(log(w))), W),
    yes("harmonic mean", "Hardy et al. 1934", N / total(1 / w), W),
    yes("power mean", "Hardy et al. 1934", mean(w**3) ** Rational(1, 3), W),
    yes("log-mean-exp", "Burda et al. 2016", lse(s) - log(N), S),
    yes("mellowmax", "Asadi and Littman 2017", (lse(beta * s) - log(N)) / beta, S, scalars={"beta": 2.0}),
    yes("Boltzmann operator", "Asadi and Littman 2017", total(exp(beta * s) * s) / total(exp(beta * s)), S,
        scalars={"beta": 2.0}),
    yes("coefficient of variation", "Pearson 1896", sqrt(ra.var(x, n)) / mean(x), X),
    yes("Sharpe ratio", "Sharpe 1966", mean(x) / sqrt(ra.var(x, n)), X),
    yes("index of dispersion", "Cox and Lewis 1966", ra.var(x, n) / mean(x), X),
    yes("heat capacity", "McQuarrie 1976", beta**2 * (
        total(exp(-beta * s) * s**2) / total(exp(-beta * s)) - (total(exp(-beta * s) * s) / total(exp(-beta * s))) ** 2
    ), S, scalars={"beta": 0.5}),
    yes("Binder cumulant", "Binder 1981", 1 - mean(x**4) / (3 * mean(x**2) ** 2), {"x": "free"}),
    yes("mean direction", "Mardia 1972", atan2(total(sin(x)), total(cos(x))), {"x": "probability"}),
    yes("circular variance", "Mardia 1972", 1 - sqrt(total(sin(x)) ** 2 + total(cos(x)) ** 2) / N, {"x": "free"}),
    yes("cosines about the mean", "von Mises 1918", total(cos(dev(x))), {"x": "free"}),
    yes("hyperbolic cosines about the maximum", "addition theorem", total(cosh((x - ra.max(x, n)) / 4)), {"x": "free"}),
    yes("autocorrelation at lag 1", "Box and Jenkins 1970",
        total(ra.where(n >= 1, dev(x) * (past[b, n - 1] - mean(x)), 0)) / total(dev(x) ** 2), SERIES),
    yes("Durbin-Watson", "Durbin and Watson 1950",
        total(ra.where(n >= 1, (x - past[b, n - 1]) ** 2, 0)) / total(x**2), SERIES),
    yes("mean without the extremes", "Tukey 1962", (total(x) - ra.max(x, n) - ra.min(x, n)) / (N - 2), X),
    yes("midrange and range", "Gumbel 1958", (ra.max(x, n) + ra.min(x, n)) / (2 * (ra.max(x, n) - ra.min(x, n))), X),
    yes("lower partial moment", "Bawa 1975", mean(Max(delta - x, 0) ** 2), {"x": "free"}, scalars={"delta": 0.2}),
)  # fmt: skip

r, u = ra.Tensor("r"), ra.Tensor("u")
MASS = total(w)


def centre(axis: Any) -> Any:
    return total(w * r[b, n, axis]) / MASS


RIGID = {"w": "weight", "r": lambda rng, shape: rng.standard_normal((2, 77, 3)) + 10}
CLOUDS = dict.fromkeys(("r", "u"), RIGID["r"])
GEOMETRY = (
    yes("centre of mass", "Goldstein 1950", centre(i), RIGID, "b i"),
    yes("radius of gyration", "Debye 1946", sqrt(total(w * ra.sum((r[b, n, i] - centre(i)) ** 2, i)) / MASS), RIGID),
    yes("inertia tensor, off the diagonal", "Goldstein 1950",
        total(w * (r[b, n, 0] - centre(0)) * (r[b, n, 1] - centre(1))), RIGID),
    yes("dipole about the centre of mass", "Jackson 1962", total(x * (r[b, n, i] - centre(i))),
        RIGID | {"x": "free"}, "b i"),
    yes("cross-covariance of point clouds", "Kabsch 1976",
        total((r[b, n, i] - mean(r[b, n, i])) * (u[b, n, j] - mean(u[b, n, j]))), CLOUDS, "b i j"),
    yes("Procrustes scale", "Gower 1975", sqrt(ra.sum(total((r[b, n, i] - mean(r[b, n, i])) ** 2), i)),
        {"r": RIGID["r"]}),
)  # fmt: skip

ATTENTION = (
    yes("differential attention", "Ye et al. 2024",
        attend(SCORE) - beta * attend(ra.sum(Q2 * K2, f) / sqrt(f.extent)), QKV | {"Q2": "free", "K2": "free"},
        "b h q e", scalars={"beta": 0.3}),
    yes("one key head", "Shazeer 2019",
        ra.sum(ra.softmax(ra.sum(Q * shared[b, k, d], d), k) * shared_values[b, k, e], k),
        {"Q": "free", "shared": lambda rng, shape: rng.standard_normal((2, 77, 4)),
         "shared_values": lambda rng, shape: rng.standard_normal((2, 77, 3))}, "b h q e"),
    yes("retention", "Sun et al. 2023", ra.sum(ra.where(k <= q, rate ** (q - k) * ra.sum(Q * K, d), 0) * V, k),
        QKV | {"rate": "probability"}, "b h q e"),
    yes("polynomial kernel", "Kacham et al. 2024", normalised(ra.sum(Q * K, d) ** 4), QKV, "b h q e"),
    yes("rectified scores", "Wortsman et al. 2023", ra.sum(Max(SCORE, 0) * V, k) / k.extent, QKV, "b h q e"),
    yes("softmax off by one", "Miller 2023", ra.sum(exp(SCORE) * V, k) / (1 + ra.sum(exp(SCORE), k)), QKV, "b h q e"),
    yes("relative bias", "Raffel et al. 2020", attend(SCORE + bias[h, q + 76 - k]),
        QKV | {"bias": lambda rng, shape: rng.standard_normal((2, 79))}, "b h q e"),
    yes("entropy of attention", "Zhai et al. 2023",
        -ra.sum(ra.softmax(SCORE, k) * log(ra.softmax(SCORE, k)), k), {"Q": "free", "K": "free"}, "b h q"),
    yes("linear attention with elu + 1", "Katharopoulos et al. 2020",
        normalised(ra.sum(ELU_Q * ELU_K, d)), QKV, "b h q e"),
    yes("two scores added", "DeepSeek-AI 2024, MLA", attend(ra.sum(Q * K, d) + ra.sum(Q2 * K2, f)),
        QKV | {"Q2": "free", "K2": "free"}, "b h q e"),
    yes("attention logit cap and z-loss", "Gemma Team 2024",
        ra.logsumexp(beta * tanh(SCORE / beta), k) ** 2, {"Q": "free", "K": "free"}, "b h q", scalars={"beta": 5.0}),
    yes("slot attention", "Locatello et al. 2020",
        total(ra.softmax(ra.tensor("slots[b,n,m]"), m) * image) / total(ra.softmax(ra.tensor("slots[b,n,m]"), m)),
        {"slots": "logit", "image": "free"}, "b m c"),
    yes("masked mean pooling", "Reimers and Gurevych 2019",
        total(ra.where(ra.ne(ra.tensor("live[b,n]"), 0), image, 0)) / total(
            ra.where(ra.ne(ra.tensor("live[b,n]"), 0), 1, 0)), {"live": "mask", "image": "free"}, "b c"),
    yes("log-semiring matrix product", "Mohri 2002",
        ra.logsumexp(ra.tensor("A[q,k]") + ra.tensor("B[k,e]"), k), {"A": "logit", "B": "logit"}, "q e"),
    yes("Viterbi step", "Viterbi 1967", ra.max(ra.tensor("A[q,k]") + ra.tensor("B[k,e]"), k),
        {"A": "logit", "B": "logit"}, "q e"),
)  # fmt: skip

AMAX = ra.max(Abs(x), n)
SCANS = (
    yes("discounted return", "Sutton 1988", total(alpha**n * x), {"x": "free"}, scalars={"alpha": 0.9}),
    yes(
        "exponential moving average, last value",
        "Brown 1956",
        total((1 - alpha) * alpha ** (N - 1 - n) * x),
        {"x": "free"},
        scalars={"alpha": 0.9},
    ),
    yes("scaled 2-norm", "Blue 1978", AMAX * sqrt(total((x / AMAX) ** 2)), X),
    yes("scaled 3-norm", "Blue 1978", AMAX * total((Abs(x) / AMAX) ** 3) ** Rational(1, 3), X),
    yes("sum of softplus", "Dugas et al. 2001", total(Max(s, 0) + log(1 + exp(-Abs(s)))), S),
    yes(
        "Fourier coefficient",
        "Goertzel 1958",
        total(x * cos(2 * pi * n / 77)) ** 2 + total(x * sin(2 * pi * n / 77)) ** 2,
        {"x": "free"},
    ),
)

CARRIED = (
    yes("softmax", "Bridle 1990", ra.softmax(s, n), S, "b n"),
    yes("log-softmax", "Bridle 1990", s - lse(s), S, "b n"),
    yes("LayerNorm", "Ba et al. 2016", dev(x) / sqrt(ra.var(x, n) + eps), X, "b n"),
    yes("RMSNorm", "Zhang and Sennrich 2019", x / sqrt(mean(x**2) + eps) * w, X | W, "b n"),
    yes("weight standardization", "Qiao et al. 2019", dev(x) / sqrt(ra.var(x, n)), {"x": "free"}, "b n"),
    yes("L2 normalisation", "Wang et al. 2017", x / sqrt(total(x**2)), X, "b n"),
    yes("min-max scaling", "Han and Kamber 2000",
        (x - ra.min(x, n)) / (ra.max(x, n) - ra.min(x, n)), {"x": "free"}, "b n"),
)  # fmt: skip

SEVERAL_AXES = (
    yes("Frobenius norm", "Golub and Van Loan 1983", sqrt(ra.sum(image**2, n, c)), {"image": "value"}),
    yes("LayerNorm statistics over two axes", "Ba et al. 2016", ra.var(image, n, c), {"image": "value"}),
    Pattern("BatchNorm statistics", lambda: {"mean": (ra.mean(image, b, n), "c"), "var": (ra.var(image, b, n), "c")},
            "", {"image": "value"}, "Ioffe and Szegedy 2015"),
    Pattern("InstanceNorm statistics", lambda: {"mean": (mean(image), "b c"), "var": (ra.var(image, n), "b c")},
            "", {"image": "value"}, "Ulyanov et al. 2016"),
)  # fmt: skip

PATTERNS = LOSSES + INFORMATION + STATISTICS + GEOMETRY + ATTENTION + SCANS + SEVERAL_AXES


def no(name: str, source: str, expr: Any, why: str = "") -> Pattern:
    return Pattern(name, lambda: expr, "b", {}, source, verdict="Refused", why=why)


SPREAD = sqrt(ra.var(x, n))
STANDARD = dev(x) / SPREAD
NOES = (
    no("mean absolute deviation of weights", "Hoover 1936", total(Abs(share(w) - 1 / N)) / 2, "kink"),
    no("total variation of counts", "Levin et al. 2009", total(Abs(share(p) - share(g))) / 2, "kink"),
    no("semivariance", "Markowitz 1959", mean(Min(dev(x), 0) ** 2), "moves with"),
    no("Winsorized mean", "Tukey 1962", mean(Min(x, mean(x) + 2 * SPREAD)), "moves with"),
    no("mean trimmed by a data threshold", "Tukey 1962",
       total(ra.where(Abs(dev(x)) < 2 * SPREAD, x, 0)), "moves with"),
    no("Tukey's biweight about the mean", "Beaton and Tukey 1974",
       total(ra.where(Abs(STANDARD) < 6, (1 - STANDARD**2 / 36) ** 2, 0)), "moves with"),
    no("Huber's ψ about the mean", "Huber 1964", total(Max(-1, Min(1, dev(x)))), "moves with"),
    no("Cauchy weights about the mean", "Holland and Welsch 1977", total(1 / (1 + dev(x) ** 2))),
    no("Welsch weights about the mean", "Holland and Welsch 1977", total(exp(-(STANDARD**2))), "couples"),
    no("log-cosh about the mean", "Green 1990", total(log(cosh(dev(x))))),
    no("softplus about the mean", "Dugas et al. 2001", total(log(1 + exp(dev(x))))),
    no("scalable softmax of an unknown length", "Nakanishi 2025",
       total(exp(log(N) * (s - ra.max(s, n))) * x), "couples"),
    no("foreground above the mean", "Otsu 1979", total(ra.where(x > mean(x), x, 0)), "moves with"),
    no("power by the data's exponent", "Hill 1975", total(w ** mean(w))),
    no("squashed standard score", "Bishop 1995", total(tanh(STANDARD))),
)  # fmt: skip
