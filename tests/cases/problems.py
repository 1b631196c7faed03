"""Problems of tile programs, by Hypothesis: a form of `kernels`, tensors of small sizes, and a tile for its plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from hypothesis import strategies as st
from sympy import Integer, Mod

import redalg as ra
from redalg.incremental.form import FusedForm
from redalg.strategies.rules.parts import splittable
from redalg.strategies.schedule import Schedule, numbers_of, with_choices
from tests.cases.kernels import FORMS, fused, problem

LEVELS = ("thread", "block", "warp", "row")
LONG, SHORT = st.integers(1, 20), st.integers(1, 2)
BATCH = ("b", "h")
INTEGERS, PAGES = ("length", "begin"), 5


@st.composite
def problems(draw: Any) -> Problem:
    """A form, tensors for it of any small sizes, what a plan may vary, and the extents that no tensor tells."""
    name = draw(st.sampled_from(sorted(FORMS)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    sizes = {axis.name: draw(SHORT if axis.name in BATCH else LONG) for axis in fused(name).cascade.axes()}
    if name == "latent":  # one tensor, read along both
        sizes["e"] = sizes["c"]
    tensors = {}
    for element in fused(name).cascade.elements():
        if element.name in tensors and not element.is_plain:  # a gather from what is read in order too
            continue
        shape = [extent(index, sizes) for index in element.indices]
        made = torch.randn(shape, generator=generator)
        tensors[element.name] = (
            made > -0.5 if element.name in ("M", "N") else made.abs() + 0.1 if element.name == "w" else made
        )
        if element.name in INTEGERS:
            tensors[element.name] = torch.randint(-2, 24, shape, generator=generator)
        if element.name == "target":
            tensors[element.name] = torch.randint(0, sizes["n"], shape, generator=generator)
        if element.name == "pages":
            tensors[element.name] = torch.randint(0, PAGES, shape, generator=generator)
    tile = {
        "block_row": draw(st.sampled_from([1, 3, 16])),
        "block_streamed": draw(st.sampled_from([1, 5, 16])),
        "segments": draw(st.sampled_from([1, 2, 3])),
        "block_column": draw(st.sampled_from([1, 3, 16, 32])),
        "block_inner": draw(st.sampled_from([0, 16])),
        "level": draw(st.sampled_from(LEVELS)),
    }
    one, extents = fused(name), {"k": sizes["k"]} if "pages" in tensors else {}
    binding = one.lower("c", **problem(one, tensors, extents)).plan.binding
    if tile["segments"] == 1 and tile["block_inner"] and splittable(one.form, binding):
        tile["splits"] = draw(st.sampled_from([1, 2, 5]))
    return name, tensors, tile, extents


Problem = tuple[str, dict[str, torch.Tensor], dict[str, int], dict[str, int]]


def extent(index: Any, sizes: Mapping[str, int]) -> int:
    """How long a dimension is that an expression indexes (it grows with every axis, and takes its remainders)."""
    if isinstance(index, Mod):
        return int(index.args[1])
    if index.has(ra.expression.Element):
        return PAGES
    last = index.xreplace({one: Integer(sizes[one.name] - 1) for one in index.free_symbols})
    return 1 + sizes["j"] % 4 if str(index) == "j" else int(last) + 1


def levelled(plan: Schedule, tile: dict[str, Any], sizes: Mapping[str, int], form: FusedForm) -> Schedule:
    """The plan with that tile, at a level that it can have: one tile for a row is as long as the row."""
    if numbers_of(plan).multiplies or numbers_of(plan).level == "thread":  # by choice of the rules: structures of lanes
        return with_choices(plan, **{**tile, "level": numbers_of(plan).level})
    if form.places and tile["level"] == "thread":
        return with_choices(plan, **{**tile, "level": "block"})
    whole = {"segments": 1, "block_streamed": max(tile["block_streamed"], sizes[plan.binding.streamed.name])}
    return with_choices(plan, **tile) if tile["level"] != "row" else with_choices(plan, **{**tile, **whole})
