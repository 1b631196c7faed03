"""FusedForm + Plan -> TileProgram: one kernel for Single-Segment, two for Multi-Segment.

Single-Segment: empty state; loop over the row's tiles; finish; outputs.
Multi-Segment: the same loop over a part, its state to a workspace; then merge the parts; finish; outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from sympy import And, Expr, Integer, Max, Min, S, Symbol, floor, sympify
from sympy.logic.boolalg import Boolean

from redalg.errors import PlanError
from redalg.expression import Axis, Value, Where
from redalg.incremental.form import FusedForm
from redalg.incremental.pruned import pruned
from redalg.lower_tile.assembly import Assembly
from redalg.lower_tile.carried import Carried, carries
from redalg.lower_tile.epilogue import Epilogue
from redalg.lower_tile.extent import needed_tiles
from redalg.lower_tile.hoist import bound_names, hoisted
from redalg.lower_tile.join import joined
from redalg.lower_tile.lanes import Lanes
from redalg.lower_tile.lint import lint
from redalg.lower_tile.moves import Merge, Side, triangular
from redalg.lower_tile.names import Names, kernel_name
from redalg.lower_tile.parameters import inputs, outputs
from redalg.lower_tile.program import (
    Bind,
    Copy,
    IsNaN,
    Kernel,
    Load,
    Loop,
    Parallel,
    Parameter,
    Statement,
    Store,
    TileProgram,
    index,
)
from redalg.lower_tile.space import E_, I, Space, output_name
from redalg.lower_tile.stream import Slots, Step, allocate
from redalg.lower_tile.verify import verify
from redalg.strategies import Binding, Plan, Problem, tiles_of
from redalg.strategies.rules import blocks

TILE, SEGMENT, PART, AGAIN = index("t"), index("z"), index("part"), index("again")
MERGED_ROWS = 16
"""Most rows that one block of the merging kernel takes."""
SPREAD = 128
"""Blocks of the merging kernel above which they take more rows."""
PARTS_TOGETHER = 8
"""Parts whose loads are in flight together in the merging kernel: it waits for memory, not for arithmetic."""


@final
@dataclass(frozen=True)
class Job:
    """What is lowered: the form, under a plan, for a problem whose outputs have the given dtypes."""

    form: FusedForm
    plan: Plan
    problem: Problem
    dtypes: Mapping[str, str]


@final
@dataclass(frozen=True)
class Span:
    """The loop over tiles: `start` to `stop`, and what they need bound; `moving`: counted from the axis's first tile in
    every segment, since what is live moves from block to block (otherwise from the segment's own first)."""

    start: Expr
    stop: Expr
    bound: tuple[Bind, ...] = ()
    moving: bool = True


@final
@dataclass(frozen=True)
class Frame:
    """The grid of a kernel (variables named after the axes), where a block stands, and the tiles that it streams."""

    grid: tuple[tuple[Symbol, Any], ...]
    space: Space
    span: Span


def build(form: FusedForm, plan: Plan, problem: Problem, dtypes: Mapping[str, str]) -> TileProgram:
    """The tile program of a form under a plan; `dtypes` gives each output's dtype."""
    plan.verify()
    if form.structures and (plan.level != "thread" or plan.segments > 1):
        raise PlanError(
            f"`{form.structures[0].values[0]}` is a component of {form.structures[0].monoid}, whose elements are "
            f"joined lane by lane in one segment, and the plan is `{plan}`. Use level 'thread' and segments=1."
        )
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
    problem = replace(problem, sizes=plan.binding.sized(problem.sizes))
    job = Job(pruned(form), plan, problem, dtypes)
    kernels, workspaces = single_segment(job) if plan.segments == 1 else multi_segment(job)
    kernels = tuple(replace(kernel, body=joined(kernel.body, tiles=plan.level == "thread")) for kernel in kernels)
    parameters = (*inputs(form, problem), *outputs(form, problem, dtypes), *workspaces)
    name = f"{form.outputs[0].name}_over_{form.cascade.axis}"
    program = TileProgram(name, parameters, kernels, problem.compute, sizes_of(problem))
    verify(program)
    lint(program, plan)
    return program


def sizes_of(problem: Problem) -> tuple[Symbol, ...]:
    """The run-time sizes: of axes, and of dimensions that no axis indexes."""
    found = {size for shape in problem.shapes.values() for size in shape if isinstance(size, Symbol)}
    return tuple(sorted(found | {problem.sizes[name] for name in problem.varying}, key=str))


# ---- frames ----------------------------------------------------------------------------------------------------------


def frame(job: Job, names: Names, *, segmented: bool) -> Frame:
    """The grid, rows first, then columns where a block does not hold them all, and the place of a block in it."""
    plan, sizes = job.plan, job.problem.sizes
    binding, grid = plan.binding, list[tuple[Symbol, Any]]()
    at: dict[Axis, Expr] = {}
    start: dict[Axis, tuple[Expr, int]] = {}
    if binding.row is not None:
        block = index(names.fresh(f"{binding.row.name}_block"))
        grid.append((block, tiles_of(sizes[binding.row.name], plan.block_row)))
        at[binding.row] = block * plan.block_row + I
        start[binding.row] = (block * plan.block_row, plan.block_row)
    if binding.column is not None:
        first: Expr = S.Zero
        if plan.block_column < sizes[binding.column.name]:
            block = index(names.fresh(f"{binding.column.name}_block"))
            grid.append((block, tiles_of(sizes[binding.column.name], plan.block_column)))
            first = block * plan.block_column
        at[binding.column] = first + E_
        start[binding.column] = (first, plan.block_column)
    if segmented:
        grid.append((SEGMENT, plan.segments))
    for axis in reversed(binding.grid):
        at[axis] = index(names.fresh(axis.name))
        grid.append((at[axis], sizes[axis.name]))
    packed, known = unpacked(binding, at)
    space = Space(plan, job.problem, at, start, packed=packed, known=known)
    spanned = span(job, space, names, segmented=segmented)
    blocks = tuple(grid) or ((index(names.fresh("block")), 1),)
    first = SEGMENT * space.tiles if segmented and not spanned.moving else S.Zero
    return Frame(blocks, space.streaming(TILE, first), spanned)


def unpacked(binding: Binding, at: dict[Axis, Expr]) -> tuple[dict[Axis, tuple[Expr, int]], dict[Expr, Expr]]:
    """The axes that rows pack: their places go to `at`; their spans within a block, and what numbers their groups."""
    packing = binding.packing
    if packing is None:
        return {}, {}
    outer = at[packing.outer] if packing.outer is not None else S.Zero
    at |= packing.places(at[packing.row], outer)
    quotient = packing.quotient()
    return packing.spans(outer), {} if quotient is None else {quotient: outer}


def span(job: Job, space: Space, names: Names, *, segmented: bool) -> Span:
    """The tiles of a block; a segment takes its share of those needed."""
    needed, parts = needed_tiles(job.form.cascade.domain, space), Integer(job.plan.segments)
    if needed is None:
        return Span(S.Zero, sympify(space.tiles), moving=False)
    bound = list[Bind]()

    def held(wanted: str, value: Expr) -> Expr:
        if value.is_Integer:
            return value
        bound.append(Bind(names.fresh(wanted), value, "int32"))
        return Load(bound[-1].name)

    first = held("first_tile", needed.first)
    stop = held("stop_tile", Max(first, needed.stop))
    if segmented:
        share = held("share", floor((stop - first + parts - 1) / parts))
        first = held("first_of_part", Min(stop, first + SEGMENT * share))
        stop = held("stop_of_part", Min(stop, first + share))
    return Span(first, stop, tuple(bound))


def taken(job: Job) -> tuple[str, ...]:
    """Names that parameters bear."""
    cascade = job.form.cascade
    given = (*cascade.inputs(), *(one.name for one in cascade.scalars()))
    outputs = (output_name(one, job.problem) for one in job.dtypes)
    return (*map(kernel_name, given), *outputs, *map(str, sizes_of(job.problem)))


# ---- Single-Segment --------------------------------------------------------------------------------------------------


def single_segment(job: Job) -> tuple[tuple[Kernel, ...], tuple[Parameter, ...]]:
    """One block streams a tile of rows from end to end."""
    names = Names(taken(job))
    place = frame(job, names, segmented=False)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, body, seen = streamed(job, place, assembly)
    epilogue = Epilogue(job.form, assembly, slots, place.space, job.dtypes)
    body += epilogue.build()
    if carries(job.form):
        held = seen if job.plan.level == "row" else place.space.streaming(AGAIN)
        body += Carried(job.form, assembly, held.with_values(epilogue.space.values)).build(AGAIN)
    title = f"stream {job.form.cascade.axis}, finish"
    return (finished(job, place, assembly, body, title),), ()


def finished(job: Job, place: Frame, assembly: Assembly, body: list[Statement], title: str) -> Kernel:
    """A kernel, with what is the same for a whole block read once."""
    kernel = Kernel(place.grid, tuple(assembly.buffers), tuple(body), title)
    return hoisted(kernel, inputs(job.form, job.problem), assembly.names)


def streamed(job: Job, place: Frame, assembly: Assembly) -> tuple[Slots, list[Statement], Space]:
    """The empty state, what is loaded once, and the loop; then what the last tile left in registers."""
    if job.plan.level == "thread":
        span = place.span
        first = SEGMENT * place.space.tiles if job.plan.segments > 1 and not span.moving else S.Zero
        slots, body = Lanes(job.form, assembly, place.space, (first, span.start, span.stop)).build()
        return slots, [*span.bound, *body], place.space
    slots, body = allocate(job.form, assembly, job.plan.binding.column)
    before: list[Statement] = []
    step = Step(job.form, assembly, slots, place.space, before)
    taken_in, whole = tuple(step.build()), place.span
    if job.plan.level == "row":
        return slots, [*before, *body, *taken_in], step.space
    loop = Loop(TILE, whole.stop, job.plan.stages, taken_in, start=whole.start)
    return slots, [*whole.bound, *before, *body, loop], step.space


# ---- Multi-Segment ---------------------------------------------------------------------------------------------------


def multi_segment(job: Job) -> tuple[tuple[Kernel, ...], tuple[Parameter, ...]]:
    """Blocks take parts of the streamed axis; their states are merged by a second kernel."""
    names = Names(taken(job))
    place = frame(job, names, segmented=True)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, body, _ = streamed(job, place, assembly)
    parts = {value: names.fresh(f"{name}_parts") for value, name in slots.names.items()}
    body += [stored_part(value, slots, parts[value], place.space, SEGMENT) for value in slots.names]
    kernels = [finished(job, place, assembly, body, f"stream a part of {job.form.cascade.axis}")]
    shapes = {name: part_shape(value, slots, job) for value, name in parts.items()}
    wholes = {value: names.fresh(f"{name}_whole") for value, name in slots.names.items()} if carries(job.form) else {}
    kernels.append(merging(job, names_after(job, kernels, [*parts.values(), *wholes.values()]), parts, slots, wholes))
    if wholes:
        shapes |= {name: (1, *part_shape(value, slots, job)[1:]) for value, name in wholes.items()}
        kernels.append(writing(job, names_after(job, kernels, [*parts.values(), *wholes.values()]), wholes, slots))
    return tuple(kernels), tuple(
        Parameter(name, shape, job.problem.compute, "workspace", name) for name, shape in shapes.items()
    )


def names_after(job: Job, kernels: list[Kernel], workspaces: list[str]) -> Names:
    """Names for one more kernel (a TileLang text may bind a variable's name once)."""
    variables = [one for kernel in kernels for one in (*map(str, dict(kernel.grid)), *bound_names(kernel))]
    return Names((*taken(job), *workspaces, *variables))


def part_shape(value: Value, slots: Slots, job: Job) -> tuple[Any, ...]:
    """(segments, grid axes …, rows, columns) of a workspace."""
    binding, sizes = job.plan.binding, job.problem.sizes
    if value in slots.heads and binding.column:
        return (job.plan.segments, *(sizes[axis.name] for axis in binding.grid), sizes[binding.column.name])
    rows = sizes[binding.row.name] if binding.row else 1
    columns = [sizes[binding.column.name]] if value in slots.columns and binding.column else []
    return (job.plan.segments, *(sizes[axis.name] for axis in binding.grid), rows, *columns)


def part_place(value: Value, slots: Slots, space: Space, part: Expr) -> tuple[Expr, ...]:
    """Where a part of a slot lies in its workspace."""
    binding = space.plan.binding
    if value in slots.heads and binding.column:
        return (part, *(space.at[axis] for axis in binding.grid), space.at[binding.column])
    row = space.at[binding.row] if binding.row else I
    place: tuple[Expr, ...] = (part, *(space.at[axis] for axis in binding.grid), row)
    return (*place, space.at[binding.column]) if value in slots.columns and binding.column else place


def stored_part(value: Value, slots: Slots, workspace: str, space: Space, part: Expr) -> Statement:
    """A slot to its workspace."""
    where, source = part_place(value, slots, space, part), slots.names[value]
    if value in slots.heads:
        first = guard(And(space.columns_inside(), space.first_rows()))
        return Parallel(((E_, space.plan.block_column),), (Store(workspace, where, Load(source, E_), first),))
    if value not in slots.columns:
        once = guard(And(space.rows_inside(), space.first_columns()))
        store = Store(workspace, where, slots.marked(value, Load(source, I)), once)
        return Parallel(((I, space.plan.block_row),), (store,))
    inside = And(space.rows_inside(), space.columns_inside())
    store = Store(workspace, where, Load(source, I, E_), guard(inside))
    return Parallel(((I, space.plan.block_row), (E_, space.plan.block_column)), (store,))


def guard(condition: Boolean) -> Boolean | None:
    """A store's guard; None where it always holds."""
    return None if condition == S.true else condition


def merging(
    job: Job, names: Names, workspaces: Mapping[Value, str], parts: Slots, wholes: Mapping[Value, str]
) -> Kernel:
    """The derived merge, part after part, then finish; the merged state is kept where a further kernel reads it."""
    rows = merged_rows(job)
    job = replace(job, plan=replace(job.plan, block_row=rows, stages=0))
    place = frame(job, names, segmented=False)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, body = allocate(job.form, assembly, job.plan.binding.column)
    slots = replace(slots, scale=parts.scale)
    loop, held = taken_from(workspaces, PART, slots, assembly, place.space)
    loop += merge_step(assembly, place.space, slots, held, job.form)
    together = min(PARTS_TOGETHER, job.plan.segments)
    stop = Integer(job.plan.segments)
    body.append(Loop(PART, stop, 0, tuple(loop), pipelined=False, unrolled=together))
    body += [stored_part(value, slots, name, place.space, S.Zero) for value, name in wholes.items()]
    if not all(one.carries for one in job.form.outputs):
        body += Epilogue(job.form, assembly, slots, place.space, job.dtypes).build()
    return finished(job, place, assembly, body, "merge the parts" + ", finish" * (not wholes))


def taken_from(
    workspaces: Mapping[Value, str], part: Expr, slots: Slots, assembly: Assembly, space: Space
) -> tuple[list[Statement], dict[Value, str]]:
    """A part's slots from their workspaces into row and column buffers."""
    body, held = list[Statement](), dict[Value, str]()
    for value in workspaces:
        name, read = f"{value.name}_part", Load(workspaces[value], *part_place(value, slots, space, part))
        if value in slots.heads:
            held[value] = assembly.heads(name)
            body.append(assembly.over_heads(held[value], read))
        elif value in slots.columns:
            held[value] = assembly.columns(name)
            body.append(assembly.over_columns(held[value], read))
        else:
            held[value] = assembly.row(name)
            body.append(assembly.over_rows((held[value], read)))
    return body, held


def writing(job: Job, names: Names, wholes: Mapping[Value, str], parts: Slots) -> Kernel:
    """The outputs that carry the streamed axis, every part of it by blocks of its own."""
    place = frame(job, names, segmented=True)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, _ = allocate(job.form, assembly, job.plan.binding.column)
    assembly.buffers.clear()
    body, held = taken_from(wholes, S.Zero, slots, assembly, place.space)
    epilogue = Epilogue(
        job.form, assembly, replace(slots, names=held, scale=parts.scale, nan={}), place.space, job.dtypes
    )
    body += epilogue.values()
    space = place.space.streaming(AGAIN, SEGMENT * place.space.tiles).with_values(epilogue.space.values)
    body += Carried(job.form, assembly, space).build(AGAIN)
    return finished(job, place, assembly, body, f"write a part of {job.form.cascade.axis}")


def merged_rows(job: Job) -> int:
    """Rows of a block of the merging kernel: as many as leave every multiprocessor a block."""
    if job.plan.binding.row is None:
        return 1
    most = min(job.plan.block_row, MERGED_ROWS)
    if job.plan.multiplies and not job.plan.tensor_cores:
        return most

    def fills(rows: int) -> bool:
        return blocks(job.plan.binding, job.problem, max(1, rows), job.plan.block_column) >= SPREAD

    return max(1, next(filter(fills, (most, most // 4)), most // 4))


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
