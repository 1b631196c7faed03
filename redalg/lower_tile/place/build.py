"""FusedForm + Schedule -> TileProgram: one kernel for Single-Segment, two for Multi-Segment.

Single-Segment: empty state; loop over the row's tiles; finish; outputs (`single`).
Elementwise: no state; loop over the row's tiles, or a part of them; outputs (`segments`).
Multi-Segment: the same loop over a part, its state to a workspace; then merge the parts; finish; outputs (`segments`).
Several stages (`incremental.stages`): the kernels of each, which hand on tensors in workspaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sympy import Symbol

from redalg.errors import PlanError
from redalg.incremental.arrange.order import REWRITES_IN_KERNELS, rewrite_stages
from redalg.incremental.fix_pivots import fix_among_nine, move_first
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import Stages, single
from redalg.lower_tile.check.fit import smem_bytes
from redalg.lower_tile.check.lint import lint
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.mentions import variables_of
from redalg.lower_tile.ir.program import Kernel, Parameter, TileProgram
from redalg.lower_tile.passes.loops import without_single_steps
from redalg.lower_tile.passes.order import run_passes
from redalg.lower_tile.place.frames import Job, Within, runtime_sizes
from redalg.lower_tile.place.parameters import between, dtype_between, inputs, outputs, problem_of_stage
from redalg.lower_tile.place.segments import elementwise, multi_segment
from redalg.lower_tile.place.selection import check_selections
from redalg.lower_tile.place.serial import check_serial
from redalg.lower_tile.place.single import single_segment
from redalg.lower_tile.place.split import check_splits, split_producers
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.rules.rules import RULES_IN_REGISTERS, choose_schedule, smaller
from redalg.strategies.rules.whole_rows import forms_within
from redalg.strategies.schedule import numbers_of, schedule_of


def build(
    stages: Stages,
    plan: Plan,
    problem: Problem,
    dtypes: Mapping[str, str],
    planned: tuple[tuple[Symbol, int], ...] = (),
) -> TileProgram:
    """The program of every stage after all passes, verified and linted.

    `dtypes` gives each output's dtype, `planned` the run-time sizes of the call that it is planned for.
    """
    program = run_passes(replace(assemble(stages, plan, problem, dtypes), planned=planned), plan)
    verify(program)
    lint(program, plan)
    return program


def assemble(stages: Stages, plan: Plan, problem: Problem, dtypes: Mapping[str, str]) -> TileProgram:
    """The kernels of every stage, in order, ahead of the passes. The rules plan all but the loop."""
    plan.verify(problem)
    kernels, within = list[Kernel](), forms_within(stages, plan, problem)
    inside = {output.name for form in within for output in form.outputs}
    handed_on = (one for one in between(stages, problem) if one.key not in inside)
    parameters = [*inputs(stages, problem), *outputs(stages, problem, dtypes), *handed_on]
    for place, form in enumerate(stages.forms):
        if form in within:
            continue
        known = problem_of_stage(form, stages, problem)
        stored = {one.name: dtypes.get(one.name) or dtype_between(one.name, stages, problem) for one in form.outputs}
        also = (*(one.name for one in parameters), *(name for kernel in kernels for name in variables_of(kernel)))
        also = also if len(stages.forms) > 1 else ()
        if place == stages.place:
            beside = tuple((one, problem_of_stage(one, stages, problem)) for one in within)
            own, workspaces = kernels_of(form, plan, known, stored, also, within=beside)
        else:
            own, workspaces = kernels_by_rules(form, plan, known, stored, also)
        kernels += own
        parameters += workspaces
    name = f"{stages.outputs[0].name}_over_{stages.loop.cascade.axis}"
    sized = replace(problem, sizes=plan.binding.all_sizes(problem.sizes))
    return TileProgram(name, tuple(parameters), tuple(kernels), problem.compute, runtime_sizes(sized))


def kernels_of(
    form: FusedForm, plan: Plan, problem: Problem, dtypes: Mapping[str, str], also: tuple[str, ...] = (), *,
    within: tuple[Within, ...] = (),
) -> tuple[tuple[Kernel, ...], tuple[Parameter, ...]]:  # fmt: skip
    """The kernels of one form, and the workspaces between them; its tiles make the values of the forms `within`."""
    length, plan = problem.sizes[plan.binding.streamed.name], plan.of_whole_rows()
    if plan.level == "row" and not plan.block_streamed >= length:
        raise PlanError(
            f"schedule `{plan}` holds axis {plan.binding.streamed} in one tile of {plan.block_streamed} elements, and "
            f"the axis has {length}. Use a Whole tile of at least that, or a Loop."
        )
    if plan.level == "thread" and not form.is_lanewise and not (form.is_tilted and form.shares_slopes):
        raise PlanError(
            f"schedule `{plan}` keeps a state in every lane, which has no place for a scaled pivot that no sum over "
            f"{form.cascade.axis} finds. Put Lanes inside the Loop."
        )
    check_serial(form, plan)
    check_selections(form, plan)
    check_splits(form, plan)
    problem = replace(problem, sizes=plan.binding.all_sizes(problem.sizes))
    fixed = None if plan.binding.streamed.name in problem.varying else length
    moves_columns = plan.is_serial and plan.binding.contracted  # a thread that moved its pivots would move all of them
    form = fix_among_nine(form, fixed) if moves_columns else move_first(form, fixed)
    stage, problem = rewrite_stages(REWRITES_IN_KERNELS, single(form), problem)
    job = Job(stage.loop, plan, problem, dtypes, also=also, within=within)
    if stage.loop.is_elementwise:
        return elementwise(job)
    lowered = multi_segment if plan.segments > 1 else split_producers if plan.splits > 1 else single_segment
    return lowered(job)


def kernels_by_rules(
    stage: FusedForm, main: Plan, problem: Problem, dtypes: Mapping[str, str], also: tuple[str, ...]
) -> tuple[tuple[Kernel, ...], tuple[Parameter, ...]]:
    """The kernels of a stage under the rules' first plan that fits shared memory, without loading warps.

    If the loop's own plan has loading warps, the stage has no pipeline: the compiler would give them to any pipeline.
    If no plan fits, the kernels are those of the first plan.
    """
    plan = numbers_of(choose_schedule(stage, problem, main.device, RULES_IN_REGISTERS))
    plan = replace(plan, warp_specialized=False, stages=0 if main.warp_specialized else plan.stages)
    tried = []
    for candidate in map(numbers_of, smaller(schedule_of(plan))):
        kernels, workspaces = kernels_of(stage, candidate, problem, dtypes, also)
        tried.append((tuple(replace(kernel, plan=candidate) for kernel in kernels), workspaces))
        looped = (replace(kernel, body=without_single_steps(kernel.body)) for kernel in kernels)
        if all(smem_bytes(kernel, candidate) <= candidate.device.smem_bytes for kernel in looped):
            return tried[-1]
    return tried[0]
