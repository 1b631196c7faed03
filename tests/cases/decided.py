"""Cascades whose rewrites are checked by value: fused is the definition, at once and in pieces, whatever the data hold.

The data are of either sign, tied, of one sign, and hold NaN, ±∞ and numbers whose exponentials overflow. Where the
definition is finite the fused value is; elsewhere both are not (which non-finite value is not promised).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from sympy import Abs, Expr, Max, Min, Rational, cos, exp, log, oo, sign, sqrt, tanh

import redalg as ra
from redalg.expression.contents import free_axes
from tests.oracle import Oracle

b, n = ra.axes("b n")
x, y, w = ra.tensors("x[b,n] y[b,n] w[b,n]")
MEAN, LARGEST = ra.mean(x, n), ra.max(x, n)
TRUTH, EVERY = ra.any(y > 0, n), ra.all(w > 0, n)
ROWS, LENGTH = 4, 7

Tensors = dict[str, np.ndarray]


def tensors() -> Iterator[Tensors]:
    """x, y and w; the truths of y > 0 and of w > 0 vary over the rows."""
    rng = np.random.default_rng(0)
    signs = np.array([[1], [-1], [1], [-1]]), np.array([[1], [1], [-1], [-1]])
    plain = rng.standard_normal((3, ROWS, LENGTH))
    for of_x in (plain[0], rng.integers(-2, 3, (ROWS, LENGTH)) / 1.0, np.abs(plain[0]) + 0.5, -np.abs(plain[0])):
        yield {"x": of_x, "y": signs[0] * np.abs(plain[1]), "w": np.where(signs[1] > 0, 1, plain[2]) * np.abs(plain[2])}
    for odd in (np.nan, np.inf, -np.inf, 1e3, -1e3):
        made = {"x": plain[0].copy(), "y": signs[0] * np.abs(plain[1]), "w": signs[1] * np.abs(plain[2])}
        made["x"][:, 2] = odd
        yield made
        made = {name: one.copy() for name, one in made.items()}
        made["x"], made["y"][1:, 3] = plain[0], odd
        yield made


def as_defined(*exprs: Expr) -> None:
    """Each expression, on every set of tensors, by both libraries and in pieces."""
    for expr in exprs:
        fused = ra.fuse(expr, " ".join(sorted(str(axis) for axis in free_axes(expr))))
        for given in tensors():
            held = {name: one for name, one in given.items() if name in fused.cascade.inputs()}
            with np.errstate(all="ignore"):
                wanted = defined(expr, held)
                results = [fused(**held, backend=backend) for backend in ("numpy", "torch")]
                results += [] if any(one.carries for one in fused.cascade.outputs) else [in_pieces(fused, held)]
            for got in results:
                same(np.array(got, dtype=np.float64), wanted, f"{expr} of {held}")


def defined(expr: Expr, held: Tensors, length: int = LENGTH) -> np.ndarray:
    """What the expression means as it is written, evaluated node by node."""
    axes = " ".join(sorted(str(axis) for axis in free_axes(expr)))
    value, _ = Oracle(held, {}, {"b": ROWS, "n": length}).output(expr, axes)
    return np.array(value, dtype=np.float64)


def same(got: np.ndarray, wanted: np.ndarray, said: str) -> None:
    """Equal where the definition is finite, and not finite elsewhere."""
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(got), finite, err_msg=said)
    np.testing.assert_allclose(got[finite], wanted[finite], rtol=1e-9, atol=1e-12, err_msg=said)


def in_pieces(fused: ra.Fused, held: Tensors) -> Any:
    """`finish` of pieces of 1, 2 and the other elements, the last two merged first."""
    totals = {"n": LENGTH} if "n" in fused.cascade.extents() else {}
    parts = [fused.leaf({name: one[:, start:end] for name, one in held.items()}, start={n: start}, extents=totals)
             for start, end in pairwise((0, 1, 3, LENGTH))]  # fmt: skip
    return fused.finish(fused.merge(parts[0], fused.merge(parts[1], parts[2])))


BY_TRUTH = (
    ra.sum(Abs(x - TRUTH), n), ra.sum(exp(x * TRUTH), n), ra.sum(ra.where(x > TRUTH, x, 0), n),
    ra.sum(log(x**2 + 1 + TRUTH) * w, n), ra.sum(Abs(x) ** TRUTH, n), ra.max(tanh(x * TRUTH - EVERY) * y, n),
    ra.sum(Abs(x - TRUTH) * cos(w * EVERY), n),
)  # fmt: skip
BY_CONDITION = (
    ra.sum(Abs(x - ra.where(LARGEST > 1, 1, 2)), n), ra.sum(exp(ra.where(w > 0, x, LARGEST)), n),
    ra.sum(tanh(ra.where(y > x, LARGEST, x)) * w, n), ra.sum(1 / (2 + tanh(x * ra.where(MEAN > 0, 1, -1))), n),
)  # fmt: skip
BY_SIGN = (
    ra.sum(Abs(x - sign(MEAN)), n), ra.sum(tanh(x * sign(LARGEST)) + x * MEAN, n),
    ra.max(tanh(x - sign(ra.min(y, n))) * w, n), ra.sum(exp(x * sign(ra.max(y, n))), n),
)  # fmt: skip
BY_ZERO = (ra.sum(exp(x * TRUTH + LARGEST), n), ra.sum(cos(x * w * TRUTH) * y, n), ra.max(tanh(x * TRUTH) - w, n),
           ra.sum(exp(tanh(x) * TRUTH) * y, n), ra.sum(tanh(Abs(x) * TRUTH - w), n))  # fmt: skip
OF_ONE_SIGN = (
    ra.sum(sqrt(x / ra.sum(x, n)) * w, n), ra.entropy(x / ra.sum(x, n), n), ra.sum(log(x * LARGEST), n),
    ra.sum(ra.where(w > 0, sqrt(w / ra.sum(w, n)) * x, 0), n), ra.sum((x / MEAN) ** Rational(3, 2), n),
    ra.sum(sqrt(y * ra.sum(Abs(x), n)) * w, n), ra.sum(sqrt(y * ra.sum(-Abs(x), n)) * w, n),
)  # fmt: skip
KINKS = (
    ra.sum(Max(x, MEAN) + Min(x, MEAN), n), ra.sum(w * Max(x, MEAN) + w * Min(x, MEAN) - exp(x - LARGEST), n),
    ra.sum(Max(x - w, MEAN) * Min(x - w, MEAN), n),
)  # fmt: skip
SIGNED = (
    ra.sum(Abs(x - MEAN) * sign(x - MEAN), n), ra.sum(Abs(x - MEAN) ** 3 * sign(x - MEAN) * w, n),
    ra.sum((x - MEAN) ** 2.0 * w**0.5, n),
)  # fmt: skip
LEAST = ra.min(x, n)
BESIDE = (
    ra.sum(ra.where(x < LARGEST, w, 0), n), ra.sum(ra.where(ra.ne(x, LARGEST), y, w), n),
    ra.sum(w + 2 * ra.where(x >= LARGEST, y, 1), n),
    ra.mean(ra.where(x > LEAST, y, w) * w, n),
    ra.sum(ra.where(x >= LEAST, y, 1) - ra.where(x < LARGEST, w * y, 3), n),
)  # fmt: skip
DEVIATIONS = (ra.sum(sign(x - LARGEST), n), ra.sum(sign(LARGEST - x) * w + x, n), ra.sum(w * sign(x - LEAST), n))
CENTRED, BROAD = Abs(x - MEAN), 2 * ra.std(x, n)
SOME = (
    ra.any(x > MEAN, n), ra.any(x >= LARGEST, n), ra.any(x > ra.max(y, n), n), ra.any(CENTRED >= BROAD, n),
    ra.any(x * ra.sum(y, n) < 1, n), ra.any(y >= LARGEST, n), ra.any(Max(x, MEAN) > LARGEST - 1, n),
    ra.any(Abs(x) > ra.min(w, n), n), ra.any(exp(x) > ra.mean(w, n), n),
    ra.any(ra.where(w > 0, x**2, Abs(y)) > ra.mean(w, n), n),
)  # fmt: skip
ALL = (
    ra.all(x <= LARGEST, n), ra.all(x < LARGEST, n), ra.all(x > ra.max(y, n), n), ra.all(CENTRED <= BROAD, n),
    ra.all(ra.min(y, n) <= x, n), ra.sum(ra.where(ra.all(x - MEAN > -2, n), x, y), n),
)  # fmt: skip
JOINED = (
    ra.any(ra.logical_or(x > MEAN + 1, y > 2), n), ra.all(ra.logical_and(x < MEAN + 2, MEAN > 0), n),
    ra.all(ra.logical_and(x < MEAN + 2, w > -1, y < MEAN + 3), n),
)  # fmt: skip
GUARDED = (
    ra.any(ra.logical_and(x > MEAN, y > 0, LARGEST > 1), n), ra.all(ra.logical_or(x > MEAN, y < 0), n),
    ra.all(ra.logical_or(x < ra.mean(w, n) + 2, LARGEST > 2, n > 4), n), ra.any(ra.logical_and(x > MEAN, n > 4), n),
)  # fmt: skip
EQUAL = (ra.all(ra.eq(x, MEAN), n), ra.any(ra.ne(x, MEAN), n), ra.any(ra.ne(ra.where(x > 5, x, 1), LARGEST), n))

POSITIVE = ra.sum(ra.where(w > 0, w, 0), n)
HIDDEN = (
    ra.mean(ra.where(y > 0, (x - MEAN) ** 2, 0), n), ra.sum(ra.where(ra.eq(n, 50), ra.softmax(x, n), 0), n),
    ra.sum(ra.where(w > 0, w / POSITIVE * x, 0), n), ra.sum(w * ra.where(w > 0, w / POSITIVE, 0) + x, n),
    ra.sum(ra.where(y > 0, exp(w - MEAN), 0), n), ra.sum(ra.where(y > 0, ra.where(w > 0, x / LARGEST, 2), 0), n),
    ra.sum(ra.where(y > 0, w / LARGEST, 0) * MEAN, n),
)  # fmt: skip
BY_FACTOR = (
    ra.sum(ra.where(y > 0, 1, 0) * w / LARGEST * x, n), ra.sum(ra.where(MEAN > 0, 1, 0) * log(MEAN) * w, n),
    ra.sum(ra.where(ra.logical_and(y > 0, MEAN > 0), 1, 0) * sqrt(MEAN) * w, n),
)  # fmt: skip
BY_BOTH = (
    ra.sum(ra.where(ra.logical_and(y > 0, MEAN > 0), w * log(MEAN), x), n),
    ra.sum(w * ra.where(ra.logical_and(y > 0, MEAN > 0), sqrt(MEAN), 0), n),
)  # fmt: skip
BY_EITHER = (ra.sum(ra.where(ra.logical_or(w <= 0, MEAN <= 0), 1, log(MEAN) * w), n),)
MASKED_EXPONENTS = (
    ra.sum(ra.where(y > 0, exp(x) - MEAN, 0), n), ra.logsumexp(ra.where(y > 0, x - ra.max(w, n), -oo), n),
    ra.sum(ra.where(y > 0, exp(x) * (w - ra.mean(w, n)), 0), n),
)  # fmt: skip
CANCELLED_EXPONENTS = (
    ra.sum(ra.softmax(w + ra.max(x, n), n) * y, n), ra.sum(exp(w + LARGEST) * y, n) / ra.sum(exp(w + LARGEST), n),
    ra.sum(ra.softmax(w + ra.where(MEAN > 0, 0, -oo), n) * y, n), ra.softmax(ra.where(MEAN > 0, w, -oo), n) * y,
)  # fmt: skip
BY_BRANCH = (ra.sum(ra.where(y > 0, x - MEAN, w), n), ra.sum(w * ra.where(y > 0, w / LARGEST, x - MEAN), n),
             ra.sum(ra.where(y > 0, LARGEST, w / MEAN), n))  # fmt: skip
NUMBER = ra.sum(ra.where(y > 0, 1, 0), n)
FROM_SOME = ra.where(y > 0, x - ra.sum(ra.where(y > 0, x, 0), n) / NUMBER, 0)
OF_W = ra.where(MEAN > 0, w, y)
CHOSEN = (
    ra.sum((OF_W - ra.mean(w, n)) ** 2, n), ra.sum(OF_W**3, n), ra.sum(Abs(ra.where(MEAN > 0, 0, y)), n),
    ra.sum(ra.where(MEAN > 0, 0, y) * ra.where(MEAN > 0, x, w), n),
    ra.sum((ra.where(MEAN > 0, ra.where(LARGEST > 1, w, x), y) - LARGEST) ** 2, n),
)  # fmt: skip
FACTORS = (
    ra.sum(FROM_SOME**2, n), ra.sum(Abs(ra.where(y > 0, w / NUMBER, 0)), n),
    ra.sum(FROM_SOME * (w - ra.mean(w, n)), n),
)  # fmt: skip
MASKED = {
    "Σ where(c, f, 0)": HIDDEN, "Σ where(c, f, g)": BY_BRANCH, "Σ [c]·f": BY_FACTOR, "where(a ∧ b, f, g)": BY_BOTH,
    "where(a ∨ b, f, g)": BY_EITHER, "F(where(c, f, g))": CHOSEN, "where(c, f, g)^n·h": FACTORS,
    "exp(u)·[c]": MASKED_EXPONENTS, "exp(λ)/exp(λ)": CANCELLED_EXPONENTS,
}  # fmt: skip
"""The rewrites that masks ask for, as stated, and what shows each."""
BY_FACTS = (
    ra.sum(ra.where(ra.max(x + w, n) < x + w, y, w), n), ra.sum(ra.where(x - 1 >= LEAST - 1, y, w), n),
    ra.sum(ra.where(ra.logical_and(w > 0, Abs(x) <= ra.max(Abs(x), n)), y, w), n),
    ra.mean(ra.where(2 * x <= 2 * LARGEST, (w - ra.mean(w, n)) ** 2, y), n),
)  # fmt: skip
PLACE, FOOT = ra.argmax(x, n), ra.argmin(x, n)
AT_PLACE = (
    ra.sum(ra.where(ra.eq(n, PLACE), w, 0), n), ra.sum(ra.where(ra.eq(n, FOOT), w, y), n),
    ra.sum(2 * ra.where(ra.ne(n, PLACE), w, 0) + x, n), ra.min(ra.where(ra.eq(n, PLACE), w, y), n),
)  # fmt: skip
OF_EXTREMA = (
    ra.max(ra.where(x < LARGEST, x, -oo), n), ra.min(ra.where(x > LEAST, w, oo), n),
    ra.max(ra.where(ra.eq(x, LARGEST), w, -oo), n), ra.min(ra.where(ra.eq(x, LEAST), w, y), n),
    LARGEST - ra.max(ra.where(ra.ne(n, PLACE), x, -oo), n),
)  # fmt: skip
TOGETHER = (
    ra.max(ra.where(ra.logical_and(x < LARGEST, w > 0), x, -oo), n),
    ra.sum(ra.where(ra.logical_and(x >= LARGEST, w > 0), w, y), n),
)  # fmt: skip
APART = (
    ra.sum(ra.where(ra.logical_or(x <= LEAST, w > 0), w, y), n),
    ra.min(ra.where(ra.logical_or(x > LEAST, w > 0), w, y), n),
)  # fmt: skip
WEIGHED = (
    ra.sum(LARGEST * ra.where(x < LARGEST, w, 0), n), ra.sum(ra.where(x < LARGEST, w * MEAN, LARGEST), n),
    ra.sum(ra.where(ra.ne(n, FOOT), MEAN * w, 0), n),
)  # fmt: skip
PLACED = (
    ra.sum(ra.where(ra.eq(n, PLACE), ra.log_softmax(x, n), 0), n),
    ra.sum(ra.where(ra.eq(n, FOOT), tanh(w * ra.mean(w, n)) * exp(-(w**2)), y) * w, n),
)  # fmt: skip
ATTAINED = (ra.any(ra.eq(x, LARGEST), n), ra.all(ra.ne(x, LEAST), n), ra.any(ra.eq(LARGEST, x), n))
CASCADES = (*BY_TRUTH, *BY_CONDITION, *BY_SIGN, *BY_ZERO, *OF_ONE_SIGN, *KINKS, *SIGNED, *BESIDE, *DEVIATIONS, *SOME,
            *ALL, *JOINED, *GUARDED, *EQUAL, *HIDDEN, *BY_FACTOR, *BY_BRANCH, *BY_FACTS,
            *AT_PLACE, *OF_EXTREMA, *TOGETHER, *APART, *WEIGHED, *PLACED, *ATTAINED)  # fmt: skip
FIRSTS = (
    ra.first(x - MEAN, n), ra.last(Abs(w - LARGEST) * x, n), ra.first(exp(x - LARGEST) + y * w, n, where=y > 0),
    ra.last(Max(x, ra.mean(w, n)), n, where=w > 2),
)  # fmt: skip
SCANS = (ra.affine(tanh(x), w * ra.max(y, n), n)[1], ra.affine(tanh(x) / 2, exp(ra.mean(w, n)) * w, n)[1] + MEAN)
SHIFTED = (
    ra.sum_at_max(y - ra.mean(w, n), w, n), ra.sum_at_max(y, w * ra.mean(w, n), n),
)  # fmt: skip
