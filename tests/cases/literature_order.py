"""Patterns from the literature whose reductions select, or follow the order of the axis; each with its source."""

from __future__ import annotations

from typing import Any

from sympy import Abs, exp, log, sqrt

import redalg as ra
from tests.cases.corpus import Pattern

b, n, k, d, q = ra.axes("b n k d q")
four = ra.axis("r", size=4)
x, y, s, a, w, label = ra.tensors("x[b,n] y[b,n] s[b,n] a[b,n] w[b,n] label[b]")
live, point, code = ra.tensors("live[b,n] point[q,d] code[k,d]")
alpha, step = ra.scalars("alpha step", positive=True)
DISTANCE = ra.sum((point - code) ** 2, d)
POINTS = {"point": "free", "code": "free"}


def pattern(name: str, source: str, build: Any, roles: Any, axes: str = "b", **more: Any) -> Pattern:
    return Pattern(name, build, axes, roles, source, **more)


def routed() -> Any:
    values, indices = ra.topk(s, n, four)
    return {"gates": (exp(values - ra.logsumexp(s, n)), "b r"), "experts": (indices, "b r")}


def nearest() -> Any:
    values, indices = ra.topk(-DISTANCE, k, four)
    return {"distances": (sqrt(-values), "q r"), "neighbours": (indices, "q r")}


SELECTION = (
    pattern("top-k gates", "Shazeer et al. 2017", routed, {"s": "logit"}),
    pattern("switch gate", "Fedus et al. 2022", lambda: {
        "gate": (exp(ra.max(s, n) - ra.logsumexp(s, n)), "b"), "expert": (ra.argmax(s, n), "b"),
    }, {"s": "logit"}),
    pattern("max pooling with its place", "Zeiler and Fergus 2014", lambda: {
        "value": (ra.max(x, n), "b"), "place": (ra.argmax(x, n), "b")}, {"x": "free"}),
    pattern("accuracy of the first guess", "Krizhevsky et al. 2012",
            lambda: ra.where(ra.eq(ra.argmax(s, n), label), 1, 0) * ra.max(s, n),
            {"s": "logit", "label": lambda rng, shape: rng.integers(0, 77, shape)}),
    pattern("vector quantization", "van den Oord et al. 2017", lambda: {
        "code": (ra.argmin(DISTANCE, k), "q"), "distance": (ra.min(DISTANCE, k), "q")}, POINTS),
    pattern("nearest neighbours", "Cover and Hart 1967", nearest, POINTS),
    pattern("weight at the maximum", "Aho and Ullman 1992", lambda: ra.sum_at_max(x, w, n),
            {"x": lambda rng, shape: rng.integers(0, 5, shape) / 4, "w": "weight"}),
    pattern("all within a tolerance", "Knuth 1997", lambda: {
        "all": (ra.all(Abs(x - y) < alpha, n), "b"), "any": (ra.any(Abs(x - y) < alpha, n), "b")},
        {"x": "free", "y": "free"}, scalars={"alpha": 0.1}),
    pattern("compensated mean", "Kahan 1965", lambda: ra.compensated_sum(x, n) / n.extent, {"x": "value"}),
)  # fmt: skip

ORDERED = (
    pattern("exponential moving average", "Brown 1956", lambda: ra.affine(alpha, (1 - alpha) * x, n)[1],
            {"x": "free"}, scalars={"alpha": 0.9}, ordered=True),
    pattern("selective state space", "Gu and Dao 2023", lambda: ra.affine(exp(-step * w), step * w * x, n)[1],
            {"x": "free", "w": "weight"}, scalars={"step": 0.1}, ordered=True),
    pattern("gated linear recurrence", "De et al. 2024", lambda: ra.affine(a, sqrt(1 - a**2) * x, n)[1],
            {"x": "free", "a": "probability"}, ordered=True),
    pattern("minimal gated unit", "Feng et al. 2024", lambda: ra.affine(1 - a, a * x, n)[1],
            {"x": "free", "a": "probability"}, ordered=True),
    pattern("polynomial by Horner's rule", "Horner 1819", lambda: ra.affine(alpha, x, n)[1], {"x": "free"},
            scalars={"alpha": 0.5}, ordered=True),
    pattern("last live token", "Radford et al. 2018", lambda: ra.last(x, n, ra.ne(live, 0)),
            {"x": "free", "live": "mask"}, ordered=True),
    pattern("growth from first to last", "Malthus 1798", lambda: log(ra.last(w, n) / ra.first(w, n)), {"w": "weight"},
            ordered=True),
)  # fmt: skip

PATTERNS = SELECTION + ORDERED
