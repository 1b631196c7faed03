"""The numbers of rows that a tile of columns holds from end to end, made of that tile.

a loop over b of Σ_b f(x[b, n], v[b]), where v[b] = ⊕_m g(x[b, m]):

    load x[b, :];  v[b] = ⊕_m g(x[b, m]), a number in registers for every row of the tile;  then the loop's own terms

The form of v has the loop's elements b for its rows, and one tile along m (level `row`). It reads the buffers that the
loop has loaded: their indices are those of b, and of m in place of n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sympy import S

from redalg.expression import Axis, Element
from redalg.expression.contents import free_axes
from redalg.incremental.arrange.order import REWRITES_IN_KERNELS, rewrite_stages
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import single
from redalg.lower_tile.ir.program import Statement
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.epilogue import Epilogue
from redalg.lower_tile.place.frames import Within
from redalg.lower_tile.place.operands import Operands
from redalg.lower_tile.place.sets import without_fills
from redalg.lower_tile.place.slots import allocate
from redalg.lower_tile.place.space import I, J, Space
from redalg.lower_tile.place.step import Step
from redalg.strategies.binding import bind_axes
from redalg.strategies.plan import Problem


def stage_rows(
    within: Sequence[Within], form: FusedForm, space: Space, operands: Operands, body: list[Statement]
) -> Space:
    """The space of a loop's tile with its inputs and the numbers of its rows; `body` takes what makes them."""
    for least, elements in ((2, form.cascade.elements()), (1, columns_read(within, form, space))):
        for element in elements:
            space = operands.stage(space, element, body, least)
    for given in within:
        stage, problem = rewrite_stages(REWRITES_IN_KERNELS, single(given[0]), given[1])
        rows = space_of_rows(stage.loop, problem, space)
        space, statements = with_values_of(stage.loop, form, (space, rows), operands.assembly)
        body += statements
    return space


def columns_read(within: Sequence[Within], form: FusedForm, space: Space) -> list[Element]:
    """The elements that the loop, or a form of its rows, reads along the columns alone: the same for every tile."""
    row = space.plan.binding.row
    found = {*form.cascade.elements()}
    for ahead, problem in within:
        along = {bind_axes(ahead, problem.sizes).streamed: row}
        found |= {one.xreplace(along) for one in ahead.cascade.elements()}
    return sorted((one for one in found if free_axes(one) == {row}), key=str)


def space_of_rows(form: FusedForm, problem: Problem, space: Space) -> Space:
    """The space of a form whose rows are a loop's streamed elements, and whose streamed axis is one tile."""
    plan, own = space.plan, bind_axes(form, problem.sizes)
    streamed, columns = plan.binding.streamed, plan.binding.row
    renamed: dict[Axis | None, Axis] = {columns: own.streamed}
    plan = replace(plan, binding=own, block_row=plan.block_streamed, block_streamed=plan.block_row, level="row",
                   along_rows=False, segments=1, stages=0)  # fmt: skip
    grid = {axis: space.at[axis] for axis in own.grid}
    staged = {element.xreplace(renamed): (name, tuple(one.xreplace(renamed) for one in indices))
              for element, (name, indices) in space.staged.items()}  # fmt: skip
    at = {**grid, streamed: space.at[streamed].xreplace({J: I}), own.streamed: J}
    start = {streamed: space.start[streamed], own.streamed: (S.Zero, plan.block_streamed)}
    return Space(plan, problem, at, start, staged=staged)


def with_values_of(
    ahead: FusedForm, form: FusedForm, spaces: tuple[Space, Space], assembly: Assembly
) -> tuple[Space, list[Statement]]:
    """The loop's space with the outputs of a form of its rows as tensors in registers, and what makes them."""
    space, rows = spaces
    own, before = Assembly(rows.plan, assembly.names, assembly.compute), list[Statement]()
    slots, empty = allocate(ahead, own, rows.problem)
    empty = without_fills(empty, {slots.loads[value].name for value in slots.numbers})
    taken = Step(ahead, own, rows, before).build(slots)
    epilogue = Epilogue(ahead, own, slots, rows, {})
    body, staged = [*before, *empty, *taken, *epilogue.values()], dict[Element, tuple[str, tuple[Axis, ...]]]()
    for output, read in epilogue.reads():
        value = own.new(output.name, I)
        body.append(own.stores((value, read)))
        elements = (one for one in form.cascade.elements() if one.name == output.name)
        staged |= dict.fromkeys(elements, (value.name, (space.plan.binding.streamed,)))
    assembly.buffers |= own.buffers
    return space.with_staged(staged), body
