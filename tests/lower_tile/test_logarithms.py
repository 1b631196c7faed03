"""Products with logarithms in kernels: 0·log 0 counts for nothing, as in the definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, exp, log

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.place.expressions import without_hidden_choice
from tests.sweeps import draws

b, n = ra.axes("b n")
x, y = ra.tensors("x[b,n] y[b,n]")
PRODUCTS: dict[str, Expr] = {
    "of itself": ra.sum(x * log(x), n),
    "of a square": ra.sum(x**2 * log(x), n),
    "of another": ra.sum(3 * y * log(x), n),
    "of a sum": ra.sum(y * (log(x) + 1), n),
    "of a choice": ra.sum(y * ra.where(y > 1, log(x), 2), n),
    "of a mean": ra.mean(x, n) * log(ra.mean(x, n)) - ra.mean(x * log(x), n),
    "elementwise": x * log(x) / ra.sum(x, n),
}
FUSED = {name: ra.fuse(expr, axes="b n" if name == "elementwise" else "b") for name, expr in PRODUCTS.items()}
SIZES = {"b": 2, "n": 5}
PROGRAMS = {name: fused.lower("c", sizes=SIZES, dtypes="float32").program for name, fused in FUSED.items()}
numbers = st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=10, max_size=10)


@given(st.sampled_from(sorted(PRODUCTS)), numbers, numbers)
@settings(max_examples=draws(60))
def test_a_kernel_takes_no_part_of_0_times_log_0(name: str, first: list[float], second: list[float]) -> None:
    """f·g  →  where(f = 0 ∧ g = −∞, 0, f·g), g a logarithm, or a sum or a choice that holds one."""
    every = {"x": np.array(first, "float32").reshape(2, 5), "y": np.array(second, "float32").reshape(2, 5)}
    tensors = {key: every[key] for key in FUSED[name].cascade.inputs()}
    with np.errstate(all="ignore"):
        found, wanted = interpret(PROGRAMS[name], tensors)["out"], FUSED[name].reference(**tensors)
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


def test_a_compiled_kernel_gives_what_the_definition_gives() -> None:
    data = torch.tensor([[0.0, 1, 2], [0, 0, 0]])
    fused = FUSED["of itself"]
    assert fused(x=data, backend="tilelang").tolist() == pytest.approx(fused.reference(x=data).tolist())


def test_a_product_is_guarded_once() -> None:
    """where(c, a, where(c ∧ e, b, d))  →  where(c, a, d)."""
    source = ra.fuse(ra.entropy(x, n)).source("c", sizes=SIZES, dtypes="float32")
    assert source.count("if_then_else") == 1
    assert without_hidden_choice(x > 0, y, ra.where(ra.logical_and(x > 0, y > 0), 0, x)) == ra.where(x > 0, y, x)


def test_what_is_no_logarithm_of_0_has_no_guard() -> None:
    unguarded = (ra.sum(y / (1 + exp(log(x))), n), ra.sum(2 * log(x), n), ra.sum(y * log(2), n))
    for expr in unguarded:
        assert "if_then_else" not in ra.fuse(expr).source("c", sizes=SIZES, dtypes="float32")
