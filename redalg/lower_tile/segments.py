"""Multi-Segment: blocks take parts of the streamed axis, their states go to a workspace; a second kernel merges them.

Outputs that carry the streamed axis are written by a third, from the merged state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sympy import And, Expr, Integer, S

from redalg.expression import Value, Where
from redalg.incremental.form import FusedForm, Structure
from redalg.lower_tile.assembly import Assembly
from redalg.lower_tile.carried import Carried, carries
from redalg.lower_tile.epilogue import Epilogue
from redalg.lower_tile.frames import SEGMENT, Job, frame, names_after, taken
from redalg.lower_tile.moves import Merge, Side, triangular
from redalg.lower_tile.names import Names
from redalg.lower_tile.program import Copy, IsNaN, Kernel, Load, Loop, Parallel, Parameter, Statement, Store, index
from redalg.lower_tile.selection import part_of, selected_part, width
from redalg.lower_tile.single import AGAIN, finished, streamed
from redalg.lower_tile.space import E_, PLACE, I, Space
from redalg.lower_tile.stream import Slots, allocate

PART = index("part")
PARTS_TOGETHER = 8
"""Parts whose loads are in flight together in the merging kernel: it waits for memory, not for arithmetic."""

State = Value | Structure
"""What a slot of the state holds."""


def multi_segment(job: Job) -> tuple[tuple[Kernel, ...], tuple[Parameter, ...]]:
    """Blocks take parts of the streamed axis; their states are merged by a second kernel."""
    names = Names(taken(job))
    place = frame(job, names, segmented=True)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, body, _ = streamed(job, place, assembly)
    parts = {value: names.fresh(f"{name}_parts") for value, name in slots.buffers().items()}
    body += [stored_part(value, slots, parts[value], place.space, SEGMENT) for value in parts]
    kernels = [finished(job, place, assembly, body, f"stream a part of {job.form.cascade.axis}")]
    made = [parameter(value, name, part_shape(value, slots, job), slots, job) for value, name in parts.items()]
    wholes = dict[State, str]()
    if carries(job.form):
        wholes = {value: names.fresh(f"{name}_whole") for value, name in slots.buffers().items()}
    workspaces = [*parts.values(), *wholes.values()]
    kernels.append(merging(job, names_after(job, kernels, workspaces), parts, slots, wholes))
    if wholes:
        whole = [(value, name, (1, *part_shape(value, slots, job)[1:])) for value, name in wholes.items()]
        made += [parameter(*one, slots, job) for one in whole]
        kernels.append(writing(job, names_after(job, kernels, workspaces), wholes, slots))
    return tuple(kernels), tuple(made)


def parameter(value: State, name: str, shape: tuple[Any, ...], slots: Slots, job: Job) -> Parameter:
    """A workspace as a parameter."""
    return Parameter(name, shape, "int64" if value in slots.best else job.problem.compute, "workspace", name)


def part_shape(value: State, slots: Slots, job: Job) -> tuple[Any, ...]:
    """(segments, grid axes …, rows, columns or places) of a workspace."""
    binding, sizes = job.plan.binding, job.problem.sizes
    if value in slots.heads and binding.column:
        return (job.plan.segments, *(sizes[axis.name] for axis in binding.grid), sizes[binding.column.name])
    rows = sizes[binding.row.name] if binding.row else 1
    columns = [sizes[binding.column.name]] if value in slots.columns and binding.column else []
    columns += [width(value, job.problem)] if isinstance(value, Structure) and width(value, job.problem) else []
    return (job.plan.segments, *(sizes[axis.name] for axis in binding.grid), rows, *columns)


def part_place(value: State, slots: Slots, space: Space, part: Expr) -> tuple[Expr, ...]:
    """Where a part of a slot lies in its workspace."""
    binding = space.plan.binding
    if value in slots.heads and binding.column:
        return (part, *(space.at[axis] for axis in binding.grid), space.at[binding.column])
    row = space.at[binding.row] if binding.row else I
    place: tuple[Expr, ...] = (part, *(space.at[axis] for axis in binding.grid), row)
    if isinstance(value, Structure):
        return (*place, PLACE) if width(value, space.problem) else place
    return (*place, space.at[binding.column]) if value in slots.columns and binding.column else place


def stored_part(value: State, slots: Slots, workspace: str, space: Space, part: Expr) -> Statement:
    """A slot to its workspace."""
    where, source = part_place(value, slots, space, part), slots.buffers()[value]
    once = And(space.rows_inside(), space.first_columns())
    if isinstance(value, Structure):
        sweep = [one for one in ((I, space.plan.block_row), (PLACE, width(value, space.problem))) if one[1]]
        read = Load(source, *(one for one, _ in sweep))
        return Parallel(tuple(sweep), (Store(workspace, where, read, once),))
    if value in slots.heads:
        first = And(space.columns_inside(), space.first_rows())
        return Parallel(((E_, space.plan.block_column),), (Store(workspace, where, Load(source, E_), first),))
    if value not in slots.columns:
        store = Store(workspace, where, slots.marked(value, Load(source, I)), once)
        return Parallel(((I, space.plan.block_row),), (store,))
    inside = And(space.rows_inside(), space.columns_inside())
    store = Store(workspace, where, Load(source, I, E_), inside)
    return Parallel(((I, space.plan.block_row), (E_, space.plan.block_column)), (store,))


def merging(
    job: Job, names: Names, workspaces: Mapping[State, str], parts: Slots, wholes: Mapping[State, str]
) -> Kernel:
    """The derived merge, part after part, then finish; the merged state is kept where a further kernel reads it."""
    rows = min(job.plan.block_row, job.plan.block_merged) if job.plan.binding.row is not None else 1
    job = replace(job, plan=replace(job.plan, block_row=rows, stages=0))
    place = frame(job, names, segmented=False)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, body = allocate(job.form, assembly, job.problem)
    slots = replace(slots, scale=parts.scale)
    loop, held, best = taken_from(workspaces, PART, slots, assembly, place.space)
    for one, part in best.items():
        loop += selected_part(one, assembly, job.problem, slots.best[one], part)
    loop += merge_step(assembly, place.space, slots, held, job.form)
    together = min(PARTS_TOGETHER, job.plan.segments)
    stop = Integer(job.plan.segments)
    body.append(Loop(PART, stop, 0, tuple(loop), pipelined=False, unrolled=together))
    body += [stored_part(value, slots, name, place.space, S.Zero) for value, name in wholes.items()]
    if not all(one.carries for one in job.form.outputs):
        body += Epilogue(job.form, assembly, slots, place.space, job.dtypes).build()
    return finished(job, place, assembly, body, "merge the parts" + ", finish" * (not wholes))


def taken_from(
    workspaces: Mapping[State, str], part: Expr, slots: Slots, assembly: Assembly, space: Space
) -> tuple[list[Statement], dict[Value, str], dict[Structure, str]]:
    """A part's slots from their workspaces into row and column buffers."""
    body, held, best = list[Statement](), dict[Value, str](), dict[Structure, str]()
    for value in workspaces:
        read = Load(workspaces[value], *part_place(value, slots, space, part))
        if isinstance(value, Structure):
            best[value], taking = part_of(value, assembly, space.problem, read)
            body.append(taking)
            continue
        name = f"{value.name}_part"
        if value in slots.heads:
            held[value] = assembly.heads(name)
            body.append(assembly.over_heads(held[value], read))
        elif value in slots.columns:
            held[value] = assembly.columns(name)
            body.append(assembly.over_columns(held[value], read))
        else:
            held[value] = assembly.row(name)
            body.append(assembly.over_rows((held[value], read)))
    return body, held, best


