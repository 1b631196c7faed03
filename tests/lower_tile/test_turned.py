"""Products on tensor cores of a first operand whose streamed axis lies first: it is multiplied as it lies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.check.verify import verify

a, b, n = ra.axes("a b n")
PRODUCT = ra.fuse(ra.sum(ra.tensor("x[n,a]") * ra.tensor("y[n,b]"), n), axes="a b")
SIZES = {"a": 256, "b": 192, "n": 1024}


def kernel(form: ra.Fused, dtype: str, target: str = "sm_90a", **sizes: int) -> str:
    text = form.source(target, sizes=SIZES | sizes, dtypes=dict.fromkeys(form.cascade.inputs(), dtype))
    return text[text.index("with T.Kernel") : text.index("def compiled")]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_no_element_is_moved_for_the_product(target: str, dtype: str) -> None:
    text = kernel(PRODUCT, dtype, target)
    assert "contract_turned(x_tile, y_tile, sum_0," in text
    assert "operand" not in text


@pytest.mark.parametrize(("target", "dtype"), [("sm_90a", "float32"), ("c", "float32"), ("sm_90a", "float8_e4m3fn")])
def test_other_units_take_rows(target: str, dtype: str) -> None:
    """CUDA cores and 8-bit instructions read rows."""
    assert "turned" not in kernel(PRODUCT, dtype, target)


def test_a_second_operand_that_lies_otherwise_is_none() -> None:
    other = ra.fuse(ra.sum(ra.tensor("x[n,a]") * ra.tensor("y[b,n]"), n), axes="a b")
    assert "turned" not in kernel(other, "float16")


@settings(max_examples=25, deadline=None)
@given(sizes=st.tuples(*[st.integers(1, 150)] * 3), seed=st.integers(0, 99))
def test_programs_mean_the_product(sizes: tuple[int, int, int], seed: int) -> None:
    lengths = dict(zip("abn", sizes, strict=True))
    lowered = PRODUCT.lower("sm_90a", sizes=lengths, dtypes={"x": "float16", "y": "float16"})
    verify(lowered.program)
    generator = np.random.default_rng(seed)
    data = {name: generator.standard_normal((lengths["n"], lengths[axis])).astype(np.float16)
            for name, axis in (("x", "a"), ("y", "b"))}  # fmt: skip
    made = interpret(lowered.program, data)["out"]
    exact = data["x"].astype(np.float64).T @ data["y"].astype(np.float64)
    np.testing.assert_allclose(made, exact, rtol=2e-3, atol=2e-3 * float(np.abs(exact).max()))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [(256, 192, 1024), (100, 72, 70), (129, 8, 1000), (1, 64, 33), (4096, 2048, 512)])
def test_kernels_make_the_product(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, columns, length = sizes
    x, y = (torch.randn(length, size, device="cuda").to(dtype) for size in (rows, columns))
    exact = x.double().mT @ y.double()
    bound = 2 * torch.finfo(dtype).eps * float(exact.abs().max())
    assert float((PRODUCT(x=x, y=y, backend="tilelang").double() - exact).abs().max()) <= bound
