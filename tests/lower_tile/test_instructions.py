"""Functions of float32 as one instruction each, where a thread takes one element after another."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, Mod, Rational, exp, floor, log, oo, sqrt

import redalg as ra
from redalg.expression.infinite import may_mask
from redalg.lower_tile.check.interpret import instruction
from redalg.lower_tile.ir.scalars import Instruction, Kept, Load
from redalg.lower_tile.passes.instructions import in_instructions
from redalg.lower_tile.text.bindings import INSTRUCTIONS

i, j, d = ra.axes("i j d")
x, y, w, s = ra.tensors("x[i,d] y[j,d] w[j] s[i,j]")
A, B = Load("a", i), Load("b", j)
SQUARE = ra.sum((x - y) ** 2, d)
SIZES = {"i": 4096, "j": 4096, "d": 3}


def loop_of(expr: Expr, **options: str) -> str:
    """The loop over elements of a sum over pairs of points."""
    text = ra.fuse(ra.sum(expr, j), axes="i").source("sm_90a", sizes=SIZES, dtypes=options.get("dtypes", "float32"))
    return str(text).split("for j in")[1].split("T.Kernel")[0]


@pytest.mark.parametrize(("expr", "function"), [
    (w * exp(-SQUARE), "power_of_two"), (w / (1 + SQUARE), "reciprocal_of"), (w * sqrt(SQUARE), "root_of"),
    (w / sqrt(1 + SQUARE), "inverse_root_of"), (w / (1 + SQUARE) ** Rational(3, 2), "inverse_root_of"),
])  # fmt: skip
def test_a_function_is_one_instruction(expr: Expr, function: str) -> None:
    loop = loop_of(expr)
    assert loop.count(f"{function}(") == 1
    assert not any(one in loop for one in ("T.exp", "T.sqrt", "T.rsqrt", " / "))


def test_other_functions_stay() -> None:
    """Float64 has no such instructions; whole numbers and conditions keep their digits, and data their `exp`."""
    assert "T.exp(" in loop_of(w * exp(-SQUARE), dtypes="float64")
    assert "T.log(" in loop_of(w * log(1 + SQUARE))
    for expr in (floor(A / B), Mod(A / B, 2), ra.where(A / B < 1, B, 0), exp(A), exp(-A), A / 3, A**2):
        assert in_instructions(expr) == expr


def test_powers() -> None:
    reciprocal, root = Instruction("reciprocal_of", B), Instruction("root_of", B)
    inverse_root = Instruction("inverse_root_of", B)
    assert in_instructions(A / B) == A * reciprocal
    assert in_instructions(sqrt(B)) == root
    assert in_instructions(B ** Rational(5, 2)) == B**2 * root
    assert in_instructions(B ** Rational(-3, 2)) == inverse_root**3
    assert in_instructions(B ** Rational(-5, 2)).atoms(Instruction) == {
        inverse_root,
        Instruction("reciprocal_of", B**2),
    }
    assert in_instructions(exp(A * B)) == Instruction("power_of_two", Kept(A * B) * 1.4426950408889634)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(INSTRUCTIONS)), st.floats(-200, 200, width=32) | st.sampled_from([0.0, 1e-40, np.inf]))
def test_instructions_are_the_functions(name: str, number: float) -> None:
    """What the interpreter takes them for: the function, but for what is below the least normal number."""
    exact = {"power_of_two": lambda t: 2.0**t, "reciprocal_of": lambda t: 1 / t, "root_of": lambda t: t**0.5,
             "inverse_root_of": lambda t: t**-0.5}[name]  # fmt: skip
    number = number if name == "power_of_two" else abs(number)
    with np.errstate(all="ignore"):
        found, wanted = instruction(name, np.float32(number)), exact(np.float64(np.float32(number)))
    if wanted > np.finfo(np.float32).max:
        assert found == np.inf
    else:
        assert found == pytest.approx(wanted if abs(wanted) >= 2.0**-126 else 0, rel=1e-6, abs=0)


@pytest.mark.parametrize(("exponent", "masks"), [
    (-((x - y) ** 2), False), (-SQUARE / 2, False), (s / 8, True), (-SQUARE + s, True),
    (ra.where(i < j, -SQUARE, -oo), True),
    (log(w), True), (-log(w) ** 2, True), (i - j, False), (-1 / w**2, True),
])  # fmt: skip
def test_exponents_that_may_mask(exponent: Expr, masks: bool) -> None:
    assert may_mask(exponent) is masks


@pytest.mark.parametrize("expr", [
    w * exp(-SQUARE), w * sqrt(SQUARE) / (1 + SQUARE), w * (1 + SQUARE) ** Rational(-5, 2),
    ra.where(SQUARE < 1, 1 / w, 0),
])  # fmt: skip
def test_sums_are_as_the_definition(expr: Expr) -> None:
    form = ra.fuse(ra.sum(expr, j), axes="i")
    generator = torch.Generator().manual_seed(0)
    data = {"x": torch.randn(37, 3, generator=generator), "y": torch.randn(300, 3, generator=generator),
            "w": 0.5 + torch.rand(300, generator=generator)}  # fmt: skip
    wanted = form.reference(**{key: one.double() for key, one in data.items()})
    torch.testing.assert_close(form(**data, backend="tilelang").double(), wanted, rtol=2e-6, atol=2e-6)


def test_a_weight_that_nothing_masks_is_not_asked_for_infinity() -> None:
    """A square is −∞ of infinite data alone, where 0·w is what a user wrote; a logarithm is of 0."""
    assert "infinity" not in loop_of(w * exp(-SQUARE))
    assert "infinity" in loop_of(w * exp(-SQUARE - log(1 + w) ** 2))
