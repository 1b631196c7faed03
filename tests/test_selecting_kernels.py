"""Selections in the tile program, against the definition: ties, masks, NaN, rows of nothing, in one part and three."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
