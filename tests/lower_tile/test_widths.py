"""Loops of many conditions take each element alone, and TileLang makes the same CUDA of them in less time."""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest

from redalg.lower_tile.ir.program import Parallel, nested_statements
from redalg.lower_tile.text.emit import Source
from redalg.lower_tile.workarounds.widths import MANY, conditions
from redalg.runtime.compile.compile import compile_only
from tests.cases.kernels import CASES, fused, problem, tensors_of

KNOWN = {case.name: case for case in CASES}
LOOPS = {"routing to one": 2, "regression": 6, "rows and their best": 3}
"""Cases, and the loops that are changed."""


def lowered(name: str, target: str = "sm_90a") -> Any:
    case = KNOWN[name]
    form = fused(case.form)
    return form.lower(target, **problem(form, tensors_of(case), case.sizes), empty=case.empty)


def loops_alone(made: Any) -> list[Parallel]:
    statements = (one for kernel in made.program.kernels for one in nested_statements(kernel.body))
    return [one for one in statements if isinstance(one, Parallel) and one.alone]


@pytest.mark.parametrize("name", LOOPS)
def test_loops_that_choose_by_their_elements_are_alone(name: str) -> None:
    made = lowered(name)
    found = loops_alone(made)
    assert len(found) == LOOPS[name]
    assert sum(len([*conditions(loop)]) for loop in found) >= MANY
    tiles = {one.name for kernel in made.program.kernels for one in kernel.buffers
             if one.scope == "fragment" and len(one.shape) > 1}  # fmt: skip
    assert not tiles & {store.target for loop in found for store in loop.body}
    assert made.source.text.count(", only in parallel(") == len(found)


@pytest.mark.parametrize(("name", "target"), [("variance", "sm_90a"), ("causal", "sm_90a"), ("regression", "c")])
def test_few_conditions_and_the_c_target_stay(name: str, target: str) -> None:
    made = lowered(name, target)
    assert loops_alone(made) == []
    assert "only" not in made.source.text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", ["regression", "rows and their best"])
def test_the_cuda_is_as_if_neighbours_were_tried(name: str) -> None:
    made = lowered(name)
    tried = re.sub(r"for (.*), only in parallel\((.*), 1\):", r"for \1 in parallel(\2):", made.source.text)
    assert tried != made.source.text
    texts = (made.source.text, tried)
    (alone,), (beside,) = (compile_only(Source(text, made.source.program, made.source.plan)) for text in texts)
    assert without_names(alone.cuda) == without_names(beside.cuda)
    assert (alone.registers, alone.spill_bytes) == (beside.registers, beside.spill_bytes)


def without_names(cuda: str) -> str:
    """CUDA with its workspaces, whose numbers differ from run to run, named by their places."""
    places = dict(re.findall(r"void\* (\w+) = (\(\(void\*\)[^;]*\));", cuda))
    return re.sub(r"\w+", lambda word: places.get(word[0], word[0]), re.sub(r"\n *void\* \w+ = [^\n]*", "", cuda))
