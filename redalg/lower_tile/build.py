"""FusedForm + Plan -> TileProgram: one kernel for Single-Segment, two for Multi-Segment.

Single-Segment: empty state; loop over the row's tiles; finish; outputs.
Multi-Segment: the same loop over a part, its state to a workspace; then merge the parts; finish; outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from sympy import And, Expr, Max, Min, S, Symbol, floor, sympify
from sympy.logic.boolalg import Boolean

from redalg.decompose import Producer
from redalg.errors import PlanError
from redalg.expression import Axis, Value, Where
from redalg.incremental.form import FusedForm, Structure
from redalg.incremental.pruned import pruned
from redalg.lower_tile.assembly import Assembly
from redalg.lower_tile.epilogue import Epilogue
from redalg.lower_tile.extent import needed_tiles
from redalg.lower_tile.hoist import bound_names, hoisted
from redalg.lower_tile.inputs import inputs
from redalg.lower_tile.join import joined
from redalg.lower_tile.lint import lint
from redalg.lower_tile.loops import without_single_steps
from redalg.lower_tile.moves import Merge, Side, triangular
from redalg.lower_tile.names import Names, kernel_name
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
from redalg.lower_tile.selection import check_selections, merged_selection, width
from redalg.lower_tile.space import E_, PLACE, I, J, Space, output_name
from redalg.lower_tile.split import Sums, adding, check_splits, parameter, summing, sums_of, tiled
from redalg.lower_tile.stream import Slots, Step, allocate
from redalg.lower_tile.verify import verify
from redalg.strategies import Binding, Plan, Problem, tiles_of
from redalg.strategies.rules import blocks

TILE, SEGMENT, PART = index("t"), index("z"), index("part")
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
    sums: Mapping[Value, Sums] = field(default_factory=dict)


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
    if plan.form != form.kind:
        raise PlanError(
            f"the plan asks for the {plan.form} form, and the tile program holds the {form.kind} form alone so far."
        )
    check_selections(form, problem)
    check_splits(form, plan)
    problem = replace(problem, sizes=plan.binding.sized(problem.sizes))
    job = Job(pruned(form), plan, problem, dtypes)
    lowered = multi_segment if plan.segments > 1 else split if plan.splits > 1 else single_segment
    kernels, workspaces = lowered(job)
    kernels = tuple(replace(kernel, body=joined(without_single_steps(kernel.body))) for kernel in kernels)
    parameters = (*inputs(form, problem), *outputs(job), *workspaces)
    name = f"{form.outputs[0].name}_over_{form.cascade.axis}"
    program = TileProgram(name, parameters, kernels, problem.compute, sizes_of(problem, plan))
    verify(program)
    lint(program, plan)
    return program


def sizes_of(problem: Problem, plan: Plan) -> tuple[Symbol, ...]:
    """The run-time sizes: of axes, of dimensions that no axis indexes, and the number of segments."""
    found = {one for one in (plan.parts(problem),) if isinstance(one, Symbol)}
    found |= {size for shape in problem.shapes.values() for size in shape if isinstance(size, Symbol)}
    return tuple(sorted(found | {problem.sizes[name] for name in problem.varying}, key=str))


# ---- parameters ------------------------------------------------------------------------------------------------------


def outputs(job: Job) -> tuple[Parameter, ...]:
    """Outputs, in the order in which they were named (a single number is an array of one)."""
    shapes = {one.name: tuple(job.problem.sizes[axis.name] for axis in one.axes) for one in job.form.outputs}
    return tuple(
        Parameter(output_name(key, job.problem), shape or (1,), job.dtypes[key], "output", key)
        for key, shape in shapes.items()
    )


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
        grid.append((SEGMENT, plan.parts(job.problem)))
    for axis in reversed(binding.grid):
        at[axis] = index(names.fresh(axis.name))
        grid.append((at[axis], sizes[axis.name]))
    packed, known = unpacked(binding, at)
    at |= {axis: PLACE if sizes[axis.name] > 1 else S.Zero for axis in job.form.places}
    space = Space(plan, job.problem, at, start, packed=packed, known=known, places=job.form.places)
    spanned = span(job, space, names, segmented=segmented)
    tile = SEGMENT * space.tiles + TILE if segmented and not spanned.moving else TILE
    at[binding.streamed] = tile * plan.block_streamed + J
    start[binding.streamed] = (tile * plan.block_streamed, plan.block_streamed)
    blocks = tuple(grid) or ((index(names.fresh("block")), 1),)
    return Frame(blocks, replace(space, at=at, start=start), spanned)


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
    domain = S.true if job.form.structures else job.form.cascade.domain  # elements are selected from all
    needed, parts = needed_tiles(domain, space), sympify(job.plan.parts(job.problem))
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
    return (*map(kernel_name, given), *outputs, *map(str, sizes_of(job.problem, job.plan)))


# ---- Single-Segment --------------------------------------------------------------------------------------------------


def single_segment(job: Job, also: tuple[str, ...] = ()) -> tuple[tuple[Kernel, ...], tuple[Parameter, ...]]:
    """One block streams a tile of rows from end to end (`also`: names that other kernels bear)."""
    names = Names((*taken(job), *also))
    place = frame(job, names, segmented=False)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, body = streamed(job, place, assembly)
    body += Epilogue(job.form, assembly, slots, place.space, job.dtypes).build()
    title = f"stream {job.form.cascade.axis}, finish"
    return (finished(job, place, assembly, body, title),), ()


def finished(job: Job, place: Frame, assembly: Assembly, body: list[Statement], title: str) -> Kernel:
    """A kernel, with what is the same for a whole block read once."""
    kernel = Kernel(place.grid, tuple(assembly.buffers), tuple(body), title)
    return hoisted(kernel, inputs(job.form, job.problem), assembly.names)


def streamed(job: Job, place: Frame, assembly: Assembly) -> tuple[Slots, list[Statement]]:
    """The empty state, what is loaded once, and the loop."""
    slots, body = allocate(job.form, assembly, job.problem)
    before: list[Statement] = []
    step = tuple(Step(job.form, assembly, slots, place.space, before, sums=job.sums).build())
    return slots, [*place.span.bound, *before, *body, over_tiles(place.span, step, job.plan.stages)]


def over_tiles(whole: Span, step: tuple[Statement, ...], stages: int) -> Loop:
    """The loop over the streamed axis: pipelined, unless a loop within it is (one prefetches, not both)."""
    inner = any(isinstance(one, Loop) and one.pipelined and one.stop != 1 for one in step)
    return Loop(TILE, whole.stop, 0 if inner else stages, step, pipelined=not inner, start=whole.start)


# ---- split contractions ----------------------------------------------------------------------------------------------


def split(job: Job) -> tuple[tuple[Kernel, ...], tuple[Parameter, ...]]:
    """Blocks sum parts of the producers' axes; a further kernel adds them where it streams their values."""
    names, kernels, sums = Names(taken(job)), list[Kernel](), dict[Value, Sums]()
    for producer in job.form.cascade.producers:
        sums[producer.value] = sums_of(producer, job.plan, names.fresh(f"{producer.name}_parts"))
    for producer in job.form.cascade.producers:
        kernels.append(producing(job, producer, sums[producer.value], names))
    also = tuple(str(name) for kernel in kernels for name, _ in kernel.grid)
    plan = adding(job.plan, job.problem)
    last, _ = single_segment(replace(job, plan=plan, sums=sums), (*also, *(one.workspace for one in sums.values())))
    last = tuple(replace(one, spread=not plan.binding.contracted) for one in last)
    return (*kernels, *last), tuple(parameter(one, job.problem) for one in sums.values())


