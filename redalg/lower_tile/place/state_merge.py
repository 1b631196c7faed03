"""The kernel that merges states: the merge of parts, without the kernel before it.

s[0], s[1], …, s[N − 1]   →   outputs of the merged state

Of few states each slot is N inputs, so that they stay where they are. Of many it is one input of N arrays side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

from sympy import Integer, S

from redalg.errors import PlanError
from redalg.expression import Axis, Value
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import single
from redalg.lower_tile.check.lint import lint
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import Loop, Parameter, Statement, TileProgram, expressions, map_statement
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.passes.order import run_passes
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.frames import Job, taken_names
from redalg.lower_tile.place.parameters import outputs
from redalg.lower_tile.place.segments import PART, Parts, merge_kernel, state_parameter
from redalg.lower_tile.place.selection import row_width
from redalg.lower_tile.place.slots import Slots, allocate
from redalg.lower_tile.place.space import E_, I
from redalg.strategies.plan import Plan, Problem


@final
@dataclass(frozen=True)
class MergeProgram:
    """The program that merges a number of states.

    Attributes:
        program: the program.
        inputs: slot -> its inputs.
        axes: slot -> the axes of its dimensions; None for one of length 1. A slot that lacks an axis is repeated.
        apart: each slot is an input for every state; else one, whose first dimension is that of the states.
    """

    program: TileProgram
    inputs: Mapping[str, tuple[Parameter, ...]]
    axes: Mapping[str, tuple[Axis | None, ...]]
    apart: bool


MOST_APART = 8
"""States whose slots are inputs of their own."""


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
    kernel, apart = merge_kernel(job, Names((*taken, *named.values())), parts), False
    by_slot: dict[str, tuple[Parameter, ...]] = {one.key: (one,) for one in inputs}
    if plan.segments <= MOST_APART:
        own = {one.name: [names.fresh(f"{one.key}_of_{place}") for place in range(plan.segments)] for one in inputs}
        in_turn = replace(kernel, body=tuple(parts_in_turn(kernel.body, own, plan.segments)))
        nodes = (node for statement in in_turn.body for node in expressions(statement))
        apart = not any(load.name in own for node in nodes for load in node.atoms(Load))
        if apart:
            kernel = in_turn
            by_slot = {one.key: _inputs_apart(one, own[one.name]) for one in inputs}
    inputs = [one for of_slot in by_slot.values() for one in of_slot]
    name = f"merge_over_{form.cascade.axis}"
    program = TileProgram(name, (*inputs, *outputs(single(form), problem, dtypes)), (kernel,), problem.compute)
    program = run_passes(program, plan)
    verify(program)
    lint(program, plan)
    axes = {value.name: dimensions_of_slot(value, slots, plan) for value in slots.loads}
    return MergeProgram(program, by_slot, axes, apart)


def _inputs_apart(side_by_side: Parameter, names: Sequence[str]) -> tuple[Parameter, ...]:
    """An input of these names for each part of one that has them side by side."""
    shape = side_by_side.shape[1:] or (1,)
    return tuple(replace(side_by_side, name=name, key=name, shape=shape) for name in names)


def parts_in_turn(body: Iterable[Statement], names: Mapping[str, Sequence[str]], number: int) -> Iterator[Statement]:
    """The statements with the loop over parts written out; each part reads inputs of its own, by name."""
    for statement in body:
        if not isinstance(statement, Loop) or statement.variable != PART:
            yield statement
            continue
        for place in range(number):
            yield from (map_statement(one, partial(_of_part, place, names)) for one in statement.body)


def _of_part(place: int, names: Mapping[str, Sequence[str]], node: Any) -> Any:
    """An expression of a part, which reads from inputs of its own."""
    node = node.xreplace({PART: Integer(place)})
    reads = [load for load in node.atoms(Load) if load.name in names]
    return node.xreplace({load: Load(names[load.name][place], *(load.indices[1:] or (S.Zero,))) for load in reads})


def dimensions_of_slot(value: Value, slots: Slots, plan: Plan) -> tuple[Axis | None, ...]:
    """The axes of a slot's input, without that of the states."""
    of_index = {I: plan.binding.row, E_: plan.binding.column}
    return (*plan.binding.grid, *(of_index[one] for one in slots.loads[value].indices))
