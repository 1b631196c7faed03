"""The rule for runs: which sums are added up in runs, and of how many elements."""

from __future__ import annotations

import pytest
import sympy

import redalg as ra
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.plan import Plan
from redalg.strategies.rules.runs import LEAST_RUN, LONG_PART, LONG_RUN, MANY, MOST_SUMS, RUN, WHOLE, run_length
from redalg.strategies.schedule import Schedule, numbers_of

i, j, k = ra.axes("i j k")
X, Y, A, B, C = ra.tensors("x[i] y[j] a[k,i] b[k,j] c[k,j]")
SUM, NEAREST = ra.fuse(ra.sum(abs(X - Y), j), axes="i"), ra.fuse(ra.min(abs(X - Y), j), axes="i")
WEIGHTED = ra.fuse(ra.logsumexp(-abs(X - Y), j), axes="i")


def length_of(form: ra.Fused, length: int, *levels: Parts | Loop) -> int:
    """The run of a form's loop under a schedule of rows on lanes, or under the rules' own."""
    plan = Schedule(Grid(i, 128), *levels, Lanes(i, 128)) if levels else None
    lowered = form.lower("H200", {"i": 4096, "j": length}, "float32", plan=plan)
    return run_length(lowered.stages.loop, numbers_of(lowered.plan), lowered.problem)


@pytest.mark.parametrize("tile", [8, 16, 40, 48, 64, 72, 100, 256])
@pytest.mark.parametrize(("elements", "longest"), [(LONG_PART, RUN), (LONG_PART + 1, LONG_RUN)])
def test_a_run_is_whole_groups_of_a_tile_or_whole_tiles(elements: int, longest: int, tile: int) -> None:
    plain, weighted = (length_of(form, elements, Loop(j, tile)) for form in (SUM, WEIGHTED))
    assert tile % plain == 0
    assert plain == tile or (LEAST_RUN <= plain <= longest and plain % WHOLE == 0)
    assert weighted == (longest if longest % tile == 0 else plain)


def test_few_elements_of_a_part_are_one_sum() -> None:
    assert length_of(SUM, MANY, Loop(j, 32)) == 0
    assert length_of(SUM, MANY + 1, Loop(j, 64)) == RUN
    assert length_of(SUM, 16 * MANY, Parts(j, 16), Loop(j, 64)) == 0
    assert length_of(SUM, 16 * MANY + 1, Parts(j, 16), Loop(j, 64)) == RUN


def test_extrema_round_nothing() -> None:
    assert length_of(NEAREST, 5000, Loop(j, 64)) == 0
    assert length_of(SUM, 5000, Loop(j, 256)) == LONG_RUN


def products(expression: sympy.Expr, dtype: str) -> tuple[int, Plan]:
    """The run of sums of products of 1000000 elements on an H200, 64 rows by 64 columns, and their plan."""
    lowered = ra.fuse(expression, axes="i j").lower("H200", {"i": 64, "j": 64, "k": 1_000_000}, dtype)
    plan = numbers_of(lowered.plan)
    return run_length(lowered.stages.loop, plan, lowered.problem), plan


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_matrices_have_runs_where_a_thread_has_few_sums(dtype: str) -> None:
    length, plan = products(ra.sum(A * B, k), dtype)
    assert plan.is_serial
    assert plan.block_row * plan.block_column <= MOST_SUMS * plan.threads
    assert length == plan.block_streamed


@pytest.mark.parametrize(("dtype", "has_runs"), [("float32", False), ("float64", True)])
def test_many_sums_of_a_thread_leave_no_registers_for_runs_in_float32(dtype: str, has_runs: bool) -> None:
    length, plan = products(ra.sum(A * B, k) / ra.sum(A * C, k), dtype)
    assert plan.is_serial
    if not has_runs:
        assert 2 * plan.block_row * plan.block_column > MOST_SUMS * plan.threads
    assert length == has_runs * plan.block_streamed


def test_products_on_tensor_cores_have_no_runs() -> None:
    length, plan = products(ra.sum(A * B, k), "float16")
    assert not plan.is_serial
    assert length == 0
