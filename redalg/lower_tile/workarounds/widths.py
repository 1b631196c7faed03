"""Loops of many conditions, in which TileLang would look for vectors and find none.

    parallel i: x[i] = where(v[i] = −∞, f, g)   →   parallel i, each alone: x[i] = where(v[i] = −∞, f, g)

Exact: the elements are the same. Of every condition TileLang asks a solver whether it is the same for 128 neighbours
along the last variable, for 64, … for 2. It asks anew for each statement from which it begins a search for layouts: a
kernel of 14 statements took 105 s to compile, and takes 2. A condition that reads the variable's own element is the
same for no neighbours, so that the loop has no vectors either way. The text has a last variable of one step, along
which there are no neighbours. A loop that stores a tile in registers stays as it is: its place is that of the tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

from sympy import S, Symbol, preorder_traversal
from sympy.core.basic import Basic

from redalg.expression import Where
from redalg.lower_tile.ir.program import Kernel, Parallel, Statement, innermost, nested_statements
from redalg.lower_tile.ir.scalars import Load, OrderedValue, RankedIndex, RankedValue
from redalg.strategies.plan import Plan

MANY = 9
"""The conditions of a kernel's loops from which the search is noticed: it takes seconds."""
CHOICES = {RankedIndex: 1, RankedValue: 2, OrderedValue: 2}
"""The conditions that the text of a node has."""


def take_each_alone(kernel: Kernel, plan: Plan) -> Kernel:
    """The kernel whose loops of conditions take each element alone, if they have many conditions."""
    if plan.device.target == "c":
        return kernel
    tiles = frozenset(one.name for one in kernel.buffers if one.scope == "fragment" and len(one.shape) > 1)
    loops = [one for one in nested_statements(kernel.body) if isinstance(one, Parallel) and has_no_vectors(one, tiles)]
    if sum(len(tuple(conditions(loop))) for loop in loops) < MANY:
        return kernel

    def take_alone(statement: Statement) -> Statement:
        if isinstance(statement, Parallel) and statement in loops:
            return replace(statement, alone=True)
        return statement

    return replace(kernel, body=tuple(innermost(one, take_alone) for one in kernel.body))


def has_no_vectors(loop: Parallel, tiles: Set[str]) -> bool:
    """Tell if neighbours along the last variable have some condition apart, and the loop stores no tile."""
    last, extent = loop.indices[-1]
    kept = loop.adjacent or any(store.target in tiles for store in loop.body)
    return extent > 1 and not kept and any(reads_at(node, last) for node in conditions(loop))


def reads_at(node: Basic, variable: Symbol) -> bool:
    """Tell if a condition reads an element at a variable."""
    return any(variable in place.free_symbols for load in node.atoms(Load) for place in load.indices)


def conditions(loop: Parallel) -> Iterator[Basic]:
    """Yield the conditions of a loop, or what is written with them, as often as they stand in it."""
    for store in loop.body:
        if store.guard != S.true:
            yield store.guard
        for node in preorder_traversal(store.expr):
            if isinstance(node, Where):
                yield node.condition
            yield from (node,) * CHOICES.get(type(node), 0)
