"""Programs, each of one computation, as one program of one launch: what one stores another reads, a level later.

Buffers, numbers and variables of the grid get the number of their step, so that no two steps share a name. A tensor
that steps index in several shapes is one parameter for each of them, all of one key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Any, final

from sympy import Expr, Integer, Symbol
from sympy.core.basic import Basic

from redalg.errors import PlanError
from redalg.lower_tile.ir.mentions import outermost_loads, variables_of
from redalg.lower_tile.ir.names import Names, kernel_name
from redalg.lower_tile.ir.program import (
    Bind,
    Contract,
    Copy,
    Fill,
    JoinBest,
    Keep,
    Kernel,
    Last,
    Loop,
    Parallel,
    Parameter,
    ReduceTile,
    Region,
    Statement,
    Store,
    TileProgram,
    index,
    map_statement,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.ir.together import Together
from redalg.lower_tile.text.together import grid_points
from redalg.strategies.plan import Plan

ROLES = ("input", "scalar", "output", "workspace", "counter")
"""The order of a program's parameters."""
FEW_BESIDE, MOST_BESIDE, WARPGROUP = 2, 4, 128
"""Blocks of a multiprocessor, of so many threads, for texts of their own and for rounds: threads then have 256 and 128
registers. The more blocks there are, the longer they wait for each other."""
Place = tuple[str, tuple[Any, ...]]
"""The key of a tensor, and a shape in which a step indexes it."""


@final
@dataclass(frozen=True)
class Step:
    """A program that becomes a part of another.

    Attributes:
        program, plan: of its own.
        level: the number of the level at which it begins; each of its kernels but the first is a level later.
        keys: key of its inputs and outputs -> the key of the tensor in the whole.
        offsets: key of an input -> the place in the tensor of the first element that it reads, if not the first.
        symbols: run-time size of its own -> that of the whole, or a number.
    """

    program: TileProgram
    plan: Plan
    level: int
    keys: Mapping[str, str]
    offsets: Mapping[str, int] = field(default_factory=dict)
    symbols: Mapping[Symbol, Expr] = field(default_factory=dict)

    def is_sized_by(self, sizes: Collection[Symbol]) -> bool:
        """Tell if its run-time sizes are among those of the whole, or numbers."""
        return all(size in self.symbols and self.symbols[size].free_symbols <= {*sizes} for size in self.program.sizes)


def join_programs(
    name: str, steps: Sequence[Step], outputs: Collection[str],
    sizes: Mapping[Symbol, int] = MappingProxyType({}),
) -> TileProgram:  # fmt: skip
    """The program of all steps in one launch.

    Args:
        name: of the program.
        steps: in any order; none reads what a step of its own level, or of a later one, stores.
        outputs: keys of the tensors that the program returns.
        sizes: run-time sizes of the whole -> those for which its blocks are counted.

    Raises:
        PlanError: blocks of the steps have several numbers of threads, or a step has sizes that the whole lacks.
    """
    threads = {step.plan.threads for step in steps}
    if len(threads) != 1 or not all(step.is_sized_by(sizes) for step in steps):
        raise PlanError(f"steps of one launch have blocks of one number of threads, and these have {sorted(threads)}. "
                        "Take schedules of one number, and sizes that are known or those of a call.")  # fmt: skip
    compute, *others = sorted({step.program.compute for step in steps})
    if others:
        raise PlanError(f"steps of one launch compute in one dtype, and these in {', '.join((compute, *others))}.")
    if any(kernel.cluster > 1 for step in steps for kernel in step.program.kernels):
        raise PlanError("steps of one launch have no clusters of blocks. Take schedules whose parts a kernel merges.")
    whole = Whole(outputs)
    own = [whole.names_of(step, number) for number, step in enumerate(steps)]
    kernels = list[tuple[int, int, Kernel]]()
    for number, step in enumerate(steps):
        for later, kernel in enumerate(step.program.kernels):
            named = rename_kernel(kernel, own[number], whole.names, number, step.symbols)
            plan = binding_plan(kernel.plan or step.plan, steps[0].plan)
            kernels.append((step.level + later, number, replace(named, plan=plan)))
    kernels.sort(key=itemgetter(0))
    levels = [[kernel for *_, kernel in each] for _, each in groupby(kernels, key=itemgetter(0))]
    most = max(sum(grid_points(kernel, sizes) for kernel in level) for level in levels)
    owners = tuple(number for _, number, _ in kernels)
    together = Together(tuple(map(len, levels)), *blocks_together(most, steps[0].plan), owners=owners)
    order = sorted(whole.parameters.values(), key=lambda each: ROLES.index(each.role))
    return TileProgram(name, tuple(order), tuple(kernel for *_, kernel in kernels), compute, tuple(sizes), together)


