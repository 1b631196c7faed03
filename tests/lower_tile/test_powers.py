"""Powers: the factors of a power give it, in the kernel's text and in the interpreter, and leave the range with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import And, Expr, Gt, Lt, Mul, Or, Pow, Rational, S, Symbol, oo, sqrt

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.powers import MOST, above_and_below, factors_of_power
from redalg.lower_tile.ir.program import index
from redalg.lower_tile.ir.scalars import Is, Load
from redalg.lower_tile.text.expr_printer import Printer

X = Symbol("x", positive=True)
HALVES = [Rational(n, 2) for n in range(-2 * MOST, 2 * MOST + 1) if n]
I = index("i")


@given(st.sampled_from(HALVES), st.floats(0.125, 8.0))
def test_a_power_is_the_product_of_its_factors(power: Rational, at: float) -> None:
    """Every rewrite of `powers`, to a rounding or two of each operation."""
    node = Pow(X, power)
    above, below = above_and_below((node,))
    made = value(Mul(*above), at) / value(Mul(*below), at)
    np.testing.assert_allclose(made, at ** float(power), rtol=40 * 2.0**-53)


def value(node: Expr, at: float) -> float:
    """The value of an expression by its factors, down to x and √x."""
    if node.is_Mul or factors_of_power(node):
        return float(np.prod([value(one, at) for one in factors_of_power(node) or node.args]))
    return at if node == X else at ** float(node.exp) if node.is_Pow else float(node)


@pytest.mark.parametrize(
    ("power", "text"),
    [
        (2, "x[i] * x[i]"),
        (3, "(x[i] * x[i]) * x[i]"),
        (4, "(x[i] * x[i]) * (x[i] * x[i])"),
        (Rational(3, 2), "x[i] * T.sqrt(x[i])"),
        (-S.Half, "T.rsqrt(x[i])"),
        (Rational(-3, 2), "T.rsqrt(x[i]) * T.rsqrt(x[i]) * T.rsqrt(x[i])"),
        (-1, "1.0 / x[i]"),
        (-2, "1.0 / (x[i] * x[i])"),
        (Rational(1, 3), "T.pow(x[i], constant(0.3333333333333333))"),
    ],
)
def test_the_text_of_a_power(power: Any, text: str) -> None:
    assert Printer({"x": "float32"}, "float32").number(Pow(Load("x", I), power)) == text


def test_the_text_asks_by_name_if_a_number_is_finite() -> None:
    """Not of a bound number, which is compared in float64, nor where only one end is asked."""
    x, printer = Load("x", I), Printer({"x": "float32", "s": "float32"}, "float32")
    assert printer.condition(And(Gt(x, -oo, evaluate=False), Lt(x, oo, evaluate=False))) == "is_finite(x[i])"
    assert printer.condition(Or(Is(x, oo), Is(x, -oo))) == "is_infinite(x[i])"
    assert "is_" not in printer.condition(Or(Is(x, oo), Is(Load("x", 0), -oo)))
    assert "is_" not in printer.condition(And(Gt(x, -oo, evaluate=False), Lt(x, 3)))
    assert "is_" not in printer.condition(And(*(f(Load("s"), end, evaluate=False) for f, end in ((Gt, -oo), (Lt, oo)))))


def test_a_power_of_a_product_is_taken_as_it_is_written() -> None:
    """(x·y)² as x²·y² might leave the range where x·y does not."""
    (square, root) = factors_of_power(Pow(X * Load("y"), Rational(5, 2), evaluate=False))
    assert square.is_Pow
    assert root.is_Pow


def test_the_skewness_of_a_row_has_no_call_of_pow() -> None:
    n = ra.axes("n")
    x = ra.tensor("x[b,n]")
    centre = ra.mean(x, n)
    spread = ra.mean((x - centre) ** 2, n)
    form = ra.fuse(ra.mean((x - centre) ** 3, n) / spread ** Rational(3, 2))
    text = form.source(target="sm_90a", sizes={"b": 4, "n": 64}, dtypes={"x": "float32"})
    assert "T.pow" not in text
    assert "T.rsqrt(" in text
    rng = np.random.default_rng(0)
    for scale in (1e-9, 1.0, 1e9):  # spread^(3/2) is out of range of float32 for two of them
        inputs = {"x": (scale * rng.gamma(2.0, size=(4, 64))).astype("f")}
        np.testing.assert_allclose(form(**inputs, backend="tilelang"), form.reference(**inputs), rtol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rsqrt_on_the_c_target_is_one_divided_by_the_root(dtype: str) -> None:
    """To the last bit, of numbers below the normal range too."""
    n = ra.axes("n")
    form = ra.fuse(1 / sqrt(ra.sum(ra.tensor("x[b,n]"), n)))
    values = np.concatenate([np.geomspace(1e-44, 1e38, 4001), [0.0, np.inf]]).astype(dtype)
    lowered = form.lower("c", {"b": len(values), "n": 1}, dtype)
    assert "T.rsqrt(" in lowered.source.text
    with np.errstate(divide="ignore"):
        wanted = np.asarray(1, dtype) / np.sqrt(values)
    inputs = {"x": values[:, None]}
    np.testing.assert_array_equal(np.asarray(form(**inputs, backend="tilelang")), wanted)
    np.testing.assert_array_equal(interpret(lowered.program, inputs)["out"], wanted)
