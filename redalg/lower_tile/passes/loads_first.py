"""Load a kernel's whole rows one after another, before the sums of the first are waited for.

x = load;  v[i] = Σ_j x[i, j];  y = load   →   x = load;  y = load;  v[i] = Σ_j x[i, j]

Exact where only the grid moves the place of y, and nothing between reads or stores it. The rows loaded before must be
read again after it: then all of them stay in registers at once, and the loads take none that were free.
"""

from __future__ import annotations

from dataclasses import replace

from redalg.lower_tile.ir.mentions import names_in, names_stored_by
from redalg.lower_tile.ir.program import Copy, Kernel, Region, Statement, expressions
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.plan import Plan


def loads_first(kernel: Kernel, plan: Plan) -> Kernel:
    """The kernel of whole rows that loads them side by side."""
    if plan.level != "row":
        return kernel
    tiles = frozenset(one.name for one in kernel.buffers if one.scope == "fragment")
    body, place = list[Statement](), 0
    for number, statement in enumerate(kernel.body):
        if not _loads(statement, tiles):
            body.append(statement)
            continue
        first = place if place and _may_move(statement, body, place, kernel.body[number + 1 :]) else len(body)
        body.insert(first, statement)
        place = first + 1
    return replace(kernel, body=tuple(body))


def _loads(statement: Statement, tiles: frozenset[str]) -> bool:
    """Tell if a statement loads a tile into registers, from a place that no buffer tells."""
    copies = isinstance(statement, Copy) and isinstance(statement.source, Region) and statement.target in tiles
    return copies and not any(node.has(Load) for node in expressions(statement))


def _may_move(load: Statement, body: list[Statement], place: int, after: tuple[Statement, ...]) -> bool:
    """Tell if a load may stand at a place of what was before it: ahead of sums, beside tiles that are read again."""
    between, names = body[place:], names_in(load)
    still = {name for one in after for name in names_in(one)}
    earlier = {str(one.target) for one in body[:place] if isinstance(one, Copy)}
    touched = any(names_stored_by(one) & names or names_in(one) & names_stored_by(load) for one in between)
    return bool(between) and earlier <= still and not touched
