"""Forms that no one loop with one matrix product holds, as data: (name, form, tensors) and what is not usual.

Products of several factors, sums that share no pair of axes, values of other axes before the loop and after it.
`tests.cases.kernels` takes some of them among its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sympy import Abs, Max, exp, floor, log, oo, sqrt, tanh

import redalg as ra
from redalg.expression.contents import is_plainly_indexed
from tests.cases.attention import case, normal

b, c, d, e, f, g, j, k, m, n, q = ra.axes("b c d e f g j k m n q")
x, z, r, w, X, P = ra.tensors("x[b,n] z[b,m] r[b,n,j] w[b,n] X[b,n,c] P[e,n]")
Q, K, V, O, N = ra.tensors("Q[q,d] K[k,d] V[k,e] O[e,c] N[q,k]")
left, right, third = ra.tensors("left[q,k] right[k,e] third[k,c]")
sides = ra.tensors("qe[k,q,e] ec[k,e,c] cq[k,c,q]")
A, B, H, U, v = ra.tensors("A[q,f] B[f,d] H[k,g] U[g,d] v[d]")
Z, L = ra.tensors("Z[k,f] L[e,g]")
WEIGHTS = ra.softmax(ra.sum(Q * K, d), k)
ATTENDED = ra.sum(WEIGHTS * V, k)
SHARES = ra.sum(Q * K, d) / sqrt(1 + ra.sum(K**2, d))
s, u, l = *ra.tensors("s[q] u[q]"), ra.axes("l")
NEAR = ra.sum((ra.tensor("K[k,l]") - ra.tensor("Q[q,l]")) ** 2, l) < 9 + u
CENTRE = ra.sum(w * r, n) / ra.sum(w, n)
SCALE = 2 ** floor(log(448 / Max(ra.max(Abs(x), n), 1e-30), 2))


def fuse(expr: Any, axes: str | None = None) -> Callable[[], ra.Fused]:
    """What fuses an expression when it is asked to."""
    return lambda: ra.fuse(expr, axes=axes)


def attend(score: Any) -> Callable[[], ra.Fused]:
    """Softmax-weighted mean of V."""
    return fuse(ra.sum(ra.softmax(score, k) * V, k), "q e")


def both(**outputs: tuple[Any, str]) -> Callable[[], ra.Fused]:
    """Several outputs."""
    return lambda: ra.fuse(outputs)


PRODUCTS: dict[str, Callable[[], ra.Fused]] = {
    "three factors": fuse(ra.sum(left * right * third, k), "q e c"),
    "three factors, weighted": fuse(ra.sum(ra.softmax(left, k) * right * third, k), "q e c"),
}
"""Products that are matrix products for a pair of their axes."""
SUMS: dict[str, Callable[[], ra.Fused]] = {
    "a triangle": fuse(ra.sum(sides[0] * sides[1] * sides[2], k), "q e c"),
    "softmax of rows and of columns": fuse(
        ra.sum(ra.softmax(left, k) * right, k) * ra.logsumexp(right, k) - ra.sum(sides[0], k), "q e"
    ),
}
"""Products that no pair of axes holds: plain sums."""
APART: dict[str, Callable[[], ra.Fused]] = {
    "two products of no common column": both(
        o=(ra.sum(ra.softmax(left, k) * right, k), "q e"), u=(ra.sum(ra.softmax(left, k) * third, k), "q c")
    ),
    "log-sum-exp of rows and columns": both(
        o=(ra.sum(left * right, k), "q e"), rows=(ra.logsumexp(left, k), "q"), columns=(ra.logsumexp(right, k), "e")
    ),
    "a sum of rows and columns": both(o=(ra.sum(left * right, k), "q e"), u=(ra.sum(sides[0], k), "q e")),
    "a scan beside a product": both(o=(ra.sum(x * P, n), "b e"), last=(ra.last(x, n), "b")),
}
"""Outputs that no pair of axes serves together."""
AHEAD: dict[str, Callable[[], ra.Fused]] = {
    "a parameter": fuse(ra.sum(ra.sum(A * ra.Tensor("C")[e, f], f) * ra.softmax(x, n), n), "b q e"),
    "shares of rows, of columns": fuse(w / ra.sum(w, n) / ra.sum(w / ra.sum(w, n), b), "b n"),
    "a parameter of two passes": fuse(ra.sum(x * ra.mean(Abs(z - ra.mean(z, m)), m), n)),
    "projected queries": attend(ra.sum(ra.sum(A * B, f) * K, d)),
    "additive scores": attend(ra.sum(v * tanh(ra.sum(A * B, f) + ra.sum(H * U, g)), d)),
    "keys and their norms": attend(ra.sum(Q * K, d) - ra.sum(K**2, d) / 2),
    "keys and several of theirs": attend(ra.sum(Q * K, d) + (ra.logsumexp(Z, f) - ra.mean(Z, f)) / (1 + ra.var(Z, f))),
    "deviations by scores": fuse(ra.sum((V - ra.sum(SHARES * V, k)) ** 2 * SHARES, k), "q e"),
    "scores of three": attend(ra.sum(v * tanh(ra.sum(A * Z * B, f)), d)),
    "projected attention": fuse(ra.sum(ATTENDED * O, e), "q c"),
    "largest of attention": fuse(ra.max(ATTENDED, e), "q"),
    "two computed factors": fuse(ra.sum(ra.softmax(ra.sum(A * Z, f), k) * ra.sum(L * H, g), k), "q e"),
    "where the last is positive": fuse(ra.sum(ra.last(X, c) * x, n)),
    "where the third is largest": fuse(ra.sum(ra.where(ra.eq(ra.argmax(X, c), 2), x, 0), n)),
    "where any is large": fuse(ra.sum(ra.where(ra.any(X > 1, c), x, 0), n)),
    "where any is large, of all": fuse(
        ra.where(ra.any(X > 1, c), ra.logsumexp(X, c), 0) / ra.sum(ra.where(ra.any(X > 1, c), ra.max(X, c), 1), n),
        "b n",
    ),
    "a scan of scores": both(o=(ra.sum(ra.sum(Q * K, d), k), "q"), last=(ra.last(ra.sum(Q * K, d), k), "q")),
}
"""Values that are made before the loop."""
BESIDE: dict[str, Callable[[], ra.Fused]] = {
    "scores of scores": attend(ra.sum(v * tanh(ra.sum(A * Z, f) * ra.Tensor("s")[d]), d)),
}
"""Producers' own producers that stand beside them."""
AFTER: dict[str, Callable[[], ra.Fused]] = {
    "norm of attention": fuse(ra.sum(ATTENDED**2, e), "q"),
    "attention, normalised": fuse(ATTENDED / sqrt(ra.mean(ATTENDED**2, e) + 1), "q e"),
    "masked norm of attention": fuse(
        ra.sum(ra.sum(ra.softmax(ra.where(N, ra.sum(Q * K, d), -oo), k) * V, k) ** 2, e), "q"
    ),
    "what keys are given": fuse(ra.mean(WEIGHTS, q), "k"),
    "shares of all": fuse(ra.softmax(x, n) / ra.sum(ra.logsumexp(x, n), b), "b n"),
    "by the deviation of all": fuse((x - ra.mean(x, n)) / sqrt(ra.mean(ra.var(x, n), b) + 1), "b n"),
    "weights by two sums": fuse(
        (WEIGHTS - ra.mean(WEIGHTS, q)) / (1 + ra.sum(ra.logsumexp(ra.sum(Q * K, d), k), q)), "q k"
    ),
    "places of the largest": both(
        t=(ra.sum(ra.argmax(X, c) * ra.logsumexp(X, c), n), "b"), o=(ra.softmax(X, c), "b n c")
    ),
    "inertia and its centre": both(i=(ra.sum(w * ra.sum((r - CENTRE) ** 2, j), n), "b"), c=(CENTRE, "b j")),
}
"""Outputs that reduce reduced values."""
ROUNDED: dict[str, Callable[[], ra.Fused]] = {
    "weighted roundings": fuse(
        ra.sum(exp(w - ra.max(w, n)) * ra.cast(x * SCALE, "float8_e4m3fn") * P, n) / SCALE, "b e"
    ),
}
"""A rounding at a running scale beside an exponential."""
CHOSEN = ra.where(x**2 / (1 + w**2) > 0.3, x**2 / (1 + w**2), x * w / 2)
REPEATED: dict[str, Callable[[], ra.Fused]] = {
    "a choice that stands often": fuse(
        ra.sum(ra.softmax(CHOSEN, n) * CHOSEN / sqrt(1 + CHOSEN**2), n) + ra.max(Abs(CHOSEN - 1), n)
    ),
}
"""Expressions that a text would write out again and again."""
SCORED: dict[str, Callable[[], ra.Fused]] = {
    "scores by distances": attend(-ra.sum(Abs(Q - K), d)),
    "differences of near rows": fuse(ra.sum(ra.where(NEAR, (K - Q) * s / (9 + ra.max(A, f)), 0), q), "k d"),
    "scores of a row": fuse(ra.sum(ra.softmax(ra.sum(v * K, d), k) * V, k), "e"),
}
"""Scores of pairs that are no matrix product, and of a single row, which are."""
BACKWARDS: dict[str, Callable[[], ra.Fused]] = {
    "a row and its mirror image": fuse(ra.sum(ra.softmax(x, n) * ra.Tensor("x")[b, n.extent - 1 - n], n)),
}
"""An input that is read as a tile, and backwards beside it."""
FORMS = {**PRODUCTS, **SUMS, **APART, **AHEAD, **BESIDE, **AFTER, **ROUNDED, **REPEATED, **SCORED, **BACKWARDS}
SIZES = {"b": 2, "c": 3, "d": 5, "e": 17, "f": 7, "g": 6, "j": 19, "k": 37, "l": 5, "m": 17, "n": 37, "q": 4}


def drawn(name: str) -> Callable[[torch.Generator], dict[str, torch.Tensor]]:
    """Normal numbers for every tensor of a form; positive weights, and a mask with an empty row."""

    def make(generator: torch.Generator) -> dict[str, torch.Tensor]:
        made = {}
        for one in filter(is_plainly_indexed, FORMS[name]().cascade.elements()):
            made[one.name] = normal(*(SIZES[str(index)] for index in one.indices))(generator)
        if "N" in made:
            made["N"] = (made["N"] > -0.5) & (torch.arange(SIZES["q"]) != 3)[:, None]
        return made | ({"w": made["w"].abs() + 0.1} if "w" in made else {})

    return make


TAKEN = (
    "log-sum-exp of rows and columns", "additive scores", "norm of attention", "what keys are given", "shares of all",
    "shares of rows, of columns", "keys and their norms", "keys and several of theirs", "deviations by scores",
    "a choice that stands often", "scores by distances", "scores of a row",
    "a row and its mirror image",
)  # fmt: skip
"""Those that every test of kernels takes."""
CASES: tuple[dict[str, Any], ...] = tuple(case(name, name, drawn(name), tolerance=5e-6) for name in TAKEN)
