"""The rows of two reviews (`tests/cases/reviews.py`) have their values, and what has no state is refused by a theorem.

Errors of the surface have their tests in `test_surface`, `test_options`, `test_slips`, `test_state`, `test_places` and
`test_plans_build`; moments of 67 generators in `test_whole`; lost digits in `test_digits`, `test_lines`,
`test_tangents` and `test_scales`. Patterns that users wrote are in `test_review_patterns`.
"""

from __future__ import annotations

import numpy as np
import pytest
from sympy import Abs, Max, Rational, erf, exp, sign, sin

import redalg as ra
from redalg.verdicts import Approximate, Exact, Refused, Undecided
from tests.cases.reviews import VALUES, WRONG_ONCE, alpha, code, mean, n, other, p, s, x, y
from tests.cases.rows import assert_right


@pytest.mark.parametrize("name", VALUES)
def test_a_row_has_its_value(name: str) -> None:
    assert_right(VALUES[name])


# ---- what has no state, and why --------------------------------------------------------------------------------------

slope = ra.covariance(x, y, n) / ra.var(x, n)
REFUSED = {
    "W1, a threshold of an inner maximum": (WRONG_ONCE["W1, a threshold of an inner maximum"].expr, "threshold moves"),
    "max |g(x − m)|": (ra.max(Abs(sin(x - mean)), n), "at other elements for other"),
    "the largest residual": (ra.max(Abs(y - other - slope * (x - mean)), n), "weighs 2 independent functions"),
    "the typical sample": (ra.argmin(Abs(-ra.log_softmax(s, n) - ra.entropy(p, n)), n), "selects other elements"),
    "mean absolute deviation": (ra.mean(Abs(x - mean), n), "kink"),
    "share below the mean": (ra.mean(ra.where(x < mean, 1, 0), n), "threshold moves"),
    "Huber about the mean": (
        ra.mean(ra.where(Abs(x - mean) < 1, (x - mean) ** 2 / 2, Abs(x - mean) - Rational(1, 2)), n), "kink"
    ),
    "a step of the sparsemax": (ra.sum(Max(x - (ra.sum(x, n) - 1) / n.extent, 0), n), "at a threshold that moves with"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_is_refused_by_a_theorem(name: str) -> None:
    expr, said = REFUSED[name]
    verdict = ra.analyze(expr)
    assert isinstance(verdict, Refused)
    assert verdict.certificate
    assert said in verdict.reason
    assert "passes=2" in verdict.hint


NO_YES = {
    "Kolmogorov and Smirnov, a fitted normal": ra.max(
        Abs((n + 1) / n.extent - (1 + erf((x - mean) / ra.std(x, n))) / 2), n
    ),
    "a share of either sign": ra.sum(Abs(1 - x / ra.sum(x, n)), n),
    "|x − first|": ra.sum(Abs(x - ra.first(x, n)), n),
    "top-p at a given threshold": ra.sum(ra.where(p > alpha, p, 0) * y, n),
    "W4, Max(cast, 0)": ra.sum(Max(code, 0) * y, n),
    "W4, |cast|": ra.sum(Abs(code) * y, n),
    "W4, sign of a cast": ra.sum(sign(code) * y, n),
}


@pytest.mark.parametrize("name", NO_YES)
def test_a_row_is_no_yes_and_has_a_form_of_two_passes(name: str) -> None:
    verdict = ra.analyze(NO_YES[name])
    assert isinstance(verdict, Refused | Undecided)
    assert "passes=2" in verdict.hint
    assert isinstance(ra.analyze(NO_YES[name], passes=2), Exact)


def test_a_rounding_that_saturates_is_within_its_bound() -> None:
    """W3: Σ cast(4(x − mean x), int8)·y."""
    expr = ra.sum(ra.cast(4 * (x - mean), "int8") * y, n)
    data = {"x": np.array([[1000.0, 0, 0, 0]]), "y": np.ones((1, 4))}
    verdict = ra.analyze(expr)
    assert isinstance(verdict, Approximate)
    [bound] = verdict.bound.values()
    value = ra.fuse(ra.sum((Max(0, Abs(4 * x - 4 * mean) - 127) + Rational(1, 2)) * Abs(y), n), passes=2)(**data)
    assert "127" in str(bound)
    assert abs(float(ra.fuse(expr)(**data)[0]) - (-257.0)) <= float(value[0])


def test_an_element_without_weight_is_said_to_have_none() -> None:
    """Σ exp(x)·x / Σ exp(x) with an x of −∞: Exact under a condition that the verdict states."""
    verdict = ra.analyze(ra.sum(exp(x) * x, n) / ra.sum(exp(x), n))
    assert isinstance(verdict, Exact)
    assert "−∞" in " ".join(verdict.conditions)
