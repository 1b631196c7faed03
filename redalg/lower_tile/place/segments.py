"""Multi-Segment: blocks take parts of the streamed axis; their states go to a workspace, and are merged from there.

merge = kernel    by a second kernel: every launch sees what the ones before it stored
merge = launch    by the block that comes last of its tile, in the same launch (`Last`), a few rows at a time

Parts are merged in their order either way, so the order in which blocks finish changes no bit. If a kernel merges, a
slot that all columns of a row share (or all rows of a column) is stored once. In the same launch every tile stores its
own copy, since it waits for no block of another tile. Outputs that carry the streamed axis are written by a further
kernel, from the merged state. If it writes every output, and the parts of a row are few, each of its blocks merges them
itself: that costs less than the launch of a kernel between them. A form without a state is a writing kernel alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from typing import Any, final

from sympy import And, Expr, Integer, Max, Min, S

from redalg.expression import Axis, Value
from redalg.incremental.form import FusedForm, Structure
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import (
    Kernel,
    Last,
    Loop,
    Parameter,
    Statement,
    Store,
    index,
    map_statement,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.carried import Carried, carries, carries_after
from redalg.lower_tile.place.epilogue import Epilogue
from redalg.lower_tile.place.frames import SEGMENT, Frame, Job, frame, names_after, taken_names
from redalg.lower_tile.place.joins import integer_dtype
from redalg.lower_tile.place.lanes import merge_of_lanes
from redalg.lower_tile.place.selection import ranked_structures, row_width
from redalg.lower_tile.place.sets import is_of_sets, merge_sets, with_sets
from redalg.lower_tile.place.single import AGAIN, in_turn, kernel_of, stream_loop
from redalg.lower_tile.place.slots import Slots, allocate, best_loads, stands_alone
from redalg.lower_tile.place.space import E_, PLACE, I, J, Space
from redalg.lower_tile.place.step import merge_states
from redalg.strategies.rules.runs import run_length
from redalg.strategies.varying import tiles_of

PART, CHUNK, GROUP = index("part"), index("chunk"), index("group")
MOST_IN_TURN, MOST_OF_RUNS_IN_TURN = 64, 16
"""Parts that are merged one after another; of more, groups are merged first. Of sums in runs, a part rounds so little
that as many parts would round more."""
LANES_OF_PARTS = 16
"""Lanes of a row that merge many parts, each of them its neighbouring ones."""
MOST_TO_WRITE = 16
"""Parts of a row that every block of a writing kernel merges."""
PARTS_TOGETHER = 8
"""Parts whose loads are in flight together in the merging kernel: it waits for memory, not for arithmetic."""

Places = Mapping[Value, tuple[str, tuple[Expr, ...]]]
"""Slot -> its workspace, and its place in it."""


@final
@dataclass(frozen=True)
class Parts:
    """The workspaces that hold the parts of a state.

    Attributes:
        names: workspaces of the parts.
        slots: the buffers that they are stored from.
        wholes: workspaces of the merged state (none: nothing else reads it).
        rows, columns: (number, count) of the block's tile if every tile stores its own; None if one stores for all.
        halved: blocks store tiles on one side of the diagonal of rows and columns, and on it.
    """

    names: Mapping[Value, str]
    slots: Slots
    wholes: Mapping[Value, str]
    rows: tuple[Expr, Any] | None = None
    columns: tuple[Expr, Any] | None = None
    halved: bool = False

    def own(self, value: Value) -> tuple[Expr, Any] | None:
        """(number, count) of the tile, if it stores its own copy of a slot that other tiles hold too; else None."""
        indices = self.slots.loads[value].indices
        return self.columns if E_ not in indices else self.rows if I not in indices else None

    def shape(self, value: Value, job: Job) -> tuple[Any, ...]:
        """The shape of a workspace: (segments, tiles that store their own, …)."""
        own = self.own(value)
        return (job.plan.segments, *([own[1]] if own else []), *state_shape(value, self.slots, job))

    def place(self, value: Value, space: Space, part: Expr) -> tuple[Expr, ...]:
        """The place of a slot's part in its workspace."""
        own = self.own(value)
        return (part, *([own[0]] if own else []), *self.stored_place(value, space))

    def stored_place(self, value: Value, space: Space) -> tuple[Expr, ...]:
        """The place of a slot among those that blocks store: of rows below columns, that with both exchanged."""
        place = state_place(value, self.slots, space)
        if not self.halved or space.halved or self.slots.loads[value].indices != (E_, I):
            return place
        *grid, column, row = place
        return (*grid, Min(row, column), Max(row, column))

    def places(self, space: Space, part: Expr) -> Places:
        """The workspace of every slot, and the place of a part in it."""
        return {value: (name, self.place(value, space, part)) for value, name in self.names.items()}


