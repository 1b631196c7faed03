"""FusedForm + Plan -> TileProgram: one kernel for Single-Segment, two for Multi-Segment.

Single-Segment: empty state; loop over the row's tiles; finish; outputs (`single`).
Multi-Segment: the same loop over a part, its state to a workspace; then merge the parts; finish; outputs (`segments`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from redalg.errors import PlanError
from redalg.incremental.form import FusedForm
from redalg.incremental.pruned import pruned
from redalg.lower_tile.frames import Job, sizes_of
from redalg.lower_tile.join import joined
from redalg.lower_tile.lint import lint
from redalg.lower_tile.loops import without_single_steps
from redalg.lower_tile.parameters import inputs, outputs
from redalg.lower_tile.program import TileProgram
from redalg.lower_tile.segments import multi_segment
from redalg.lower_tile.selection import check_selections
from redalg.lower_tile.single import single_segment, split
from redalg.lower_tile.split import check_splits
from redalg.lower_tile.verify import verify
from redalg.strategies import Plan, Problem


def build(form: FusedForm, plan: Plan, problem: Problem, dtypes: Mapping[str, str]) -> TileProgram:
    """The tile program of a form under a plan; `dtypes` gives each output's dtype."""
    plan.verify()
    length = problem.sizes[plan.binding.streamed.name]
    if plan.level == "row" and not plan.block_streamed >= length:
        raise PlanError(
            f"the plan holds a row in one tile of {plan.block_streamed} elements, and axis {plan.binding.streamed} has "
            f"{length}. Use block_streamed of at least that, or another level."
        )
    if plan.form != form.kind:
        raise PlanError(
            f"the plan asks for the {plan.form} form, and the tile program holds the {form.kind} form alone so far."
        )
    check_selections(form, plan, problem)
    check_splits(form, plan)
    problem = replace(problem, sizes=plan.binding.sized(problem.sizes))
    job = Job(pruned(form), plan, problem, dtypes)
    lowered = multi_segment if plan.segments > 1 else split if plan.splits > 1 else single_segment
    kernels, workspaces = lowered(job)
    bodies = (joined(without_single_steps(one.body), tiles=plan.level == "thread") for one in kernels)
    kernels = tuple(replace(one, body=body) for one, body in zip(kernels, bodies, strict=True))
    parameters = (*inputs(form, problem), *outputs(form, problem, dtypes), *workspaces)
    name = f"{form.outputs[0].name}_over_{form.cascade.axis}"
    program = TileProgram(name, parameters, kernels, problem.compute, sizes_of(problem))
    verify(program)
    lint(program, plan)
    return program
