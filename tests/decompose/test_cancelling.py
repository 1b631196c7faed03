"""Reductions that have no state each, and yet cancel in a term or in an output: no theorem may refuse what has a state.

Cascades are recombined at random from members of which some cancel others, and what a theorem refuses must move with
ever more of its elements (`tests/cases/joint.py`, which knows nothing of the engine).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from sympy import Abs, Add, Expr, Max, Min, Rational, S, cos, exp, log, sign, sin, tanh

import redalg as ra
from redalg.expression.reduce import Reduce
from tests.cases.decided import n, w, x, y
from tests.cases.joint import dimension, jumps

FEW, MANY = 6, 24
DEGREE = 10
MEAN, OTHER = ra.mean(x, n), ra.mean(w, n)
SIZE = ra.mean(x**2, n)


def total(term: Expr) -> Expr:
    return ra.sum(term, n)


BESIDE = (
    total(y * Max(x, OTHER) - y * Min(x, OTHER) - y * Abs(x - OTHER)),
    total(x * sign(x - OTHER)) - total(Abs(x - OTHER)) - OTHER * total(sign(x - OTHER)),
    total(Abs(x - MEAN)) / total(Max(x - MEAN, 0)), total(log(1 + exp(x - MEAN))) - total(log(1 + exp(MEAN - x))),
    total(cos(x * OTHER) ** 2) + total(sin(x * OTHER) ** 2), total(tanh(x - MEAN) + 2 / (1 + exp(2 * (x - MEAN)))),
    total(tanh(x - MEAN)) + total(2 / (1 + exp(2 * (x - MEAN)))),
    total(log(1 + exp(x - MEAN)) - log(1 + exp(MEAN - x)) + (x - OTHER) ** 10), sign(1 + total(Abs(x - MEAN))),
    Max(ra.max(ra.where(x > OTHER, y, -S.Infinity), n), ra.max(ra.where(x > OTHER, -S.Infinity, y), n)),
    ra.where(total(Abs(x - MEAN)) >= 0, MEAN, 0), total(Max(x, MEAN) + Min(x, MEAN) + (x - OTHER) ** 10),
    total(Max(x, MEAN)) + total(Min(x, MEAN)) + total((x - OTHER) ** 10),
)  # fmt: skip
"""What has a state that need not be found."""
REFUSED = (
    total(Max(x, MEAN)) + 2 * total(Min(x, MEAN)), total(Abs(x - MEAN)) + total(Abs(2 * x - 2 * MEAN)),
    total(Abs(x - MEAN) + (x - OTHER) ** 10), total(Max(x, MEAN)) * total(Min(x, MEAN)),
    total(Abs(x - MEAN)) - total(Max(x, OTHER)), tanh(total(Abs(x - MEAN))), total(y * total(Abs(x - MEAN))),
    ra.max(x * OTHER + y, n) - ra.min(x * OTHER + y, n),
)  # fmt: skip
"""What does not cancel."""


@pytest.mark.parametrize("expr", BESIDE, ids=str)
def test_what_cancels_is_not_refused(expr: Expr) -> None:
    assert not isinstance(ra.analyze(expr), ra.Refused)


@pytest.mark.parametrize("expr", REFUSED, ids=str)
def test_what_is_left_is_refused(expr: Expr) -> None:
    verdict = ra.analyze(expr)
    assert isinstance(verdict, ra.Refused)
    assert verdict.certificate


Part = Callable[[Expr, Expr, Expr], Expr]
PARTS: tuple[tuple[Part, ...], ...] = (
    (lambda u, d, g: g * Abs(u - d), lambda u, d, g: g * Max(u, d), lambda u, d, g: g * Min(u, d),
     lambda u, d, g: g * Max(d - u, 0), lambda u, d, g: (u - d) * g * sign(u - d),
     lambda u, d, g: ra.where(u > d, g * (u - d), 0)),
    (lambda u, d, g: g * y * sign(u - d), lambda u, d, g: ra.where(u > d, g * y, 0),
     lambda u, d, g: ra.where(u <= d, g * y, 0), lambda u, d, g: ra.where(u < d, y, g)),
    (lambda u, d, g: g * log(1 + exp(u - d)), lambda u, d, g: g * log(1 + exp(d - u)),
     lambda u, d, g: g * log(2 + exp(u - d) + exp(d - u))),
    (lambda u, d, g: g / (1 + exp(u - d)), lambda u, d, g: g / (1 + exp(d - u)), lambda u, d, g: g * tanh((u - d) / 2)),
    (lambda u, d, g: g * cos(3 * u * d), lambda u, d, g: g * cos(3 * u * d / 2) ** 2,
     lambda u, d, g: g * sin(3 * u * d / 2) ** 2),
    (lambda u, d, g: g / (1 + (u - d) ** 2), lambda u, d, g: g * (u - d) ** 2 / (1 + (u - d) ** 2)),
)  # fmt: skip
"""Families of terms without a state, of which some combinations have one."""
COEFFICIENTS = (S.One, S.NegativeOne, S(2), -S(2), Rational(1, 2), OTHER)


def recombined(rng: random.Random) -> Expr:
    """One or several sums of members of a family, as outputs may hold them."""
    family, u, d = rng.choice(PARTS), x, rng.choice((MEAN, OTHER))
    g = rng.choice((S.One, w, 1 + w**2))
    chosen = [rng.choice(family) for _ in range(rng.randint(2, 3))]
    terms = [rng.choice(COEFFICIENTS) * one(u, d, g) for one in chosen]
    if rng.random() < 0.4:
        return total(sum(terms, S.Zero))
    made = sum((rng.choice((S.One, S.NegativeOne, OTHER)) * total(one) for one in terms), S.Zero)
    return made if rng.random() < 0.8 else made / (1 + SIZE)


def together(*sums: Expr) -> Expr:
    """Sums as one, of what is a sum alone."""
    terms = [one.expr if isinstance(one, Reduce) else None for one in sums]
    return Add(*sums) if None in terms else total(Add(*terms))


def check_certificate(seed: int) -> bool:
    """Tells whether a theorem refuses a random cascade, which must then move in many ways."""
    try:
        expr = recombined(random.Random(seed))
        beside = total((x - OTHER) ** DEGREE) if seed % 4 == 0 else S.Zero  # of a finite rank, however large
        verdict = ra.analyze(expr + beside if seed % 8 else together(expr, beside))
    except ra.ExpressionError:  # SymPy finds that all cancels
        return False
    if not (isinstance(verdict, ra.Refused) and verdict.certificate):
        return False
    measures = (dimension,) if expr.has(SIZE) else (dimension, jumps)  # derivatives do not see steps
    ways = (measure(expr, MANY, other) for measure in measures for other in range(4))
    assert any(one > FEW for one in ways), f"{seed}: {expr}: {verdict.reason}"
    return True


def test_no_search_breaks_a_certificate() -> None:
    assert sum(map(check_certificate, range(24))) > 8


@pytest.mark.slow
def test_no_long_search_breaks_a_certificate() -> None:
    assert sum(map(check_certificate, range(24, 600))) > 200
