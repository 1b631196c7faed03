"""Preservation by lowering: over forms, plans and shapes, the tile program equals the definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from redalg.lower_tile.build import build
from redalg.lower_tile.interpret import interpret
from redalg.runtime.lowering import lower
from tests.kernel_cases import FORMS, fused, worst_error

LONG, SHORT = st.integers(1, 20), st.integers(1, 2)
BATCH = ("b", "h")


@st.composite
def problems(draw: Any) -> tuple[str, dict[str, torch.Tensor], dict[str, int]]:
    """A form, tensors for it of any small sizes, and what a plan may vary."""
    name = draw(st.sampled_from(sorted(FORMS)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    sizes = {axis.name: draw(SHORT if axis.name in BATCH else LONG) for axis in fused(name).cascade.axes()}
    tensors = {}
    for element in fused(name).cascade.elements():
        shape = [
            (sizes[index.name] if index.name != "j" else 1 + sizes["j"] % 4) if index.is_Symbol else 3
            for index in element.indices
        ]
        made = torch.randn(shape, generator=generator)
        tensors[element.name] = (
            made > -0.5 if element.name == "M" else made.abs() + 0.1 if element.name == "w" else made
        )
    tile = {
        "block_row": draw(st.sampled_from([1, 3, 16])),
        "block_streamed": draw(st.sampled_from([1, 5, 16])),
        "segments": draw(st.sampled_from([1, 2, 3])),
    }
    return name, tensors, tile


@given(problems())
@settings(max_examples=120)
def test_the_tile_program_equals_the_definition_under_any_plan(
    problem: tuple[str, dict[str, torch.Tensor], Any],
) -> None:
    name, tensors, tile = problem
    form = fused(name)
    sizes = {
        index.name: size
        for one in form.cascade.elements()
        for index, size in zip(one.indices, tensors[one.name].shape, strict=True)
        if index.is_Symbol
    }
    dtypes = {one: "bool" if array.dtype == torch.bool else "float32" for one, array in tensors.items()}
    shapes = {one: tuple(array.shape) for one, array in tensors.items()}
    plan = lower(form.form, "c", sizes, dtypes, shapes=shapes).plan
    if plan.binding.row is None:
        tile = {**tile, "block_row": 1}
    made = lower(form.form, "c", sizes, dtypes, shapes=shapes, plan=replace(plan, **tile))
    outputs = interpret(made.program, {one: array.numpy() for one, array in tensors.items()})
    for one in form.cascade.outputs:
        wanted = form.reference(**tensors)
        wanted = getattr(wanted, one.name) if len(form.cascade.outputs) > 1 else wanted
        assert worst_error(torch.from_numpy(outputs[one.name]), wanted) <= 2e-5


@given(problems())
@settings(max_examples=30)
def test_joining_loops_changes_nothing(problem: tuple[str, dict[str, torch.Tensor], Any]) -> None:
    """parallel i: A; parallel i: B  →  parallel i: A; B."""
    name, tensors, _ = problem
    form = fused(name)
    sizes = {
        index.name: size
        for one in form.cascade.elements()
        for index, size in zip(one.indices, tensors[one.name].shape, strict=True)
        if index.is_Symbol
    }
    dtypes = {one: "bool" if array.dtype == torch.bool else "float32" for one, array in tensors.items()}
    made = lower(form.form, "c", sizes, dtypes, shapes={one: tuple(array.shape) for one, array in tensors.items()})
    dtypes_out = {one.name: one.dtype for one in made.program.parameters if one.role == "output"}
    with patch("redalg.lower_tile.build.joined", lambda body: body):
        apart = build(made.form, made.plan, made.problem, dtypes_out)
    assert len(apart.kernels[0].body) >= len(made.program.kernels[0].body)
    arguments = {one: array.numpy() for one, array in tensors.items()}
    first, second = interpret(apart, arguments), interpret(made.program, arguments)
    assert all(np.array_equal(first[one], second[one], equal_nan=True) for one in first)
