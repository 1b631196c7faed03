"""Random cascades: chains of one to five reductions with seeded random terms, among them terms that must be refused.

    value  := ⊕ term over n            ⊕: sum, mean, weighted mean, max, min, prod, any, all, argmax
    term   := x-piece | mixed | mixed · x-piece | mixed + x-piece, each under a mask at times
    mixed  := powers of shifted x, scaled x, exponentials, logarithms, roots, waves of x and earlier values
              (and, in a case with `poison`, a kink, a threshold or a coupling that moves with an earlier value)

Every value after the first uses the one before it, so that the chain is as deep as it is long. A seed gives the same
case on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from sympy import Abs, Expr, Max, Min, Rational, S, cos, cosh, exp, floor, log, oo, sin, sqrt, tanh

import redalg as ra

DEPTH = 5
POISONED = 0.28
b, n, e = ra.axes("b n e")
x, y, s, w, t, M, v = ra.tensors("x[b,n] y[b,n] s[b,n] w[b,n] t[b] M[b,n] v[n,e]")
gamma = ra.scalars("gamma", positive=True)

X_PIECES = (x, y, w, x * y, x**2, Abs(x), tanh(x), log(w), sqrt(w), w * x, sin(x), 1 / (1 + w), Max(x, y))
D_PIECES: tuple[Callable[[Expr], Expr], ...] = (
    lambda d: d, lambda d: d * t, lambda d: d + t, tanh, lambda d: 1 / (1 + d**2), lambda d: exp(-(d**2)),
    lambda d: sqrt(1 + d**2), lambda d: d / 2 - gamma, lambda d: Max(d, t), lambda d: ra.where(d > 0, d, t),
)  # fmt: skip
MOVED: tuple[Callable[[Expr], Expr], ...] = (lambda d: d + t, tanh, lambda d: d / 2 - gamma, lambda d: exp(-(d**2)))
"""Functions of d that are no bound of x, even where d is an extremum of x: against a bound, |x − d| is no kink."""
CONDITIONS = (ra.ne(M, 0), n >= b, x > 0, ra.logical_or(n <= b, ra.ne(M, 0)), x < t, n < 11)
MIXED: tuple[Callable[[Expr, Expr], Expr], ...] = (
    lambda d, u: (u - d) ** 2,
    lambda d, u: (u - d) ** 3 / 8,
    lambda d, u: (x - d) * (y - d),
    lambda d, u: u * d + y,
    lambda d, u: (u + d * w) ** 2 / (1 + d**2),
    lambda d, u: u / (1 + d**2),
    lambda d, u: exp(gamma * (tanh(u) - tanh(d))),
    lambda d, u: exp(tanh(d)) * u,
    lambda d, u: log(w * (1 + d**2)),
    lambda d, u: sqrt(w * (1 + d**2)),
    lambda d, u: Abs(u * tanh(d)),
    lambda d, u: cos(x - d),
    lambda d, u: (1 - tanh(d)) * u + tanh(d) * y,
    lambda d, u: ra.where(t > d, u, y * d),
    lambda d, u: ra.where(x > 0, (x - d) ** 2, u),
    lambda d, u: cosh((tanh(u) - tanh(d)) / 2),
)
MONOTONE: tuple[Callable[[Expr, Expr], Expr], ...] = (
    lambda d, u: u - d,
    lambda d, u: u * (1 + d**2) + t,
    lambda d, u: exp(tanh(d)) * u - d,
    lambda d, u: Abs(u - d),
    lambda d, u: Max(u, d),
    lambda d, u: -u / sqrt(1 + d**2),
)
POISON: tuple[Callable[[Expr, Expr], Expr], ...] = (
    lambda d, u: Abs(x - d),
    lambda d, u: Max(x, d) * w,
    lambda d, u: Min(x - d, 0) ** 2,
    lambda d, u: ra.where(x > d, u, 0),
    lambda d, u: exp(x * tanh(d)),
    lambda d, u: exp(-((x - d) ** 2)),
    lambda d, u: tanh(x - d),
    lambda d, u: 1 / (1 + (x - d) ** 2),
    lambda d, u: log(exp(x) + exp(tanh(d))),
    lambda d, u: w ** tanh(d),
    lambda d, u: floor(4 * x - d),
)


@final
@dataclass(frozen=True)
class Case:
    """A cascade, how deep it is, and whether a term that must be refused was put in."""

    seed: int
    outputs: dict[str, tuple[Expr, str]]
    depth: int
    poisoned: bool


def case(seed: int) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    depth = rng.randint(1, DEPTH)
    poison = rng.randrange(1, depth) if depth > 1 and rng.random() < POISONED else None
    values: list[Expr] = []
    for place in range(depth):
        values.append(value(rng, values, poisoned=place == poison))
    last, bad = values[-1], poison is not None
    shape = rng.randrange(5)
    if shape == 0 and len(values) > 1:
        return Case(seed, {"out": (last, axes_of(last)), "first": (values[0], axes_of(values[0]))}, depth, bad)
    if shape == 1:
        last = last * t + values[0]
    if shape == 2 and depth < DEPTH:  # columns: a contraction over n at the end
        depth += 1
        last = ra.sum(weight(rng) * (x - d_piece(rng, values)) * v, n)
    return Case(seed, {"out": (last, axes_of(last))}, depth, bad)


def axes_of(expr: Expr) -> str:
    """The output's axes, in the order b, e."""
    return " ".join(str(axis) for axis in (b, e) if axis in expr.free_symbols)


