"""Tensors of more than 2³¹ elements: indices of 64 bits, on both targets."""

from __future__ import annotations

import pytest
import torch

import redalg as ra
from redalg.runtime.compile.compile import load
from tests.cases.kernels import fused

WIDTH = 2**30 + 8


@pytest.mark.slow
def test_the_c_target_reaches_the_end() -> None:
    """Zeros that no page holds yet, but for the last element, whose number needs 32 bits and more."""
    x = torch.zeros(2, WIDTH, dtype=torch.float16)
    x[1, -1] = 3.0
    form = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
    assert form(x=x, backend="tilelang").tolist() == [0.0, 3.0]


@pytest.mark.slow
def test_cuda_text_multiplies_in_64_bits() -> None:
    """TileLang widens an index whose bound exceeds 32 bits; below, it stays narrow."""
    tilelang = pytest.importorskip("tilelang")
    for rows, wide in ((70_000, True), (60_000, False)):
        source = fused("variance").lower("sm_90a", {"b": rows, "n": 32_768}, {"x": "float16"}).source
        module = load(source)
        target = tilelang.tvm.target.Target(module["TARGET"]["target"])
        with tilelang.transform.PassContext(opt_level=3, config=module["TARGET"]["pass_configs"]), target:
            text = tilelang.lower(module["main"], target=target).kernel_source
        assert ("(int64_t)32768" in text) == wide
