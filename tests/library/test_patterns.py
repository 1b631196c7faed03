"""Every pattern of the library: its definition in plain NumPy, and what the registry says of it."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from redalg.library import PATTERNS
from tests.cases import gallery_points, gallery_rows
from tests.cases.gallery import assert_defined, assert_single, derived

CHECKS = gallery_rows.CHECKS | gallery_points.CHECKS
ELSEWHERE = {  # pattern: the tests that hold it to a definition
    "quantized_product": "test_quantization",
    "block_quantization": "test_patterns",
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_pattern_is_its_definition(name: str) -> None:
    assert_defined(name, CHECKS[name])


@pytest.mark.sweep(16)
@pytest.mark.parametrize("name", CHECKS)
def test_a_kernel_is_its_definition(name: str) -> None:
    """Compiled for the CPU."""
    assert_single(name, CHECKS[name], "tilelang")


def test_every_pattern_has_a_definition() -> None:
    assert CHECKS.keys() | ELSEWHERE.keys() == PATTERNS.keys()
    assert len(PATTERNS) >= 60


def test_blocks_are_rounded_at_their_own_scale() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 16)).astype(np.float32) * np.array([1e-20, 1, 1e20])[:, None]
    q, scale = derived("block_quantization")(x=torch.from_numpy(x.astype(np.float32)))
    np.testing.assert_allclose(scale.numpy(), np.abs(x).max(2) / 448, rtol=1e-6)
    assert q.float().abs().amax(2).eq(448).all()
    apart = np.abs(q.float().numpy() * scale.numpy()[..., None] - x)
    assert (apart <= np.maximum(2**-4 * np.abs(x), 2**-10 * scale.numpy()[..., None])).all()


# ---- the registry ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PATTERNS)
def test_the_registry_knows_a_pattern(name: str) -> None:
    """Its field, one sentence, a source, and a size of every axis and of no other."""
    entry = PATTERNS[name]
    axes = {str(axis.name) for axis in derived(name).cascade.axes() if axis.size is None}
    assert axes == entry.sizes.keys()
    assert entry.source
    assert 20 <= len(entry.summary) <= 160
    assert re.fullmatch(r"[a-z ]+", entry.field)
    assert entry.dtype in entry.takes
    assert ">>> " in str(entry.build.__doc__)
