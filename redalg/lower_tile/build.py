"""FusedForm + Plan -> TileProgram: one kernel for Single-Segment, two for Multi-Segment (parts, then the derived merge).

    Single-Segment    empty state; loop over the row's tiles; finish; outputs
    Multi-Segment     the same loop over a part, the state to a workspace;  then merge the parts; finish; outputs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

from sympy import Expr, Integer, S, Symbol

from redalg.errors import InputError, PlanError
from redalg.expression import Axis, Value
from redalg.incremental.form import FusedForm
from redalg.lower_tile.assembly import Assembly
from redalg.lower_tile.epilogue import Epilogue
from redalg.lower_tile.extent import needed_tiles
from redalg.lower_tile.join import joined
from redalg.lower_tile.moves import Merge, Side
from redalg.lower_tile.names import Names
from redalg.lower_tile.program import Copy, Kernel, Load, Loop, Parameter, Parallel, Region, Statement, Store, TileProgram, index
from redalg.lower_tile.space import E_, I, J, Space
from redalg.lower_tile.stream import Slots, Step, allocate
from redalg.lower_tile.verify import verify
from redalg.strategies import Plan, Problem

T_, Z, PART = index("t"), index("z"), index("part")

Made = tuple[tuple[Kernel, ...], tuple[Parameter, ...]]
"""Kernels, and the workspaces that they share."""


@final
@dataclass(frozen=True)
class Frame:
    """The grid of a kernel: variables by axis, and the block's place."""

    grid: tuple[tuple[Symbol, int], ...]
    space: Space


def build(form: FusedForm, plan: Plan, problem: Problem, outputs: Mapping[str, str]) -> TileProgram:
    """The tile program of a form under a plan; `outputs` gives each output's dtype."""
    plan.verify()
    names = Names((*form.cascade.inputs(), *(one.name for one in form.cascade.scalars()), *outputs))
    strategy = single_segment if plan.segments == 1 else multi_segment
    made = strategy(form, plan, problem, names, outputs)
    kernels, workspaces = made
    parameters = (*inputs(form, problem), *output_parameters(form, problem, outputs), *workspaces)
    kernels = tuple(replace(kernel, body=joined(kernel.body)) for kernel in kernels)
    program = TileProgram(f"{form.cascade.outputs[0].name}_over_{form.cascade.axis}", parameters, kernels, problem.compute)
    verify(program)
    return program


# ---- parameters ------------------------------------------------------------------------------------------------------


def inputs(form: FusedForm, problem: Problem) -> tuple[Parameter, ...]:
    """Inputs, then scalars, in order of name."""
    made = []
    for name in form.cascade.inputs():
        made.append(Parameter(name, problem.shapes.get(name) or shape_of(name, form, problem), problem.dtypes[name], "input"))
    scalars = tuple(Parameter(one.name, (), problem.compute, "scalar") for one in form.cascade.scalars())
    return (*made, *scalars)


def shape_of(name: str, form: FusedForm, problem: Problem) -> tuple[int, ...]:
    """A tensor's shape from how it is indexed: an axis gives its extent, constants their largest plus one."""
    elements = [one for one in form.cascade.elements() if one.name == name]
    extents = []
    for place, indices in enumerate(zip(*(one.indices for one in elements), strict=True)):
        axes = [index for index in indices if isinstance(index, Axis)]
        if not axes and not all(index.is_Integer for index in indices):
            raise InputError(f"tensor `{name}`: dimension {place} is indexed by `{indices[0]}`, which does not tell its extent. "
                             f'Pass shapes={{"{name}": (…)}}.')  # fmt: skip
        extents.append(problem.sizes[axes[0].name] if axes else 1 + max(int(index) for index in indices))
    return tuple(extents)


def output_parameters(form: FusedForm, problem: Problem, dtypes: Mapping[str, str]) -> tuple[Parameter, ...]:
    """Outputs, in the order in which they were named."""
    return tuple(Parameter(one.name, tuple(problem.sizes[axis.name] for axis in one.axes) or (1,), dtypes[one.name], "output")
                 for one in form.outputs)  # fmt: skip


# ---- frames ----------------------------------------------------------------------------------------------------------