def multi_segment(job: Job) -> tuple[tuple[Kernel, ...], tuple[Parameter, ...]]:
    """Divide the streamed axis among blocks; a second kernel, or the last of the blocks, merges their states."""
    names = Names(taken_names(job))
    place = frame(job, names, segmented=True)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, body, _ = stream_loop(job, place, assembly)
    named = {value: names.fresh(f"{load.name}_parts") for value, load in slots.loads.items()}
    wholes = dict[Value, str]()
    if carries_after(job.form, job.plan) and not merges_to_write(job):
        wholes = {value: names.fresh(f"{load.name}_whole") for value, load in slots.loads.items()}
    parts = Parts(named, slots, wholes, halved=place.space.halved)
    if job.plan.merge == "launch":
        rows, columns = (own_tile(axis, job, place.space) for axis in (job.plan.binding.row, job.plan.binding.column))
        parts = replace(parts, rows=rows, columns=columns)
    for value, name in named.items():
        where, alone = parts.place(value, place.space, SEGMENT), parts.own(value) is None
        body.append(store_slot(value, slots, (name, where), place.space, assembly, alone=alone))
    parameters = [state_parameter(value, name, parts.shape(value, job), job) for value, name in named.items()]
    workspaces = [*named.values(), *wholes.values()]
    title = f"stream a part of {job.form.cascade.axis}"
    if job.plan.merge == "launch":
        counter = counter_of(place, names.fresh("done"))
        body.append(by_the_last(job, place, assembly, counter, parts))
        parameters.append(counter)
        workspaces.append(counter.name)
        kernels = [kernel_of(place, assembly, body, f"{title}, merge the parts" + ", finish" * (not wholes))]
    else:
        kernels = [in_turn(kernel_of(place, assembly, body, title), job.plan)]
        if not merges_to_write(job):
            kernels.append(merge_kernel(job, names_after(job, kernels, workspaces), parts))
    if carries_after(job.form, job.plan):
        whole = [(value, name, (1, *state_shape(value, slots, job))) for value, name in wholes.items()]
        parameters += [state_parameter(*one, job) for one in whole]
        kernels.append(write_kernel(job, names_after(job, kernels, workspaces), parts))
    return tuple(kernels), tuple(parameters)


def state_parameter(value: Value, name: str, shape: tuple[Any, ...], job: Job) -> Parameter:
    """A workspace as a parameter."""
    return Parameter(name, shape, integer_of(value, job) or job.problem.compute, "workspace", name)


def integer_of(value: Value, job: Job) -> str | None:
    """The dtype of a slot that holds integers; None for other slots."""
    structure = structure_with(value, job.form)
    if structure is None:
        return None
    return "int64" if structure in ranked_structures(job.form, job.plan) else integer_dtype(value, structure)


def structure_with(value: Value, form: FusedForm) -> Structure | None:
    """The structure that a slot is a component of; None for other slots."""
    return next((structure for structure in form.structures if value in structure.values), None)


def state_shape(value: Value, slots: Slots, job: Job) -> tuple[Any, ...]:
    """The shape of a slot for all rows: (grid axes …, rows, columns or places)."""
    binding, sizes = job.plan.binding, job.problem.sizes
    rows, columns = (sizes[axis.name] if axis is not None else 1 for axis in (binding.row, binding.column))
    structure = structure_with(value, job.form)
    lengths = {I: rows, E_: columns, PLACE: row_width(structure, job.problem) if structure else 0}
    return (*(sizes[axis.name] for axis in binding.grid), *(lengths[one] for one in slots.loads[value].indices))


