"""The table of dtypes: what a row says is so in NumPy and torch, and a new row is all that a new rounding needs."""

import numpy as np
import pytest
import torch
from sympy import Abs

import redalg as ra
from redalg.decompose.separate.rounding import half_step, roundoff
from redalg.errors import ExpressionError
from redalg.expression import dtypes
from redalg.expression.dtypes import DTYPES, Dtype, is_emulated

n = ra.axes("n")
x = ra.tensor("x[b,n]")
NEW = Dtype("float8_e4m3fnuz", "float", 1, 4, 240, -7, saturates=True, in_numpy=False)
"""A float that redalg does not have, and torch has."""
FLOATS = [one for one in DTYPES.values() if one.is_float]


@pytest.mark.parametrize("dtype", [one for one in DTYPES.values() if one.kind != "bool"], ids=lambda one: one.name)
def test_a_row_is_what_torch_says(dtype: Dtype) -> None:
    of_torch = getattr(torch, dtype.name)
    info = torch.finfo(of_torch) if dtype.is_float else torch.iinfo(of_torch)
    assert info.bits == 8 * dtype.bytes
    assert info.max == dtype.largest
    if isinstance(info, torch.finfo):
        assert info.eps == 2 * dtype.roundoff
        assert info.tiny == 2.0**dtype.least
        whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.bytes]
        [least] = torch.tensor([1], dtype=whole).view(of_torch).double().tolist()
        assert float(2 * half_step(dtype.name)) == least


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda one: one.name)
def test_a_row_is_what_numpy_says(dtype: Dtype) -> None:
    own = getattr(np, dtype.name, None)  # `np.dtype` knows names that other packages register
    assert (own is None) == is_emulated(dtype.name)
    assert own is None or np.dtype(own).itemsize == dtype.bytes


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda one: one.name)
def test_a_float_is_rounded_by_its_unit_roundoff(dtype: Dtype) -> None:
    given = np.random.default_rng(0).uniform(1, 2, 1000)
    errors = np.abs(torch.from_numpy(given).to(getattr(torch, dtype.name)).double().numpy() - given) / given
    assert errors.max() <= float(roundoff(dtype.name)) == dtype.roundoff


def test_a_name_has_one_meaning() -> None:
    names = [name for one in DTYPES.values() for name in (one.name, *one.spelled)]
    assert len(names) == len(set(names))


def rounded_sum(dtype: str) -> ra.Fused:
    return ra.fuse(ra.sum(ra.cast(x, dtype) ** 2, n), axes="b")


def test_a_dtype_without_a_row_is_refused() -> None:
    with pytest.raises(ExpressionError, match="unknown dtype 'float8_e4m3fnuz'"):
        rounded_sum(NEW.name)


def test_a_row_is_all_that_a_rounding_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stage reads it: the definition, both interpreters, the source of a kernel, and the bound of a verdict."""
    monkeypatch.setitem(dtypes.DTYPES, NEW.name, NEW)
    fused = rounded_sum(NEW.name)
    data = np.random.default_rng(0).normal(0, 100, (3, 200)).astype(np.float32)
    wanted = (torch.from_numpy(data).clamp(-240, 240).to(torch.float8_e4m3fnuz).double() ** 2).sum(1).numpy()
    np.testing.assert_allclose(fused.reference(x=data), wanted, rtol=1e-12)
    np.testing.assert_allclose(fused(x=data), wanted, rtol=1e-5)
    np.testing.assert_allclose(fused(x=torch.from_numpy(data)).numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(fused(x=torch.from_numpy(data), backend="tilelang").numpy(), wanted, rtol=1e-5)
    assert "def float8_e4m3fnuz(x):" in fused.source("c", sizes={"b": 3, "n": 200}, dtypes={"x": "float32"})
    verdict = ra.analyze(ra.sum(ra.cast(1000 * x / (ra.max(Abs(x), n) + 1), NEW.name), n), "b")
    assert isinstance(verdict, ra.Approximate)
    assert "- 240)" in str(verdict.bound)
