"""Preservation by lowering: over forms, plans and shapes, the tile program equals the definition."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from redalg.errors import PlanError
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.program import Contract, Loop, nested_statements
from redalg.lower_tile.place.build import build
from redalg.lower_tile.place.carried import Carried
from redalg.strategies.schedule import numbers_of
from tests.cases.cascades import Data, Example, cascades, data
from tests.cases.kernels import fused, latent, problem, worst_error
from tests.cases.problems import LEVELS, Problem, levelled, problems
from tests.incremental.test_preservation import assert_defined
from tests.incremental.test_preservation import fused as generated
from tests.sweeps import draws


@given(problems())
@settings(max_examples=draws(120))
def test_the_tile_program_equals_the_definition_under_any_plan(drawn: Problem) -> None:
    name, tensors, tile, extents = drawn
    form = fused(name)
    known = problem(form, tensors, extents)
    plan = form.lower("c", **known).plan
    if plan.binding.row is None:
        tile = {**tile, "block_row": 1}
    made = form.lower("c", **known, plan=levelled(plan, tile, form.lower("c", **known).problem.sizes, form.form))
    outputs = interpret(made.program, {one: array.numpy() for one, array in tensors.items()})
    for one in form.cascade.outputs:
        wanted = form.reference(**tensors, sizes=extents)
        wanted = getattr(wanted, one.name) if len(form.cascade.outputs) > 1 else wanted
        assert worst_error(torch.from_numpy(outputs[one.name]), wanted) <= 2e-5


@given(problems())
@settings(max_examples=draws(30))
def test_joining_loops_changes_nothing(drawn: Problem) -> None:
    """parallel i: A; parallel i: B  →  parallel i: A; B."""
    name, tensors, _, extents = drawn
    form = fused(name)
    made = form.lower("c", **problem(form, tensors, extents))
    dtypes_out = {one.name: one.dtype for one in made.program.parameters if one.role == "output"}
    with patch("redalg.lower_tile.passes.order.fuse_row_loops", lambda body, buffers, tiles: body):
        apart = build(made.stages, numbers_of(made.plan), made.problem, dtypes_out)
    assert len(apart.kernels[0].body) >= len(made.program.kernels[0].body)
    arguments = {one: array.numpy() for one, array in tensors.items()}
    first, second = interpret(apart, arguments), interpret(made.program, arguments)
    assert all(np.array_equal(first[one], second[one], equal_nan=True) for one in first)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm", "normalize"])
def test_what_depends_on_the_row_alone_may_leave_the_loop(name: str) -> None:
    """x·g/v → r = g/v;  x·r, one rounding more; f(d) → r = f(d);  r, none."""
    form, generator = fused(name), torch.Generator().manual_seed(0)
    shapes = {"x": (5, 77), "G": (77,), "B": (77,)}
    tensors = {one: torch.randn(shapes[one], generator=generator) for one in form.cascade.inputs()}
    made = form.lower("c", **problem(form, tensors))
    with patch.object(Carried, "hoist", lambda _, expr: expr):
        apart = build(made.stages, numbers_of(made.plan), made.problem, {"out": "float32"})
    assert "factor" not in str(apart)
    arguments = {one: array.numpy() for one, array in tensors.items()}
    first, second = interpret(apart, arguments)["out"], interpret(made.program, arguments)["out"]
    assert np.abs(first - second).max() <= 4 * 2.0**-24 * np.abs(first).max()


@given(problems())
@settings(max_examples=draws(30))
def test_loops_of_one_step_are_no_loops(drawn: Problem) -> None:
    """for t < 1: A  →  A with t := 0."""
    name, tensors, _, extents = drawn
    form = fused(name)
    made = form.lower("c", **problem(form, tensors, extents))
    dtypes_out = {one.name: one.dtype for one in made.program.parameters if one.role == "output"}
    with patch("redalg.lower_tile.passes.order.without_single_steps", lambda body: body):
        kept = build(made.stages, numbers_of(made.plan), made.problem, dtypes_out)
    loops = [one for one in nested_statements(made.program.kernels[0].body) if isinstance(one, Loop)]
    assert all(one.stop - one.start != 1 for one in loops)
    before = [one for one in nested_statements(kept.kernels[0].body) if isinstance(one, Loop)]
    assert len(loops) == len([one for one in before if one.stop - one.start != 1])
    arguments = {one: array.numpy() for one, array in tensors.items()}
    first, second = interpret(kept, arguments), interpret(made.program, arguments)
    assert all(np.array_equal(first[one], second[one], equal_nan=True) for one in first)


@pytest.mark.parametrize("target", ["c", "sm_90a"])
@given(st.integers(0, 2**16), st.lists(st.integers(1, 20), min_size=5, max_size=5))
@settings(max_examples=draws(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sums_of_products_are_one_product(target: str, seed: int, sizes: list[int]) -> None:
    """f(s₁ + s₂)  →  s₁ = s₁ + a₂ · b₂ᵀ;  f(s₁); the latent tile serves both contractions, and is loaded once."""
    form, tensors = fused("latent"), latent(*sizes)(torch.Generator().manual_seed(seed))
    known = problem(form, tensors)
    made = form.lower(target, **known)
    with patch("redalg.lower_tile.place.step.addable_producers", lambda form, space: {}):
        apart = form.lower(target, **known, plan=made.plan)
    contractions = [one for one in nested_statements(made.program.kernels[0].body) if isinstance(one, Contract)]
    assert len({one.c for one in contractions}) == 2 < len(contractions) == 3
    assert len({one.b for one in contractions}) == 2
    arguments = {one: array.numpy() for one, array in tensors.items()}
    first, second = (interpret(one.program, arguments)["out"] for one in (apart, made))
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-5)


TILES = st.fixed_dictionaries(
    {
        "block_row": st.sampled_from([1, 2, 16]),
        "block_streamed": st.sampled_from([1, 7, 16, 64]),
        "segments": st.sampled_from([1, 2, 3]),
        "block_column": st.sampled_from([1, 3, 16, 32]),
        "level": st.sampled_from(LEVELS),
    }
)


@given(cascades(), data((1, 2, 3, 5, 16, 77)), TILES)
@settings(max_examples=draws(150), suppress_health_check=[HealthCheck.too_slow])
def test_generated_cascades_keep_their_meaning_under_any_plan(example: Example, drawn: Data, tile: Any) -> None:
    made = generated(example)
    given_tensors = drawn.of(made.cascade)
    arrays = {name: one for name, one in given_tensors.items() if isinstance(one, np.ndarray)}
    known = {
        "sizes": drawn.extents(made.cascade) | {name: drawn.sizes[name] for name in made.cascade.extents()},
        "dtypes": {name: str(one.dtype) for name, one in arrays.items()},
    }
    try:
        plan = made.lower("c", **known).plan
    except PlanError:
        assume(False)
        raise
    tile = {**tile, "block_row": 1} if plan.binding.row is None else tile
    lowered = made.lower("c", **known, plan=levelled(plan, tile, known["sizes"], made.form))
    outputs = interpret(lowered.program, given_tensors)
    [output] = made.cascade.outputs
    shape = tuple(drawn.sizes[axis.name] for axis in output.axes)
    assert_defined(outputs[output.name].reshape(shape), example, drawn, lowered.problem.compute)


@pytest.mark.slow
@given(cascades(), data((1, 3, 77)))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_generated_cascades_on_the_c_target(example: Example, drawn: Data) -> None:
    made = generated(example)
    try:
        got = made(**drawn.of(made.cascade), sizes=drawn.extents(made.cascade), backend="tilelang")
    except PlanError:
        assume(False)
        raise
    assert_defined(got, example, drawn, "float64" if drawn.dtype == "float64" else "float32")
