"""Joining neighbouring row loops, which are one loop to a reader and to the scheduler.

parallel i: A;  parallel i: B   →   parallel i: A; B        exact where every buffer is read and stored at row i alone
"""

from __future__ import annotations

from dataclasses import replace

from redalg.lower_tile.program import Load, Loop, Parallel, Statement
from redalg.lower_tile.space import I


def joined(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The statements with neighbouring row loops joined, within loops too."""
    out: list[Statement] = []
    for given in body:
        one = replace(given, body=joined(given.body)) if isinstance(given, Loop) else given
        last = out[-1] if out else None
        if (
            isinstance(one, Parallel)
            and isinstance(last, Parallel)
            and one.indices == last.indices
            and by_row(one)
            and by_row(last)
        ):
            out[-1] = Parallel(last.indices, (*last.body, *one.body))
        else:
            out.append(one)
    return tuple(out)


def by_row(one: Parallel) -> bool:
    """Whether a loop over rows stores and reads every buffer that it stores at row i alone, and guards nothing."""
    stored = {store.target for store in one.body}
    rows_only = len(one.indices) == 1 and all(store.indices == (I,) and store.guard is None for store in one.body)
    reads = {read for store in one.body for read in store.expr.atoms(Load)}
    return rows_only and all(read.indices == (I,) for read in reads if read.name in stored)
