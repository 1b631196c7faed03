"""The patterns of the users' review, on ordinary and on hostile data, each beside its definition in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from sympy import Abs, Max, Rational, exp, log, oo, sqrt, tanh

import redalg as ra
from tests.cases.rows import Row

b, h, n, e, g, q, k, d, l, i = ra.axes("b h n e g q k d l i")
c = ra.axis("c", size=5)
x, y, label = ra.tensors("x[b,n] y[b,n] label[b]")
Q, K, V, Q2, K2 = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e] Q2[b,h,q,d] K2[b,h,k,d]")
X, R, Keys, Values = (ra.Tensor(name) for name in ("x", "r", "K", "V"))
tau, beta = ra.scalars("tau beta", positive=True)
rng = np.random.default_rng(1)


# ---- definitions -----------------------------------------------------------------------------------------------------


def total(a: Any, axis: int = -1) -> Any:
    return a.sum(axis, keepdims=True)


def average(a: Any) -> Any:
    return total(a) / a.dtype.type(a.shape[-1])


def lse(a: Any) -> Any:
    top = a.max(-1, keepdims=True)
    return top + np.log(total(np.exp(a - top)))


def shares(a: Any) -> Any:
    top = a.max(-1, keepdims=True)
    return np.exp(a - top) / total(np.exp(a - top))


def moment(a: Any, power: int) -> Any:
    return ((a - average(a)) ** power).mean(-1)


def sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


def picked(x: Any, label: Any) -> Any:
    return np.take_along_axis(x, label[:, None], 1)[:, 0]


def scores(Q: Any, K: Any) -> Any:
    return np.einsum("bhqd,bhkd->bhqk", Q, K) / np.sqrt(Q.dtype.type(Q.shape[-1]))


def attended(s: Any, V: Any) -> Any:
    return np.einsum("bhqk,bhke->bhqe", shares(s), V)


def unit(a: Any) -> Any:
    return a / np.sqrt(total(a * a))


def rows(scale: float = 1, offset: float = 0) -> Any:
    return offset + scale * rng.standard_normal((3, 41))


def qkv(scale: float = 1, heads: int = 2, *more: str) -> dict[str, Any]:
    made = {"Q": scale * rng.standard_normal((1, heads, 5, 8)), "K": rng.standard_normal((1, 2, 23, 8)),
            "V": rng.standard_normal((1, 2, 23, 4))}  # fmt: skip
    return made | {name: scale * rng.standard_normal(made[name[0]].shape) for name in more}


# ---- losses ----------------------------------------------------------------------------------------------------------

NORMAL = ra.logsumexp(x, n)
A, B = ra.tensors("A[b,d] B[b,d]")
C = ra.tensor("C[k,d]")
cosine = ra.sum(A * C, d) / sqrt(ra.sum(A**2, d) * ra.sum(C**2, d)) / tau
kept = ra.where(ra.ne(label, -100), 1, 0)
entry = ra.where(ra.ne(label, -100), NORMAL - X[b, ra.where(ra.ne(label, -100), label, 0)], 0)
probability = 1 / (1 + exp(-x))
LABELS = np.array([3, 0, 40])


def focal(x: Any, label: Any) -> Any:
    return -((1 - np.exp(picked(x, label) - lse(x)[:, 0])) ** 2) * (picked(x, label) - lse(x)[:, 0])


def smoothed(x: Any, label: Any) -> Any:
    z, tenth, small = lse(x)[:, 0], x.dtype.type(0.1), x.dtype.type(1e-4)
    return z - (1 - tenth) * picked(x, label) - tenth * x.mean(1) + small * z**2


LOSSES = {
    "label-smoothed cross-entropy and z-loss, ×300": Row(
        NORMAL - Rational(9, 10) * X[b, label] - ra.mean(x, n) / 10 + NORMAL**2 / 10**4, "b",
        {"x": rows(300), "label": LABELS}, smoothed),
    "focal loss, ×20": Row(
        -((1 - exp(X[b, label] - NORMAL)) ** 2) * (X[b, label] - NORMAL), "b", {"x": rows(20), "label": LABELS}, focal),
    "contrastive normaliser, τ = 0.001": Row(
        ra.logsumexp(cosine, k), "b", {"A": rng.standard_normal((6, 8)), "C": rng.standard_normal((6, 8))},
        lambda A, C, tau: lse(unit(A) @ unit(C).T / A.dtype.type(tau))[:, 0], {"tau": 0.001}),
    "Dice, ×1000": Row(
        1 - 2 * ra.sum(probability * y, n) / (ra.sum(probability, n) + ra.sum(y, n)), "b",
        {"x": rows(1000), "y": (rows() > 0) * 1.0},
        lambda x, y: 1 - 2 * (sigmoid(x) * y).sum(1) / (sigmoid(x).sum(1) + y.sum(1))),
    "cross-entropy, averaged, an index ignored": Row(
        ra.sum(entry, b) / ra.sum(kept, b), "", {"x": rows(300), "label": np.array([3, -100, 7])},
        lambda x, label: ((lse(x)[0] - x[0, 3] + lse(x)[2] - x[2, 7]) / 2)[0], pieces=False, kernel=False),
}  # fmt: skip

# ---- attention -------------------------------------------------------------------------------------------------------

S = ra.sum(Q * K, d) / sqrt(d.extent)
S2 = ra.sum(Q2 * K2, d) / sqrt(d.extent)
slope, sink = ra.tensors("slope[h] sink[h]")
temperature, rate = ra.scalars("temperature rate")
window = ra.where(ra.logical_and(k <= q, q - k < 3), S, -oo)
above, zero = Max(ra.max(window, k), sink), Max(ra.max(S, k), 0)
queries, keys = np.arange(5)[:, None], np.arange(23)


def attend(s: Any) -> Any:
    return ra.sum(ra.softmax(s, k) * V, k)


def with_sink(Q: Any, K: Any, V: Any, sink: Any) -> Any:
    s = np.where((keys <= queries) & (queries - keys < 3), scores(Q, K), -np.inf)
    beside = np.broadcast_to(sink[:, None, None], (1, 2, 5, 1)).astype(s.dtype)
    return np.einsum("bhqk,bhke->bhqe", shares(np.concatenate([s, beside], 3))[..., :-1], V)


def off_by_one(Q: Any, K: Any, V: Any) -> Any:
    s = scores(Q, K)
    return with_zero(np.concatenate([s, np.zeros((1, 2, 5, 1), s.dtype)], 3), V)


def with_zero(s: Any, V: Any) -> Any:
    return np.einsum("bhqk,bhke->bhqe", shares(s)[..., :-1], V)


def by_angle(Q: Any, K: Any, V: Any, temperature: float) -> Any:
    return attended(np.einsum("bhqd,bhkd->bhqk", unit(Q), unit(K)) * Q.dtype.type(temperature), V)


ATTENTION = {
    "softcap, ×100": Row(attend(30 * tanh(S / 30)), "b h q e", qkv(100),
                         lambda Q, K, V: attended(30 * np.tanh(scores(Q, K) / 30), V)),
    "ALiBi, causal, ×100": Row(
        attend(ra.where(k <= q, S - slope * (q - k), -oo)), "b h q e", qkv(100) | {"slope": np.array([0.5, 0.25])},
        lambda Q, K, V, slope: attended(
            np.where(keys <= queries, scores(Q, K) - slope[:, None, None] * (queries - keys), -np.inf), V)),
    "window and sink, ×100": Row(
        ra.sum(exp(window - above) * V, k) / (ra.sum(exp(window - above), k) + exp(sink - above)), "b h q e",
        qkv(100) | {"sink": np.array([0.5, -100])}, with_sink),
    "softmax off by one with its maximum, ×100": Row(
        ra.sum(exp(S - zero) * V, k) / (exp(-zero) + ra.sum(exp(S - zero), k)), "b h q e", qkv(100), off_by_one),
    "softmax off by one without a maximum, ×10000": Row(
        ra.sum(exp(S) * V, k) / (1 + ra.sum(exp(S), k)), "b h q e", qkv(10000), off_by_one),
    "cosine scores, inputs of 1e-8": Row(
        attend(temperature * ra.sum(Q * K, d) / (ra.norm(Q, d) * ra.norm(K, d))), "b h q e",
        {name: one * (1 if name == "V" else 1e-8) for name, one in qkv().items()}, by_angle, {"temperature": 10.0}),
    "normalised sigmoids, ×100": Row(
        ra.sum(V / (1 + exp(-S)), k) / ra.sum(1 / (1 + exp(-S)), k), "b h q e", qkv(100),
        lambda Q, K, V: np.einsum("bhqk,bhke->bhqe", sigmoid(scores(Q, K)), V) / total(sigmoid(scores(Q, K)))),
    "differential, ×100": Row(
        ra.sum((ra.softmax(S, k) - rate * ra.softmax(S2, k)) * V, k), "b h q e", qkv(100, 2, "Q2", "K2"),
        lambda Q, K, V, Q2, K2, rate: attended(scores(Q, K), V) - V.dtype.type(rate) * attended(scores(Q2, K2), V),
        {"rate": 0.8}),
    "grouped queries": Row(
        ra.sum(ra.softmax(ra.sum(Q * Keys[b, h // 2, k, d], d), k) * Values[b, h // 2, k, e], k), "b h q e", qkv(1, 4),
        lambda Q, K, V: attended(np.einsum("bhqd,bhkd->bhqk", Q, np.repeat(K, 2, 1)), np.repeat(V, 2, 1)),
        kernel=False),
}  # fmt: skip

# ---- statistics ------------------------------------------------------------------------------------------------------

mean = ra.mean(x, n)
share = x / mean
Z, P = ra.Tensor("z"), ra.Tensor("p")


def central(power: int) -> Any:
    return ra.mean((x - mean) ** power, n)


def smoothly(x: Any) -> Any:
    tenth, made = x.dtype.type(0.1), np.zeros(len(x), x.dtype)
    for column in x.T:
        made = (1 - tenth) * made + tenth * column
    return made


def faded(x: Any, beta: float) -> Any:
    weights = x.dtype.type(beta) ** np.arange(x.shape[1])[::-1].astype(x.dtype)
    return (weights * x).sum(1) / weights.sum()


weights = beta ** (n.extent - 1 - n)
STATISTICS = {
    "skewness, 1e4": Row(central(3) / central(2) ** Rational(3, 2), "b", {"x": rows(1, 1e4)},
                         lambda x: moment(x, 3) / moment(x, 2) ** x.dtype.type(1.5)),
    "variance, 1e4 ± 1e-2": Row(central(2), "b", {"x": rows(1e-2, 1e4)}, lambda x: moment(x, 2), close=1e-7),
    "kurtosis, 1e4 ± 1e-2": Row(central(4) / central(2) ** 2, "b", {"x": rows(1e-2, 1e4)},
                                lambda x: moment(x, 4) / moment(x, 2) ** 2, close=1e-7),
    "covariance matrix, 1e4": Row(
        ra.covariance(P[n, i], P[n, l], n), "i l", {"p": 1e4 + rng.standard_normal((50, 6))},
        lambda p: (p - p.mean(0)).T @ (p - p.mean(0)) / p.dtype.type(50)),
    "Pearson, 1e4": Row(
        ra.covariance(x, y, n) / (ra.std(x, n) * ra.std(y, n)), "b", {"x": rows(1, 1e4), "y": rows(1, 1e4)},
        lambda x, y: ((x - average(x)) * (y - average(y))).mean(1) / np.sqrt(moment(x, 2) * moment(y, 2))),
    "autocorrelation at lag 1, 1e4": Row(
        ra.sum((x - mean) * ra.where(n > 0, X[b, n - 1] - mean, 0), n) / ra.sum((x - mean) ** 2, n), "b",
        {"x": rows(1, 1e4)}, lambda x: ((x - average(x))[:, 1:] * (x - average(x))[:, :-1]).mean(1) * 40 / 41
        / moment(x, 2), close=1e-8, pieces=False),
    "Theil's index, 1e4": Row(ra.mean(share * log(share), n), "b", {"x": rows(1, 1e4)},
                              lambda x: (x / average(x) * np.log(x / average(x))).mean(1), close=1e-7),
    "Gini, pairs": Row(
        ra.sum(Abs(Z[n] - Z[k]), n, k) / (2 * n.extent**2 * ra.mean(Z[n], n)), "",
        {"z": np.exp(rng.standard_normal(30))},
        lambda z: np.abs(z[:, None] - z).sum() / (1800 * z.mean()), pieces=False),
    "smoothing by an affine map": Row(ra.affine(Rational(9, 10), x / 10, n)[1], "b", {"x": rows()}, smoothly),
    "mean weighted by β^(N − 1 − n)": Row(ra.sum(weights * x, n) / ra.sum(weights, n), "b", {"x": rows()}, faded,
                                          {"beta": 0.9}),
    "std at 1e25": Row(ra.std(x, n), "b", {"x": rows(1e25)}, lambda x: np.sqrt(moment(x, 2)), kernel=False),
    "std at 1e-25": Row(ra.std(x, n), "b", {"x": rows(1e-25)}, lambda x: np.sqrt(moment(x, 2)), kernel=False),
    "layer_norm at 1e25": Row(ra.layer_norm(x, n, eps=0), "b n", {"x": rows(1e25)},
                              lambda x: (x - average(x)) / np.sqrt(moment(x, 2))[:, None], kernel=False),
    "layer_norm at 1e-25": Row(ra.layer_norm(x, n, eps=0), "b n", {"x": rows(1e-25)},
                               lambda x: (x - average(x)) / np.sqrt(moment(x, 2))[:, None], kernel=False),
}  # fmt: skip

# ---- physics and learning --------------------------------------------------------------------------------------------

mass, masses = ra.tensors("m[n] m[k]")
E, a, T, o = ra.tensors("E[b,n] a[b,k] T[k,n] o[b,n]")
points, centres, cluster, edge = ra.tensors("p[n,d] c[k,d] z[n] edge[g]")
xs, ys, at = ra.tensors("xs[n] ys[n] at[q]")
W, W0, inverse = ra.tensors("w[b,d] w0[d] inverse[d,l]")
boltzmann = ra.softmax(-beta * E, n)
energy = ra.sum(boltzmann * E, n)
apart = sqrt(ra.sum((R[n, l] - R[k, l]) ** 2, l))
bell = exp(-((at - xs) ** 2) / (2 * tau**2))


def centre(axis: Any) -> Any:
    return ra.sum(mass * R[n, axis], n) / ra.sum(mass, n)


def inertia(m: Any, r: Any) -> Any:
    about = r - (m[:, None] * r).sum(0) / m.sum()
    trace = (m * (about**2).sum(1)).sum()
    return np.eye(3).astype(r.dtype) * trace - np.einsum("n,ni,nj->ij", m, about, about)


def pulled(m: Any, r: Any) -> Any:
    away = r[None] - r[:, None]
    cubes = ((away * away).sum(2) + r.dtype.type(0.01)) ** r.dtype.type(1.5)
    return (m[None, :, None] * away / cubes[..., None]).sum(1)


def spread_of_energy(E: Any, beta: float) -> Any:
    weights = shares(-E.dtype.type(beta) * E)
    return E.dtype.type(beta) ** 2 * (weights * (E - total(weights * E)) ** 2).sum(1)


def ring(r: Any, edge: Any) -> Any:
    away = np.sqrt(((r[:, None] - r) ** 2).sum(2))
    other = ~np.eye(len(r), dtype=bool)
    return np.array([((away >= first) & (away < first + 0.5) & other).sum() for first in edge])


FORWARD = {"a": rng.standard_normal((3, 7)), "T": rng.standard_normal((7, 5)), "o": rng.standard_normal((3, 5))}
FORWARD["a"][1] = -np.inf
METRIC = rng.standard_normal((4, 4)) @ rng.standard_normal((4, 4))
PHYSICS = {
    "centre of mass, 1e4": Row(
        centre(i), "i", {"m": rng.random(40) + 0.5, "r": 1e4 + rng.standard_normal((40, 3))},
        lambda m, r: (m[:, None] * r).sum(0) / m.sum()),
    "inertia tensor, 1e4": Row(
        ra.sum(mass * (ra.where(ra.eq(i, d), 1, 0) * ra.sum((R[n, l] - centre(l)) ** 2, l)
                       - (R[n, i] - centre(i)) * (R[n, d] - centre(d))), n), "i d",
        {"m": rng.random(40) + 0.5, "r": 1e4 + rng.standard_normal((40, 3))}, inertia, close=1e-7),
    "N-body, 1e3": Row(
        ra.sum(masses * (R[k, l] - R[n, l]) / (ra.sum((R[k, i] - R[n, i]) ** 2, i) + Rational(1, 100))
               ** Rational(3, 2), k), "n l",
        {"m": rng.random(20) + 0.5, "r": 1e3 + rng.standard_normal((20, 3))}, pulled, pieces=False),
    "radial distribution": Row(
        ra.sum(ra.where(ra.logical_and(ra.ne(n, k), apart >= edge, apart < edge + Rational(1, 2)), 1, 0), n, k), "g",
        {"r": rng.standard_normal((20, 3)), "edge": np.arange(5) / 2}, ring, pieces=False),
    "ln Z, 1e4": Row(ra.logsumexp(-beta * E, n), "b", {"E": rows(1, 1e4)},
                     lambda E, beta: lse(-E.dtype.type(beta) * E)[:, 0], {"beta": 1.7}),
    "energy, 1e4": Row(energy, "b", {"E": rows(1, 1e4)},
                       lambda E, beta: (shares(-E.dtype.type(beta) * E) * E).sum(1), {"beta": 1.7}),
    "heat capacity by ⟨E²⟩ − ⟨E⟩², 1e4": Row(
        beta**2 * (ra.sum(boltzmann * E**2, n) - energy**2), "b", {"E": rows(1, 1e4)}, spread_of_energy, {"beta": 1.7},
        close=1e-7),
    "hidden Markov step, a row of −∞": Row(o + ra.logsumexp(a + T, k), "b n", FORWARD,
                                            lambda a, T, o: o + np.logaddexp.reduce(a[:, :, None] + T, 1)),
    "assignment to clusters": Row(
        ra.argmin(ra.sum((points - centres) ** 2, d), k), "n",
        {"p": rng.standard_normal((20, 3)), "c": rng.standard_normal((5, 3))},
        lambda p, c: ((p[:, None] - c) ** 2).sum(2).argmin(1)),
    "means of clusters": Row(
        ra.sum(ra.where(ra.eq(cluster, c), points, 0), n) / ra.sum(ra.where(ra.eq(cluster, c), 1, 0), n), "c d",
        {"p": rng.standard_normal((20, 3)), "z": np.arange(20) % 5},
        lambda p, z: np.stack([p[z == one].mean(0) for one in range(5)])),
    "kernel regression, every weight underflows": Row(
        ra.sum(bell * ys, n) / ra.sum(bell, n), "q",
        {"xs": np.arange(10.0), "ys": rng.standard_normal(10), "at": np.array([0.4, 2.6, 100])},
        lambda xs, ys, at, tau: shares(-((at[:, None] - xs) ** 2) / (2 * xs.dtype.type(tau) ** 2)) @ ys, {"tau": 0.01}),
    "Mahalanobis, 1e4": Row(
        ra.sum((W - W0) * inverse * (ra.Tensor("w")[b, l] - ra.Tensor("w0")[l]), d, l), "b",
        {"w": 1e4 + rng.standard_normal((3, 4)), "w0": np.full(4, 1e4), "inverse": METRIC},
        lambda w, w0, inverse: np.einsum("bd,dl,bl->b", w - w0, inverse, w - w0), pieces=False),
}  # fmt: skip

PATTERNS = LOSSES | ATTENTION | STATISTICS | PHYSICS
