"""The names that statements and kernels mention."""

from __future__ import annotations

from collections import Counter

from sympy.core.basic import Basic

from redalg.expression.contents import of_kind
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import (
    Bind,
    Contract,
    Copy,
    Keep,
    Kernel,
    Last,
    Loop,
    Parallel,
    ReduceTile,
    Statement,
    TileProgram,
    expressions,
    nested_statements,
)
from redalg.lower_tile.ir.scalars import Load


def names_in(statement: Statement) -> set[str]:
    """Every buffer and parameter that a statement names."""
    if isinstance(statement, Loop | Last):
        return {name for inner in statement.body for name in names_in(inner)}
    if isinstance(statement, Parallel):
        reads = {load.name for load in of_kind(Load, *expressions(statement))}
        return reads | {store.target for store in statement.body}
    return {str(getattr(side, "name", side)) for side in vars(statement).values()}


def names_stored_by(statement: Statement) -> set[str]:
    """The names that a loop over a tile, or a reduction, stores; of any other statement those that it may store."""
    if isinstance(statement, Parallel):
        return {store.target for store in statement.body}
    return {statement.target} if isinstance(statement, ReduceTile) else names_in(statement)


def names_stored_once(kernel: Kernel) -> set[str]:
    """The names that one store of all loops over tiles stores, and that no other kind of statement names."""
    statements = nested_statements(kernel.body)
    times = Counter(store.target for one in statements if isinstance(one, Parallel) for store in one.body)
    named = {name for one in statements if not isinstance(one, Parallel | Loop | Last) for name in names_in(one)}
    return {name for name, count in times.items() if count == 1} - named


def names_with_one_store(kernel: Kernel) -> set[str]:
    """The names that one statement of a kernel stores, or may store, and no other."""
    times = Counter[str]()
    for statement in nested_statements(kernel.body):
        if isinstance(statement, Parallel):
            times.update(store.target for store in statement.body)
        elif not isinstance(statement, Loop | Last):
            times.update(names_stored_by(statement))
    return {name for name, count in times.items() if count == 1}


def tiles_in_bulk(kernel: Kernel) -> frozenset[str]:
    """The tiles in shared memory to which one unit fetches rows."""
    copies = (one.target for one in kernel.body if isinstance(one, Copy) and one.in_bulk)
    return frozenset(str(getattr(target, "name", target)) for target in copies)


def free_names(program: TileProgram) -> Names:
    """A source of names that no parameter and no buffer of a program has."""
    buffers = (one.name for kernel in program.kernels for one in kernel.buffers)
    return Names((*(one.name for one in program.parameters), *buffers))


def product_names(kernel: Kernel) -> frozenset[str]:
    """The buffers that matrix products write."""
    return frozenset(one.c for one in nested_statements(kernel.body) if isinstance(one, Contract))


def reduces_nothing(kernel: Kernel) -> bool:
    """Tell if a kernel only computes elements from elements: it has no loop over tiles, no reduction and no product."""
    return all(isinstance(one, Bind | Copy | Keep | Parallel) for one in kernel.body)


def stored_names(kernel: Kernel) -> frozenset[str]:
    """The buffers and parameters that a kernel writes."""
    names = set[str]()
    for statement in nested_statements(kernel.body):
        if isinstance(statement, Parallel):
            names |= names_stored_by(statement)
        elif isinstance(statement, Copy):
            names.add(statement.target if isinstance(statement.target, str) else statement.target.name)
        elif isinstance(statement, Last):
            names.add(statement.counter)
    return frozenset(names)


def bound_names(kernel: Kernel) -> tuple[str, ...]:
    """The numbers that a kernel binds, within loops too."""
    return tuple(one.name for one in nested_statements(kernel.body) if isinstance(one, Bind))


def variables_of(kernel: Kernel) -> tuple[str, ...]:
    """The variables of a kernel's grid, and the numbers that it binds."""
    return (*map(str, dict(kernel.grid)), *bound_names(kernel))


def outermost_loads(node: Basic) -> list[Load]:
    """The reads of an expression that stand in no index of another."""
    if isinstance(node, Load):
        return [node]
    return [load for arg in node.args for load in outermost_loads(arg)]
