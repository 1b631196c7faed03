"""The unfused form multiplies as exactly as the kernel whatever PyTorch is allowed globally; that stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from redalg.library import chained_product
from redalg.runtime.lowering import space_for
from redalg.runtime.unfused import unfused


def precisions() -> tuple[Any, ...]:
    """How PyTorch says that float32 products are rounded: by its first way (it raises where the second is used)."""
    backends: Any = torch.backends
    try:
        first = torch.get_float32_matmul_precision()
    except RuntimeError:
        first = "unsaid"
    return first, backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision


def allow(way: str) -> None:
    """Allow fewer digits, one way or the other; `highest` as it was."""
    backends: Any = torch.backends
    torch.set_float32_matmul_precision(way if way in ("high", "medium") else "highest")
    if way == "cuda":
        backends.cuda.matmul.allow_tf32 = True
    if way in ("fp32_precision", "highest"):
        wanted = ("tf32", "bf16") if way == "fp32_precision" else ("none", "none")
        backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision = wanted


@pytest.mark.parametrize("way", ["highest", "high", "medium", "cuda", "fp32_precision"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_allowed_globally_is_given_back(way: str, device: str) -> None:
    """Within, products are exact, and both ways to say so agree where they did."""
    place = 1 if device == "cuda" else 2
    try:
        allow(way)
        before = precisions()
        with unfused.exactly(device, tf32=False):
            assert precisions()[place] in ("ieee", "none")
            assert (precisions()[0] == "unsaid") == (before[0] == "unsaid")  # it multiplies still
            assert torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction == (device == "cpu")
        assert precisions() == before
        with unfused.exactly(device, tf32=True):
            assert precisions()[place] in ("ieee", "none", "tf32")
        assert precisions() == before
        assert torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    finally:
        allow("highest")


def test_autocast_and_rounded_products_do_not_reach_it() -> None:
    """Autocast decides the dtypes of the call's tensors, and nothing within."""
    generator, sizes = torch.Generator().manual_seed(0), {"b": 1, "m": 40, "n": 64, "k": 48, "h": 24}
    shapes = {"A": (1, 40, 48), "B": (1, 48, 64), "D": (1, 64, 24)}
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    form = chained_product()
    plan = unfused.admit_unfused(form.form, space_for(form.form, "c", sizes, dict.fromkeys("ABD", "float32"))).plan
    plain, lower = (form(**one, backend="tilelang", plan=plan)
                    for one in (tensors, {name: one.bfloat16() for name, one in tensors.items()}))  # fmt: skip
    try:
        allow("medium")
        rounded = form(**tensors, backend="tilelang", plan=plan)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = form(**tensors, backend="tilelang", plan=plan)
            assert torch.is_autocast_enabled("cpu")
    finally:
        allow("highest")
    assert torch.equal(rounded, plain)
    assert torch.equal(out, lower)
