"""Patterns that nothing in the engine knows (`tests/cases/patterns.py`), on every CPU backend, as they are defined."""

from __future__ import annotations

import pytest
import torch

import redalg as ra
from tests.cases.kernels import worst_error
from tests.cases.patterns import PATTERNS


@pytest.mark.sweep(3)
@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
@pytest.mark.parametrize("name", PATTERNS)
def test_pattern(name: str, backend: str) -> None:
    pattern = PATTERNS[name]
    form = ra.fuse(pattern.expr, axes=pattern.axes)
    made = form(**pattern.tensors, backend=backend)
    assert worst_error(made, form.reference(**pattern.tensors)) <= pattern.tolerance


@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
def test_an_index_outside_its_tensor_is_an_error(backend: str) -> None:
    pattern = PATTERNS["paged keys (vLLM)"]
    form = ra.fuse(pattern.expr, axes=pattern.axes)
    wrong = {**pattern.tensors, "page": torch.tensor([[1, 2, 7, 4, 5]])}
    with pytest.raises(ra.InputError) as error:
        form(**wrong, backend=backend)
    assert str(error.value) == (
        "`K[page[b, floor(k/10)], Mod(k, 10), h, d]`: index `page[b, floor(k/10)]` leaves the range of dimension 0, "
        "which has 7 elements. Mask it by `ra.where`, or mend the indices."
    )
