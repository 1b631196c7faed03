"""Quotients by known numbers, without the slow way of a division."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, Integer, Mod, Rational, exp, floor

import redalg as ra
from redalg.lower_tile.check.interpret import interpret, multiply_add
from redalg.lower_tile.ir.scalars import Divided, Load
from redalg.lower_tile.passes.divisors import LIMIT, by_known, divides_plainly, is_flat
from redalg.lower_tile.text.header_functions import DIVIDED
from redalg.runtime.lowered import Lowered
from tests.sweeps import draws

i, n = ra.axes("i n")
x = ra.tensor("x[b,n]")
A, B, D, COUNT = Load("a", i), Load("b", i), Load("d", i), Load("count", i)
NUMBERS = {"count": 33, "halves": 16}
VARIANCE = ra.var(x, n)


def divided(a: np.ndarray[Any, Any], number: int) -> np.ndarray[Any, Any]:
    """The function of a kernel's text, in NumPy's float32."""
    arithmetic = SimpleNamespace(float32=np.float32, max=np.fmax, min_value=lambda _: np.finfo(np.float32).min)
    scope: dict[str, Any] = {"T": arithmetic, "multiply_add": multiply_add}
    exec(DIVIDED, scope)
    found: np.ndarray[Any, Any] = scope["divided"](a, float(number))
    return found


def lowered(rows: int, length: int, schedule: ra.Schedule | None = None) -> Lowered:
    options = {} if schedule is None else {"plan": schedule}
    return ra.fuse(VARIANCE, axes="b").lower("H200", {"b": rows, "n": length}, "float32", **options)


@pytest.mark.parametrize(("expr", "expected"), [
    (A / 3, Divided(A, Integer(3))), (-A / 5, -Divided(A, Integer(5))), (A / COUNT, Divided(A, Integer(33))),
    (A * B / COUNT + 1, Divided(A * B, Integer(33)) + 1),
    ((A / 7) ** 2 + B, Divided(A**2, Integer(49)) + B), (A / 4, A / 4), (A * Rational(2, 3), A * Rational(2, 3)),
    (A / B, A / B), (A / Load("halves", i), A / Load("halves", i)), (A / (3 * COUNT), A / (3 * COUNT)),
    (A / COUNT**2, A / COUNT**2), (A / LIMIT, A / LIMIT), (Mod(A / 3, 2), Mod(A / 3, 2)), (floor(A / 3), floor(A / 3)),
    (1 / COUNT, 1 / COUNT), (Load("a", i / 3), Load("a", i / 3)), (Integer(1), Integer(1)),
])  # fmt: skip
def test_quotients_that_change(expr: Expr, expected: Expr) -> None:
    """Powers of two, several divisors, whole numbers, places and what no buffer is read for keep their quotients."""
    assert by_known(expr, NUMBERS) == expected


@pytest.mark.parametrize(("reader", "flat"), [
    (3 * D**2 + B - 2 * D * A, True), (D * (3 * D - 2 * A), True), (B - 2 * D * A + D**2 * COUNT / 11, True),
    (B - D * A, False), (3 * D**2 + B - 2 * D * A + D, False), (exp(3 * D**2 - 2 * D * A), False),
    (3 * D**2 - 2 * D * Load("a", 0), False), (3 * D**2 - 2 * D * A + Load("d", 0), False),
])  # fmt: skip
def test_readers_of_a_quotient_where_their_slope_is_0(reader: Expr, flat: bool) -> None:
    assert is_flat(reader, D, A / 3, NUMBERS) is flat


@given(st.integers(3, LIMIT - 1).filter(lambda one: one & (one - 1) != 0), st.integers(0, 2**32 - 1))
@settings(max_examples=draws(40))
def test_the_quotient_is_right_to_its_last_digit(number: int, seed: int) -> None:
    """Of all exponents whose quotient is no less than 2^-100, and of the extremes; below, off by one last digit."""
    generator = np.random.default_rng(seed)
    bits = generator.integers(-(2**31), 2**31, 4096).astype(np.int32)
    a = np.concatenate([bits.view(np.float32), np.float32([0, -0.0, np.inf, -np.inf, np.nan, number, -number, 3e38])])
    with np.errstate(all="ignore"):
        found, exact = divided(a, number), a / np.float32(number)
    normal = ~(np.abs(exact) < 2.0**-100)
    np.testing.assert_array_equal(found[normal], exact[normal])
    np.testing.assert_allclose(found[~normal], exact[~normal], rtol=2.0**-23, atol=2.0**-149)


def test_a_thread_with_rows_of_its_own_divides_so() -> None:
    """A row that threads share is divided once, as it is written; so is one of 4 elements."""
    text = lowered(262144, 3).source.text
    assert text.count("= divided(") == 2
    assert "delta_sum_1[i] = constant(0.333" in text
    assert divides_plainly(A / 33, {})
    assert not divides_plainly(A / 41, {})  # 41·(1/41) is not 1 in float32
    assert " / " not in text[text.index("@T.prim_func") :]
    shared = ra.Schedule(ra.Grid("b"), ra.Whole("n", 1024), ra.Lanes("n", 32))
    for other in (lowered(262144, 4), lowered(64, 1000, shared)):
        assert "divided(" not in other.source.text
    assert "divided(" not in ra.fuse(VARIANCE, axes="b").source("c", {"b": 64, "n": 3}, "float32")


@given(st.integers(1, 300), st.sampled_from([3, 5, 7, 12]), st.integers(0, 99))
@settings(max_examples=draws(10))
def test_results_stay(rows: int, length: int, seed: int) -> None:
    """The variance of equal numbers is 0, whatever their mean is rounded to."""
    generator = np.random.default_rng(seed)
    values = generator.normal(3, 1, (rows, length)).astype(np.float32)
    values[::2] = values[::2, :1]
    [found] = interpret(lowered(rows, length).program, {"x": values}).values()
    np.testing.assert_allclose(found, values.astype(np.float64).var(1), rtol=2e-5, atol=1e-12)
    assert (found[::2] == 0).all()


@pytest.mark.gpu
def test_a_gpu_keeps_what_is_infinite() -> None:
    """Whatever a compiler folds: TVM takes x == x for true."""
    values = torch.randn(4096, 3, device="cuda") * 10.0 ** torch.randint(-30, 30, (4096, 1), device="cuda")
    values[:4] = torch.tensor([[torch.inf, 1, 2], [-torch.inf, 1, 2], [torch.nan, 1, 2], [torch.inf, -torch.inf, 0]])
    mean = ra.fuse(ra.mean(x, n), axes="b")(x=values).double()
    exact = values.double().mean(1)
    torch.testing.assert_close(mean[:4], exact[:4], equal_nan=True)
    assert ((mean - exact).abs()[4:] <= 3e-7 * values.abs().amax(1)[4:]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("length", [3, 5, 7, 12, 17])
def test_a_gpu_divides_so(length: int) -> None:
    x = torch.randn(4099, length, device="cuda") * 3 + 1e3
    x[::2] = x[::2, :1].clone()
    x[5, 0], x[7, 1], x[9, 2] = torch.inf, -torch.inf, torch.nan
    found = ra.fuse(VARIANCE, axes="b")(x=x)
    exact = x.double().var(1, correction=0)
    assert torch.isnan(found[[5, 7, 9]]).all()
    assert (found[::2] == 0).all()
    rest = ~torch.isnan(exact)
    torch.testing.assert_close(found[rest].double(), exact[rest], rtol=2e-5, atol=1e-9)
