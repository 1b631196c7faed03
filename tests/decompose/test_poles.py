"""Poles that stay in lowest terms: what the test on a line says of them, and that SymPy says the same."""

from __future__ import annotations

import pytest
from sympy import Abs, Expr, Max, cancel, exp, fraction, sqrt

import redalg as ra
from redalg.decompose.separate.poles import keeps_pole
from redalg.decompose.separate.separate import Separator
from redalg.expression import Label, Value
from redalg.expression.contents import elements_of, values_of

b, n = ra.axes("b n")
x, y, t = ra.tensors("x[b,n] y[b,n] t[b]")
v = Value(Label("v"), b)
FACTS = {v: ("sum", x)}
KEPT = (
    1 / (x - v), x / (x - v) + y, x * (x + v) / (x - v) ** 2, y / ((x - v) ** 2 + 1), (x**2 - y**2) / (x - v),
    y / (1 + (x - sqrt(1 + v**2)) ** 2), Max(x, y) / (x * v + t),
)  # fmt: skip
GONE = ((x**2 - v**2) / (x - v), x / (x - v) - v / (x - v), 1 / (x * v + x), (x**3 - v**3) / (x - v) / (1 + v**2))
UNSAID = (exp(x) / (x - v), 1 / (Abs(x) - x * v), Max(x, v) / (x - v), 1 / ((sqrt(x + v) - 1) * (sqrt(x + v) + 1)))


def keeps(term: Expr) -> bool:
    return keeps_pole(term, Separator((n,), (v,), dict(FACTS)))


@pytest.mark.parametrize("term", KEPT, ids=str)
def test_a_pole_stays(term: Expr) -> None:
    assert keeps(term)
    below = fraction(cancel(term))[1]
    assert elements_of(below)
    assert values_of(below)


@pytest.mark.parametrize("term", GONE, ids=str)
def test_a_pole_cancels(term: Expr) -> None:
    assert not keeps(term)


@pytest.mark.parametrize("term", UNSAID, ids=str)
def test_nothing_is_said_of_what_products_rewrite(term: Expr) -> None:
    assert not keeps(term)
