"""Reductions that keep places, several components or the order of elements; and rows of data in which values repeat."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from sympy import Expr, oo

import redalg as ra
from tests.sweeps import draws

n, t, d = ra.axes("n t d")
j, wide = ra.axis("j", size=4), ra.axis("wide", size=9)
x, w = ra.tensors("x[t,n] w[t,n]")
mask = ra.tensor("M[t,n]")

SELECTIONS: dict[str, tuple[Expr, str]] = {
    "argmax": (ra.argmax(x, n), "t"),
    "argmin": (ra.argmin(x, n), "t"),
    "masked argmax": (ra.argmax(ra.where(ra.ne(mask, 0), x, -oo), n), "t"),
    "topk values": (ra.topk(x, n, j)[0], "t j"),
    "topk indices": (ra.topk(x, n, j)[1], "j t"),
    "top one": (ra.topk(x, n, ra.axis("one", size=1))[1], "t one"),
    "top nine": (ra.topk(-x, n, wide)[1], "t wide"),
    "first": (ra.first(x, n), "t"),
    "last": (ra.last(x, n), "t"),
    "first of some": (ra.first(x, n, where=ra.ne(mask, 0)), "t"),
    "last of some": (ra.last(x * 2, n, where=n % 3 < 2), "t"),
    "any": (ra.any(x > 1, n), "t"),
    "any of a mask": (ra.any(mask, n), "t"),
    "all": (ra.all(ra.logical_or(x < 1, ra.ne(mask, 0)), n), "t"),
}
ROUNDED: dict[str, tuple[Expr, str]] = {
    "sum at max": (ra.sum_at_max(x, w, n), "t"),
    "recurrence": (ra.affine(w, x, n)[1], "t"),
    "decay": (ra.affine(w, x, n)[0], "t"),
    "compensated sum": (ra.compensated_sum(x, n), "t"),
    "logsumexp": (ra.reduce("logsumexp", x, axis=n), "t"),
    "product": (ra.prod(x, n), "t"),
}
EVERY = {**SELECTIONS, **ROUNDED}
ORDERED = ("first", "last", "first of some", "last of some", "recurrence", "decay")
FUSED = {name: ra.fuse(expr, axes=axes) for name, (expr, axes) in EVERY.items()}
KINDS = ("plain", "ties", "masked", "all masked", "nan", "constant")
LENGTHS = (0, 1, 2, 3, 7, 64, 130)
relaxed = settings(max_examples=draws(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def example(kind: str, length: int, seed: int = 0, dtype: str = "float32") -> dict[str, np.ndarray]:
    """Rows of data; in every kind but the first values repeat."""
    random = np.random.default_rng([seed, length])
    made = random.standard_normal((3, length)) * 2
    if kind == "ties":
        made = np.round(made)
    if kind in ("masked", "nan"):
        made[random.random(made.shape) < 0.4] = -np.inf if kind == "masked" else np.nan
    if kind == "all masked":
        made[:2] = -np.inf
    if kind == "constant":
        made[:] = 1.5
    return {
        "x": made.astype(dtype),
        "w": random.uniform(0.5, 1.25, made.shape).astype(dtype),
        "M": random.random(made.shape) < 0.3,
    }
