"""Plans: which of the patterns that overlap are taken."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from redalg.graphs.alone import reasons_alone
from redalg.graphs.fusion_plan import beam_search
from redalg.graphs.vertices import Pattern
from tests.graphs.test_exploration import found_in, program_of
from tests.torch.test_aten import Called, exported

pytestmark = pytest.mark.filterwarnings("ignore")


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


@pytest.mark.parametrize("is_kept", [False, True], ids=["count", "count and labels"])
def test_a_pattern_leaves_no_launch_of_a_compilers_kernel(is_kept: bool) -> None:
    """A compiler has one kernel for the count and for integers that no group computes."""

    def counted(labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        valid = labels != -100
        return valid.sum().float(), valid, *((torch.where(valid, labels, 0),) if is_kept else ())

    imported, _ = exported(Called(counted), (torch.arange(128),))
    candidates, plan = found_in(imported.program.live())
    assert len(plan.groups) == 1 - is_kept
    members = {name for group in plan.groups for name in group.members}
    reasons = reasons_alone(candidates, plan, members).values()
    assert [reason.startswith("one kernel of a compiler") for reason in reasons] == [True] * is_kept
