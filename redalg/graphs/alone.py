"""The reductions of a program that no group holds, each with the reason.

Of the patterns with such a reduction the one of the largest gain tells most. They are shown to the engine, those of the
largest gains first, until it takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import takewhile
from typing import TypeVar

from redalg.graphs.analysis import Kind
from redalg.graphs.candidates import Candidates
from redalg.graphs.fusion_plan import FusionPlan, splits_kernel
from redalg.graphs.vertices import Pattern

T = TypeVar("T")
APART = "a reduction alone, between products, operators of PyTorch, inputs and outputs: fusing it would save nothing"
LARGE = "each group with it is too large, or a path leaves the group and comes back"
NO_GAIN = "no group with it is predicted to save time"
OTHERS = "what it would be computed with is in groups that save more"
BESIDE = "one kernel of a compiler computes it with what is beside it, which a group would leave as a launch more"
UNCALLED = "its group has sizes that only data decide"


def reasons_alone(candidates: Candidates, plan: FusionPlan, members: Collection[str]) -> dict[str, str]:
    """Reduction that is in no group -> the reason; `members` are those of the groups that can be called."""
    kinds = candidates.vertices.analysis.kinds
    planned = Pattern(name for group in plan.groups for name in group.members)
    alone = [name for name in candidates.vertices.names if kinds[name] is Kind.REDUCTION and name not in members]
    return {name: UNCALLED if name in planned else reason_alone(candidates, name, planned) for name in alone}


def reason_alone(candidates: Candidates, name: str, planned: Pattern) -> str:
    """The reason why a reduction is in no pattern of the plan, which holds other vertices."""
    vertices, verdicts = candidates.vertices, candidates.verdicts
    if not {*vertices.sources[name], *vertices.readers[name]} & {*vertices.names}:
        return APART
    tried = sorted((each for each in candidates.gains if name in each and len(each) > 1),
                   key=lambda pattern: -candidates.gains[pattern])  # fmt: skip
    if not tried:
        return LARGE
    useful = takewhile(lambda pattern: candidates.gains[pattern] > 0, tried)
    shown = [*through_first(useful, lambda pattern: verdicts.of(pattern).is_group)]
    if not shown:
        return NO_GAIN
    if verdicts.of(shown[-1]).is_group:
        return BESIDE if splits_kernel(candidates.gain, shown[-1], planned | shown[-1]) else OTHERS
    return verdicts.of(shown[0]).reason.splitlines()[0]


def through_first(items: Iterable[T], holds: Callable[[T], bool]) -> Iterator[T]:
    """Yield items up to the first of which something holds, and that one."""
    for item in items:
        yield item
        if holds(item):
            return