def state_place(value: Value, slots: Slots, space: Space) -> tuple[Expr, ...]:
    """The place of a slot among the slots of all rows."""
    binding = space.plan.binding
    axes = {I: binding.row, E_: binding.column}
    places = {index: space.at[axis] for index, axis in axes.items() if axis is not None}
    return (*(space.at[axis] for axis in binding.grid), *(places.get(one, one) for one in slots.loads[value].indices))


def store_slot(
    value: Value, slots: Slots, at: tuple[str, tuple[Expr, ...]], space: Space, assembly: Assembly, *,
    alone: bool = True,
) -> Statement:  # fmt: skip
    """Store a slot at a place of a workspace; `alone`: only one of the blocks that hold the same stores it."""
    (workspace, where), load = at, slots.loads[value]
    by_row, by_column = I in load.indices, E_ in load.indices
    guards = [space.rows_inside() if by_row else space.first_rows() if alone else S.true,
              space.columns_inside() if by_column else space.first_columns() if alone else S.true]  # fmt: skip
    loop = assembly.stores((load, slots.mark_nan(value, load)))
    return replace(loop, body=(Store(workspace, where, loop.body[0].expr, And(*guards)),))


def merge_kernel(job: Job, names: Names, parts: Parts) -> Kernel:
    """The kernel that merges the parts."""
    rows = min(job.plan.block_row, job.plan.block_merged) if job.plan.binding.row is not None else 1
    lanes = LANES_OF_PARTS if merges_in_lanes(job) else job.plan.block_streamed
    job = replace(job, plan=replace(job.plan, block_row=rows, block_streamed=lanes, stages=0))
    place = frame(job, names, segmented=False)
    assembly = Assembly(job.plan, names, job.problem.compute)
    body = merge_statements(job, place.space, assembly, parts)
    return kernel_of(place, assembly, body, "merge the parts" + ", finish" * (not parts.wholes))


def merge_statements(job: Job, space: Space, assembly: Assembly, parts: Parts) -> list[Statement]:
    """The derived merge, then finish; the merged state is stored if a further kernel reads it."""
    slots, body = merge_parts(job, space, assembly, parts)
    return [*body, *after_merge(job, space, assembly, slots, parts)]


