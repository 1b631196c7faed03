"""Patterns whose definition is finite and well conditioned where a plain one-pass form overflows or cancels.

Rows as those of `tests/cases/theory.py`, held to the same measure by `tests/surface/test_theory.py`. Where the table
has no figure for a pattern, its error is eight roundings of Σ |terms|.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sympy import Abs, Rational, exp, log

import redalg as ra
from tests.cases.corpus import Pattern
from tests.cases.theory import VV, Facts, N, Row, dev, mean, n, s, total, x, y, z

EIGHT_ROUNDINGS = 4 * 2.0**-24
"""What a row allows is twice this."""

COVARIANCE = 5e-7
"""The table's figure for a covariance: of products of deviations, each of which is rounded."""

V = {"x": "value"}


def row(name: str, build: Callable[[], Any], roles: Mapping[str, str], error: float = EIGHT_ROUNDINGS,
        **more: Any) -> Row:  # fmt: skip
    pattern = Pattern(name, build, "c", roles, "what a form derived by hand would keep")
    return Row(pattern, False, 0, Facts(0), error, **more)


def share_of_largest() -> Any:
    return ra.prod(x / ra.max(Abs(x), n), n)


def participation() -> Any:
    """A square doubles the error of what is squared."""
    return mean(x**2) ** 2 / mean(x**4)


def weighted_variance(of: Any) -> Any:
    share = ra.softmax(s, n)
    return total(share * (of - total(share * of)) ** 2)


def divergence() -> Any:
    return total(ra.softmax(x, n) * (ra.log_softmax(x, n) - ra.log_softmax(y, n)))


def divergence_terms() -> Any:
    """Each logarithm of a share is a difference from the maximum, less log Σ, of which a rounding of 1 is a part."""
    return total(ra.softmax(x, n) * (2 + Abs(x - ra.max(x, n)) + Abs(y - ra.max(y, n)))) + log_total(x) + log_total(y)


def log_total(of: Any) -> Any:
    return log(total(exp(of - ra.max(of, n))))


def apart(of: Any) -> Any:
    """x as its deviation and its mean, which one pass weighs apart."""
    return Abs(dev(of)) + Abs(mean(of))


ROWS = (
    row("product of x over its largest", share_of_largest, V, terms=lambda: N * Abs(share_of_largest())),
    row("powers of 2 below the smallest", lambda: total(2 ** (ra.min(x, n) - x)), V),
    row("softmax-weighted variance of the index", lambda: weighted_variance(n), {"s": "logit"}, 3e-7),
    row("divergence of two softmaxes", divergence, VV, terms=divergence_terms),
    row("two deviations by what they are of", lambda: mean(dev(x) * dev(y) * x), VV, COVARIANCE,
        terms=lambda: mean(Abs(dev(x) * dev(y)) * apart(x))),
    row("three deviations by what they are of", lambda: total(dev(x) * dev(y) * dev(z) * x),
        {"x": "value", "y": "value", "z": "value"}, COVARIANCE,
        terms=lambda: total(Abs(dev(x) * dev(y) * dev(z)) * apart(x))),
    row("8-norm", lambda: ra.norm(x, n, p=8), V, spellings={"by a mean": lambda: (N * mean(x**8)) ** Rational(1, 8)}),
    row("7-norm", lambda: ra.norm(x, n, p=7), V),
    row("cosine of fourth powers", lambda: ra.cosine_similarity(x**4, y**4, n), VV),
    row("participation ratio", participation, V, terms=lambda: 2 * participation()),
    row("powers of 3 below the largest", lambda: total(3 ** (x - ra.max(x, n)) * y), VV),
)  # fmt: skip
