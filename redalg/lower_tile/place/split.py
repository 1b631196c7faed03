"""Split contractions: blocks sum parts of a producer's own axis, and the kernel that streams its values adds the sums.

    s = Σ_u f(u)      part[z] = Σ_{u in part z} f(u), in a kernel of its own;      s = Σ_z part[z], where s is read

It pays if rows and streamed elements make few tiles and the inner axis is long. Exact but for the order of adding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from sympy import Add, And, Expr, Integer, Symbol

from redalg.decompose.cascade import Producer
from redalg.errors import PlanError
from redalg.expression import Axis
from redalg.incremental.form import FusedForm
from redalg.lower_tile.ir.program import Kernel, Parallel, Parameter, Statement, Store, index
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.operands import Operands
from redalg.lower_tile.place.producers import Production
from redalg.lower_tile.place.space import I, J, Space
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.rules.parts import power_of_two, splittable

SPLIT = index("split")
SUMMED_ROWS, SUMMED_ELEMENTS = 16, 256
"""The tile of the kernel that adds the parts, if nothing in it is a matrix product."""


@final
@dataclass(frozen=True)
class Sums:
    """The workspace that holds the parts of a producer's sums, with dimensions (part, axes …)."""

    workspace: str
    axes: tuple[Axis, ...]
    parts: int

    def read(self, space: Space) -> Expr:
        """Σ_z part[z] at a tile's indices."""
        place = [space.at[axis] for axis in self.axes]
        return Add(*(Load(self.workspace, Integer(part), *place) for part in range(self.parts)))


def added_up(space: Space, producer: Producer, sums: Sums, assembly: Assembly, body: list[Statement]) -> Space:
    """The space that knows a producer's value: the sum of its parts."""
    return space.with_values({producer.value: assembly.tile_of(producer.name, sums.read(space), body)})


def check_splits(form: FusedForm, plan: Plan) -> None:
    """Refuse a split of a producer that is no plain sum."""
    if plan.splits > 1 and not splittable(form, plan.binding):
        raise PlanError(
            f"schedule `{plan}` cuts the inner axes of this form's producers into parts, and a producer is no plain "
            "sum over an axis for every row and streamed element. Leave Parts of the inner axes out."
        )


def adding(plan: Plan, problem: Problem) -> Plan:
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


def summing(
    producer: Producer, sums: Sums, grid: tuple[tuple[Symbol, int], ...], space: Space, assembly: Assembly
) -> Kernel:
    """The kernel that sums over the parts of a producer's axis, one block for every tile and part."""
    before, body = list[Statement](), list[Statement]()
    production = Production(assembly, Operands(assembly, before), part=SPLIT)
    made = production.produce(space, producer, body).values[producer.value]
    inside = And(space.rows_inside(), space.inside())
    where = (SPLIT, *(space.at[axis] for axis in sums.axes))
    extents = ((I, space.plan.block_row), (J, space.plan.block_streamed))
    body.append(Parallel(extents, (Store(sums.workspace, where, made, inside),)))
    title = f"sums over parts of {producer.cascade.axis}"
    return Kernel((*grid, (SPLIT, sums.parts)), tuple(assembly.buffers.values()), (*before, *body), title)


def tile_space(space: Space, variable: Symbol, block: Symbol) -> Space:
    """The space with one block for every tile of the streamed axis: `block` replaces the loop variable."""
    axis, put = space.plan.binding.streamed, {variable: block}
    first, length = space.start[axis]
    at, start = {axis: space.at[axis].xreplace(put)}, {axis: (first.xreplace(put), length)}
    return replace(space, at={**space.at, **at}, start={**space.start, **start})
