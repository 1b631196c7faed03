"""The kernel that merges states which lie in memory side by side: the merge of parts, without the kernel before it.

s[0], s[1], …, s[N − 1]   →   outputs of the merged state        each slot is an input of N arrays
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

from redalg.errors import PlanError
from redalg.expression import Axis, Value
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import single
from redalg.lower_tile.check.lint import lint
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import TileProgram
from redalg.lower_tile.passes.order import run_passes
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.frames import Job, taken_names
from redalg.lower_tile.place.parameters import outputs
from redalg.lower_tile.place.segments import Parts, merge_kernel, state_parameter
from redalg.lower_tile.place.selection import row_width
from redalg.lower_tile.place.slots import Slots, allocate
from redalg.lower_tile.place.space import E_, I
from redalg.strategies.plan import Plan, Problem


@final
@dataclass(frozen=True)
class MergeProgram:
    """The program that merges a number of states.

    Attributes:
        program: its inputs are the slots, by their names; the states are their first dimension.
        axes: slot -> the axes of the other dimensions; None for one of length 1. A slot that lacks an axis is repeated.
    """

    program: TileProgram
    axes: Mapping[str, tuple[Axis | None, ...]]


def program_of_merge(form: FusedForm, plan: Plan, problem: Problem, dtypes: Mapping[str, str]) -> MergeProgram:
    """The program that merges as many states as a plan has parts, and finishes the outputs of `dtypes`.

    Raises:
        PlanError: rows pack several axes, or a slot has a list of elements.
    """
    if plan.binding.packing is not None:
        raise PlanError(f"rows of {plan.binding.row} pack several axes, which slots do not.")
    if any(row_width(one, problem) for one in form.structures):
        raise PlanError("a slot is a list of elements, which kernels hold padded.")
    problem = replace(problem, sizes=plan.binding.all_sizes(problem.sizes))
    job = Job(form, plan, problem, dtypes)
    taken = taken_names(job)
    names = Names(taken)
    slots, _ = allocate(form, Assembly(plan, names, problem.compute), problem, of_data=False)
    named = {value: names.fresh(f"{value.name}_parts") for value in slots.loads}
    parts = Parts(named, slots, {})
    inputs = [replace(state_parameter(value, name, parts.shape(value, job), job), role="input", key=value.name)
              for value, name in named.items()]  # fmt: skip
    kernel = merge_kernel(job, Names((*taken, *named.values())), parts)
    name = f"merge_over_{form.cascade.axis}"
    program = TileProgram(name, (*inputs, *outputs(single(form), problem, dtypes)), (kernel,), problem.compute)
    program = run_passes(program, plan)
    verify(program)
    lint(program, plan)
    return MergeProgram(program, {value.name: dimensions_of_slot(value, slots, plan) for value in slots.loads})


def dimensions_of_slot(value: Value, slots: Slots, plan: Plan) -> tuple[Axis | None, ...]:
    """The axes of a slot's workspace, without that of the parts."""
    of_index = {I: plan.binding.row, E_: plan.binding.column}
    return (*plan.binding.grid, *(of_index[one] for one in slots.loads[value].indices))
