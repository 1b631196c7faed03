"""The share of random cascades on which there is no verdict, over the generators of `tests/fuzz`."""

from __future__ import annotations

import warnings

import pytest

from redalg.errors import ExpressionError
from tests.fuzz import one_axis, two_axes
from tests.fuzz.case import Case
from tests.fuzz.verdicts import Tally, decide

MOST = 0.08
"""The share that is allowed."""


def cases(first: int, last: int) -> list[Case]:
    """The cases of both generators of a range of seeds."""
    made = []
    for seed in range(first, last):
        for generator in (one_axis, two_axes):
            try:
                made.append(generator.case(seed))
            except ExpressionError:
                continue
    return made


def share(first: int, last: int) -> tuple[float, Tally]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Tally()
        for case in cases(first, last):
            made.add(decide(case))
    return made.kinds["Undecided"] / made.read, made


def test_few_of_some_are_undecided() -> None:
    found, made = share(0, 80)
    assert made.read > 140
    assert found < MOST, "\n".join(made.text())


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 4000, 1000))
def test_few_are_undecided(first: int) -> None:
    found, made = share(first, first + 1000)
    assert made.read > 1700
    assert found < MOST, "\n".join(made.text())