def blocks_together(points: int, plan: Plan, most: int = FEW_BESIDE) -> tuple[int, int]:
    """The blocks of a launch, and those of a multiprocessor: as many as the largest level has points, if they fit."""
    count = plan.device.multiprocessors
    beside = max(1, min(most * WARPGROUP // plan.threads, -(-points // count)))
    return min(points, beside * count), beside


@final
class Whole:
    """The names and parameters of the whole, as steps bring them; `outputs` are the keys of what it returns."""

    def __init__(self, outputs: Collection[str]) -> None:
        self.outputs, self.names, self.parameters = outputs, Names(()), dict[Place, Parameter]()

    def names_of(self, step: Step, number: int) -> dict[str, str]:
        """The names of a step's parameters in the whole; what only the step has is told by its number."""
        keys = {one.name: step.keys.get(one.key, f"{one.key}_{number}") for one in step.program.parameters}
        sized = [replace(one, shape=at_symbols(one.shape, step.symbols)) for one in step.program.parameters]
        return {one.name: self.parameter_name(one, keys[one.name]) for one in sized}

    def parameter_name(self, parameter: Parameter, key: str) -> str:
        """The name in the whole of a step's parameter; a tensor that another step stores is no input of the whole."""
        shape = parameter.shape
        if (key, shape) not in self.parameters:
            first = next((one for (other, _), one in self.parameters.items() if other == key), None)
            role = first.role if first is not None else "output" if key in self.outputs else parameter.role
            role = "workspace" if role == "output" and key not in self.outputs else role
            others = "x".join(re.sub(r"\W+", "_", str(size)) for size in shape)
            stem = kernel_name(key) if first is None else f"{first.name}_as_{others}"
            known = replace(parameter, name=self.names.fresh(stem), key=key, role=role, folded=())
            self.parameters[key, shape] = known
        return self.parameters[key, shape].name


def binding_plan(plan: Plan, first: Plan) -> Plan | None:
    """A plan, with the numbers that the text's binding needs alone; None if they are those of the first plan."""
    own = replace(first, threads=plan.threads, warps=plan.warps, multiplies=plan.multiplies,
                  tensor_cores=plan.tensor_cores, warp_specialized=plan.warp_specialized)  # fmt: skip
    return None if own == first else own


# ---- other names -----------------------------------------------------------------------------------------------------


def at_symbols(shape: tuple[Any, ...], symbols: Mapping[Symbol, Expr]) -> tuple[Any, ...]:
    """A shape in the run-time sizes of the whole."""
    known = (size.xreplace(dict(symbols)) if isinstance(size, Basic) else size for size in shape)
    return tuple(int(size) if isinstance(size, Integer) else size for size in known)


def rename_kernel(
    kernel: Kernel, parameters: Mapping[str, str], unique: Names, number: int,
    symbols: Mapping[Symbol, Expr] = MappingProxyType({}),
) -> Kernel:  # fmt: skip
    """A kernel with other names of parameters and sizes, and with a number behind its own names."""
    own = dict.fromkeys((*(one.name for one in kernel.buffers), *variables_of(kernel)))
    names = dict(parameters) | {name: unique.fresh(f"{name}_{number}") for name in own}
    variables: dict[Basic, Basic] = {variable: index(names[str(variable)]) for variable, _ in kernel.grid}
    variables |= symbols

    def change(node: Any) -> Any:
        if not isinstance(node, Basic):
            return node
        loads = {load: with_name(load, names, change) for load in outermost_loads(node)}
        return node.xreplace({**loads, **variables})

    body = tuple(rename_statement(map_statement(one, change), names) for one in kernel.body)
    buffers = tuple(replace(one, name=names[one.name]) for one in kernel.buffers)
    extents = at_symbols(tuple(extent for _, extent in kernel.grid), symbols)
    grid = tuple((index(names[str(variable)]), extent)
                 for (variable, _), extent in zip(kernel.grid, extents, strict=True))  # fmt: skip
    return replace(kernel, grid=grid, buffers=buffers, body=body)


def with_name(load: Load, names: Mapping[str, str], change: Callable[[Any], Any]) -> Load:
    """A read of a name's new one, its indices changed likewise."""
    return Load(names.get(load.name, load.name), *map(change, load.indices))


def rename_statement(statement: Statement, names: Mapping[str, str]) -> Statement:
    """A statement with other names of buffers and parameters, and of what it binds; expressions stay as they are."""

    def of(name: str) -> str:
        return names.get(name, name)

    def side(place: Region | str) -> Region | str:
        return of(place) if isinstance(place, str) else replace(place, name=of(place.name))

    if isinstance(statement, Loop):
        return replace(statement, body=tuple(rename_statement(one, names) for one in statement.body))
    if isinstance(statement, Last):
        body = tuple(rename_statement(one, names) for one in statement.body)
        return replace(statement, counter=of(statement.counter), flag=of(statement.flag), body=body)
    if isinstance(statement, Bind):
        return replace(statement, name=of(statement.name))
    if isinstance(statement, Copy):  # all by threads: what the copy engine stores, other blocks may not see in time
        return Copy(side(statement.source), side(statement.target), by_threads=True)
    if isinstance(statement, Keep):
        return Keep(replace(statement.source, name=of(statement.source.name)))
    if isinstance(statement, Fill):
        return replace(statement, buffer=of(statement.buffer))
    if isinstance(statement, Contract):
        return replace(statement, a=of(statement.a), b=of(statement.b), c=of(statement.c))
    if isinstance(statement, ReduceTile):
        return replace(statement, source=of(statement.source), target=of(statement.target))
    if isinstance(statement, JoinBest):
        return replace(statement, best=of(statement.best), rank=of(statement.rank))
    assert isinstance(statement, Parallel)
    return replace(statement, body=tuple(rename_store(one, names) for one in statement.body))


def rename_store(store: Store, names: Mapping[str, str]) -> Store:
    """A store to a name's new one."""
    return replace(store, target=names.get(store.target, store.target))
