"""Exponents with a product of a difference, (y − x)·a: it stays whole, as y·a and x·a may be large where it is not."""

from __future__ import annotations

import numpy as np
import pytest
from sympy import Add, Expr, exp

import redalg as ra
from redalg.decompose.separate.separate import Separator

q, k = ra.axes("q k")
X, Y, S, V, A = ra.tensors("x[q] y[k] s[q,k] v[k] a")
EXPONENTS = {"tensors": (Y - X) * A + S, "negated": S / 2 - (X - Y) * A, "positions": S - abs(X - Y) * A,
             "of one weight": (Y - X) * ra.tensor("b[k]") + S}  # fmt: skip


def outputs(u: Expr) -> dict[str, tuple[Expr, str]]:
    """What a person writes of a softmax, with its statistics as outputs."""
    m = ra.max(u, k)
    total = ra.sum(exp(u - m), k)
    return {"m": (m, "q"), "l": (total, "q"), "mean": (ra.sum(exp(u - m) * V, k) / total, "q")}


@pytest.mark.parametrize("name", EXPONENTS)
def test_the_pivot_is_the_maximum_that_the_user_wrote(name: str) -> None:
    form = ra.fuse(outputs(EXPONENTS[name])).form
    assert [str(one.value.name) for one in form.extrema] == ["max_0"]


@pytest.mark.parametrize("name", EXPONENTS)
def test_a_difference_of_large_numbers_keeps_its_digits(name: str) -> None:
    rng = np.random.default_rng(0)
    tensors = {"x": rng.normal(1e5, 1, 3), "y": rng.normal(1e5, 1, 50), "s": rng.normal(0, 1, (3, 50)),
               "v": rng.normal(0, 1, 50), "a": np.array(0.7), "b": rng.normal(0, 1, 50)}  # fmt: skip
    form = ra.fuse(outputs(EXPONENTS[name]))
    names = {one.name for one in form.cascade.elements()}
    single = {key: one.astype(np.float32) for key, one in tensors.items() if key in names}
    found = form(**single, backend="numpy")
    exact = form.reference(**{key: one.astype(np.float64) for key, one in single.items()})
    for one, true in zip(found, exact, strict=True):
        np.testing.assert_allclose(one, true, rtol=3e-6, atol=3e-6)


def test_terms_that_cancel_are_opened_together() -> None:
    """v·(d + 1) − v·d is v: opened one by one, neither of both terms would be separable."""
    label = ra.fuse(ra.max(V, k), axes="").form.cascade.reductions[0].value
    separator = Separator(k, [label], {label: ("max", V)})
    opened = exp(Add(V * (label + 1), -V * label, evaluate=False), evaluate=False)
    assert separator.separate(opened) == separator.pure(exp(V))
