"""Rows of 16 bits are written about one number, their mean: as near the definition as their dtype is."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import sqrt

import redalg as ra
from redalg import library
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.lowered import Lowered
from redalg.strategies.rules.powers import power_of_two
from tests.sweeps import draws

Dtypes = str | Mapping[str, str]
LENGTH = 512
NORM = library.layer_norm()


def lowered(function: ra.Fused, dtypes: Dtypes, *, length: int = LENGTH, device: str = "sm_90a") -> Lowered:
    """The program of rows that one tile holds."""
    schedule = ra.Schedule(
        ra.Grid("b"), ra.Whole("n", power_of_two(length)), ra.Lanes("n", max(32, power_of_two(length) // 128))
    )
    return function.lower(device, sizes={"b": 3, "n": length}, dtypes=dtypes, plan=schedule)


@pytest.mark.parametrize(("dtype", "joined"), [("bfloat16", True), ("float16", True), ("float32", False)])
def test_a_mean_is_one_number_where_elements_have_few_digits(dtype: str, joined: bool) -> None:
    text = lowered(NORM, dtype).source.text
    [out] = text.split("out[b_block + i, j] =")[1:]
    assert ("factor_2" in out) is not joined  # c and δ apart are a factor more


def test_other_differences_stay_apart() -> None:
    """log Σ exp(x − m) may be small beside m, and is the output where x = m."""
    text = lowered(library.log_softmax(), "bfloat16").source.text
    [out] = text.split("out[b_block + i, j] =")[1:]
    assert "factor_1" in out


def sums(text: str) -> int:
    """The number of sums over a row, without those of its ends, if it begins within a vector."""
    return len(re.findall(r"T\.reduce_sum\(\w+(?<!_ends),", text))


@pytest.mark.parametrize(("dtype", "length", "number"), [
    ("bfloat16", 512, 2), ("bfloat16", 16384, 2), ("float16", 2048, 2), ("bfloat16", 777, 2),
    ("bfloat16", 32768, 3), ("float16", 4096, 3), ("float32", 512, 3),
])  # fmt: skip
def test_a_total_gives_the_mean_where_float32_holds_the_sums_of_few_digits(
    dtype: str, length: int, number: int
) -> None:
    assert sums(lowered(NORM, dtype, length=length).source.text) == number


def test_an_output_that_shows_more_digits_asks_for_the_sum_about_the_mean() -> None:
    b, n = ra.axes("b n")
    x = ra.Tensor("x")[b, n]
    outputs = {"y": ((x - ra.mean(x, n)) / sqrt(ra.var(x, n) + 1), "b n"), "mean": (ra.mean(x, n), "b")}
    few, more = ({"x": "bfloat16", "y": "bfloat16", "mean": one} for one in ("bfloat16", "float32"))
    assert [sums(lowered(ra.fuse(outputs), one).source.text) for one in (few, more)] == [2, 3]


def test_other_terms_and_processors_that_round_twice_keep_the_sum_about_the_mean() -> None:
    n = ra.Axis("n")
    x, y = ra.tensors("x[b,n] y[b,n]")
    products = ra.fuse((x * y - ra.mean(x * y, n)) / sqrt(ra.var(x * y, n) + 1), axes="b n")
    assert sums(lowered(products, "bfloat16").source.text) == 3
    centred = ra.fuse((x - ra.mean(x, n)) / sqrt(ra.var(x, n) + 1), axes="b n")
    texts = [lowered(centred, "float16", length=length, device="c").source.text for length in (512, 500)]
    assert ["- 512.0 *" in texts[0], "- 500.0 *" in texts[1]] == [True, False]


@pytest.mark.parametrize("special", [float("inf"), float("-inf"), float("nan")])
def test_rows_that_are_not_finite_are_nan_and_others_are_not(special: float) -> None:
    x = np.random.default_rng(0).normal(0, 1, (3, LENGTH)).astype(np.float32)
    x[1, 7] = special
    ones = np.ones(LENGTH, np.float32)
    [out] = interpret(lowered(NORM, "bfloat16").program, {"x": x, "weight": ones, "bias": 0 * ones}).values()
    assert np.isnan(out).all(-1).tolist() == [False, True, False]
    assert np.isfinite(out[[0, 2]]).all()


@given(
    st.sampled_from(["bfloat16", "float16"]),
    st.sampled_from([0.0, 1.0, 100.0, -3000.0]),
    st.sampled_from([0.0, 0.01, 1.0, 30.0]),
    st.sampled_from([1.0, 1e-3, 500.0]),
    st.integers(0, 99),
)
@settings(max_examples=draws(40))
def test_rows_far_from_zero_keep_their_digits(
    dtype: str, offset: float, spread: float, far: float, seed: int
) -> None:  # fmt: skip
    """Within two roundings of the output's dtype of the row's largest; alike elements give the bias.

    One element of the last row is far from the others.
    """
    generator = torch.Generator().manual_seed(seed)
    x = offset + spread * torch.randn(3, LENGTH, generator=generator)
    x[2, 5] *= far
    x = x.clamp(-6e4, 6e4).to(getattr(torch, dtype))
    weight, bias = (torch.randn(LENGTH, generator=generator).to(x.dtype) for _ in range(2))
    tensors = {"x": x, "weight": weight, "bias": bias}
    [out] = interpret(
        lowered(NORM, dtype).program, {name: one.float().numpy() for name, one in tensors.items()}
    ).values()
    wanted = torch.nn.functional.layer_norm(x.double(), (LENGTH,), weight.double(), bias.double(), 1e-5)
    rounding = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    error = (torch.from_numpy(out).double().reshape(wanted.shape) - wanted).abs().amax(1)
    assert (error <= 2 * rounding * wanted.abs().amax(1)).all(), (error, wanted.abs().amax(1))
