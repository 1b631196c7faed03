"""Verdicts on masked products, on choices by d and on who attains an extremum, and what is said of them."""

from __future__ import annotations

import pytest
from sympy import Abs, Expr, Max, exp

import redalg as ra
from tests.decided import LARGEST, MEAN, n, w, x, y
from tests.rewrites_of_choices import ATTAINED as EXTREMAL
from tests.rewrites_of_choices import BELOW, CHOSEN, CLIPPED, MASKED, OF_SEVERAL, TRUTHS, UNSIGNED

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
