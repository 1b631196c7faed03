"""Joining neighbouring elementwise loops, which are one loop to a reader and to the scheduler.

parallel i: A;  parallel i: B   →   parallel i: A; B        exact where every buffer that is stored is read and stored
                                                            at the loop's own indices alone

Loops over a whole tile are joined where tiles hold a state a lane: its numbers then live no longer than they must.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import S

from redalg.lower_tile.ir.program import Last, Loop, Parallel, Statement
from redalg.lower_tile.ir.scalars import Load


def joined(body: tuple[Statement, ...], *, tiles: bool = False) -> tuple[Statement, ...]:
    """The statements with neighbouring row loops joined, within loops too; `tiles`: and loops over tiles."""
    out: list[Statement] = []
    for given in body:
        one = replace(given, body=joined(given.body, tiles=tiles)) if isinstance(given, Loop | Last) else given
        last = out[-1] if out else None
        if (
            isinstance(one, Parallel)
            and isinstance(last, Parallel)
            and one.indices == last.indices
            and by_element(one, tiles=tiles)
            and by_element(last, tiles=tiles)
            and by_element(Parallel(last.indices, (*last.body, *one.body)), tiles=tiles)
        ):
            out[-1] = Parallel(last.indices, (*last.body, *one.body))
        else:
            out.append(one)
    return tuple(out)


def by_element(one: Parallel, *, tiles: bool) -> bool:
    """Whether a loop stores and reads every buffer that it stores at its own indices alone, and guards nothing."""
    place = tuple(name for name, _ in one.indices)
    stored = {store.target for store in one.body}
    own = all(store.indices == place and store.guard == S.true for store in one.body)
    reads = {read for store in one.body for read in store.expr.atoms(Load)}
    return (tiles or len(place) == 1) and own and all(read.indices == place for read in reads if read.name in stored)
