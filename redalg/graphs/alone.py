"""The reductions of a program that no group holds, each with the reason.

Of the patterns with such a reduction the one of the largest gain that was shown to the engine tells most; where none
was, there was none to show.
"""

from __future__ import annotations

from collections.abc import Collection

from redalg.graphs.analysis import Kind
from redalg.graphs.candidates import Candidates
from redalg.graphs.fusion_plan import FusionPlan

APART = "what it reads and what reads it are products, operators of PyTorch, inputs and outputs"
LARGE = "no pattern with it is small enough, and free of paths that leave it and come back"
NO_GAIN = "no pattern with it saves time"
OTHERS = "other patterns hold what it would be computed with"
UNCALLED = "sizes of its group are known to nobody before it runs"


def reasons_alone(candidates: Candidates, plan: FusionPlan, members: Collection[str]) -> dict[str, str]:
    """Reduction that is in no group -> the reason; `members` are those of the groups that can be called."""
    kinds, planned = candidates.vertices.analysis.kinds, {name for group in plan.groups for name in group.members}
    alone = [name for name in candidates.vertices.names if kinds[name] is Kind.REDUCTION and name not in members]
    return {name: UNCALLED if name in planned else reason_alone(candidates, name) for name in alone}


def reason_alone(candidates: Candidates, name: str) -> str:
    """The reason why a reduction is in no pattern of the plan."""
    vertices, verdicts = candidates.vertices, candidates.verdicts
    if not {*vertices.sources[name], *vertices.readers[name]} & {*vertices.names}:
        return APART
    tried = sorted((each for each in candidates.gains if name in each and len(each) > 1),
                   key=lambda pattern: -candidates.gains[pattern])  # fmt: skip
    if not tried:
        return LARGE
    shown = (verdicts.found.get(verdicts.structure(each)) for each in tried if candidates.gains[each] > 0)
    found = [verdict for verdict in shown if verdict is not None]
    if not found:
        return NO_GAIN
    refused = [verdict.reason for verdict in found if not verdict.is_one_pass or verdict.is_slow]
    return refused[0].splitlines()[0] if len(refused) == len(found) else OTHERS
