"""A loop of possibly one step takes its number from a variable: TileLang would take it for a loop of one step."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
from sympy import Max, Min, Symbol, floor

from redalg.lower_tile.ir.program import Bind, Loop, TileProgram
from redalg.lower_tile.workarounds.trips import most_steps, number_in_variables
from redalg.runtime.compile.compile import compile_only
from tests.cases.kernels import fused

TILES_OF_128 = {"b": 1, "h": 2, "d": 16, "e": 16}


def variables(program: TileProgram) -> list[str]:
    """The numbers that stand in variables."""
    return [one.name for one in program.kernels[0].body if isinstance(one, Bind) and one.in_register]


@pytest.mark.parametrize(("rows", "names"), [(200, ["stop_tile"]), (128, []), (300, [])])
def test_one_or_two_tiles_are_counted_in_a_variable(rows: int, names: list[str]) -> None:
    """One tile for all rows, or up to three, are simplified rightly."""
    program = fused("causal").lower("H200", TILES_OF_128 | {"q": rows, "k": rows}, "float32").program
    assert variables(program) == names


def test_a_bound_without_a_name_is_given_one() -> None:
    lowering = fused("causal").lower("H200", TILES_OF_128 | {"q": 200, "k": 200}, "float32")
    [kernel] = lowering.program.kernels
    [bind] = [one for one in kernel.body if isinstance(one, Bind)]
    body = tuple(replace(one, stop=bind.value) if isinstance(one, Loop) else one for one in kernel.body if one != bind)
    changed = replace(lowering.program, kernels=(replace(kernel, body=body),))
    assert variables(number_in_variables(changed, lowering.source.plan)) == ["stop"]


def test_steps_are_bounded() -> None:
    q, n = Symbol("q", integer=True), Symbol("n", integer=True)
    assert most_steps(floor(q / 2) + 1, {q: 5}) == 3
    assert most_steps(Min(2, n), {}) == 2
    assert most_steps(Min(4, n) - q, {}) == 4
    assert most_steps(Max(Min(2, n), Min(3, q)), {}) == 3
    assert most_steps(Max(2, n), {}) is None
    assert most_steps(n + 1, {q: 3}) is None


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_blocks_of_one_tile_skip_the_second() -> None:
    (compiled,) = compile_only(fused("causal").lower("sm_90a", TILES_OF_128 | {"q": 200, "k": 200}, "float32").source)
    assert re.search(r"for \(int t = 0; t < \(stop_tile - 1\);", compiled.cuda)