def frame(form: FusedForm, plan: Plan, problem: Problem, names: Names, segmented: bool) -> Frame:
    """The grid's variables (named after the axes) and where a block stands."""
    binding, grid = plan.binding, list[tuple[Symbol, int]]()
    at: dict[Axis, Expr] = {}
    start: dict[Axis, tuple[Expr, int]] = {}
    if binding.row is not None:
        block = index(names.fresh(f"{binding.row.name}_block"))
        grid.append((block, -(-problem.sizes[binding.row.name] // plan.block_row)))
        at[binding.row] = block * plan.block_row + I
        start[binding.row] = (block * plan.block_row, plan.block_row)
    if segmented:
        grid.append((Z, plan.segments))
    for axis in reversed(binding.grid):
        at[axis] = index(names.fresh(axis.name))
        grid.append((at[axis], problem.sizes[axis.name]))
    if binding.column is not None:
        at[binding.column] = E_
        start[binding.column] = (S.Zero, plan.block_column)
    space = Space(plan, problem, at, start)
    first = (Z * space.tiles + T_ if segmented else T_) * plan.block_streamed
    space = replace(space, at={**at, binding.streamed: first + J},
                    start={**start, binding.streamed: (first, plan.block_streamed)})  # fmt: skip
    return Frame(tuple(grid) or ((index(names.fresh("block")), 1),), space)


# ---- Single-Segment --------------------------------------------------------------------------------------------------


def single_segment(form: FusedForm, plan: Plan, problem: Problem, names: Names, dtypes: Mapping[str, str]) -> Made:
    """One block streams a tile of rows from end to end."""
    place = frame(form, plan, problem, names, segmented=False)
    assembly = Assembly(plan, names, problem.compute)
    slots, body = streamed(form, plan, place, assembly)
    body += Epilogue(form, assembly, slots, place.space, dtypes).build()
    title = f"stream {form.cascade.axis}, finish"
    return (Kernel(place.grid, tuple(assembly.buffers), tuple(body), title),), ()


def streamed(form: FusedForm, plan: Plan, place: Frame, assembly: Assembly) -> tuple[Slots, list[Statement]]:
    """The empty state, what is loaded once, and the loop."""
    slots, body = allocate(form, assembly, plan.binding.column)
    before: list[Statement] = []
    step = tuple(Step(form, assembly, slots, place.space, before).build())
    stop: Expr = Integer(place.space.tiles)
    if plan.segments == 1:
        stop = needed_tiles(form.cascade.domain, place.space)
    return slots, [*before, *body, Loop(T_, stop, plan.stages, step)]


# ---- Multi-Segment ---------------------------------------------------------------------------------------------------


def multi_segment(form: FusedForm, plan: Plan, problem: Problem, names: Names, dtypes: Mapping[str, str]) -> Made:
    """Blocks take parts of the streamed axis; their states are merged by a second kernel."""
    outer = tuple(names.taken)
    place = frame(form, plan, problem, names, segmented=True)
    assembly = Assembly(plan, names, problem.compute)
    slots, body = streamed(form, plan, place, assembly)
    workspaces = {value: names.fresh(f"{name}_parts") for value, name in slots.names.items()}
    body += [part_store(value, slots, workspaces, place, form, assembly) for value in slots.names]
    first = Kernel(place.grid, tuple(assembly.buffers), tuple(body), f"stream a part of {form.cascade.axis}")
    variables = [str(name) for name, _ in place.grid]  # a TileLang text may bind a variable's name once
    second = merge_kernel(form, plan, problem, Names((*outer, *workspaces.values(), *variables)), workspaces, slots, dtypes)
    parameters = tuple(Parameter(workspaces[value], part_shape(value, slots, plan, problem), problem.compute, "workspace")
                       for value in slots.names)  # fmt: skip
    return (first, second), parameters


def part_shape(value: Value, slots: Slots, plan: Plan, problem: Problem) -> tuple[int, ...]:
    """(segments, grid axes …, rows, columns) of a workspace."""
    binding = plan.binding
    grid = [problem.sizes[axis.name] for axis in binding.grid]
    rows = [problem.sizes[binding.row.name] if binding.row else 1]
    columns = [problem.sizes[binding.column.name]] if value in slots.columns and binding.column else []
    return (plan.segments, *grid, *rows, *columns)


def part_place(value: Value, slots: Slots, space: Space, part: Symbol) -> tuple[Expr, ...]:
    """Where a part of a slot lies in its workspace."""
    binding = space.plan.binding
    row = space.at[binding.row] if binding.row else I
    place: tuple[Expr, ...] = (part, *(space.at[axis] for axis in binding.grid), row)
    return (*place, E_) if value in slots.columns else place


def part_store(value: Value, slots: Slots, workspaces: Mapping[Value, str], place: Frame, form: FusedForm, assembly: Assembly) -> Statement:
    """A slot to its workspace."""
    plan = place.space.plan
    where, source = part_place(value, slots, place.space, Z), slots.names[value]
    inside = rows_inside(place.space)
    if value in slots.columns:
        column = plan.binding.column
        ragged = column is not None and place.space.problem.sizes[column.name] % plan.block_column != 0
        wide = inside & (E_ < place.space.problem.sizes[column.name]) if column is not None and ragged else inside
        store = Store(workspaces[value], where, Load(source, I, E_), None if wide == S.true else wide)
        return Parallel(((I, plan.block_row), (E_, plan.block_column)), (store,))
    return Parallel(((I, plan.block_row),), (Store(workspaces[value], where, Load(source, I), None if inside == S.true else inside),))


def rows_inside(space: Space) -> Expr:
    """Whether row i of the tile exists."""
    binding = space.plan.binding
    if binding.row is None:
        return I < 1 if space.plan.block_row > 1 else S.true
    size = space.problem.sizes[binding.row.name]
    return S.true if size % space.plan.block_row == 0 else space.at[binding.row] < size


def merge_kernel(form: FusedForm, plan: Plan, problem: Problem, names: Names, workspaces: Mapping[Value, str], parts: Slots,
                 dtypes: Mapping[str, str]) -> Kernel:  # fmt: skip
    """The derived merge, part after part, then finish."""
    plan = replace(plan, block_row=min(plan.block_row, 16) if plan.binding.row else 1, stages=0)
    place = frame(form, plan, problem, names, segmented=False)
    assembly = Assembly(plan, names, problem.compute)
    slots, body = allocate(form, assembly, plan.binding.column)
    slots = replace(slots, scale=parts.scale)
    loop: list[Statement] = []
    held = {value: assembly.columns(f"{value.name}_part") if value in parts.columns else assembly.row(f"{value.name}_part")
            for value in slots.names}  # fmt: skip
    for value, name in held.items():
        read = Load(workspaces[value], *part_place(value, parts, place.space, PART))
        loop.append(assembly.over_columns(name, read) if value in parts.columns else assembly.over_rows((name, read)))
    loop += merge_step(form, assembly, slots, parts, held)
    body.append(Loop(PART, Integer(plan.segments), 0, tuple(loop), pipelined=False))
    body += Epilogue(form, assembly, slots, place.space, dtypes).build()
    return Kernel(place.grid, tuple(assembly.buffers), tuple(body), "merge the parts, finish")


def merge_step(form: FusedForm, assembly: Assembly, slots: Slots, parts: Slots, held: Mapping[Value, str]) -> list[Statement]:
    """The running state ⊕ one part."""
    body: list[Statement] = []
    old: dict[Value, Expr] = {}
    for one in form.extrema:
        name, scale = slots.names[one.value], slots.scale.get(one.value, S.One)
        before = assembly.row(f"{one.value.name}_old")
        body.append(Copy(name, before))
        body.append(assembly.over_rows((name, one.monoid.combine(Load(name, I), Load(held[one.value], I)))))
        old[one.value] = scale * Load(before, I)
    running = slots.reads()
    part = {value: (Load(name, I, E_) if value in parts.columns else slots.scale.get(value, S.One) * Load(name, I))
            for value, name in held.items()}  # fmt: skip
    merge = Merge(form, assembly, Side({**running, **old}), Side(part))
    merge.pivots(running)
    merge.shift()
    wide = [one for one in form.accumulators if one.value in slots.columns]
    moved = [(slots.names[one.value], merge.moved(0, one) + merge.moved(1, one)) for one in wide]
    merge.accumulate([one for one in form.accumulators if one.value not in slots.columns])
    return [*body, *merge.body, *(assembly.over_columns(name, expr) for name, expr in moved)]


def refuse_empty(problem: Problem) -> None:
    """A kernel needs elements; empty tensors are finished by the interpreter."""
    empty = [name for name, size in problem.sizes.items() if size == 0]
    if empty:
        raise PlanError(f"axis {empty[0]} has no elements: there is nothing to launch a kernel for.")

