"""Theorems against what they refuse: data that are drawn jointly try to break every one that the engine can state."""

from __future__ import annotations

from sympy import Max, oo

import redalg as ra
from tests.decided import n, x


def test_a_clip_at_the_second_largest_is_not_refused() -> None:
    """n·m₂ + ties·(m₁ − m₂): only what attains the maximum lies above."""
    largest = ra.max(x, n)
    second = ra.max(ra.where(x < largest, x, -oo), n)
    assert not isinstance(ra.analyze(ra.sum(Max(x, second), n)), ra.Refused)
