"""Ratios of moments that are nearly 1: what they exceed 1 by keeps its digits, whole and in pieces."""

from collections.abc import Callable

import numpy as np
import pytest
from sympy import Expr, exp, log, sqrt

import redalg as ra
from tests.cases.digits import Case, measured, normal, of

b, n = ra.axes("b n")
x, y, s = ra.tensors("x[b,n] y[b,n] s[b,n]")
weight = ra.softmax(s, n)


def mean(term: Expr) -> Expr:
    return ra.sum(term, n) / n.extent


def mean_of_square(term: Expr) -> Expr:
    return mean(term**2)


SPELLINGS: dict[str, Callable[[], Expr]] = {
    "m₂/m² − 1": lambda: mean_of_square(x) / mean(x) ** 2 - 1,
    "1 − m²/m₂": lambda: 1 - mean(x) ** 2 / mean_of_square(x),
    "n·S₂/S² − 1": lambda: n.extent * ra.sum(x**2, n) / ra.sum(x, n) ** 2 - 1,
    "a root": lambda: sqrt(mean_of_square(x) / mean(x) ** 2 - 1),
    "a factor beside": lambda: 3 * (mean_of_square(x) / mean(x) ** 2 - 1) * ra.max(x, n),
    "log m₂ − 2·log m": lambda: log(mean_of_square(x)) - 2 * log(mean(x)),
    "log m₂/m²": lambda: log(mean_of_square(x) / mean(x) ** 2),
    "one more log": lambda: log(mean_of_square(x)) - 2 * log(mean(x)) + log(ra.var(x, n)) / 1000,
    "by softmax": lambda: ra.sum(weight * x**2, n) / ra.sum(weight * x, n) ** 2 - 1,
}
PAIRS: dict[str, Callable[[], Expr]] = {
    "m_xy/(m_x·m_y) − 1": lambda: mean(x * y) / (mean(x) * mean(y)) - 1,
    "log m_xy": lambda: log(mean(x * y)) - log(mean(x)) - log(mean(y)),
}


def cases() -> list[Case]:
    made = list[Case]()
    for offset in (1e4, 1e6):
        given = {"x": normal(offset)}
        for name, term in SPELLINGS.items():
            made.append(of(f"{name} at {offset:g}", term, **given, **({"s": normal()} if name == "by softmax" else {})))
    far = {"x": normal(1e4), "y": normal(3e4)}
    made += [of(name, term, **far) for name, term in PAIRS.items()]
    small = {"x": normal(1, 1e-3)}
    return [*made, of("of an exponential", lambda: mean_of_square(exp(x)) / mean(exp(x)) ** 2 - 1, **small)]


@pytest.mark.parametrize("case", cases(), ids=str)
def test_what_a_ratio_exceeds_1_by_keeps_its_digits(case: Case) -> None:
    found = measured(case, kernel=False)
    assert max(found.whole, found.pieces) <= 1e-4, found


def test_a_kernel_keeps_the_digits_too() -> None:
    assert measured(of("log", SPELLINGS["log m₂ − 2·log m"], x=normal(1e6))).kernel <= 1e-4


def test_a_logarithm_of_a_negative_mean_is_no_number() -> None:
    """As it is written, log m is NaN of m < 0, and log(m₂/m²) is a number."""
    data = {"x": -np.abs(np.random.default_rng(0).standard_normal((2, 9))) - 1}
    assert np.isnan(ra.fuse(SPELLINGS["log m₂ − 2·log m"](), axes="b")(**data)).all()
    made = ra.fuse(SPELLINGS["log m₂/m²"](), axes="b")
    np.testing.assert_allclose(made(**data), made.reference(**data), rtol=1e-12)


@pytest.mark.parametrize("fill", [0.0, np.inf, np.nan])
def test_degenerate_data_give_what_the_definition_gives(fill: float) -> None:
    data = {"x": np.full((2, 5), fill)}
    for name in ("m₂/m² − 1", "n·S₂/S² − 1", "log m₂ − 2·log m", "log m₂/m²"):
        made = ra.fuse(SPELLINGS[name](), axes="b")
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(np.isnan(made(**data)), np.isnan(made.reference(**data)))
