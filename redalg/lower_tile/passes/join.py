"""Join neighbouring elementwise loops, so that a reader and the scheduler see one loop.

parallel i: A;  parallel i: B   →   parallel i: A; B        exact where every buffer that is stored is read and stored
                                                            at the loop's own indices alone, or where each store is to a
                                                            parameter of its own that neither loop reads

A loop that stores to parameters stays apart from one that computes in registers: joined, TileLang would have every
thread that holds the numbers store them. Loops over a whole tile are joined if tiles hold a state for every lane: its
numbers then live no longer than they must. A loop that copies stretches of a parameter (n ↦ ⌊n / P⌋, n mod P) to a
tile stays apart: joined with what reads the tile, TileLang would load the elements one by one, not 16 bytes at a time.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import Mod, S, floor

from redalg.expression import Where
from redalg.expression.contents import of_kind
from redalg.lower_tile.ir.program import Last, Loop, Parallel, Statement
from redalg.lower_tile.ir.scalars import Load


def fuse_row_loops(
    body: tuple[Statement, ...], buffers: frozenset[str] = frozenset(), *, tiles: bool = False
) -> tuple[Statement, ...]:
    """The statements with neighbouring row loops joined, within loops too; if `tiles`, loops over tiles as well."""
    out: list[Statement] = []
    for original in body:
        inner = fuse_row_loops(original.body, buffers, tiles=tiles) if isinstance(original, Loop | Last) else ()
        statement = replace(original, body=inner) if isinstance(original, Loop | Last) else original
        last = out[-1] if out else None
        both = loop_of_both(last, statement)
        apart = copies(last, buffers) != copies(statement, buffers)
        if both is not None and not apart and (by_element(both, tiles=tiles) or outward(both, buffers)):
            out[-1] = both
        else:
            out.append(statement)
    return tuple(out)


def loop_of_both(first: Statement | None, second: Statement) -> Parallel | None:
    """The loop that does what two loops do, if both are elementwise, over the same indices and under one guard."""
    if not isinstance(first, Parallel) or not isinstance(second, Parallel):
        return None
    if (first.indices, first.guard) != (second.indices, second.guard):
        return None
    return replace(first, body=(*first.body, *second.body))


def copies(statement: Statement | None, buffers: frozenset[str]) -> bool:
    """Tell if a loop over a tile copies stretches of a parameter to a buffer, as they are or as 0."""
    if not isinstance(statement, Parallel) or len(statement.indices) == 1 or len(statement.body) > 1:
        return False
    [store] = statement.body
    read = store.expr.args[1] if isinstance(store.expr, Where) else store.expr
    return isinstance(read, Load) and read.name not in buffers and any(one.has(floor, Mod) for one in read.indices)


def outward(loop: Parallel, buffers: frozenset[str]) -> bool:
    """Tell if a loop over rows stores to parameters alone, to each once, and reads none of them."""
    targets = {store.target for store in loop.body}
    exprs = (expr for store in loop.body for expr in (store.expr, store.guard, *store.indices))
    reads = {read.name for read in of_kind(Load, *exprs)}
    return len(loop.indices) == 1 and len(targets) == len(loop.body) and not targets & (buffers | reads)


def by_element(loop: Parallel, *, tiles: bool) -> bool:
    """Tell if a loop guards nothing, and reads and stores the buffers that it stores at its own indices alone.

    The loop is over rows, or also over a tile if `tiles`.
    """
    place = tuple(name for name, _ in loop.indices)
    targets = {store.target for store in loop.body}
    own = all(store.indices == place and store.guard == S.true for store in loop.body)
    reads = of_kind(Load, *(store.expr for store in loop.body))
    return (tiles or len(place) == 1) and own and all(read.indices == place for read in reads if read.name in targets)
