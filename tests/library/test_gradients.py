"""The gradients of every pattern have kernels for a card that are right, and none stores an element for every pair."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import pytest
import torch

from redalg.library import PATTERNS
from tests.cases import gallery_points, gallery_rows
from tests.cases.gallery import Check, cast, derived

TENSOR = re.compile(r'(\w+): T\.Tensor\(\(([^)]*)\), "\w+"\),?(.*)')
STORED = {
    # differences of elements stand beside weights by their distances, which every column would make again
    **dict.fromkeys(("info_nce", "kernel_projection", "mean_discrepancy"), "distances"),
    # ties of what is computed are told by equal numbers, which two kernels could round in two ways
    **dict.fromkeys(("k_means_assignment", "nearest_distance"), "distances of which the least is compared"),
    # a product of more columns than a block holds: every block of columns would make its operand again
    "linear_cross_entropy": "operands",
    # of the part of K across Q, K − Q·s/|Q|²: it has rows, columns and what is summed
    "cosine_attention": "scores",
}
"""Patterns whose gradients store such a tensor: what that is."""


@pytest.mark.sweep(8)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", PATTERNS)
def test_gradients_have_kernels(name: str, dtype: str) -> None:
    pattern = PATTERNS[name]
    form = pattern.build()
    dtypes = {tensor: dtype if "float" in kind else kind for tensor, kind in pattern.dtypes(form).items()}
    shapes = pattern.tensor_shapes(pattern.sizes)
    for text in form.vjp().source("H200", pattern.sizes, dtypes, shapes=shapes).values():
        found = [(stem, prod(map(int, filter(None, shape.split(", ")))), role) for stem, shape, role
                 in TENSOR.findall(text.replace(",)", ")"))]  # fmt: skip
        largest = max(size for _, size, role in found if "workspace" not in role)
        parts = ("_parts", "marks", "tiles")  # of sums, and lists of tiles
        stored = [stem for stem, size, role in found if "workspace" in role and size > largest
                  and not stem.endswith(parts) and size > 2**16]  # fmt: skip
        assert not stored or name in STORED


CHECKS = gallery_rows.CHECKS | gallery_points.CHECKS
FLOOR, FACTOR = 1e-4, 20
"""The bound of kernels in float32: so much of the largest, and so many times the error of arrays in float32."""


def gradients(name: str, check: Check, dtype: torch.dtype, device: str, backend: str) -> Mapping[str, torch.Tensor]:
    """The gradients of a pattern's outputs under drawn cotangents, by the tensors of floats that they depend on."""
    given = {key: torch.from_numpy(np.ascontiguousarray(one)) for key, one in cast(check.data, np.float32).items()}
    given = {key: one.to(device, dtype).requires_grad_() if one.is_floating_point() else one.to(device)
             for key, one in given.items()}  # fmt: skip
    more: dict[str, Any] = {"sizes": dict(check.sizes)} if check.sizes else {}
    found = derived(name)(**given, **check.scalars, **more, backend=backend)
    outputs = [one for one in (found if isinstance(found, tuple) else (found,)) if one.requires_grad]
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(one.shape, dtype=torch.float64, generator=generator).to(one) for one in outputs]
    leaves = {key: one for key, one in given.items() if one.requires_grad}
    made = torch.autograd.grad(outputs, list(leaves.values()), weights, allow_unused=True)
    return {key: one.cpu().double() for key, one in zip(leaves, made, strict=True) if one is not None}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", CHECKS)
def test_gradients_by_kernels(name: str, device: str) -> None:
    """In float32, beside those of arrays in float64."""
    check = CHECKS[name]
    wanted = gradients(name, check, torch.float64, "cpu", "torch")
    plain = gradients(name, check, torch.float32, "cpu", "torch")
    found = gradients(name, check, torch.float32, device, "tilelang")
    assert found.keys() == wanted.keys()
    for key, want in wanted.items():
        largest = want.abs().max() + 1e-30
        error, own = ((one[key] - want).abs().max() / largest for one in (found, plain))
        assert error <= FLOOR + FACTOR * own, f"{name}: {key} is off by {error:.1e}, by arrays {own:.1e}"
