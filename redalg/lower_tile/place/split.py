"""Split contractions: blocks sum parts of a producer's own axis, and the kernel that streams its values adds the sums.

    s = Σ_u f(u)      part[z] = Σ_{u in part z} f(u), in a kernel of its own;      s = Σ_z part[z], where s is read

It pays if rows and streamed elements make few tiles and the inner axis is long. Exact but for the order of adding.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import And, Symbol

from redalg.decompose.cascade import Producer
from redalg.errors import PlanError
from redalg.expression import Value
from redalg.incremental.combine.programs import programs, tile_producers_program
from redalg.incremental.form import FusedForm
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import Kernel, Parallel, Parameter, Statement, Store, index
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.data import Data
from redalg.lower_tile.place.frames import TILE, Job, frame, taken_names
from redalg.lower_tile.place.lines import Placer
from redalg.lower_tile.place.operands import Operands
from redalg.lower_tile.place.single import single_segment
from redalg.lower_tile.place.space import I, J, Space
from redalg.lower_tile.place.sums import Sums
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.rules.parts import splittable
from redalg.strategies.rules.powers import power_of_two
from redalg.strategies.varying import tiles_of

SPLIT = index("split")
SUMMED_ROWS, SUMMED_ELEMENTS = 16, 256
"""The tile of the kernel that adds the parts, if nothing in it is a matrix product."""


def split_producers(job: Job) -> tuple[tuple[Kernel, ...], tuple[Parameter, ...]]:
    """Blocks sum parts of the producers' axes; a further kernel adds them where it streams their values."""
    names, kernels, sums = Names(taken_names(job)), list[Kernel](), dict[Value, Sums]()
    for producer in job.form.cascade.producers:
        sums[producer.value] = producer_workspace(producer, job.plan, names.fresh(f"{producer.name}_parts"))
    for producer in job.form.cascade.producers:
        kernels.append(producer_kernel(job, producer, sums[producer.value], names))
    also = tuple(str(name) for kernel in kernels for name, _ in kernel.grid)
    plan = plan_of_sum(job.plan, job.problem)
    last, lists = single_segment(replace(job, plan=plan, sums=sums), (*also, *(one.workspace for one in sums.values())))
    last = tuple(replace(one, spread=not plan.binding.contracted) for one in last)
    parameters = tuple(workspace_parameter(one, job.problem) for one in sums.values())
    return (*kernels, *last), (*parameters, *lists)


def producer_kernel(job: Job, producer: Producer, sums: Sums, names: Names) -> Kernel:
    """The kernel of one producer: a block for every tile of rows and streamed elements, and part."""
    place, streamed = frame(job, names, segmented=False), job.plan.binding.streamed
    block = index(names.fresh(f"{streamed.name}_block"))
    used = {name for axis in producer.axes if axis != streamed for name in place.space.at[axis].free_symbols}
    rows = tuple(one for one in place.grid if one[0] in used)
    along = tiles_of(job.problem.sizes[streamed.name], job.plan.block_streamed)
    space, before = tile_space(place.space, TILE, block), list[Statement]()
    assembly = Assembly(job.plan, names, job.problem.compute)
    program = programs(job.form).of(tile_producers_program).only([producer.value])
    data = Data(job.form, Operands(assembly, before), part=SPLIT)
    placer = Placer(program, assembly, space, {}, data=data, named_lines=program.results.values())
    body = placer.build({})
    inside = And(space.rows_inside(), space.inside())
    where = (SPLIT, *(space.at[axis] for axis in sums.axes))
    extents = ((I, space.plan.block_row), (J, space.plan.block_streamed))
    body.append(Parallel(extents, (Store(sums.workspace, where, placer.result(producer.value), inside),)))
    title = f"sums over parts of {producer.cascade.axis}"
    grid = ((block, along), *rows, (SPLIT, sums.parts))
    return Kernel(grid, tuple(assembly.buffers.values()), (*before, *body), title)


def check_splits(form: FusedForm, plan: Plan) -> None:
    """Refuse a split of a producer that is no plain sum."""
    if plan.splits > 1 and not splittable(form, plan.binding):
        raise PlanError(
            f"schedule `{plan}` cuts the inner axes of this form's producers into parts, and a producer is no plain "
            "sum over an axis for every row and streamed element. Leave Parts of the inner axes out."
        )


def plan_of_sum(plan: Plan, problem: Problem) -> Plan:
    """The plan of the kernel that adds the parts: a finer tile, unless it multiplies matrices itself."""
    plan = replace(plan, block_inner=0, stages=0, warp_specialized=False)
    if plan.binding.contracted:
        return plan
    rows = min(plan.block_row, SUMMED_ROWS)
    name = plan.binding.streamed.name
    length = SUMMED_ELEMENTS if name in problem.varying else power_of_two(problem.sizes[name])
    length = min(SUMMED_ELEMENTS, length)
    return replace(plan, block_row=rows, block_streamed=max(length, 16))


def producer_workspace(producer: Producer, plan: Plan, workspace: str) -> Sums:
    """The workspace of a producer: its grid axes, then rows and streamed elements."""
    binding = plan.binding
    order = (*binding.grid, binding.row, binding.streamed)
    return Sums(workspace, tuple(axis for axis in order if axis is not None and axis in producer.axes), plan.splits)


def workspace_parameter(sums: Sums, problem: Problem) -> Parameter:
    """The workspace as a parameter."""
    shape = (sums.parts, *(problem.sizes[axis.name] for axis in sums.axes))
    return Parameter(sums.workspace, shape, problem.compute, "workspace", sums.workspace)


def tile_space(space: Space, variable: Symbol, block: Symbol) -> Space:
    """The space with one block for every tile of the streamed axis: `block` replaces the loop variable."""
    axis, put = space.plan.binding.streamed, {variable: block}
    first, length = space.start[axis]
    at, start = {axis: space.at[axis].xreplace(put)}, {axis: (first.xreplace(put), length)}
    return replace(space, at={**space.at, **at}, start={**space.start, **start})
