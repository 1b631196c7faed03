"""The table of contents, from text to kernel, every stage in order. Choices and fallbacks stand in the stages.

written → Cascade → Decomposition → FusedForm           `fuse`: analysis alone, of each pass over the data
FusedForm → Stages → Schedule → TileProgram → source    `Fused.lower`, or a call, when sizes and dtypes are known
source → kernel                                         `runtime.compile`, at the first call
"""

from __future__ import annotations

from collections.abc import Sequence

from redalg.decompose.cascade import Cascade
from redalg.decompose.parse.parse import parse
from redalg.decompose.parse.written import Written, check_expression_names
from redalg.decompose.verdict.fewest import fewest_decompositions
from redalg.decompose.verdict.verdict import Decomposition
from redalg.expression import Element
from redalg.incremental.derive.derive import derive
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes
from redalg.incremental.stages import Stages
from redalg.runtime.lowered import Lowered
from redalg.strategies.plan import Problem
from redalg.strategies.schedule import AnySchedule, Schedule

Analysis = tuple[Cascade, tuple[Decomposition, ...]]
Planning = tuple[Stages, list[Schedule], Problem]


def analyse(written: Written, inputs: Sequence[Element], most: int, *, exact: bool) -> Analysis:
    """Written → Cascade → Decomposition, of each pass."""
    cascade = parse(written)
    check_expression_names(cascade, inputs)
    return cascade, fewest_decompositions(cascade, most, exact=exact)


def derive_passes(*decompositions: Decomposition) -> Passes:
    """Decomposition → FusedForm, of each pass."""
    return Passes(tuple(map(derive, decompositions)))


def plan_stages(form: FusedForm, target: str, problem: Problem, plan: AnySchedule | None) -> Planning:
    """FusedForm → Stages → Schedule: those to try, in order."""
    from redalg.runtime.lowering import plannable, plans_for  # not above, where `import redalg` would load it

    stages, problem = plannable(form, problem)
    return stages, plans_for(form, stages, problem, target, plan), problem


def write_source(stages: Stages, plans: list[Schedule], problem: Problem) -> Lowered:
    """Stages → TileProgram, by the first schedule that fits → source."""
    from redalg.incremental.arrange.order import REWRITES_AFTER_PLANNING, rewrite_stages
    from redalg.runtime.lowering import program_of, results, source_of

    stages, problem = rewrite_stages(REWRITES_AFTER_PLANNING, stages, problem)
    choice = program_of(stages, plans, problem)
    return Lowered(stages, problem, *choice, source_of(stages, problem, *choice), results(stages, problem))