def producing(job: Job, producer: Producer, sums: Sums, names: Names) -> Kernel:
    """The kernel of one producer: a block for every tile of rows and streamed elements, and part."""
    place, streamed = frame(job, names, segmented=False), job.plan.binding.streamed
    block = index(names.fresh(f"{streamed.name}_block"))
    used = {name for axis in producer.axes if axis != streamed for name in place.space.at[axis].free_symbols}
    grid = tuple(one for one in place.grid if one[0] in used)
    along = tiles_of(job.problem.sizes[streamed.name], job.plan.block_streamed)
    space = tiled(place.space, TILE, block)
    return summing(producer, sums, ((block, along), *grid), space, Assembly(job.plan, names, job.problem.compute))


# ---- Multi-Segment ---------------------------------------------------------------------------------------------------


def multi_segment(job: Job) -> tuple[tuple[Kernel, ...], tuple[Parameter, ...]]:
    """Blocks take parts of the streamed axis; their states are merged by a second kernel."""
    names = Names(taken(job))
    place = frame(job, names, segmented=True)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, body = streamed(job, place, assembly)
    parts = {value: names.fresh(f"{name}_parts") for value, name in slots.buffers().items()}
    body += [stored_part(value, slots, parts[value], place.space) for value in parts]
    first = finished(job, place, assembly, body, f"stream a part of {job.form.cascade.axis}")
    variables = [*map(str, dict(place.grid)), *bound_names(first)]  # a TileLang text may bind a variable's name once
    second = merging(job, Names((*taken(job), *parts.values(), *variables)), parts, slots)
    shapes = {name: part_shape(value, slots, job) for value, name in parts.items()}
    return (first, second), tuple(
        Parameter(name, shapes[name], "int64" if value in slots.best else job.problem.compute, "workspace", name)
        for value, name in parts.items()
    )


