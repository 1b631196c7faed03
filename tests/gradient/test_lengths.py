"""Gradients of statistics whose sums go over several names of one dimension."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import redalg as ra
from tests.decompose.test_lengths import DATA, STATISTICS


@pytest.mark.parametrize("name", STATISTICS)
def test_a_gradient_needs_no_sizes(name: str) -> None:
    """Against difference quotients of the definition, in a direction of every tensor."""
    fused = ra.fuse(STATISTICS[name][0])
    generator = np.random.default_rng(1)
    given = {key: DATA[key] for key in fused.cascade.inputs()}
    ways = {key: generator.normal(size=one.shape) for key, one in given.items()}
    tensors = {key: torch.tensor(one, requires_grad=True) for key, one in given.items()}
    made = fused(**tensors)
    cotangent = torch.tensor(generator.normal(size=tuple(made.shape)))
    gradients = torch.autograd.grad(made, list(tensors.values()), cotangent)
    found = sum(float((one * torch.tensor(way)).sum()) for one, way in zip(gradients, ways.values(), strict=True))
    step = 1e-5
    high, low = (np.asarray(fused.reference(**{key: one + sign * step * ways[key] for key, one in given.items()}))
                 for sign in (1, -1))  # fmt: skip
    exact = float(((high - low) / (2 * step) * cotangent.numpy()).sum())
    assert found == pytest.approx(exact, rel=1e-6, abs=1e-7)
