"""One mathematics, one verdict: any equivalent spelling gives the same verdict, ranks and accumulators.

Sums of x alone stay as they are written ((x − y)² is not written out, which would cost its digits), so a spelling that
multiplies them out by d or by parameters keeps the verdict and may need other accumulators: those are not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import (
    Abs,
    Add,
    Expr,
    Max,
    Min,
    Mul,
    Pow,
    cancel,
    cos,
    exp,
    expand,
    factor,
    factor_terms,
    log,
    powsimp,
    sin,
    sqrt,
    tan,
    together,
)
from sympy.core.basic import Basic

import redalg as ra
from redalg import verdicts
from redalg.expression import Reduce
from tests.sweeps import draws

b, n = ra.axes("b n")
x, y, w, s, u = ra.tensors("x[b,n] y[b,n] w[b,n] s[b,n] u[b]")
eps = ra.scalars("eps", positive=True)
m, mean, wide = ra.max(s, n), ra.mean(x, n), ra.max(Abs(x), n)
l = ra.sum(exp(s - m), n)
total, mean_y, spread = ra.sum(x, n), ra.mean(y, n), ra.var(x, n) + eps

Profile = tuple[Any, ...]


def profile(expr: Expr) -> Profile:
    """What no spelling may change: the verdict, the ranks and the number of accumulators."""
    verdict = ra.analyze(expr)
    if isinstance(verdict, ra.Refused | verdicts.Undecided):
        return (type(verdict).__name__, verdict.reduction)
    made = verdict.fused
    ranks = sorted((one.reduction.monoid.name, one.rank) for one in made.decomposition.separations)
    return ("Exact", ranks, len(made.form.accumulators))


# ---- spellings written by hand ---------------------------------------------------------------------------------------

FAMILIES: dict[str, list[Expr]] = {
    "weights": [
        ra.sum(exp(s - m) / l * y, n),
        ra.sum(exp(s - m) * y / l, n),
        ra.sum(exp(s) * exp(-m) * y * (1 / l), n),
        ra.sum(exp(s) / exp(m) / l * y, n),
        ra.sum(ra.let("p", exp(s - m) / l) * y, n),
        ra.sum(exp(s - m - log(l)) * y, n),
        ra.sum(ra.softmax(s, n) * y, n),
        ra.sum(1 / (exp(m - s) * l) * y, n),
        ra.sum(sqrt(exp(2 * s - 2 * m)) / l * y, n),
        ra.sum(exp((s - m) / 2) ** 2 / l * y, n),
        ra.sum(exp(log(exp(s - m) / l)) * y, n),
    ],
    "moments": [
        ra.sum((x - mean) ** 2, n),
        ra.sum((mean - x) ** 2, n),
        ra.sum(Abs(x - mean) ** 2, n),
        ra.sum(x**2 - 2 * x * mean + mean**2, n),
        ra.sum((x - mean) * x - (x - mean) * mean, n),
        ra.sum((x**2 - mean**2) - 2 * mean * (x - mean), n),
        ra.sum((2 * x - 2 * mean) ** 2 / 4, n),
        ra.sum(((x - mean) ** 3 / (x - mean)), n),
        ra.sum((x * (1 + mean) - mean * x - mean) ** 2, n),
    ],
    "standardised": [
        ra.sum((x - mean) / sqrt(spread) * y, n),
        ra.sum(x * y / sqrt(spread) - mean * y / sqrt(spread), n),
        ra.sum(y * (x - mean) * spread ** (-eps / (2 * eps)), n),
        ra.sum((x * y - mean * y) / sqrt(spread), n),
    ],
    "surprisal": [
        ra.sum(exp(s - m) / l * log(exp(s - m) / l), n),
        ra.sum(exp(s - m) / l * (s - m - log(l)), n),
        ra.sum(exp(s - m) * ((s - m) - log(l)) / l, n),
        ra.sum(ra.softmax(s, n) * log(ra.softmax(s, n)), n),
        ra.sum(exp(s - m) / l * (log(exp(s)) - log(exp(m) * l)), n),
    ],
    "base two": [
        ra.sum(2 ** (x - wide) * y, n),
        ra.sum(2**x * 2**-wide * y, n),
        ra.sum(exp((x - wide) * log(2)) * y, n),
        ra.sum(2**x / 2**wide * y, n),
        ra.sum(4 ** ((x - wide) / 2) * y, n),
    ],
    "angles": [
        ra.sum(sin(x - mean) * y, n),
        ra.sum((sin(x) * cos(mean) - cos(x) * sin(mean)) * y, n),
        ra.sum(-sin(mean - x) * y, n),
        ra.sum(2 * sin((x - mean) / 2) * cos((x - mean) / 2) * y, n),
    ],
    "scaled by the largest": [
        ra.sum(Abs(x) / wide * y, n),
        ra.sum(Abs(x / wide) * y, n),
        ra.sum(sqrt(x**2 / wide**2) * y, n),
        ra.sum(Max(x / wide, -x / wide) * y, n),
    ],
    "clamped where it never clips": [
        ra.sum(x * y, n) + 0 * wide,
        ra.sum(Min(x, wide) * y, n),
        ra.sum(Max(-wide, Min(x, wide)) * y, n),
        ra.sum(ra.where(x <= wide, x, 0) * y, n),
    ],
    "rectified": [
        ra.sum(Max(x * total, 0), n),
        ra.sum(ra.where(x * total > 0, x * total, 0), n),
        ra.sum((x * total + Abs(x * total)) / 2, n),
        ra.sum(-Min(0, -x * total), n),
    ],
}
RANK_ONLY = {"clamped where it never clips", "rectified"}
"""Families whose spellings bring a reduction or a basis of their own: one verdict and one rank of the last."""


def final_rank(expr: Expr) -> Profile:
    made = ra.fuse(expr)
    return ("Exact", made.decomposition.separations[-1].rank)


@pytest.mark.parametrize("name", FAMILIES)
def test_spellings_by_hand(name: str) -> None:
    first, *others = FAMILIES[name]
    of = final_rank if name in RANK_ONLY else profile
    for other in others:
        assert of(other) == of(first), f"{other} is decided otherwise than {first}"


@pytest.mark.parametrize("name", FAMILIES)
def test_spellings_compute_the_same(name: str) -> None:
    rng = np.random.default_rng(0)
    first = ra.fuse(FAMILIES[name][0])
    given_ = {one: rng.standard_normal((2, 9)) for one in "xysw"} | {"eps": 0.5}
    wanted = first.reference(**{one: given_[one] for one in names(first)})
    for other in map(ra.fuse, FAMILIES[name][1:]):
        got = other(**{one: given_[one] for one in names(other)}, backend="numpy")
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)


def names(made: Any) -> list[str]:
    return [*made.cascade.inputs(), *(one.name for one in made.cascade.scalars())]


# ---- spellings at random ---------------------------------------------------------------------------------------------

PATTERNS: dict[str, Expr] = {
    "weighted mean": ra.sum(exp(s - m) / l * y, n),
    "variance": ra.mean((x - mean) ** 2, n),
    "third moment": ra.mean((x - mean) ** 3, n),
    "covariance": ra.mean((x - mean) * (y - mean_y), n),
    "standardised": ra.sum((x - mean) / sqrt(spread) * y, n),
    "surprisal": ra.sum(exp(s - m) / l * (s - m - log(l)), n),
    "affine": ra.sum((x * total + y) * (w - 2) * u, n),
    "shared": ra.sum(x * w / (ra.sum(w, n) + eps) + y * u, n),
    "variance under weights": ra.sum(exp(s - m) / l * (y - ra.sum(exp(s - m) / l * y, n)) ** 2, n),
    "absolute deviation": ra.mean(Abs(x - mean), n),
    "Gaussian": ra.sum(exp(-((x - mean) ** 2)), n),
    "reciprocal": ra.sum(w / (x - mean), n),
}


def regrouped(term: Expr) -> Expr:
    """(a + b) + c in another order of operations, p·q as one product of two."""
    if term.is_Add and len(term.args) > 2:
        return Add(Add(*term.args[::2]), Add(*term.args[1::2]), evaluate=False)
    if term.is_Mul and len(term.args) > 2:
        return Mul(Mul(*term.args[::2]), Mul(*term.args[1::2]), evaluate=False)
    return term


def inflated(term: Expr) -> Expr:
    """a → a²/a."""
    return Mul(Pow(x**2 + 1, 2), term, Pow(x**2 + 1, -2, evaluate=False), evaluate=False)


SPELLINGS: dict[str, Callable[[Expr], Expr]] = {
    "expand": expand,
    "factor": factor,
    "together": together,
    "common terms": factor_terms,
    "cancel": cancel,
    "powers joined": powsimp,
    "powers split": lambda term: term.expand(power_exp=True, mul=False),
    "regrouped": regrouped,
    "inflated": inflated,
    "as a difference": lambda term: Add(2 * term, -term, evaluate=False),
    "negated twice": lambda term: Mul(-1, -term, evaluate=False),
    "named": lambda term: term,
}


def respelled(node: Basic, rewrite: Callable[[Expr], Expr]) -> Any:
    """The expression with every reduction's term rewritten, inner ones first."""
    args = [respelled(arg, rewrite) for arg in node.args]
    made = node if all(a is c for a, c in zip(args, node.args, strict=True)) else node.func(*args)
    if isinstance(made, Reduce) and made.kind == "sum":
        return Reduce("sum", rewrite(made.expr), made.bound)
    return made


@settings(max_examples=draws(150), deadline=None)
@given(st.sampled_from(sorted(PATTERNS)), st.lists(st.sampled_from(sorted(SPELLINGS)), min_size=1, max_size=3))
def test_spellings_at_random(name: str, steps: list[str]) -> None:
    expr = PATTERNS[name]
    for step in steps:
        expr = respelled(expr, SPELLINGS[step])
    assert profile(expr) == profile(PATTERNS[name]), f"{steps}: {expr}"


def test_what_has_no_rational_form_is_one_node() -> None:
    """tan(x − d) is sin/cos of a sum: a pole that moves, in either spelling."""
    one, two = (profile(ra.sum(f(x - mean), n)) for f in (tan, lambda a: sin(a) / cos(a)))
    assert one[0] == two[0] == "Refused"
