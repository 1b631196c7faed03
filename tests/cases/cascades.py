"""Random cascades in the surface language, and data for them: Hypothesis strategies.

    value    := Σ term | mean term | Σ weight·factor / Σ weight | max piece·… | min | Π
    term     := weight · factor · [v[n, e]]
    weight   := 1 | exp(score) | exp(score − max score) | exp(γ·(score − max score))
    score    := s | γ·s | s + t | Σ_d Q·K / √d | where(condition, score, −∞)
    factor   := piece | (x − centre)^p | piece·centre + piece
    centre   := t | a mean | a parameter reduced on another axis | a value made before, or a sum of these
    piece    := what depends on x alone: products, |x|, tanh x, masks by index or by data

Every cascade is one pass in theory; what redalg does not decide is left aside by the tests (Hypothesis complains when
that is most of them).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from sympy import Abs, Expr, Integer, log, oo, sqrt, tanh
from sympy import exp as exponential

import redalg as ra

b, n, d, e = ra.axes("b n d e")
x, y, w, s, r, t, M, v, Q, K = ra.tensors("x[b,n] y[b,n] w[b,n] s[b,n] r[b,n] t[b] M[b,n] v[n,e] Q[b,d] K[n,d]")
gamma = ra.scalars("gamma", positive=True)
STREAMED = {"x": 1, "y": 1, "w": 1, "s": 1, "r": 1, "M": 1, "v": 0, "K": 0}
"""Tensor -> which of its dimensions is the streamed axis n."""

LENGTHS = (0, 1, 2, 3, 5, 16, 77, 130)
DTYPES = ("float64", "float32", "float16")
MODERATE = ("plain", "wide", "masked", "first masked", "all masked", "constant")
LOGITS = (*MODERATE, "finfo.min", "huge")

CONDITIONS = (n <= b, n < 40, ra.ne(M, 0), x > 0, ra.logical_and(n >= b, ra.ne(M, 0)), ra.logical_not(n <= b))
PIECES = (x, y, w, x * w, x**2, Abs(x), tanh(x), x * y)


@st.composite
def pieces(draw: st.DrawFn) -> Expr:
    made = draw(st.sampled_from(PIECES))
    if draw(st.integers(0, 3)) == 0:
        made = ra.where(draw(st.sampled_from(CONDITIONS)), made, 0)
    return made


@st.composite
def scores(draw: st.DrawFn, logit: Expr = s) -> Expr:
    made = draw(st.sampled_from((logit, gamma * logit, logit + t, ra.sum(Q * K, d) / sqrt(d.extent), logit / 4)))
    if draw(st.booleans()):
        made = ra.where(draw(st.sampled_from(CONDITIONS)), made, -oo)
    return made


@st.composite
def weights(draw: st.DrawFn) -> Expr:
    """A positive weight, with or without its maximum subtracted."""
    kind = draw(st.sampled_from(("one", "plain", "shifted", "shifted", "scaled")))
    if kind == "one":
        return Integer(1)
    if kind == "plain":  # of logits whose exponentials extended precision can hold
        return exponential(draw(scores(r)))
    score = draw(scores())
    shifted = score - ra.max(score, n)
    return exponential(gamma * shifted if kind == "scaled" else shifted)


@st.composite
def factors(draw: st.DrawFn, values: tuple[Expr, ...]) -> Expr:
    centres = (
        t,
        ra.mean(x, n),
        ra.mean(x, n) + t,
        ra.max(Q, d),
        ra.mean(x, n) + ra.sum(Q, d),
        ra.min(x, n),
        ra.max(x, n),
    )
    centre = draw(st.sampled_from((*centres, *values)))
    kind = draw(st.sampled_from(("piece", "moment", "moment", "affine")))
    if kind == "piece":
        return draw(pieces())
    if kind == "moment":
        return (x - centre) ** draw(st.integers(1, 3))
    return draw(pieces()) * centre + draw(pieces())


@st.composite
def values(draw: st.DrawFn, earlier: tuple[Expr, ...]) -> Expr:
    """One reduced value over b, which may use the earlier ones."""
    kind = draw(st.sampled_from(("sum", "mean", "average", "average", "max", "min", "prod", "spread")))
    if kind in ("max", "min"):
        return getattr(ra, kind)(draw(pieces()), n)
    if kind == "prod":
        return ra.prod(1 + tanh(draw(pieces())) / 8, n)
    if kind == "spread":
        return ra.max(x * (draw(st.sampled_from((1, 2)))) * exponential(t) + t, n)
    factor = draw(factors(earlier))
    if kind == "mean":
        return ra.mean(factor, n)
    weight = draw(weights())
    total = ra.sum(weight * factor, n)
    return total / ra.sum(weight, n) if kind == "average" else total


@dataclass(frozen=True)
class Example:
    """A cascade's expression."""

    expr: Expr

    @property
    def axes(self) -> str:
        """The output's axes, in the order b, e."""
        return " ".join(str(axis) for axis in (b, e) if axis in self.expr.free_symbols)


