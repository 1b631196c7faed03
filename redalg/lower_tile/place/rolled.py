"""Steps that are alike as one text: the same kernel on other tensors, which it finds by tables, round after round.

    pool       the memory of all tensors of a dtype; a tensor lies at a multiple of its own length, so that it is a row
               of the pool, viewed as rows of its shape
    family     steps of one program; step i is its instance i, in the order of their levels
    rows       table of a family: of every instance, the row of each of its tensors
    first      table of a family: of every level, the first instance

The launch copies the inputs into the pools, runs all levels as rounds, and copies the outputs out of the pools. This is
SOUFFLE's horizontal transformation (section 6.1), whatever the levels of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any, final

from sympy import Integer, S

from redalg.errors import PlanError
from redalg.lower_tile.ir.mentions import outermost_loads
from redalg.lower_tile.ir.names import Names, kernel_name
from redalg.lower_tile.ir.program import (
    Bind,
    Copy,
    Kernel,
    Last,
    Loop,
    Parallel,
    Parameter,
    Region,
    Statement,
    Store,
    TileProgram,
    index,
    map_statement,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.ir.together import Rounds, Together
from redalg.lower_tile.place.together import (
    MOST_BESIDE,
    Step,
    binding_plan,
    blocks_together,
    rename_kernel,
)
from redalg.lower_tile.text.together import grid_points
from redalg.strategies.plan import Plan

ELEMENTS_A_THREAD = 8
"""Elements that a thread copies between a tensor and a pool."""


@final
@dataclass(frozen=True)
class PoolTensor:
    """A tensor that steps read or make: its key, its length in elements, its dtype."""

    key: str
    length: int
    dtype: str


@final
@dataclass(frozen=True)
class Rolled:
    """A program of rounds, and the tables that it takes beside the inputs, by their keys."""

    program: TileProgram
    tables: Mapping[str, tuple[tuple[int, ...], ...]]


@final
@dataclass(frozen=True)
class Pools:
    """The places of tensors.

    Attributes:
        bases: key -> the place of a tensor's first element in the pool of its dtype.
        lengths: dtype -> the elements of the pool.
    """

    bases: Mapping[str, int]
    lengths: Mapping[str, int]

    def row(self, tensor: str, offset: int, length: int) -> int:
        """The row, of a length, at an element of a tensor."""
        place = self.bases[tensor] + offset
        if place % length:
            raise PlanError(f"a step reads {length} elements of `{tensor}` from element {offset}, which is no multiple "
                            "of them. Copy what it reads to a tensor of its own.")  # fmt: skip
        return place // length


def roll_programs(
    name: str, steps: Sequence[Step], tensors: Sequence[PoolTensor], inputs: Sequence[str], outputs: Sequence[str]
) -> Rolled:
    """The program of all steps in rounds of one launch.

    Args:
        name: of the program.
        steps: each of one kernel; none reads what a step of its own level, or of a later one, stores.
        tensors: all that steps read or make.
        inputs, outputs: keys of those that are given, and returned.

    Raises:
        PlanError: a step has several kernels, or blocks of another number of threads.
    """
    check_steps(steps)
    families = dict[tuple[TileProgram, Plan], list[Step]]()
    for step in sorted(steps, key=lambda step: step.level):
        families.setdefault((step.program, step.plan), []).append(step)
    pools, names, first_plan = pools_of(tensors), Names(()), steps[0].plan
    whole = Pooled(pools, names, {one.key: one for one in tensors})
    before = [whole.copy(key, first_plan, inwards=True) for key in inputs]
    rounds = 1 + max(step.level for step in steps)
    repeated, firsts, tables, points = (
        list[Kernel](),
        list[str](),
        dict[str, tuple[tuple[int, ...], ...]](),
        [0] * rounds,
    )
    for number, ((program, plan), family) in enumerate(families.items()):
        kernel, found = whole.family(program, family, number)
        repeated.append(replace(kernel, plan=binding_plan(plan, first_plan)))
        firsts.append(names.fresh(f"first_{number}"))
        counts = [sum(step.level < level for step in family) for level in range(rounds + 1)]
        each = grid_points(program.kernels[0])
        points = [more + each * (last - first) for more, (first, last) in zip(points, pairwise(counts), strict=True)]
        tables |= {f"rows_{number}": found, f"first_{number}": (tuple(counts),)}
        whole.add(Parameter(firsts[-1], (rounds + 1,), "int32", "input", f"first_{number}"))
    after = [whole.copy(key, first_plan, inwards=False) for key in outputs]
    levels = tuple(len(level) for level in (before, after) if level)
    blocks, beside = blocks_together(max(points), first_plan, MOST_BESIDE)
    places = {id(step): number for number, step in enumerate(steps)}
    owners = (*(-1 for _ in before), *(places[id(family[0])] for family in families.values()), *(-1 for _ in after))
    together = Together(levels, blocks, beside, Rounds(rounds, tuple(firsts), int(bool(before))), owners)
    order = sorted(whole.parameters.values(), key=lambda each: ("input", "output", "workspace").index(each.role))
    program = TileProgram(name, tuple(order), (*before, *repeated, *after), steps[0].program.compute, together=together)
    return Rolled(program, tables)


def check_steps(steps: Sequence[Step]) -> None:
    """Raise `PlanError` if steps cannot be rounds of one launch."""
    for step in steps:
        roles = {one.role for one in step.program.parameters}
        if len(step.program.kernels) > 1 or roles - {"input", "output"}:
            raise PlanError(f"a step of rounds is one kernel without memory of its own, and `{step.program.name}` has "
                            f"{len(step.program.kernels)}, and {', '.join(sorted(roles))}. Take it apart.")  # fmt: skip
        if step.plan.threads != steps[0].plan.threads or step.program.compute != steps[0].program.compute:
            raise PlanError("steps of one launch have blocks of one number of threads, and compute in one dtype.")


def pools_of(tensors: Sequence[PoolTensor]) -> Pools:
    """The places of tensors, each at a multiple of its length, the largest first."""
    bases, lengths = dict[str, int](), dict[str, int]()
    for tensor in sorted(tensors, key=lambda tensor: -tensor.length):
        base = -(-lengths.get(tensor.dtype, 0) // tensor.length) * tensor.length
        bases[tensor.key], lengths[tensor.dtype] = base, base + tensor.length
    return Pools(bases, lengths)


@final
class Pooled:
    """The parameters of the whole, as kernels on pools need them."""

    def __init__(self, pools: Pools, names: Names, tensors: Mapping[str, PoolTensor]) -> None:
        self.pools, self.names, self.tensors = pools, names, tensors
        self.parameters = dict[tuple[str, tuple[Any, ...]], Parameter]()
        for dtype, length in pools.lengths.items():
            self.view(dtype, (length,))

    def add(self, parameter: Parameter) -> None:
        """Take in a parameter."""
        self.parameters[parameter.key, parameter.shape] = parameter

    def view(self, dtype: str, shape: tuple[int, ...]) -> str:
        """The name of a pool in a shape."""
        key = f"pool_{dtype}"
        if (key, shape) not in self.parameters:
            stem = key if len(shape) == 1 else f"{key}_as_{'x'.join(map(str, shape[1:]))}"
            self.add(Parameter(self.names.fresh(stem), shape, dtype, "workspace", key))
        return self.parameters[key, shape].name

    def copy(self, key: str, plan: Plan, *, inwards: bool) -> Kernel:
        """The kernel that copies a tensor to its place in the pool, or from there."""
        tensor = self.tensors[key]
        own = Parameter(self.names.fresh(kernel_name(key)), (tensor.length,), tensor.dtype,
                        "input" if inwards else "output", key)  # fmt: skip
        self.add(own)
        pool = self.view(tensor.dtype, (self.pools.lengths[tensor.dtype],))
        tile = min(tensor.length, plan.threads * ELEMENTS_A_THREAD)
        block, i = index(self.names.fresh(f"{own.name}_block")), index("i")
        place = block * tile + i
        inside = place + self.pools.bases[key]
        guard = S.true if tensor.length % tile == 0 else place < tensor.length
        store = (Store(pool, (inside,), Load(own.name, place), guard) if inwards
                 else Store(own.name, (place,), Load(pool, inside), guard))  # fmt: skip
        title = f"copy {own.name} {'into' if inwards else 'out of'} {pool}"
        return Kernel(((block, -(-tensor.length // tile)),), (), (Parallel(((i, tile),), (store,)),), title)

    def family(
        self, program: TileProgram, steps: Sequence[Step], number: int
    ) -> tuple[Kernel, tuple[tuple[int, ...], ...]]:  # fmt: skip
        """The kernel of steps of one program, and the rows of their tensors."""
        table = self.names.fresh(f"rows_{number}")
        self.add(Parameter(table, (len(steps), len(program.parameters)), "int32", "input", f"rows_{number}"))
        instance = index(self.names.fresh(f"instance_{number}"))
        rows, binds = dict[str, tuple[str, str]](), list[Bind]()
        for slot, parameter in enumerate(program.parameters):
            length = prod(parameter.shape)
            count = self.pools.lengths[parameter.dtype] // length
            bound = self.names.fresh(f"{parameter.name}_row_{number}")
            rows[parameter.name] = self.view(parameter.dtype, (count, *parameter.shape)), bound
            binds.append(Bind(bound, Load(table, instance, Integer(slot)), "int32"))
        kernel = rename_kernel(program.kernels[0], {}, self.names, number)
        body = (*binds, *(at_rows(statement, rows) for statement in kernel.body))
        found = tuple(tuple(self.row_of(step, parameter) for parameter in program.parameters) for step in steps)
        return replace(kernel, grid=(*kernel.grid, (instance, len(steps))), body=body), found

    def row_of(self, step: Step, parameter: Parameter) -> int:
        """The row of the tensor that a step has for a parameter."""
        key = step.keys[parameter.key]
        return self.pools.row(key, step.offsets.get(parameter.key, 0), prod(parameter.shape))


# ---- tensors as rows of a pool ---------------------------------------------------------------------------------------

Rows = Mapping[str, tuple[str, str]]
"""Parameter -> the pool, and the number that says the row."""


def at_rows(statement: Statement, rows: Rows) -> Statement:
    """A statement that reads and stores rows of pools in the place of parameters."""

    def change(node: Any) -> Any:
        return node.xreplace({load: load_at_row(load, rows, change) for load in outermost_loads(node)})

    return stores_at_rows(map_statement(statement, change), rows)


def load_at_row(load: Load, rows: Rows, change: Any) -> Load:
    """A read of a row, its indices changed likewise."""
    indices = [change(place) for place in load.indices]
    if load.name not in rows:
        return Load(load.name, *indices)
    pool, row = rows[load.name]
    return Load(pool, Load(row), *indices)


def stores_at_rows(statement: Statement, rows: Rows) -> Statement:
    """A statement whose stores and copies are of rows; its expressions stay as they are."""
    if isinstance(statement, Loop | Last):
        return replace(statement, body=tuple(stores_at_rows(one, rows) for one in statement.body))
    if isinstance(statement, Copy):
        return replace(
            statement, source=side_at_row(statement.source, rows), target=side_at_row(statement.target, rows)
        )
    if isinstance(statement, Parallel):
        return replace(statement, body=tuple(store_at_row(one, rows) for one in statement.body))
    return statement


def side_at_row(side: Region | str, rows: Rows) -> Region | str:
    """A side of a copy."""
    if isinstance(side, str) or side.name not in rows:
        return side
    pool, row = rows[side.name]
    return Region(pool, (Load(row), *side.place))


def store_at_row(store: Store, rows: Rows) -> Store:
    """A store to a row."""
    if store.target not in rows:
        return store
    pool, row = rows[store.target]
    return replace(store, target=pool, indices=(Load(row), *store.indices))
