"""Selections in the tile program, against the definition: ties, masks, NaN, rows of nothing, in one part and three."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.lower_tile.interpret import interpret
from tests.test_selection import FUSED, KINDS, LENGTHS, SELECTIONS, example, relaxed


@relaxed
@given(st.sampled_from(KINDS), st.sampled_from(LENGTHS[1:]), st.integers(0, 99), st.sampled_from([1, 3]))
@pytest.mark.parametrize("name", [name for name in SELECTIONS if "arg" in name or "top" in name])
def test_the_tile_program_selects_what_the_definition_does(
    name: str, kind: str, length: int, seed: int, segments: int
) -> None:
    fused = FUSED[name]
    data = {one: array for one, array in example(kind, length, seed).items() if one in fused.cascade.inputs()}
    known = {"sizes": {"t": 3, "n": length}, "dtypes": {one: str(array.dtype) for one, array in data.items()}}
    plan = replace(fused.lower("c", **known).plan, level="block", segments=segments, block_streamed=16)
    made = interpret(fused.lower("c", **known, plan=plan).program, data)["out"]
    np.testing.assert_array_equal(made, fused.reference(**data).astype(made.dtype))


n, j = ra.axis("n"), ra.axis("j", size=4)
x = ra.tensor("x[t,n]")
BOTH = ra.fuse({"best": (ra.topk(x, n, j)[0], "t j"), "first": (ra.first(x, n), "t")})


LANES, BLOCK = {"level": "thread"}, {"level": "block"}
BY_LANE = "whose elements are joined lane by lane in one segment"


@pytest.mark.parametrize(
    ("fused", "dtype", "changes", "message"),
    [
        (FUSED["topk values"], "float32", LANES, "which keeps several elements, .* Use level 'block'"),
        (FUSED["argmax"], "float32", {**LANES, "segments": 2}, f"component of argmax, {BY_LANE}"),
        (FUSED["first"], "float32", BLOCK, f"component of first, {BY_LANE}"),
        (BOTH, "float32", BLOCK, f"component of first, {BY_LANE}"),
        (FUSED["topk values"], "float64", BLOCK, "selects elements in float64; .* Pass tensors of float32 or narrower"),
    ],
)
def test_what_a_level_does_not_hold_is_refused(fused: ra.Fused, dtype: str, changes: Any, message: str) -> None:
    known: Any = {"sizes": {"t": 3, "n": 100}, "dtypes": {"x": dtype}}
    plan = replace(FUSED["argmax"].lower("c", **known).plan, **changes)
    with pytest.raises(ra.PlanError, match=message):
        fused.lower("c", **known, plan=plan)
