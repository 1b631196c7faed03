"""The derivation for 16 bits on wider numbers: the same stages, which then are the derivative but for float32 rows."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import redalg as ra
from redalg.gradient import derive, operand
from redalg.gradient.backward import Backward
from tests.cases.corpus import Pattern
from tests.fuzz import two_axes
from tests.gradient.test_drawn import is_compared
from tests.gradient.test_vjp import EXACT, gradients_of_definition, sizes_of

BOUND = 2e-5
FIRST, CHUNK = range(7_000_000, 7_000_060, 20), 20


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every dtype is taken for a narrow one, and operands are made apart, a few elements at a time."""
    monkeypatch.setattr(derive, "is_narrow", lambda _: True)
    monkeypatch.setattr(operand, "COLUMNS", 0)
    monkeypatch.setattr(operand, "STEP", 2)
    monkeypatch.setattr(operand, "PART_BYTES", 64)


def narrow_backward(form: ra.Fused) -> Backward:
    """The backward that 16 bits have, of float64."""
    again = form.vjp().again
    assert again is not None
    dtypes = {one.name: "float64" for one in form.cascade.elements() if one.name in form.cascade.value_tensors()}
    return dataclasses.replace(again(dtypes), again=None)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("pattern", EXACT, ids=lambda one: one.name)
def test_stages_of_16_bits_are_the_derivative(pattern: Pattern) -> None:
    form = pattern.fuse()
    names = set(form.cascade.inputs())
    data = {name: torch.as_tensor(one) for name, one in pattern.tensors("float64").items() if name in names}
    data = {name: one.float().double() if one.is_floating_point() else one for name, one in data.items()}
    sizes, generator = sizes_of(pattern, form), torch.Generator().manual_seed(0)
    outputs = form.reference(**data, **pattern.scalars, sizes=sizes)
    cotangents = {name: torch.randn(one.shape, generator=generator, dtype=torch.float64)
                  for name, one in ({"out": outputs} if form.single else outputs._asdict()).items()
                  if one.is_floating_point()}  # fmt: skip
    found = narrow_backward(form)(cotangents, sizes=sizes, **data, **pattern.scalars)
    for name, one in gradients_of_definition(pattern, form, data, cotangents).items():
        got = found.get(name, torch.zeros_like(one)).double()
        torch.testing.assert_close(got, one, rtol=0, atol=BOUND * float(one.abs().max()) + 1e-300, msg=name)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("first", FIRST)
def test_drawn_stages_of_16_bits_are_the_derivative(first: int) -> None:
    seeds = range(first, first + CHUNK)
    assert sum(is_compared(two_axes.case(seed).outputs, seed, narrow_backward, BOUND, 0.01) for seed in seeds) > 1