@st.composite
def cascades(draw: st.DrawFn) -> Example:
    """One to three values in a chain, and an output made of the last."""
    made: tuple[Expr, ...] = ()
    for _ in range(draw(st.integers(0, 2))):
        made = (*made, draw(values(made)))
    kind = draw(st.sampled_from(("value", "columns", "columns", "logarithm", "sum of two")))
    if kind == "columns":
        weight = draw(weights())
        total = ra.sum(weight * draw(factors(made)) * v, n)
        return Example(total / ra.sum(weight, n))
    if kind == "logarithm":
        score = draw(scores())
        return Example(ra.max(score, n) + log(ra.sum(exponential(score - ra.max(score, n)), n)))
    last = draw(values(made))
    assume(last.has(ra.Reduce))  # Σ1 / Σ1 is 1
    return Example(last if kind == "value" else last + t * draw(st.sampled_from((t, *made))))


@dataclass(frozen=True)
class Data:
    """Tensors and scalars by name, and the sizes of the axes."""

    tensors: dict[str, np.ndarray]
    scalars: dict[str, float]
    sizes: dict[str, int]
    dtype: str

    def of(self, cascade: Any) -> dict[str, Any]:
        """What a cascade's call needs."""
        names = {*cascade.inputs(), *(one.name for one in cascade.scalars())}
        return {name: one for name, one in {**self.tensors, **self.scalars}.items() if name in names}

    def extents(self, cascade: Any) -> dict[str, int]:
        """The sizes of a cascade's axes."""
        return {axis.name: self.sizes[axis.name] for axis in cascade.axes()}

    def piece(self, given: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
        """The part of a call's tensors between two places of the streamed axis."""
        return {name: cut(name, one, start, stop) for name, one in given.items()}


def cut(name: str, array: Any, start: int, stop: int) -> Any:
    if name not in STREAMED:
        return array
    return array[start:stop] if STREAMED[name] == 0 else array[:, start:stop]


@st.composite
def data(draw: st.DrawFn, lengths: tuple[int, ...] = LENGTHS, dtypes: tuple[str, ...] = DTYPES) -> Data:
    """Seeded data: ragged lengths, logits of every kind, values near 0 or far from it."""
    dtype = draw(st.sampled_from(dtypes))
    sizes = {"b": draw(st.integers(1, 3)), "n": draw(st.sampled_from(lengths)), "d": draw(st.sampled_from((1, 4)))}
    sizes["e"] = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    far = draw(st.sampled_from((0.0, 0.0, 30.0, 1e3)))
    tensors = {
        "x": rng.standard_normal((sizes["b"], sizes["n"])) + far,
        "y": rng.standard_normal((sizes["b"], sizes["n"])),
        "w": rng.uniform(0.1, 1.0, (sizes["b"], sizes["n"])),
        "s": LOGIT[draw(st.sampled_from(LOGITS))](rng, (sizes["b"], sizes["n"]), np.finfo(dtype)),
        "r": LOGIT[draw(st.sampled_from(MODERATE))](rng, (sizes["b"], sizes["n"]), np.finfo(dtype)),
        "t": rng.standard_normal(sizes["b"]),
        "v": rng.standard_normal((sizes["n"], sizes["e"])),
        "Q": rng.standard_normal((sizes["b"], sizes["d"])),
        "K": rng.standard_normal((sizes["n"], sizes["d"])),
    }
    made = {name: one.astype(dtype) for name, one in tensors.items()}
    made["M"] = rng.uniform(size=(sizes["b"], sizes["n"])) < 0.6
    return Data(made, {"gamma": 0.75}, sizes, dtype)


Logit = Callable[[np.random.Generator, tuple[int, int], Any], np.ndarray]
LOGIT: dict[str, Logit] = {
    "plain": lambda rng, shape, info: rng.standard_normal(shape),
    "wide": lambda rng, shape, info: rng.uniform(-30, 10, shape),
    "masked": lambda rng, shape, info: np.where(rng.uniform(size=shape) < 0.5, -np.inf, rng.standard_normal(shape)),
    "first masked": lambda rng, shape, info: np.where(np.arange(shape[1]) < 4, -np.inf, rng.standard_normal(shape)),
    "all masked": lambda rng, shape, info: np.full(shape, -np.inf),
    "finfo.min": lambda rng, shape, info: np.where(rng.uniform(size=shape) < 0.5, info.min, rng.standard_normal(shape)),
    "constant": lambda rng, shape, info: np.full(shape, 3.0),
    "huge": lambda rng, shape, info: rng.uniform(-1e4, 1e4, shape),
}
