"""Levels of patterns that join are those that are counted from the start."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import TopologicalSorter

from hypothesis import given, settings
from hypothesis import strategies as st

from redalg.graphs.analysis import analyze_program
from redalg.graphs.levels import Levels
from redalg.graphs.vertices import Pattern, vertices_of
from tests.graphs.test_exploration import STEPS, program_of
from tests.sweeps import draws


def levels_anew(parts: Levels) -> dict[Pattern, int]:
    """The level of every pattern: one more than that of the last that it reads."""
    read = {part: parts.sources_of(part) for part in parts.levels}
    levels = dict[Pattern, int]()
    for part in TopologicalSorter(read).static_order():
        levels[part] = 1 + max((levels[other] for other in read[part]), default=-1)
    return levels


@given(st.lists(STEPS, min_size=2, max_size=20), st.lists(st.booleans(), min_size=40, max_size=40))
@settings(max_examples=draws(200))
def test_levels_are_those_of_a_count_from_the_start(steps: Sequence[tuple[str, int, int]], joins: list[bool]) -> None:
    vertices = vertices_of(analyze_program(program_of(steps, [len(steps) - 1])))
    parts, choices = Levels(vertices), iter(joins)
    for name in vertices.names:
        parts.put(Pattern({name}))
        assert parts.levels == levels_anew(parts)
    for name in vertices.names:
        part = parts.places[name]
        if last := parts.last_sources(part) if next(choices) else []:
            assert {parts.levels[other] for other in last} == {parts.levels[part] - 1}
            parts.put(part.union(*last), [*last, part])
        assert parts.levels == levels_anew(parts)
        assert {name: parts.places[name] for part in parts.levels for name in part} == parts.places
