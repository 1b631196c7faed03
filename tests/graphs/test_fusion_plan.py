"""Plans: which of the patterns that overlap are taken."""

from __future__ import annotations

from dataclasses import replace

from redalg.graphs.fusion_plan import beam_search
from redalg.graphs.vertices import Pattern
from tests.graphs.test_exploration import found_in, program_of


def test_a_pattern_takes_the_place_of_early_ones_that_gain_less() -> None:
    program = program_of([("sum", 0, 0), ("exp", 2, 2), ("sum", 3, 3), ("exp", 4, 4)], [3])
    early = [Pattern(f"s{number}" for number in range(last)) for last in (2, 3, 4)]
    for gain, chosen in ((4.0, Pattern({"s1", "s2", "s3"})), (3.0, early[0])):
        late = Pattern({"s1", "s2", "s3"})
        found = replace(
            found_in(program)[0], of_vertex={"s0": (*early,), "s1": (late,), "s2": (), "s3": ()},
            gains={early[0]: 3.0, early[1]: 2.0, early[2]: 1.0, late: gain},
        )  # fmt: skip
        assert beam_search(found) == [chosen]
