"""Products of roots and logarithms of quotients of undeclared sign: NaN where they are not real, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from sympy import Expr, Rational, log, sqrt

import redalg as ra

n = ra.axes("n")
p, q, w = ra.tensors("p[b,n] q[b,n] w[b,n]")
P, Q = ra.sum(p, n), ra.sum(q, n)
TERMS: dict[str, Expr] = {
    "square of a root less 1": (sqrt(p / P) - 1) ** 2,
    "square of two roots": (sqrt(p / P) - sqrt(q / Q)) ** 2,
    "weighted root": sqrt(p / P) * w,
    "square of a root and data": (sqrt(p / P) + w) ** 2,
    "square of a logarithm and data": (log(p / P) - w) ** 2,
    "square of two logarithms": (log(p / P) - log(q / Q)) ** 2,
    "power of 3/2": (p / P) ** Rational(3, 2) * w,
    "square of a root and a mean": (sqrt(p / P) - ra.mean(w, n)) ** 2,
    "root under a mask": ra.where(w > 0, sqrt(p / P) - w, 0) ** 2,
    "weights that vanish": ra.softmax(w, n) * (log(p / P) - w) ** 2,
}
SIGNS = {"positive": (1, 1), "negative": (-1, -1), "one of each": (1, -1), "both": (0, 0)}


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("name", TERMS)
def test_it_is_nan_where_the_definition_is(name: str, signs: str, backend: str) -> None:
    fused = ra.fuse(ra.sum(TERMS[name], n), axes="b")
    random = np.random.default_rng(0)
    drawn = [random.normal(size=(3, 20)) for _ in range(3)]
    signed = [one if sign == 0 else sign * np.abs(one) for one, sign in zip(drawn, (*SIGNS[signs], 0), strict=True)]
    data = {name: one for name, one in zip("pqw", signed, strict=True) if name in fused.cascade.inputs()}
    np.testing.assert_allclose(fused(**data, backend=backend), fused.reference(**data), rtol=1e-9)


def test_no_state_holds_products_of_nan() -> None:
    """A state has one sum for each sign in which a root is not real."""
    fused = ra.fuse(ra.sum((sqrt(p / P) + w) ** 2, n), axes="b")
    masks = [one for one in fused.form.accumulators if "nan" in str(one.term)]
    assert [str(one.term) for one in masks] == ["where(p[b, n] < 0, nan, 0)", "where(p[b, n] > 0, nan, 0)"]


def test_a_power_of_an_indicator_is_one() -> None:
    mask = ra.where(w > 0, 1, 0)
    assert mask**3 == mask
    assert sqrt(mask) == mask
    assert mask**-1 != mask
    assert ra.where(w > 0, 2, 0) ** 2 != ra.where(w > 0, 2, 0)
