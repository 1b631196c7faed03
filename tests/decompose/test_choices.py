"""Verdicts on masked products, on choices by d and on who attains an extremum, and what is said of them."""

from __future__ import annotations

import pytest
from sympy import Abs, Expr, Max, Min, exp, oo, sign, sin, tanh

import redalg as ra
from tests.cases.decided import LARGEST, MEAN, n, w, x, y
from tests.cases.rewrites_of_choices import ATTAINED as EXTREMAL
from tests.cases.rewrites_of_choices import BELOW, CHOSEN, CLIPPED, MASKED, OF_SEVERAL, TRUTHS, UNSIGNED

FUSED = (*MASKED, *OF_SEVERAL, *CHOSEN, *EXTREMAL, *BELOW, *CLIPPED, *TRUTHS, *UNSIGNED)
SPREAD = (
    ra.prod(ra.where(x > MEAN, w * MEAN, 1), n), ra.prod(ra.where(y > 0, w + MEAN, 1), n),
    ra.argmax(ra.where(x > MEAN, x, y), n), ra.sum(ra.where(ra.eq(2 * x, LARGEST), w, 0), n),
    ra.sum(ra.where(ra.eq(2 * x, 2 * ra.max(y, n)), w, 0), n), ra.sum(Max(x, ra.max(y, n)), n),
    ra.sum(Abs(ra.where(MEAN > 0, x, y) - MEAN), n), ra.prod(ra.where(y > 0, exp(w * MEAN) + 1, 1), n),
)  # fmt: skip
"""Cascades that look alike and move with every element."""


@pytest.mark.parametrize("expr", FUSED, ids=str)
def test_it_is_exact(expr: Expr) -> None:
    assert isinstance(ra.analyze(expr), ra.Exact)


@pytest.mark.parametrize("expr", SPREAD, ids=str)
def test_what_moves_with_every_element_is_not(expr: Expr) -> None:
    assert not hasattr(ra.analyze(expr), "fused")


def test_the_power_of_a_masked_factor_is_explained() -> None:
    said = ra.fuse(ra.prod(ra.where(y > 0, w * MEAN, 1), n)).explain()
    assert "In prod_0 h moves out as its power prod_0_count, of the elements that have it." in " ".join(said.split())
    assert "n-th power" not in said


def test_a_choice_of_indices_is_an_index() -> None:
    fused = ra.fuse(ra.argmax(ra.where(MEAN > 0, x, y), n))
    source = fused.source(target="sm_90a", sizes={"b": 4, "n": 64}, dtypes={"x": "float32", "y": "float32"})
    assert 'out: T.Tensor((4,), "int64")' in source


OTHER = ra.mean(w, n)
BOUNDED = tanh(x) * tanh(OTHER) + tanh(y)
NEVER = (
    ra.max(Max(BOUNDED, 3), n), ra.max(Max(BOUNDED, Abs(x) + 3 + y**2), n),
    ra.max(Max(ra.where(x > OTHER, tanh(y), -oo), 3), n), ra.min(Min(BOUNDED, -3), n),
    ra.max(Max(Abs(x - OTHER) + 5, Abs(y - OTHER) + 5, BOUNDED), n),
)  # fmt: skip
"""What has a state, as the part that has none never gives the extremum."""
SOMETIMES = (
    ra.max(Max(x * OTHER + y, 3), n), ra.max(Abs(x * OTHER + y - OTHER), n), ra.max(Max(x * OTHER + y, w), n),
    ra.min(ra.where(x < OTHER, y, w), n), ra.max(ra.where(w > 0, x * OTHER + y, 1), n),
)  # fmt: skip


@pytest.mark.parametrize("expr", NEVER, ids=str)
def test_a_part_that_never_gives_the_extremum_is_no_theorem(expr: Expr) -> None:
    assert not isinstance(ra.analyze(expr), ra.Refused)


@pytest.mark.parametrize("expr", SOMETIMES, ids=str)
def test_a_part_that_gives_the_extremum_is(expr: Expr) -> None:
    verdict = ra.analyze(expr)
    assert isinstance(verdict, ra.Refused)
    assert verdict.certificate


MET = (
    ra.any(ra.eq(x, MEAN), n), ra.any(ra.eq(x, ra.max(y, n)), n), ra.all(ra.ne(2 * x + 1, OTHER**2), n),
    ra.any(ra.eq(exp(x), exp(OTHER)), n),
)  # fmt: skip
KNOWN = (
    ra.any(ra.eq(x, ra.first(x, n)), n), ra.any(ra.eq(sign(x), sign(OTHER)), n), ra.any(ra.eq(sign(x), OTHER), n),
    ra.any(ra.eq(x, LARGEST / 2), n), ra.any(ra.eq(x, ra.where(OTHER > 0, 1, 2)), n), ra.any(ra.eq(n, 3), n),
)  # fmt: skip


@pytest.mark.parametrize("expr", MET, ids=str)
def test_what_was_met_is_no_state(expr: Expr) -> None:
    verdict = ra.analyze(expr)
    assert isinstance(verdict, ra.Refused)
    assert verdict.certificate


@pytest.mark.parametrize("expr", KNOWN, ids=str)
def test_the_theorem_of_what_was_met_is_silent_elsewhere(expr: Expr) -> None:
    assert not isinstance(ra.analyze(expr), ra.Refused)


SPREAD_OF_X = ra.sum(Abs(x - MEAN), n)
NOT_READ = (
    ra.where(tanh(SPREAD_OF_X) > 2, 1, MEAN), Max(tanh(SPREAD_OF_X), 3), ra.where(sin(SPREAD_OF_X) > 2, 1, MEAN),
    ra.where(SPREAD_OF_X > -1, 5, MEAN), sign(tanh(SPREAD_OF_X) + 5), ra.sum(ra.where(tanh(SPREAD_OF_X) > 2, x, w), n),
)  # fmt: skip
READ = (
    ra.where(SPREAD_OF_X > 1000, 5, MEAN), Max(SPREAD_OF_X, 1000), sign(SPREAD_OF_X - 1000), SPREAD_OF_X,
    ra.where(tanh(SPREAD_OF_X) > ra.mean(w, n), 1, MEAN), ra.where(ra.sum(SPREAD_OF_X * w, n) > 10000, 1, 0),
)  # fmt: skip


@pytest.mark.parametrize("expr", NOT_READ, ids=str)
def test_what_no_output_reads_is_not_refused(expr: Expr) -> None:
    assert not isinstance(ra.analyze(expr), ra.Refused)


@pytest.mark.parametrize("expr", READ, ids=str)
def test_what_an_output_compares_without_bound_is_read(expr: Expr) -> None:
    assert isinstance(ra.analyze(expr), ra.Refused)
