"""Extrema whose winners move: what that theorem refuses has as many winners as elements, and nothing fusible has."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from sympy import Abs, Expr, Max, cos, exp, oo, sign, sqrt, tanh

import redalg as ra
from redalg.decompose.parse.foreign import adopt
from redalg.decompose.parse.parse import parse
from redalg.decompose.samples.rank import Setting
from redalg.decompose.samples.winners import ENDS, winners
from redalg.expression.contents import values_of
from tests.cases import extrema
from tests.fuzz import one_axis

b, n = ra.axes("b n")
x, y, w, t, M = ra.tensors("x[b,n] y[b,n] w[b,n] t[b] M[b,n]")
MEAN, TOP, WHOLE = ra.mean(x, n), ra.max(x, n), ra.sum(exp(x), n)
MOVING = (
    ra.min(Abs(x - MEAN), n), ra.max(cos(x - MEAN), n), ra.max(exp(-((y - MEAN) ** 2)), n), ra.max(1 / (x - MEAN), n),
    ra.argmin(Abs(x - MEAN), n), ra.sum_at_max(-((x - MEAN) ** 2), w, n), ra.min(Abs(x - TOP / 2), n),
)  # fmt: skip
KEPT = (
    ra.max(Abs(x - MEAN), n), ra.min(Abs(x - TOP), n), ra.max(x * MEAN, n), ra.max((x - MEAN) ** 2 + TOP, n),
    ra.max(ra.where(M > 0, x - MEAN, -oo), n), ra.max(x + sign(y) * MEAN, n), ra.argmax(x * (1 + MEAN**2), n),
    ra.min(Abs(exp(x) - WHOLE / 4), n), ra.min(Abs(exp(x) - WHOLE / 2), n), ra.max(Max(x, MEAN) - y * 0, n),
    ra.max(ra.softmax(x, n), n), ra.min(ra.where(x > MEAN, x, -oo), n), ra.max(sqrt(Abs(x)) * tanh(MEAN), n),
)  # fmt: skip
"""Extrema that few elements decide, fusible or not: the part of a whole that is nearest to a quarter of it is among the
four largest."""


def counted(expr: Expr) -> tuple[int, int] | None:
    """The winners of the last reduction of an expression."""
    cascade = parse({"out": (adopt(expr), None)})
    return of_reduction(cascade, cascade.reductions[-1])


def of_reduction(cascade: Any, reduction: Any) -> tuple[int, int] | None:
    facts = {one.value: (one.monoid.name, one.term) for one in cascade.reductions if one.is_scalar}
    others = {one.value: one for one in cascade.reductions if not one.is_scalar}
    setting = Setting(cascade.reduced_axes, cascade.values, facts, others)
    term = reduction.term if isinstance(reduction.term, Expr) else reduction.term.args[0]
    return winners(reduction.monoid.name, term, setting)


@pytest.mark.parametrize("expr", MOVING, ids=str)
def test_what_moves_is_refused_by_the_theorem(expr: Expr) -> None:
    with pytest.raises(ra.NotFusible, match="win alone") as refusal:
        ra.fuse(expr)
    assert refusal.value.certificate


@pytest.mark.parametrize("expr", KEPT, ids=str)
def test_what_few_elements_decide_has_few_winners(expr: Expr) -> None:
    assert counted(expr) is None


def test_no_fusible_extremum_has_winners() -> None:
    """Of the rewrites' own: the theorem must not speak of what has a form."""
    lists = (extrema.RISING, extrema.FALLING, extrema.CONVEX, extrema.LATTICE, extrema.INWARD, extrema.BRANCHES)
    for term, _ in (one for made in lists for one in made):
        assert counted(ra.max(term, n)) is None, str(term)


@pytest.mark.slow
def test_no_random_fusible_extremum_has_winners() -> None:
    found = 0
    for seed in range(1500):
        try:
            verdict = ra.analyze(dict(one_axis.case(seed).outputs))
        except ra.ExpressionError:
            continue
        if not isinstance(verdict, ra.Exact):
            continue
        cascade = verdict.fused.cascade
        for one in cascade.reductions:
            if one.monoid.name in ENDS and values_of(one.term) & set(cascade.values):
                found += 1
                assert of_reduction(cascade, one) is None, f"{seed}: {one.term}"
    assert found >= 100


TERMS: tuple[tuple[Callable[[float, float], float], int], ...] = (
    (lambda u, d: abs(u - d), -1), (lambda u, d: math.cos(u - d), 1), (lambda u, d: math.exp(-((u - d) ** 2)), 1),
)  # fmt: skip


@pytest.mark.parametrize(("term", "end"), TERMS)
@pytest.mark.parametrize("number", [4, 16, 64])
def test_every_element_wins_for_some_completion(term: Callable[[float, float], float], end: int, number: int) -> None:
    """The proof's data, in plain arithmetic: N elements, and for each of them two more that bring the mean to it."""
    rng = random.Random(number)
    prefix = [rng.uniform(-1, 1) for _ in range(number)]
    for wanted in prefix:
        far = (wanted * (number + 2) - sum(prefix)) / 2
        data = [*prefix, far + 2.5, far - 2.5]  # neither is nearer to the mean than the element
        mean = sum(data) / len(data)
        if min(abs(one - mean) for one in data[number:]) < 1e-3 or max(abs(one - mean) for one in data) > math.pi:
            continue
        best = max(range(len(data)), key=lambda i: (end * term(data[i], mean), -i))
        assert data[best] == wanted
