"""Random cascades over one axis, in chains of one to four values; many spellings, and terms that no one pass has.

    value   := ⊕ term | mean | weighted mean | spread | ratio of two values       ⊕: sum max min prod any all argmax
    term    := idiom(d, u) | free(d, u) | mask(term)                               d: earlier values, u: pieces of data
    free    := a tree of + − · / ² ³ exp log √ | | max min where tanh sin cos sign floor, data and values at its leaves
    output  := the last value | a function of it and of an earlier value | with columns v[n, e] | at every n

Nothing keeps a value from standing in a kink or a threshold: about a fifth of the cases have no one-pass form.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from sympy import Abs, Expr, Integer, Max, Min, Mod, Rational, S, cos, cosh, exp, floor, log, oo, sign, sin, sqrt, tanh
from sympy.logic.boolalg import Boolean

import redalg as ra
from tests.cases.random_cascades import MONOTONE
from tests.fuzz.case import Case, Draw, axes_of, b, eps, gamma, n, tensor

x, y, s, w, p, z, M, t, c, v = map(tensor, "xyswpzMtcv")
Values = Sequence[Expr]
Idiom = Callable[[Expr, Expr], Expr]

LEAVES = (x, x, x, y, y, z, w, w, p, s, c, x * y, w * x, x**2, Abs(x), tanh(x), log(w), sqrt(w), sin(y), 1 / (1 + w),
          Max(x, y), Max(x, 0), Min(x, 1), exp(x / 4), exp(-w), p * log(p), sign(x), x - y, (x - y) ** 2, n, Mod(n, 2),
          cos(Rational(1, 2) * n), ra.where(x > 0, w, 0), exp(-(x**2) / 2), x / w, t * x)  # fmt: skip
"""Pieces of data."""
OF_VALUES: tuple[Callable[[Expr], Expr], ...] = (
    lambda d: d, lambda d: d, lambda d: d * t, lambda d: d + t, tanh, lambda d: 1 / (1 + d**2), lambda d: -d / 2,
    lambda d: sqrt(1 + d**2), lambda d: d - gamma, lambda d: Max(d, t), lambda d: ra.where(d > 0, d, t),
    lambda d: log(1 + d**2), lambda d: Abs(d) + eps, lambda d: d**2, lambda d: exp(-(d**2)),
)  # fmt: skip
SMOOTH: tuple[Idiom, ...] = (
    lambda d, u: (u - d) ** 2,
    lambda d, u: (u - d) ** 3,
    lambda d, u: (x - d) * (y - d),
    lambda d, u: (u - d) ** 2 - (y - d) ** 2,
    lambda d, u: u**2 - 2 * u * d + d**2,
    lambda d, u: u * d + y,
    lambda d, u: (u + d * w) ** 2 / (1 + d**2),
    lambda d, u: u / (1 + d**2),
    lambda d, u: exp(gamma * (tanh(u) - tanh(d))),
    lambda d, u: exp(tanh(d)) * u,
    lambda d, u: exp(tanh(u) + tanh(d) * t),
    lambda d, u: log(w * (1 + d**2)),
    lambda d, u: sqrt(w * (1 + d**2)),
    lambda d, u: sqrt(w) / sqrt(1 + Abs(d)),
    lambda d, u: (w / (1 + d**2)) ** Rational(3, 2),
    lambda d, u: Abs(u * tanh(d)),
    lambda d, u: cos(x - d),
    lambda d, u: sin(x - d) * u,
    lambda d, u: (1 - tanh(d)) * u + tanh(d) * y,
    lambda d, u: ra.where(t > d, u, y * d),
    lambda d, u: ra.where(x > 0, (x - d) ** 2, u),
    lambda d, u: ra.where(ra.logical_and(x > 0, d > t), u, d),
    lambda d, u: cosh((tanh(u) - tanh(d)) / 2),
    lambda d, u: (u - d) / sqrt(1 + d**2) * y,
    lambda d, u: ra.let("centred", u - d) * w,
    lambda d, u: sign(u * (1 + d**2)),
    lambda d, u: 1 / (w * (1 + d**2)),
    lambda d, u: u / (n + 1) - d,
)
ROUGH: tuple[Idiom, ...] = (
    lambda d, u: Abs(x - d),
    lambda d, u: Max(x, d) * w,
    lambda d, u: Min(u - d, 0) ** 2,
    lambda d, u: Max(Min(u / (1 + Abs(d)), 1), -1),
    lambda d, u: ra.where(x > d, u, 0),
    lambda d, u: ra.where(u < d, x, d) * y,
    lambda d, u: exp(x * tanh(d)),
    lambda d, u: exp(-((x - d) ** 2)),
    lambda d, u: tanh(x - d),
    lambda d, u: 1 / (1 + (x - d) ** 2),
    lambda d, u: log(exp(x) + exp(tanh(d))),
    lambda d, u: log(1 + (u - d) ** 2),
    lambda d, u: w ** tanh(d),
    lambda d, u: floor(4 * x - d),
    lambda d, u: sqrt(1 + (x - d) ** 2),
    lambda d, u: sign(x - d),
    lambda d, u: Max(u, d) - Max(-u, d),
    lambda d, u: Abs(Abs(u) - Abs(d)),
    lambda d, u: ra.where(u * d > 0, u, d) * w,
    lambda d, u: Abs(u**2 - d) + u,
    lambda d, u: exp(Max(u, d) - Max(u, 0)),
    lambda d, u: log(w + d**2),
)
EXTREMAL: tuple[Idiom, ...] = (
    *MONOTONE,
    lambda d, u: (u - d) ** 2,
    lambda d, u: u + d * sign(y),
    lambda d, u: ra.where(u > d, u, d),
    lambda d, u: u * d,
    lambda d, u: exp(u / 4) * Abs(d) + d,
    lambda d, u: Abs(tanh(u - d)),
    lambda d, u: (y - d * x) ** 2,
    lambda d, u: u**2 - 2 * u * d,
    lambda d, u: u * y - d * x,
    lambda d, u: ra.where(u > d, u, -oo),
    lambda d, u: log(w) + u * d,
)


def case(seed: int) -> Case:
    """The case of a seed."""
    draw = Draw(random.Random(seed))
    values = list[Expr]()
    for _ in range(draw.weighted({1: 1, 2: 4, 3: 4, 4: 2})):
        values.append(value(draw, values))
    return Case("one_axis", seed, outputs(draw, values))


def outputs(draw: Draw, values: Values) -> dict[str, tuple[Expr, str]]:
    """What is asked of the values."""
    last, first = values[-1], values[0]
    kind = draw.weighted({"last": 6, "both": 1, "function": 2, "columns": 1, "carried": 1})
    if kind == "function":
        last = draw.call(OF_VALUES, last) + draw.of(t, first, S.One) * last
    if kind == "columns":
        last = ra.sum(weight(draw) * (x - piece_of_values(draw, values)) * v, n)
    if kind == "carried":
        last = draw.call(SMOOTH, last, leaf(draw))
    made = {"out": (last, axes_of(last))}
    return {**made, "first": (first, axes_of(first))} if kind == "both" else made


def value(draw: Draw, earlier: Values) -> Expr:
    """A reduced value."""
    kind = draw.weighted({"sum": 3, "mean": 5, "average": 5, "extremum": 4, "sugar": 3, "prod": 1, "place": 1,
                          "truth": 1})  # fmt: skip
    if kind == "extremum":
        made = extremal(draw, piece_of_values(draw, earlier), leaf(draw)) if earlier else leaf(draw)
        return draw.of(ra.max, ra.min)(masked(draw, made, draw.of(S.Zero, -oo)), n)
    if kind == "prod":
        return ra.prod(1 + tanh(term(draw, earlier)) / 8 if draw.chance(0.7) else ra.where(M > 0, w, 1), n)
    if kind == "sugar":
        return sugar(draw, earlier)
    if kind == "place":
        return draw.of(ra.argmax, ra.argmin)(leaf(draw), n) / Integer(8)
    if kind == "truth":
        return draw.of(ra.any, ra.all)(condition(draw, earlier), n)
    heavy = S.One if kind in ("sum", "mean") and draw.chance(0.6) else weight(draw)
    total = ra.sum(heavy * term(draw, earlier), n)
    return total if kind == "sum" else total / (n.extent if kind == "mean" else ra.sum(heavy, n))


def extremal(draw: Draw, d: Expr, u: Expr) -> Expr:
    """What is compared: an idiom of extrema, or any other expression of a value and a piece of data."""
    return draw.call(EXTREMAL, d, u) if draw.chance(0.7) else mixed(draw, [d], u)


def sugar(draw: Draw, earlier: Values) -> Expr:
    """A well-known function of the rows."""
    u = leaf(draw) if not earlier or draw.chance(0.5) else draw.call(SMOOTH, earlier[-1], leaf(draw))
    return draw.call((
        lambda: ra.var(u, n), lambda: ra.std(u, n), lambda: ra.logsumexp(s, n), lambda: ra.logsumexp(u / 4, n),
        lambda: ra.entropy(ra.softmax(s, n), n), lambda: ra.sum(ra.log_softmax(s, n) * y, n), lambda: ra.norm(u, n),
        lambda: ra.covariance(u, y, n), lambda: ra.cosine_similarity(u, y, n), lambda: ra.mean(ra.softmax(s, n) * u, n),
        lambda: ra.sum(ra.softmax(s, n) ** 2, n), lambda: ra.sum(ra.layer_norm(u, n) * w, n),
        lambda: ra.sum(ra.normalize(w, n, p=1) * u, n), lambda: ra.max(ra.softmax(s, n) * w, n),
        lambda: ra.sum_at_max(u, w, n), lambda: ra.norm(u, n, p=1),
    ))  # fmt: skip


def term(draw: Draw, earlier: Values) -> Expr:
    """What is summed: of data alone, or of data and values."""
    if not earlier:
        return masked(draw, leaf(draw) * draw.of(S.One, y) if draw.chance(0.6) else free(draw, earlier, 2))
    return masked(draw, mixed(draw, earlier, leaf(draw)))


def mixed(draw: Draw, earlier: Values, u: Expr) -> Expr:
    """An expression of data and values."""
    kind = draw.weighted({"smooth": 4, "rough": 4, "free": 8})
    if kind == "free":
        return free(draw, earlier, draw.of(2, 3, 4))
    made = draw.call(SMOOTH if kind == "smooth" else ROUGH, piece_of_values(draw, earlier), u)
    how = draw.rng.randrange(5)
    return made * leaf(draw) if how == 0 else made + leaf(draw) if how == 1 else made


UNARY: tuple[Callable[[Expr], Expr], ...] = (
    lambda u: -u, lambda u: u**2, lambda u: u**3, lambda u: exp(tanh(u)), lambda u: log(1 + u**2), Abs, tanh, sin,
    lambda u: sqrt(1 + u**2), lambda u: 1 / (1 + u**2), lambda u: Max(u, 0), lambda u: u / 3 + 1, sign,
)  # fmt: skip


def free(draw: Draw, earlier: Values, depth: int) -> Expr:
    """A tree of operations."""
    if depth == 0 or draw.chance(0.15):
        return piece_of_values(draw, earlier) if earlier and draw.chance(0.35) else leaf(draw)
    kind = draw.weighted({"add": 3, "sub": 3, "mul": 5, "unary": 3, "max": 0.5, "where": 0.7})
    left = free(draw, earlier, depth - 1)
    if kind == "unary":
        return draw.call(UNARY, left)
    right = free(draw, earlier, depth - 1)
    if kind == "where":
        return ra.where(condition(draw, earlier), left, right)
    return {"add": left + right, "sub": left - right, "mul": left * right, "max": Max(left, right)}[kind]


def leaf(draw: Draw) -> Expr:
    return masked(draw, draw.of(*LEAVES), probability=0.1)


def piece_of_values(draw: Draw, earlier: Values) -> Expr:
    """A function of the last value, and at times of another."""
    if not earlier:
        return t
    made = draw.call(OF_VALUES, earlier[-1])
    return made if draw.chance(0.8) else made + draw.call(OF_VALUES, draw.of(*earlier)) / 4


def weight(draw: Draw) -> Expr:
    """A weight: 1, a tensor, or an exponential with or without its maximum."""
    live = ra.where(M > 0, s, -oo)
    shifted = (s - ra.max(s, n), gamma * (s - ra.max(s, n)), live - ra.max(live, n), s / 4, -(x**2) / 2)
    return draw.of(S.One, w, p, ra.where(x > 0, w, 0), *map(exp, shifted))


def condition(draw: Draw, earlier: Values = ()) -> Boolean:
    """A mask: by places, by data, and at times by values."""
    if earlier and draw.chance(0.2):
        return draw.of(earlier[-1] > t, t < earlier[0], earlier[-1] > 0)
    return draw.of(
        ra.ne(M, 0), n >= b, x > 0, ra.logical_or(n <= b, ra.ne(M, 0)), x < t, n < 11, y <= x, t > 0,
        n + 1 < n.extent, ra.eq(Mod(n, 2), 0), ra.logical_and(x > 0, y > 0), ra.logical_not(n <= b),
    )  # fmt: skip


def masked(draw: Draw, made: Expr, other: Expr = S.Zero, probability: float = 0.15) -> Expr:
    return ra.where(condition(draw), made, other) if draw.chance(probability) else made