def part_shape(value: Value | Structure, slots: Slots, job: Job) -> tuple[Any, ...]:
    """(segments, grid axes …, rows, columns or places) of a workspace."""
    binding, sizes = job.plan.binding, job.problem.sizes
    if value in slots.heads and binding.column:
        return (job.plan.parts(job.problem), *(sizes[axis.name] for axis in binding.grid), sizes[binding.column.name])
    rows = sizes[binding.row.name] if binding.row else 1
    columns = [sizes[binding.column.name]] if value in slots.columns and binding.column else []
    columns += [width(value, job.problem)] if isinstance(value, Structure) and width(value, job.problem) else []
    return (job.plan.parts(job.problem), *(sizes[axis.name] for axis in binding.grid), rows, *columns)


def part_place(value: Value | Structure, slots: Slots, space: Space, part: Symbol) -> tuple[Expr, ...]:
    """Where a part of a slot lies in its workspace."""
    binding = space.plan.binding
    if value in slots.heads and binding.column:
        return (part, *(space.at[axis] for axis in binding.grid), space.at[binding.column])
    row = space.at[binding.row] if binding.row else I
    place: tuple[Expr, ...] = (part, *(space.at[axis] for axis in binding.grid), row)
    if isinstance(value, Structure):
        return (*place, PLACE) if width(value, space.problem) else place
    return (*place, space.at[binding.column]) if value in slots.columns and binding.column else place


def stored_part(value: Value | Structure, slots: Slots, workspace: str, space: Space) -> Statement:
    """A slot to its workspace."""
    where, source = part_place(value, slots, space, SEGMENT), slots.buffers()[value]
    if isinstance(value, Structure):
        sweep = [(I, space.plan.block_row), (PLACE, width(value, space.problem))]
        sweep = [one for one in sweep if one[1]]
        read = Load(source, *(one for one, _ in sweep))
        return Parallel(tuple(sweep), (Store(workspace, where, read, guard(space.rows_inside())),))
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


def merging(job: Job, names: Names, workspaces: Mapping[Value | Structure, str], parts: Slots) -> Kernel:
    """The derived merge, part after part, then finish."""
    rows = merged_rows(job)
    job = replace(job, plan=replace(job.plan, block_row=rows, stages=0))
    place = frame(job, names, segmented=False)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, body = allocate(job.form, assembly, job.problem)
    slots = replace(slots, scale=parts.scale)
    loop, held = list[Statement](), dict[Value, str]()
    for value in slots.names:
        name, read = f"{value.name}_part", Load(workspaces[value], *part_place(value, parts, place.space, PART))
        if value in parts.heads:
            held[value] = assembly.heads(name)
            loop.append(assembly.over_heads(held[value], read))
        elif value in parts.columns:
            held[value] = assembly.columns(name)
            loop.append(assembly.over_columns(held[value], read))
        else:
            held[value] = assembly.row(name)
            loop.append(assembly.over_rows((held[value], read)))
    for structure, best in slots.best.items():
        source = Load(workspaces[structure], *part_place(structure, parts, place.space, PART))
        loop += merged_selection(structure, assembly, job.problem, best, source)
    loop += merge_step(assembly, place.space, slots, held, job.form)
    stop = sympify(job.plan.parts(job.problem))
    together = min(PARTS_TOGETHER, job.plan.segments) if stop.is_Integer else 1
    body.append(Loop(PART, stop, 0, tuple(loop), pipelined=False, unrolled=together))
    body += Epilogue(job.form, assembly, slots, place.space, job.dtypes).build()
    return finished(job, place, assembly, body, "merge the parts, finish")


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
    merge = Merge(form, assembly, space, Side(before), Side(part))
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