def value(rng: random.Random, earlier: Sequence[Expr], *, poisoned: bool) -> Expr:
    """One reduced value, which uses the one before it."""
    if poisoned:
        return ra.mean(rng.choice(POISON)(rng.choice(MOVED)(earlier[-1]), x_piece(rng)) * weight(rng), n)
    kind = rng.choices(("sum", "mean", "average", "extremum", "prod", "other"), (3, 6, 5, 4, 1, 1))[0]
    if kind == "extremum":
        return rng.choice((ra.max, ra.min))(extremal(rng, earlier), n)
    if kind == "prod":
        return ra.prod(1 + tanh(x_piece(rng)) / 8, n) * (earlier[-1] if earlier else 1)
    if kind == "other":
        return other(rng, earlier)
    made = term(rng, earlier)
    if kind == "mean":
        return ra.mean(made, n)
    heavy = weight(rng)
    return ra.sum(heavy * made, n) / (ra.sum(heavy, n) if kind == "average" else 8)


def other(rng: random.Random, earlier: Sequence[Expr]) -> Expr:
    """Values of the monoids that have no ⊗ in the theory: the greatest place, and truth."""
    kind = rng.choice(("any", "all", "argmax"))
    made = getattr(ra, kind)(x_piece(rng) if kind == "argmax" else rng.choice(CONDITIONS), n)
    made = made / 8 if kind == "argmax" else made
    return made * (earlier[-1] if earlier else 1)


def term(rng: random.Random, earlier: Sequence[Expr]) -> Expr:
    if not earlier:
        return masked(rng, x_piece(rng) * rng.choice((S.One, y)))
    made = rng.choice(MIXED)(d_piece(rng, earlier), x_piece(rng))
    how = rng.randrange(4)
    made = made * x_piece(rng) if how == 0 else made + x_piece(rng) if how == 1 else made
    return masked(rng, made)


def extremal(rng: random.Random, earlier: Sequence[Expr]) -> Expr:
    if not earlier:
        return x_piece(rng)
    return rng.choice(MONOTONE)(d_piece(rng, earlier), x_piece(rng))


def weight(rng: random.Random) -> Expr:
    """A positive weight: 1, a tensor, or an exponential with or without its maximum."""
    live = ra.where(ra.ne(M, 0), s, -oo)
    shifted = (s - ra.max(s, n), gamma * (s - ra.max(s, n)), live - ra.max(live, n), s / 4)
    made: Expr = rng.choice((S.One, w, *map(exp, shifted)))
    return made


def masked(rng: random.Random, made: Expr) -> Expr:
    return ra.where(rng.choice(CONDITIONS), made, 0) if rng.random() < Rational(1, 5) else made


def x_piece(rng: random.Random) -> Expr:
    made: Expr = rng.choice(X_PIECES)
    return masked(rng, made)


def d_piece(rng: random.Random, earlier: Sequence[Expr]) -> Expr:
    """A function of the last value, and at times of another."""
    if not earlier:
        return t
    made = rng.choice(D_PIECES)(earlier[-1])
    return made if rng.random() < 0.8 else made + rng.choice(D_PIECES)(rng.choice(earlier)) / 4


LENGTHS = (1, 2, 5, 17)


def sizes(seed: int) -> dict[str, int]:
    return {"b": 2, "n": LENGTHS[seed % len(LENGTHS)], "e": 2}


def tensors(seed: int) -> dict[str, np.ndarray]:
    """Float64 data of a case: moderate, or far from 0, or with masked logits."""
    rng, extent = np.random.default_rng(seed), sizes(seed)
    shape = (extent["b"], extent["n"])
    far = (0.0, 0.0, 0.0, 100.0)[seed // 4 % 4]
    logits = 3 * rng.standard_normal(shape)
    if seed // 16 % 4 == 0:
        logits = np.where(rng.uniform(size=shape) < 0.3, -np.inf, logits)
    live = rng.uniform(size=shape) < 0.7
    live[:, 0], logits[:, 0] = True, 1.0  # a row with nothing in it is a 0/0: `test_preservation` has those
    return {
        "x": rng.uniform(-1, 1, shape) + far,
        "y": rng.uniform(-1, 1, shape),
        "s": logits,
        "w": rng.uniform(0.2, 2, shape),
        "t": rng.uniform(-1, 1, shape[0]),
        "M": live,
        "v": rng.standard_normal((extent["n"], extent["e"])),
    }


SCALARS = {"gamma": 0.75}
