"""Programs, each of one computation, as one program of one launch: what one stores another reads, a level later.

Buffers, numbers and variables of the grid get the number of their step, so that no two steps share a name. A tensor
that steps index in several shapes is one parameter for each of them, all of one key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from typing import Any, final

from sympy.core.basic import Basic

from redalg.errors import PlanError
from redalg.lower_tile.ir.mentions import variables_of
from redalg.lower_tile.ir.program import (
    Bind,
    Contract,
    Copy,
    Fill,
    JoinBest,
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
from redalg.strategies.plan import Plan


@final
@dataclass(frozen=True)
class Step:
    """A program that becomes a part of another.

    Attributes:
        program, plan: of its own.
        level: the number of the level at which it begins; each of its kernels but the first is a level later.
        keys: key of its inputs and outputs -> the key of the tensor in the whole.
    """

    program: TileProgram
    plan: Plan
    level: int
    keys: Mapping[str, str]


def join_programs(
    name: str, steps: Sequence[Step], outputs: Mapping[str, str], blocks: int, beside: int
) -> TileProgram:
    """The program of all steps in one launch.

    Args:
        name: of the program.
        steps: in any order; none reads what a step of its own level, or of a later one, stores.
        outputs: key of the tensors that the program returns -> its name in the text.
        blocks: the most blocks of the launch.
        beside: those of a multiprocessor.

    Raises:
        PlanError: blocks of the steps have several numbers of threads, or a step has sizes that vary.
    """
    threads = {step.plan.threads for step in steps}
    if len(threads) != 1 or any(step.program.sizes for step in steps):
        raise PlanError(f"steps of one launch have blocks of one number of threads, and these have {sorted(threads)}. "
                        "Take schedules of one number, and sizes that are known.")  # fmt: skip
    parameters, kernels = dict[tuple[str, tuple[Any, ...]], Parameter](), list[tuple[int, Kernel]]()
    for number, step in enumerate(steps):
        own = {one.name: parameter_of(one, step, number, outputs, parameters) for one in step.program.parameters}
        for later, kernel in enumerate(step.program.kernels):
            plan = kernel.plan or step.plan
            kernels.append((step.level + later, replace(renamed(kernel, own, number), plan=alike(plan, steps[0].plan))))
    kernels.sort(key=lambda each: each[0])
    levels = [[kernel for _, kernel in each] for _, each in groupby(kernels, key=lambda each: each[0])]
    most = max(sum(prod(int(extent) for _, extent in kernel.grid) for kernel in level) for level in levels)
    together = Together(tuple(map(len, levels)), min(blocks, most), beside)
    compute, *others = sorted({step.program.compute for step in steps})
    if others:
        raise PlanError(f"steps of one launch compute in one dtype, and these in {', '.join((compute, *others))}.")
    order = sorted(
        parameters.values(), key=lambda one: ("input", "scalar", "output", "workspace", "counter").index(one.role)
    )
    return TileProgram(name, tuple(order), tuple(kernel for _, kernel in kernels), compute, together=together)


def parameter_of(
    parameter: Parameter, step: Step, number: int, outputs: Mapping[str, str],
    found: dict[tuple[str, tuple[Any, ...]], Parameter],
) -> str:  # fmt: skip
    """The name in the whole of a step's parameter, which is added to those that are `found` if it is new.

    A tensor that another step stores is no input of the whole.
    """
    key, shape = step.keys.get(parameter.key, f"{parameter.key}_{number}"), parameter.shape
    if (key, shape) not in found:
        first = next((one for (other, _), one in found.items() if other == key), None)
        role = first.role if first is not None else "output" if key in outputs else parameter.role
        role = "workspace" if role == "output" and key not in outputs else role
        name = outputs.get(key, key) if first is None else f"{first.name}_as_{'x'.join(map(str, shape))}"
        found[key, shape] = replace(parameter, name=name, key=key, role=role, folded=())
    return found[key, shape].name


def alike(plan: Plan, first: Plan) -> Plan | None:
    """A plan, with the numbers that the text's binding needs alone; None if they are those of the first plan."""
    own, other = (replace(first, threads=one.threads, warps=one.warps, multiplies=one.multiplies,
                          tensor_cores=one.tensor_cores, warp_specialized=one.warp_specialized)
                  for one in (plan, first))  # fmt: skip
    return None if own == other else own


# ---- other names -----------------------------------------------------------------------------------------------------


def renamed(kernel: Kernel, parameters: Mapping[str, str], number: int) -> Kernel:
    """A kernel with other names of parameters, and with a number behind its own names."""
    own = {one.name for one in kernel.buffers} | {*variables_of(kernel)}
    names = dict(parameters) | {name: f"{name}_{number}" for name in own}
    variables: dict[Basic, Basic] = {variable: index(names[str(variable)]) for variable, _ in kernel.grid}

    def change(node: Any) -> Any:
        if not isinstance(node, Basic):
            return node
        loads = {load: with_name(load, names, change) for load in outermost_loads(node)}
        return node.xreplace({**loads, **variables})

    body = tuple(renamed_statement(map_statement(one, change), names) for one in kernel.body)
    buffers = tuple(replace(one, name=names[one.name]) for one in kernel.buffers)
    grid = tuple((index(names[str(variable)]), extent) for variable, extent in kernel.grid)
    return replace(kernel, grid=grid, buffers=buffers, body=body)


def outermost_loads(node: Basic) -> list[Load]:
    """The reads of an expression that stand in no index of another."""
    if isinstance(node, Load):
        return [node]
    return [load for arg in node.args for load in outermost_loads(arg)]


def with_name(load: Load, names: Mapping[str, str], change: Callable[[Any], Any]) -> Load:
    """A read of a name's new one, its indices changed likewise."""
    return Load(names.get(load.name, load.name), *map(change, load.indices))


def renamed_statement(statement: Statement, names: Mapping[str, str]) -> Statement:
    """A statement with other names of buffers and parameters, and of what it binds; expressions stay as they are."""

    def of(name: str) -> str:
        return names.get(name, name)

    def side(one: Region | str) -> Region | str:
        return of(one) if isinstance(one, str) else replace(one, name=of(one.name))

    if isinstance(statement, Loop):
        return replace(statement, body=tuple(renamed_statement(one, names) for one in statement.body))
    if isinstance(statement, Last):
        body = tuple(renamed_statement(one, names) for one in statement.body)
        return replace(statement, counter=of(statement.counter), flag=of(statement.flag), body=body)
    if isinstance(statement, Bind):
        return replace(statement, name=of(statement.name))
    if isinstance(statement, Copy):  # all by threads: what the copy engine stores, other blocks may not see in time
        return Copy(side(statement.source), side(statement.target), by_threads=True)
    if isinstance(statement, Fill):
        return replace(statement, buffer=of(statement.buffer))
    if isinstance(statement, Contract):
        return replace(statement, a=of(statement.a), b=of(statement.b), c=of(statement.c))
    if isinstance(statement, ReduceTile):
        return replace(statement, source=of(statement.source), target=of(statement.target))
    if isinstance(statement, JoinBest):
        return replace(statement, best=of(statement.best), rank=of(statement.rank))
    assert isinstance(statement, Parallel)
    return replace(statement, body=tuple(renamed_store(one, names) for one in statement.body))


def renamed_store(store: Store, names: Mapping[str, str]) -> Store:
    """A store to a name's new one."""
    return replace(store, target=names.get(store.target, store.target))
