"""Join neighbouring elementwise loops, so that a reader and the scheduler see one loop.

parallel i: A;  parallel i: B   →   parallel i: A; B        exact where every buffer that is stored is read and stored
                                                            at the loop's own indices alone

Loops over a whole tile are joined if tiles hold a state for every lane: its numbers then live no longer than they must.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import S

from redalg.lower_tile.ir.program import Last, Loop, Parallel, Statement
from redalg.lower_tile.ir.scalars import Load


def fuse_row_loops(body: tuple[Statement, ...], *, tiles: bool = False) -> tuple[Statement, ...]:
    """The statements with neighbouring row loops joined, within loops too; if `tiles`, loops over tiles as well."""
    out: list[Statement] = []
    for given in body:
        statement = (
            replace(given, body=fuse_row_loops(given.body, tiles=tiles)) if isinstance(given, Loop | Last) else given
        )
        last = out[-1] if out else None
        if (
            isinstance(statement, Parallel)
            and isinstance(last, Parallel)
            and statement.indices == last.indices
            and by_element(statement, tiles=tiles)
            and by_element(last, tiles=tiles)
            and by_element(Parallel(last.indices, (*last.body, *statement.body)), tiles=tiles)
        ):
            out[-1] = Parallel(last.indices, (*last.body, *statement.body))
        else:
            out.append(statement)
    return tuple(out)


def by_element(loop: Parallel, *, tiles: bool) -> bool:
    """Tell if a loop guards nothing, and reads and stores the buffers that it stores at its own indices alone.

    The loop is over rows, or also over a tile if `tiles`.
    """
    place = tuple(name for name, _ in loop.indices)
    stored = {store.target for store in loop.body}
    own = all(store.indices == place and store.guard == S.true for store in loop.body)
    reads = {read for store in loop.body for read in store.expr.atoms(Load)}
    return (tiles or len(place) == 1) and own and all(read.indices == place for read in reads if read.name in stored)
