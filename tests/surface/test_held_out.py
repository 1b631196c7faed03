"""Cascades that were drawn up after the engine, on data that are hostile to them, beside plain definitions.

Each kind of data has its own weakness: logits of ±1e4, an offset, an outlier, equal elements, masked places that hold
NaN, a row that no element enters, and one element alone. `tests/cases/held_out.py` has the cascades.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sympy import sqrt

import redalg as ra
from redalg.verdicts import Refused
from tests.cases.held_out import DATA, EXPONENTIALS, LENGTH, LOGITS, MASKED, ROWS, SEVERAL, TWO_PASSES, n, spread
from tests.cases.rows import Row, assert_right, error


@pytest.mark.parametrize("kind", LOGITS)
@pytest.mark.parametrize("name", EXPONENTIALS)
def test_exponentials_stay_in_range(name: str, kind: str) -> None:
    expr, names, definition = EXPONENTIALS[name]
    rng = np.random.default_rng(0)
    offset, scale = LOGITS[kind]
    given = {one: rng.standard_normal((ROWS, LENGTH)) for one in names.split()}
    given |= {one: offset + scale * given[one] for one in "st" if one in given}
    assert_right(Row(expr, "b", given, definition, single=kind in ("plain", "of ±1e4")))


@pytest.mark.parametrize("name", MASKED)
def test_what_a_mask_hides_may_be_anything(name: str) -> None:
    expr, definition = MASKED[name]
    rng = np.random.default_rng(1)
    given = {one: rng.standard_normal((5, LENGTH)) for one in "szy"}
    given["z"][:, 3:6] = -1
    given["s"][0, 3], given["y"][0, 4], given["s"][1, 5], given["y"][1, 3] = np.nan, np.inf, np.inf, np.nan
    given["s"][2], given["z"][3] = -np.inf, -1
    given["z"][4, 0], given["y"][4, 0] = 1, np.nan
    assert_right(Row(expr, "b", given, definition))


@pytest.mark.parametrize("names", ["x y", "y x", "a zz", "d e"])
def test_a_difference_is_taken_before_its_centre(names: str) -> None:
    """(x − y) − c, as c is small beside x: what a kernel subtracts first is no matter of the alphabet."""
    first, second = names.split()
    u = ra.tensor(f"{first}[b,n]") - ra.tensor(f"{second}[b,n]")
    rng = np.random.default_rng(2)
    given = {one: 1e8 + rng.standard_normal((ROWS, LENGTH)) for one in (first, second)}
    statistic = ra.mean(u, n) / sqrt((ra.mean(u**2, n) - ra.mean(u, n) ** 2) / (n.extent - 1))

    def definition(**tensors: Any) -> Any:
        v = tensors[first] - tensors[second]
        return v.mean(1) / np.sqrt(spread(v) / (LENGTH - 1))

    assert_right(Row(statistic, "b", given, definition, close=1e-12, single=False))
    near = {one: array - 1e8 + 1e4 for one, array in given.items()}
    assert_right(Row(ra.var(u, n), "b", near, lambda **tensors: spread(tensors[first] - tensors[second])))


@pytest.mark.parametrize("name", TWO_PASSES)
def test_two_passes_know_the_count_in_each(name: str) -> None:
    expr, definition = TWO_PASSES[name]
    rng = np.random.default_rng(4)
    given = {"x": 1e4 + rng.standard_normal((ROWS, LENGTH)), "y": rng.standard_normal((ROWS, LENGTH))}
    verdict = ra.analyze(expr)
    assert isinstance(verdict, Refused)
    assert verdict.hint.startswith("Run two passes: `ra.fuse(…, passes=2)` computes ")
    assert_right(Row(expr, "b", given, definition, passes=2))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("name", SEVERAL)
def test_a_statistic_keeps_its_digits(name: str, kind: str) -> None:
    """Beside a definition that loses digits in float64 itself a result may lose as many, thirty times over."""
    expr, names, definition = SEVERAL[name]
    rng = np.random.default_rng(3)
    drawn = {one: rng.standard_normal((ROWS, LENGTH)) for one in names.split()}
    drawn = {one: np.exp(a) if one in "wz" else a for one, a in drawn.items()}
    given = {one: DATA[kind](one, a) for one, a in drawn.items()}
    row = Row(expr, "b", given, definition, single=False)
    lost = error(row.defined(np.float64), row.defined(np.longdouble))
    assert lost < 1e-6
    assert_right(replace(row, close=1e-10 + 30 * lost))
