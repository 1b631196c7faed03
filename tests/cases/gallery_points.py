"""Checks of the patterns of several axes: attention, products, physics, kernel methods, hidden states."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases.gallery import Check
from tests.cases.review_patterns import (
    METRIC,
    attended,
    inertia,
    lse,
    off_by_one,
    pulled,
    qkv,
    ring,
    scores,
    shares,
    sigmoid,
    total,
    unit,
)

rng = np.random.default_rng(8)
QUERIES, KEYS = np.arange(5)[:, None], np.arange(23)
CAUSAL = KEYS <= QUERIES
TENSORS = qkv()
FAR = {"Q": 100 * TENSORS["Q"]}

# ---- attention -------------------------------------------------------------------------------------------------------


def attend(live: Any = True, change: Any = lambda s: s, sinks: Any = None) -> Any:
    """The definition of softmax attention where keys are live, with changed scores."""

    def definition(Q: Any, K: Any, V: Any, **more: Any) -> Any:
        groups = Q.shape[1] // K.shape[1]
        s = scores(Q, np.repeat(K, groups, 1))
        s = np.where(live, change(s, **more) if more and "sinks" not in more else change(s), -np.inf)
        if "sinks" in more:
            beside = np.broadcast_to(more["sinks"][:, None, None], (*s.shape[:3], 1)).astype(s.dtype)
            weights = shares(np.concatenate([s, beside], 3))[..., :-1]
            return np.einsum("bhqk,bhke->bhqe", weights, V)
        return attended(s, np.repeat(V, groups, 1))

    return definition


def averaged(weight: Any, V: Any) -> Any:
    return np.einsum("bhqk,bhke->bhqe", weight, V) / total(weight)


def feature(x: Any) -> Any:
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def products(Q: Any, K: Any) -> Any:
    return np.einsum("bhqd,bhkd->bhqk", Q, K)


def latent(q: Any, q_rope: Any, k_rope: Any, latent: Any) -> Any:
    s = np.einsum("bhc,bkc->bhk", q, latent) + np.einsum("bhr,bkr->bhk", q_rope, k_rope)
    return np.einsum("bhk,bke->bhe", shares(s / np.sqrt(s.dtype.type(q.shape[2] + q_rope.shape[2]))), latent)


def paged(Q: Any, K: Any, V: Any, pages: Any, length: Any) -> Any:
    """Row by row: the pages that hold keys, then those of their places that count."""
    page, rows = K.shape[1], []
    for row, (numbers, stop) in enumerate(zip(pages, length, strict=True)):
        taken = numbers[: -(-stop // page)]
        whole = [np.moveaxis(one[taken].reshape(1, -1, *one.shape[2:])[:, :stop], 1, 2) for one in (K, V)]
        rows.append(attend()(Q[row : row + 1], *whole))
    return np.concatenate(rows)


def retained(Q: Any, K: Any, V: Any, rate: Any) -> Any:
    decay = np.where(CAUSAL, rate[:, None, None] ** np.maximum(QUERIES - KEYS, 0).astype(Q.dtype), 0)
    return np.einsum("bhqk,bhke->bhqe", products(Q, K) * decay, V)


def added(Q: Any, K: Any, V: Any, v: Any) -> Any:
    s = (v * np.tanh(Q[:, :, None] + K[:, None])).sum(3)
    return np.einsum("bqk,bke->bqe", shares(s), V)


def slots(s: Any, x: Any) -> Any:
    weight = shares(s)
    return np.einsum("bnm,bnc->bmc", weight, x) / weight.sum(1)[..., None]


def entropies(Q: Any, K: Any) -> Any:
    p = shares(scores(Q, K))
    return -(p * np.log(np.where(p == 0, 1, p))).sum(3)


SHARED = {"Q": rng.standard_normal((1, 8, 5, 8)), "K": TENSORS["K"], "V": TENSORS["V"]}
PAGES = {"Q": rng.standard_normal((2, 8, 5, 8)), "K": rng.standard_normal((4, 16, 2, 8)),
         "V": rng.standard_normal((4, 16, 2, 3)), "pages": np.array([[3, 1], [2, -1]]),
         "length": np.array([23, 16])}  # fmt: skip
BIAS = rng.standard_normal((2, 27))
ATTENTION = {
    "attention": Check(attend(), TENSORS, (FAR,)),
    "causal_attention": Check(attend(CAUSAL), TENSORS, (FAR,)),
    "sliding_window_attention": Check(attend(CAUSAL & (KEYS > QUERIES - 1024)), TENSORS, (FAR,)),
    "sink_attention": Check(attend(CAUSAL), TENSORS | {"sinks": np.array([0.5, -1])},
                            (FAR | {"sinks": np.array([500.0, -500])},)),
    "softcap_attention": Check(attend(CAUSAL, lambda s: 50 * np.tanh(s / 50)), TENSORS, (FAR,)),
    "alibi_attention": Check(
        attend(CAUSAL, lambda s, slope: s - slope[:, None, None] * (QUERIES - KEYS)),
        TENSORS | {"slope": np.array([0.5, 0.25])}, (FAR,)),
    "grouped_query_attention": Check(attend(), SHARED, ({"Q": 100 * SHARED["Q"]},)),
    "paged_attention": Check(paged, PAGES, ({"Q": 100 * PAGES["Q"]}, {"length": np.array([1, 15])}), sizes={"k": 32}),
    "padded_attention": Check(lambda length, **more: attend(length[:, None, None, None] > KEYS)(**more),
                              TENSORS | {"length": np.array([7])}, (FAR,)),
    "mla_decode": Check(latent, {"q": rng.standard_normal((2, 3, 8)), "q_rope": rng.standard_normal((2, 3, 4)),
                                 "k_rope": rng.standard_normal((2, 9, 4)), "latent": rng.standard_normal((2, 9, 8))},
                        ({"q": 100 * rng.standard_normal((2, 3, 8))},)),
    "differential_attention": Check(
        lambda Q, K, V, Q2, K2, rate: attended(scores(Q, K), V) - rate * attended(scores(Q2, K2), V),
        qkv(1, 2, "Q2", "K2"), (FAR,), {"rate": 0.5}),
    "linear_attention": Check(lambda Q, K, V: averaged(products(feature(Q), feature(K)), V), TENSORS, (FAR,)),
    "power_attention": Check(lambda Q, K, V: averaged(products(Q, K) ** 4, V), TENSORS, (FAR,)),
    "sigmoid_attention": Check(
        lambda Q, K, V, shift: np.einsum("bhqk,bhke->bhqe", sigmoid(scores(Q, K) + shift), V), TENSORS, (FAR,),
        {"shift": -3.0}),
    "cosine_attention": Check(
        lambda Q, K, V, tau: attended(products(unit(Q), unit(K)) / tau[:, None, None], V),
        TENSORS | {"tau": np.array([0.1, 0.01])}, ({"Q": 1e-30 * TENSORS["Q"], "K": 1e30 * TENSORS["K"]},)),
    "off_by_one_attention": Check(off_by_one, TENSORS, ({"Q": 10000 * TENSORS["Q"]},)),
    "retention": Check(retained, TENSORS | {"rate": np.array([0.9, 0.5])}, (FAR,)),
    "rectified_attention": Check(
        lambda Q, K, V: np.einsum("bhqk,bhke->bhqe", np.maximum(scores(Q, K), 0), V) / 23, TENSORS, (FAR,)),
    "additive_attention": Check(
        added, {"Q": rng.standard_normal((2, 5, 6)), "K": rng.standard_normal((2, 9, 6)),
                "V": rng.standard_normal((2, 9, 3)), "v": rng.standard_normal(6)},
        ({"v": 1000 * rng.standard_normal(6)},)),
    "relative_bias_attention": Check(
        lambda bias, **more: attend(change=lambda s: s + bias[:, QUERIES - KEYS + 22])(**more),
        TENSORS | {"bias": BIAS}, ({"bias": 300 * BIAS},)),
    "attention_entropy": Check(entropies, {"Q": TENSORS["Q"], "K": TENSORS["K"]}, ({"Q": 10 * TENSORS["Q"]},)),
    "slot_attention": Check(slots, {"s": rng.standard_normal((2, 9, 3)), "x": rng.standard_normal((2, 9, 4))},
                            ({"s": 300 * rng.standard_normal((2, 9, 3))},)),
}  # fmt: skip

# ---- products, physics -----------------------------------------------------------------------------------------------


def energies(E: Any, beta: float) -> tuple[Any, Any, Any]:
    p = shares(-beta * E)
    energy = total(p * E)
    return lse(-beta * E)[:, 0], energy[:, 0], beta**2 * (p * (E - energy) ** 2).sum(1)


def squares(x: Any, y: Any) -> Any:
    return ((x[:, None] - y) ** 2).sum(2)


def potential(x: Any, y: Any) -> Any:
    square = squares(x, y)
    near = (square < 6.25) & (square > 0.25)
    sixth = 1 / np.where(near, square, 1) ** 3
    return np.where(near, 2 * (sixth**2 - sixth), 0).sum(1)


def centre(m: Any, r: Any) -> Any:
    return (m[..., None] * r).sum(1) / m.sum(1)[:, None]


def about(m: Any, r: Any) -> Any:
    return r - centre(m, r)[:, None]


def gravity(x: Any, y: Any, w: Any) -> Any:
    """The pull on x, by the formula of pairs of one set: masses that do not pull at places that are not pulled."""
    return pulled(np.concatenate([0 * x[:, 0], w]), np.concatenate([x, y]))[: len(x)]


MATRICES = {"x": rng.standard_normal((4, 9)), "y": rng.standard_normal((9, 5))}
BODIES = {"m": rng.random((2, 20)) + 0.5, "r": rng.standard_normal((2, 20, 3))}
MOVED = {"r": 1e4 + BODIES["r"]}
POINTS = {"x": rng.standard_normal((6, 3)), "y": rng.standard_normal((9, 3))}
AWAY = {"x": 1e3 + POINTS["x"], "y": 1e3 + POINTS["y"]}
ENERGIES = rng.standard_normal((3, 41))
WEIGHTS = rng.standard_normal(9)
PHYSICS = {
    "chained_product": Check(lambda A, B, D: A @ B @ D, {
        "A": rng.standard_normal((2, 4, 5)), "B": rng.standard_normal((2, 5, 6)), "D": rng.standard_normal((2, 6, 3))}),
    "log_product": Check(lambda x, y: lse(x[:, None] + y.T)[..., 0], MATRICES, ({"x": 1000 * MATRICES["x"]},)),
    "max_plus_product": Check(
        lambda x, y: ((x[:, None] + y.T).max(2), (x[:, None] + y.T).argmax(2)), MATRICES,
        ({"x": MATRICES["x"] * 1e9},)),
    "manhattan_distances": Check(lambda x, z: np.abs(x[:, None] - z).sum(2),
                                 {"x": rng.standard_normal((4, 9)), "z": rng.standard_normal((5, 9))},
                                 ({"x": 1e8 * rng.standard_normal((4, 9))},)),
    "centre_of_mass": Check(centre, BODIES, (MOVED,)),
    "inertia": Check(lambda m, r: (m * (about(m, r) ** 2).sum(2)).sum(1), BODIES, (MOVED,), close=1e-8),
    "inertia_tensor": Check(lambda m, r: np.stack([inertia(*one) for one in zip(m, r, strict=True)]), BODIES, (MOVED,),
                            close=1e-8),
    "radius_of_gyration": Check(lambda m, r: np.sqrt((m * (about(m, r) ** 2).sum(2)).sum(1) / m.sum(1)), BODIES,
                                (MOVED,), close=1e-8),
    "dipole_moment": Check(lambda m, r, q: (q[..., None] * about(m, r)).sum(1),
                           BODIES | {"q": rng.standard_normal((2, 20))}, (MOVED,), close=1e-8),
    "kabsch_matrix": Check(
        lambda x, y: np.einsum("bni,bnj->bij", x - x.mean(1)[:, None], y - y.mean(1)[:, None]),
        {"x": BODIES["r"], "y": BODIES["r"][:, ::-1]}, ({"x": MOVED["r"]},), close=1e-8),
    "gravity": Check(gravity, POINTS | {"w": rng.random(9)}, (AWAY,)),
    "lennard_jones": Check(potential, POINTS, (AWAY,)),
    "structure_factor": Check(lambda x, y, q: (q * np.cos(x @ y.T)).sum(1) ** 2 + (q * np.sin(x @ y.T)).sum(1) ** 2,
                              POINTS | {"q": WEIGHTS}, ({"q": 1e30 * WEIGHTS},)),
    "radial_distribution": Check(lambda r, edge, width: ring(r, edge), {"r": BODIES["r"][0], "edge": np.arange(5) / 2},
                                 ({"r": MOVED["r"][0]},), {"width": 0.5}),
    "boltzmann_ensemble": Check(energies, {"E": ENERGIES}, ({"E": ENERGIES + 1e4},), {"beta": 2.0}, close=1e-8),
    "heat_capacity": Check(lambda x: energies(x, 1)[2], {"x": ENERGIES}, ({"x": ENERGIES + 1e4},), close=1e-8),
    "nearest_distance": Check(lambda x, y: squares(x, y).min(1), POINTS, (AWAY,)),
}  # fmt: skip

# ---- kernel methods, hidden states -----------------------------------------------------------------------------------


def discrepancy(x: Any, y: Any, rate: float) -> Any:
    own = np.exp(-rate * squares(x, x)) + np.exp(-rate * squares(y, y))
    return (own - 2 * np.exp(-rate * squares(x, y))).mean()


def mixture(p: Any, c: Any, u: Any, s: float) -> Any:
    near = lse(u - squares(p, c) / (2 * s))[:, 0]
    return near - p.shape[1] * np.log(2 * np.pi * p.dtype.type(s)) / 2


def cluster_means(p: Any, z: Any) -> Any:
    return np.stack([p[z == k].mean(0) for k in range(3)])


CHAIN = {"a": rng.standard_normal((3, 7)), "T": rng.standard_normal((7, 5)), "o": rng.standard_normal((3, 5))}
EMPTY = {"a": np.where(np.arange(3)[:, None] == 1, -np.inf, CHAIN["a"])}
CLOUD = {"p": rng.standard_normal((20, 3)), "c": rng.standard_normal((5, 3))}
KERNELS = {
    "gaussian_sum": Check(lambda x, y, w: np.exp(-squares(x, y)) @ w, POINTS | {"w": WEIGHTS}, (AWAY,)),
    "laplacian_sum": Check(lambda x, y, w: np.exp(-np.sqrt(squares(x, y))) @ w, POINTS | {"w": WEIGHTS}, (AWAY,)),
    "kernel_regression": Check(lambda x, y, w: shares(-squares(x, y)) @ w, POINTS | {"w": WEIGHTS},
                               ({"x": POINTS["x"] + 100},)),
    "log_density": Check(lambda x, y: lse(-squares(x, y) / 2)[:, 0], POINTS, ({"x": POINTS["x"] + 100},)),
    "density_score": Check(lambda x, y: shares(-squares(x, y) / 2) @ y - x, POINTS, ({"x": POINTS["x"] + 100},)),
    "mean_discrepancy": Check(discrepancy, {"x": CLOUD["p"], "y": CLOUD["p"] + 1}, ({"y": CLOUD["p"] * 100},),
                              {"rate": 0.5}),
    "kernel_projection": Check(
        lambda x, y, w, rate: np.exp(-rate * squares(x, y)) @ (w - w.mean(0)),
        POINTS | {"w": rng.standard_normal((9, 2))}, ({"w": 1e4 + rng.standard_normal((9, 2))},), {"rate": 0.5}),
    "energy_distance": Check(lambda x, y: np.sqrt(squares(x, y)).mean(1), POINTS, (AWAY,)),
    "sinkhorn_step": Check(lambda x, y, w: -lse(10 * (w - squares(x, y) / 2))[:, 0] / 10, POINTS | {"w": WEIGHTS},
                           ({"x": POINTS["x"] + 100},)),
    "mahalanobis": Check(
        lambda w, w0, A: np.einsum("nd,dl,nl->n", w - w0, A, w - w0),
        {"w": rng.standard_normal((6, 4)), "w0": np.zeros(4), "A": METRIC},
        ({"w": 1e4 + rng.standard_normal((6, 4)), "w0": np.full(4, 1e4)},)),
    "forward_step": Check(lambda a, T, o: o + lse(a[:, None] + T.T)[..., 0], CHAIN, ({"a": CHAIN["a"] * 1000},)),
    "backward_step": Check(lambda T, o, c: lse(T + (o + c)[:, None])[..., 0],
                           {"T": CHAIN["T"], "o": CHAIN["o"], "c": CHAIN["o"][::-1]}, ({"T": CHAIN["T"] * 1000},)),
    "viterbi_step": Check(lambda a, T, o: (o + (a[:, None] + T.T).max(2), (a[:, None] + T.T).argmax(2)), CHAIN,
                          (EMPTY,)),
    "k_means_assignment": Check(lambda p, c: (squares(p, c).argmin(1), squares(p, c).min(1)), CLOUD,
                                ({name: 1e3 + one for name, one in CLOUD.items()},)),
    "k_means_update": Check(cluster_means, {"p": CLOUD["p"], "z": np.arange(20) % 3}, ({"p": CLOUD["p"] * 1e30},),
                            sizes={"k": 3}),
    "mixture_likelihood": Check(mixture, CLOUD | {"u": rng.standard_normal(5)}, ({"p": CLOUD["p"] + 100},), {"s": 0.5}),
    "responsibilities": Check(lambda s: (shares(s), shares(s).sum(0)), {"s": ENERGIES}, ({"s": ENERGIES * 300},)),
}  # fmt: skip

CHECKS = ATTENTION | PHYSICS | KERNELS
