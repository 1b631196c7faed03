"""The gradients of every pattern have kernels for a card, and none stores what has an element for every pair."""

from __future__ import annotations

import re
from math import prod

import pytest

from redalg.library import PATTERNS

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
