"""Number of steps in variables, where TileLang would take a loop of at most one step for a loop of one step.

    stop := min(2, ⌊q / 2⌋ + 1);  for t < stop: …   →   the same; stop stands in a variable: nothing is inferred of it

TVM simplifies the number of a loop's steps under the condition that it takes one: if that is 0 or 1 by all that is
known, it becomes 1, in blocks that take none too. A pipeline of s stages has a loop of s steps less. Seen on an H200,
in float32: of one or two tiles, blocks with one took two, and the mask of the first was lost. Where warps are
specialised, a pipeline's loop has all its steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sympy import Add, Expr, Max, Min, Symbol
from sympy.core.basic import Basic

from redalg.lower_tile.ir.mentions import free_names
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import Bind, Kernel, Loop, Statement, TileProgram
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.workarounds.tma import inline_numbers, steps_of_blocks
from redalg.strategies.plan import Plan

MOST_PLACES = 4096
"""Blocks whose steps are counted one by one."""


def number_in_variables(program: TileProgram, plan: Plan) -> TileProgram:
    """The program whose loops of possibly one step take their number from a variable."""
    if plan.device.target == "c":
        return program
    names = free_names(program)
    return replace(program, kernels=tuple(_in_kernel(one, one.plan or plan, names) for one in program.kernels))


def _in_kernel(kernel: Kernel, plan: Plan, names: Names) -> Kernel:
    """A kernel with such numbers in variables: bounds that have names, and others that are given one."""
    grid = dict(kernel.grid)
    bound: dict[Basic, Basic] = {Load(one.name): one.value for one in kernel.body if isinstance(one, Bind)}
    named, body = set[str](), list[Statement]()
    for statement in kernel.body:
        if not isinstance(statement, Loop) or not may_be_taken_for_one(statement, plan, grid, bound):
            body.append(statement)
        elif isinstance(statement.stop, Load) and statement.stop in bound:
            named.add(statement.stop.name)
            body.append(statement)
        else:
            stop = Bind(names.fresh("stop"), statement.stop, "int32", in_register=True)
            body += [stop, replace(statement, stop=Load(stop.name))]
    return replace(kernel, body=tuple(_in_variable(each, named) for each in body))


def _in_variable(statement: Statement, names: set[str]) -> Statement:
    """A bound number of such a name as a variable; another statement as it is."""
    is_named = isinstance(statement, Bind) and statement.name in names
    return replace(statement, in_register=True) if is_named and isinstance(statement, Bind) else statement


def may_be_taken_for_one(loop: Loop, plan: Plan, grid: Mapping[Symbol, Any], bound: Mapping[Basic, Basic]) -> bool:
    """Tell if a loop, less the steps that a pipeline is ahead, takes one step at most, and possibly none."""
    steps = inline_numbers(loop.stop - loop.start, bound)
    if steps.is_Integer:
        return False
    most = most_steps(steps, grid)
    ahead = loop.stages if loop.pipelined and not plan.warp_specialized else 0
    return most is not None and most - ahead == 1


def most_steps(steps: Expr, grid: Mapping[Symbol, Any]) -> int | None:
    """A bound of the steps of a loop in every block of a grid; None if none is known.

    >>> q, n = Symbol("q", integer=True), Symbol("n", integer=True)
    >>> most_steps(Min(2, n), {}), most_steps(q + 1, {q: 4}), most_steps(n, {q: 4})
    (2, 4, None)
    """
    if (found := steps_of_blocks(steps, grid, MOST_PLACES)) is not None:
        return max(map(int, found))
    if isinstance(steps, Add):
        ahead = [one for one in steps.args if not one.could_extract_minus_sign()]
        bounds = [most_steps(one, grid) for one in ahead]
        known = [one for one in bounds if one is not None]
        return sum(known) if len(known) == len(bounds) else None
    bounds = [most_steps(one, grid) for one in steps.args] if isinstance(steps, Min | Max) else []
    known = [one for one in bounds if one is not None]
    if isinstance(steps, Min):
        return min(known, default=None)
    return max(known) if known and len(known) == len(bounds) else None
