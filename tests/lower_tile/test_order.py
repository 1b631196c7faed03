"""The passes of a tile program: a list of data, complete; each keeps the program's meaning, and is found somewhere."""

import ast
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from redalg.errors import PlanError
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.program import TileProgram
from redalg.lower_tile.passes.order import PASSES
from redalg.lower_tile.place.build import assemble, build
from redalg.runtime.lowering import kernel_dtype, results
from redalg.strategies.schedule import numbers_of, with_choices
from tests.cases.kernels import CASES, fused, problem, tensors_of
from tests.house.source import Source, sources

NAMES = (
    "odd widths",
    "one query",
    "causal",
    "rows",
    "variance",
    "weighted variance",
    "regression",
    "latent",
    "last",
    "argmax and maximum",
    "long inner axis",
    "best of rows",
    "softmax",
    "pages of 4",
    "keys and their norms",
    "inertia",
)
KNOWN = {case.name: case for case in CASES if case.name in NAMES}
WAYS: dict[str, dict[str, Any]] = {
    "as the rules say": {},
    "in parts": {"segments": 3, "block_streamed": 16, "warp_specialized": False},
    "blocks that stay": {"persistent": 1, "warp_specialized": False},
    "in wide tiles": {"block_streamed": 128},
}
PACKAGE = "redalg.lower_tile.passes"
CALLED_ELSEWHERE = {"run_passes", "over_tiles", "without_single_steps", "eliminate_common_subexpressions"}
"""The list itself; a maker of loops; a look ahead at the loops that will be left; what loops over groups need alone."""


@cache
def programs(name: str, target: str, way: str) -> tuple[TileProgram, ...]:
    """A case's program ahead of every pass, and after the last; none where a form has no such way."""
    case = KNOWN[name]
    form, options = fused(case.form), problem(fused(case.form), tensors_of(case), case.sizes)
    lowered = form.lower(target, **options, empty=case.empty)
    returned = results(lowered.stages, lowered.problem)
    dtypes = {one: kernel_dtype(dtype, target) for one, dtype in returned.items()}
    try:
        plan = numbers_of(with_choices(lowered.plan, **WAYS[way]))
        built = build(lowered.stages, plan, lowered.problem, dtypes)
    except PlanError:
        return ()
    found = [assemble(lowered.stages, plan, lowered.problem, dtypes)]
    for each in PASSES:
        found.append(each.apply(found[-1], plan))
    assert found[-1] == built
    return tuple(found)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", ["c", "sm_90a"])
@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_verified_ahead_of_every_pass_and_after_it(name: str, target: str, way: str) -> None:
    found = programs(name, target, way)
    assert found or way != "as the rules say"
    for program in found:
        verify(program)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_every_pass_means_the_program_that_it_is_given(name: str, way: str) -> None:
    tensors = {key: np.asarray(value) for key, value in tensors_of(KNOWN[name]).items()}
    different = dict.fromkeys(programs(name, "c", way))
    meant = [interpret(program, tensors) for program in different]
    for before, after in pairwise(meant):
        for key, value in before.items():
            np.testing.assert_allclose(after[key], value, rtol=1e-6, atol=1e-6, err_msg=key)


def test_every_pass_is_found_somewhere() -> None:
    """On kernels of a chip: boxes of TMA, and loads that arrive late, are theirs alone."""
    seen = set[str]()
    for name in NAMES:
        for way in WAYS:
            steps = zip(PASSES, pairwise(programs(name, "sm_90a", way)), strict=False)
            seen |= {each.name for each, (before, after) in steps if before != after}
    unseen = {
        "await",
        "short boxes",
        "factors",
        "reciprocals",
        "binary exponents",
        "instructions",
        "choices",
        "layouts",
        "before sums",
        "bands",
        "side by side",
        "turns",
        "divisors",
        "operands first",
        "kept rows",
        "bulk rows",
        "cluster rows",
        "whole turns",
        "warp lanes",
        "twins",
        "constant terms",
        "grouped",
        "aligned rows",
        "masked loads",
        "stored rows",
    }  # these have tests and programs of their own
    assert {each.name for each in PASSES} - seen <= unseen


def test_every_row_says_what_it_changes_and_where() -> None:
    assert len({each.name for each in PASSES}) == len(PASSES)
    for each in PASSES:
        assert each.where.startswith("where ")
        assert each.before != each.after
        assert str(each) == f"{each.name}: {each.before} → {each.after}, {each.where}"


def test_the_list_has_every_pass() -> None:
    """Every module of the folder has one, and no pass is called from elsewhere."""
    engine = sources("redalg")
    (order,) = (source for source in engine if source.module == f"{PACKAGE}.order")
    passes = {source.module for source in engine if source.module.startswith(f"{PACKAGE}.")} - {order.module}
    assert passes <= {module for module, _ in imported(order)}
    elsewhere = set().union(*(imported(source) for source in engine if not source.module.startswith(PACKAGE)))
    assert {name for module, name in elsewhere if module.startswith(PACKAGE)} <= CALLED_ELSEWHERE


def imported(source: Source) -> set[tuple[str, str]]:
    nodes = (node for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom))
    return {(node.module or "", alias.name) for node in nodes for alias in node.names}