def writing(job: Job, names: Names, wholes: Mapping[State, str], parts: Slots) -> Kernel:
    """The outputs that carry the streamed axis, every part of it by blocks of its own."""
    place = frame(job, names, segmented=True)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, _ = allocate(job.form, assembly, job.problem)
    assembly.buffers.clear()
    body, held, best = taken_from(wholes, S.Zero, slots, assembly, place.space)
    slots = replace(slots, names=held, best=best, scale=parts.scale, nan={})
    epilogue = Epilogue(job.form, assembly, slots, place.space, job.dtypes)
    body += epilogue.values()
    space = place.space.streaming(AGAIN, SEGMENT * place.space.tiles).with_values(epilogue.space.values)
    body += Carried(job.form, assembly, space).build(AGAIN)
    return finished(job, place, assembly, body, f"write a part of {job.form.cascade.axis}")


def merge_step(
    assembly: Assembly, space: Space, slots: Slots, held: Mapping[Value, str], form: FusedForm
) -> list[Statement]:
    """The running state ⊕ one part, which is held in row and column buffers."""
    body: list[Statement] = []
    running = slots.reads()
    before = dict(running)
    for one in form.extrema:
        name, old = slots.names[one.value], assembly.row(f"{one.value.name}_old")
        body.append(Copy(name, old))
        body.append(assembly.over_rows((name, one.monoid.combine(Load(name, I), Load(held[one.value], I)))))
        if one.value in slots.nan:
            met = Where(IsNaN(Load(held[one.value], I)), S.One, S.Zero)
            body.append(assembly.over_rows((slots.nan[one.value], Load(slots.nan[one.value], I) + met)))
        before[one.value] = slots.scale.get(one.value, S.One) * Load(old, I)
    part = replace(slots, names=dict(held)).reads()
    merge = Merge(form, assembly, space, (Side(before), Side(part)))
    merge.pivots(running)
    merge.shift()
    wide = triangular([one for one in form.accumulators if one.value in slots.columns])
    moved = [(slots.names[one.value], merge.moved(0, one) + merge.moved(1, one)) for one in wide]
    heads = [one for one in form.accumulators if one.value in slots.heads]
    added = [(slots.names[one.value], Load(slots.names[one.value], E_) + Load(held[one.value], E_)) for one in heads]
    shifts = any(len(one.transition) > 1 for one in wide)
    before_rows = [*merge.body]
    merge.body.clear()
    merge.accumulate([one for one in form.accumulators if one.value not in slots.columns | slots.heads])
    stores: list[Statement] = []
    for name, expr in moved:
        stores.append(assembly.over_columns(name, assembly.across(expr, stores) if shifts else expr))
    stores += [assembly.over_heads(name, expr) for name, expr in added]
    return [*body, *before_rows, *stores, *merge.body] if shifts else [*body, *before_rows, *merge.body, *stores]
