"""Rows of 16 bits are written about one number, their mean: as near the definition as their dtype is."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg import library
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.lowered import Lowered
from tests.sweeps import draws

LENGTH = 512
NORM = library.layer_norm()


def lowered(function: ra.Fused, dtypes: str) -> Lowered:
    """The program of rows that one tile holds."""
    schedule = ra.Schedule(ra.Grid("b"), ra.Whole("n", LENGTH), ra.Lanes("n", 32))
    return function.lower("sm_90a", sizes={"b": 3, "n": LENGTH}, dtypes=dtypes, plan=schedule)


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


@given(
    st.sampled_from(["bfloat16", "float16"]),
    st.sampled_from([0.0, 1.0, 100.0, -3000.0]),
    st.sampled_from([0.0, 0.01, 1.0, 30.0]),
    st.integers(0, 99),
)
@settings(max_examples=draws(40))
def test_rows_far_from_zero_keep_their_digits(dtype: str, offset: float, spread: float, seed: int) -> None:
    """Within two roundings of the output's dtype of the row's largest; alike elements give the bias."""
    generator = torch.Generator().manual_seed(seed)
    x = (offset + spread * torch.randn(3, LENGTH, generator=generator)).to(getattr(torch, dtype))
    weight, bias = (torch.randn(LENGTH, generator=generator).to(x.dtype) for _ in range(2))
    tensors = {"x": x, "weight": weight, "bias": bias}
    [out] = interpret(
        lowered(NORM, dtype).program, {name: one.float().numpy() for name, one in tensors.items()}
    ).values()
    wanted = torch.nn.functional.layer_norm(x.double(), (LENGTH,), weight.double(), bias.double(), 1e-5)
    rounding = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    error = (torch.from_numpy(out).double().reshape(wanted.shape) - wanted).abs().amax(1)
    assert (error <= 2 * rounding * wanted.abs().amax(1)).all(), (error, wanted.abs().amax(1))