def merge_parts(job: Job, space: Space, assembly: Assembly, parts: Parts) -> tuple[Slots, list[Statement]]:
    """The buffers of the merged state, and the derived merge, part after part.

    Of many parts, groups are merged first, and then their states: a long sum of states would round at every part.
    """
    slots, body = allocate(job.form, assembly, job.problem, of_data=False)
    slots = replace(slots, scale=parts.slots.scale)
    segments = job.plan.segments
    if is_of_sets(job.form, assembly.plan, job.problem):
        loop = merge_sets(job, assembly, slots.loads, partial(parts.places, space))
        return slots, with_sets(job, assembly, slots.loads, body, [loop])
    if merges_in_lanes(job):
        return slots, merge_in_lanes(job, space, assembly, slots, parts)
    if segments <= (MOST_OF_RUNS_IN_TURN if run_length(job.form, job.plan, job.problem) else MOST_IN_TURN):
        loop = merge_in_turn(job, space, assembly, slots, parts.places(space, PART), count=Integer(segments))
    else:
        size = 1 << (segments.bit_length() // 2)
        group, empty = allocate(job.form, assembly, job.problem, of_data=False)
        group = replace(group, scale=parts.slots.scale)
        count = Integer(size) if segments % size == 0 else Min(size, segments - GROUP * size)
        merged = merge_in_turn(job, space, assembly, group, parts.places(space, GROUP * size + PART), count=count)
        merged_group = with_sets(job, assembly, group.loads, empty, [merged])
        groups = (*merged_group, *merge_step(assembly, space, slots, group, job.form))
        loop = Loop(GROUP, Integer(-(-segments // size)), 0, groups, pipelined=False)
    return slots, with_sets(job, assembly, slots.loads, body, [loop])


def after_merge(job: Job, space: Space, assembly: Assembly, slots: Slots, parts: Parts) -> list[Statement]:
    """Store the merged state, if a further kernel reads it, and finish the outputs that it makes."""
    body = list[Statement]()
    for value, name in parts.wholes.items():
        body.append(store_slot(value, slots, (name, (S.Zero, *state_place(value, slots, space))), space, assembly))
    if not all(one.carries for one in job.form.outputs):
        body += Epilogue(job.form, assembly, slots, space, job.dtypes).build()
    return body


def merges_in_lanes(job: Job) -> bool:
    """Tell if lanes merge groups of parts side by side: of many parts, one after another would wait for memory."""
    many = job.plan.segments > MOST_IN_TURN and job.plan.segments % LANES_OF_PARTS == 0
    return many and job.plan.level == "thread" and job.plan.merge == "kernel" and not job.form.structures


def merge_in_lanes(job: Job, space: Space, assembly: Assembly, slots: Slots, parts: Parts) -> list[Statement]:
    """Merge neighbouring parts in the lanes of a row, which are then merged as those of a tile are."""
    lanes, empty = allocate(job.form, assembly, job.problem, of_data=False, lanes=True)
    lanes = replace(lanes, scale=parts.slots.scale)
    count = job.plan.segments // LANES_OF_PARTS
    loop = merge_in_turn(job, space, assembly, lanes, parts.places(space, J * count + PART), count=Integer(count))
    return [*empty, loop, *merge_of_lanes(job.form, space, assembly, lanes, slots, steps=job.form.links + 2)]


def merge_in_turn(job: Job, space: Space, assembly: Assembly, slots: Slots, places: Places, *, count: Expr) -> Loop:
    """The loop that merges so many parts into a state; `places` tells where part number `PART` of it lies."""
    part, loop = part_of(places, slots, job, assembly)
    loop += merge_step(assembly, space, slots, part, job.form)
    together = min(PARTS_TOGETHER, job.plan.segments)
    return Loop(PART, count, 0, tuple(loop), pipelined=False, unrolled=together)


# ---- in the same launch ----------------------------------------------------------------------------------------------


def counter_of(place: Frame, name: str) -> Parameter:
    """The array that counts finished blocks, one number for every tile: over all of the grid but the parts."""
    tiles = tuple(extent for variable, extent in place.grid if variable != SEGMENT) or (1,)
    return Parameter(name, tiles, "int32", "counter", name)


def own_tile(axis: Axis | None, job: Job, space: Space) -> tuple[Expr, Any] | None:
    """(number, count) of a block's tile along an axis; None if there is only one."""
    if axis is None:
        return None
    first, length = space.start[axis]
    count = tiles_of(job.problem.sizes[axis.name], length)
    return None if count == 1 else (first / length, count)


def by_the_last(job: Job, place: Frame, assembly: Assembly, counter: Parameter, parts: Parts) -> Last:
    """The work of a tile's last block: it merges the tile's rows, `block_merged` at a time, in buffers of their own.

    These buffers are free of the layouts that matrix products ask for. They take the registers that the streaming
    buffers leave.
    """
    whole, row = job.plan.block_row, job.plan.binding.row
    rows = gcd(whole, min(whole, job.plan.block_merged)) if row is not None else 1
    job = replace(job, plan=replace(job.plan, block_row=rows, stages=0))
    space = replace(place.space, plan=job.plan)
    chunks: Expr = S.One
    if row is not None:
        first, _ = space.start[row]
        at = {axis: where.xreplace({I: CHUNK * rows + I}) for axis, where in space.at.items()}
        space = replace(space, at=at, start={**space.start, row: (first + CHUNK * rows, rows)})
        size = job.problem.sizes[row.name]
        chunks, live = Integer(whole // rows), tiles_of(size, rows)
        if live % chunks != 0:  # the last tile has fewer, or may have
            chunks = Min(chunks, live if tiles_of(size, whole) == 1 else live - first / rows)
    inner = Assembly(job.plan, assembly.names, job.problem.compute)
    body = tuple(merge_statements(job, space, inner, parts))
    flag = assembly.buffer("last", "local", (1,), "int32", note="whether this block is the last of its tile")
    assembly.buffers |= inner.buffers
    at_tile = tuple(variable for variable, _ in place.grid if variable != SEGMENT) or (S.Zero,)
    if row is not None and chunks != 1:
        body = (Loop(CHUNK, chunks, 0, body, pipelined=False),)
    elif row is not None:
        body = tuple(map_statement(one, lambda node: node.xreplace({CHUNK: S.Zero})) for one in body)
    return Last(counter.name, at_tile, job.plan.segments, flag, body)


def part_of(places: Places, slots: Slots, job: Job, assembly: Assembly) -> tuple[Slots, list[Statement]]:
    """Read a part's slots from their places in workspaces into buffers as those of the slots."""
    part, body = Slots(scale=slots.scale, ranked=slots.ranked), list[Statement]()
    for value, (workspace, where) in places.items():
        load, structure = slots.loads[value], structure_with(value, job.form)
        if structure not in slots.ranked:
            part.loads[value] = assembly.new(
                f"{value.name}_part", *load.indices, dtype=integer_of(value, job), slot=value.name
            )
        elif value not in part.loads:
            part.loads.update(best_loads(structure, assembly, job.problem, "best_part"))
        body.append(assembly.stores((part.loads[value], Load(workspace, *where))))
    return part, body


def merges_to_write(job: Job) -> bool:
    """Tell if every block that writes a part of the outputs merges the parts of its rows, instead of a kernel."""
    plain = job.plan.merge == "kernel" and job.plan.binding.column is None and not job.form.structures
    alone = carries_after(job.form, job.plan) and all(one.carries for one in job.form.outputs)
    return plain and alone and job.plan.segments <= MOST_TO_WRITE and job.plan.block_row == 1


def elementwise(job: Job) -> tuple[tuple[Kernel, ...], tuple[Parameter, ...]]:
    """The kernel of a form without a state: blocks that write a part of the axis need nothing of each other.

    Blocks that run at once then write what lies side by side: the parts of a row one after another, where rows lie
    along the axis.
    """
    kernel = write_kernel(job, Names(taken_names(job)))
    fixed = all(isinstance(extent, int) for _, extent in kernel.grid)  # a launch's later dimensions take few blocks
    if fixed and not job.plan.along_rows:
        kernel = replace(kernel, grid=tuple(sorted(kernel.grid, key=lambda one: one[0] != SEGMENT)))
    return (in_turn(kernel, job.plan),), ()


def write_kernel(job: Job, names: Names, parts: Parts | None = None) -> Kernel:
    """The kernel that writes the outputs that carry the streamed axis; each part of the axis has its own blocks.

    `parts`: the workspaces of the state; None for a form without one.
    """
    segmented = job.plan.segments > 1
    place = frame(job, names, segmented=segmented)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, body = Slots(), list[Statement]()
    if parts is not None and parts.wholes:
        whole = {value: (name, (S.Zero, *state_place(value, parts.slots, place.space)))
                 for value, name in parts.wholes.items()}  # fmt: skip
        slots, body = part_of(whole, parts.slots, job, assembly)
    elif parts is not None:
        slots, body = merge_parts(job, place.space, assembly, parts)
    epilogue = Epilogue(job.form, assembly, slots, place.space, job.dtypes)
    body += epilogue.build() if parts is None else epilogue.values()
    if carries(job.form):
        first = SEGMENT * place.space.tiles if segmented else S.Zero
        space = place.space.at_tile(AGAIN, first).with_values(epilogue.space.values)
        body += Carried(job.form, assembly, space, job.sums, job.within, dtypes=job.dtypes).build(AGAIN)
    title = f"write a part of {job.form.cascade.axis}"
    return kernel_of(place, assembly, body, f"merge the parts, {title}" if parts and not parts.wholes else title)


def merge_step(assembly: Assembly, space: Space, slots: Slots, part: Slots, form: FusedForm) -> list[Statement]:
    """Merge one part into the running state (state ⊕ part)."""
    alone = [one.value for one in form.extrema if stands_alone(one, form)]
    return merge_states(form, assembly, space, slots.reads(), part.reads(), alone=alone)
