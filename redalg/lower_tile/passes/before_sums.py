"""Run a loop over a tile before the sums that it does not read, beside the loop over the same tile ahead of them.

a[i, j] = f;  v[i] = Σ_j a[i, j];  b[i, j] = g   →   a[i, j] = f;  b[i, j] = g;  v[i] = Σ_j a[i, j]

Exact where g reads no v, and nothing ahead of b's loop reads or stores b. `join` then makes one loop of both: a thread
reads and converts once what they share. Within loops whose tiles hold a state for every lane, where each tile waits
for the sums of its rows (H200, gradients of layer norms).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from redalg.lower_tile.ir.mentions import names_in, names_stored_by
from redalg.lower_tile.ir.program import Kernel, Loop, Parallel, ReduceTile, Statement, map_statement
from redalg.strategies.plan import Plan


def tiles_before_sums(kernel: Kernel, plan: Plan) -> Kernel:
    """The kernel whose loops compute their tiles ahead of the sums that these do not read."""
    if plan.level != "thread":
        return kernel
    buffers = frozenset(one.name for one in kernel.buffers)
    body = (_in_loop(one, buffers) if isinstance(one, Loop) else one for one in kernel.body)
    return replace(kernel, body=tuple(body))


def _in_loop(loop: Loop, buffers: frozenset[str]) -> Loop:
    """The loop with every tile beside an earlier one that only sums of rows part from it."""
    body = list[Statement]()
    for statement in loop.body:
        place = _place_of(statement, body, buffers) if isinstance(statement, Parallel) else None
        if place is None or not isinstance(statement, Parallel):
            body.append(statement)
        else:
            body.insert(place + 1, _in_indices_of(body[place], statement))
    return replace(loop, body=tuple(body))


def _place_of(tile: Parallel, body: Sequence[Statement], buffers: frozenset[str]) -> int | None:
    """The place of the last loop over such a tile, if sums lie between and the tile reads and stores nothing there."""
    targets, names = names_stored_by(tile), names_in(tile)
    if len(tile.indices) == 1 or not targets <= buffers:
        return None
    for place in range(len(body) - 1, -1, -1):
        before = body[place]
        if isinstance(before, Parallel) and _extents(before) == _extents(tile):
            is_apart = place < len(body) - 1 and names_stored_by(before) <= buffers
            return place if is_apart else None
        if not _is_of_rows(before) or names_stored_by(before) & names or names_in(before) & targets:
            return None
    return None


def _is_of_rows(statement: Statement) -> bool:
    """Tell if a statement is a sum, or a loop over rows."""
    return isinstance(statement, ReduceTile) or (isinstance(statement, Parallel) and len(statement.indices) == 1)


def _extents(loop: Parallel) -> tuple[int, ...]:
    """The extents of a loop's indices."""
    return tuple(extent for _, extent in loop.indices)


def _in_indices_of(first: Statement, tile: Parallel) -> Statement:
    """A loop over a tile in the indices of another over the same one."""
    if not isinstance(first, Parallel):
        raise AssertionError(f"`{first}` is no loop over a tile")
    renamed = {old: new for (old, _), (new, _) in zip(tile.indices, first.indices, strict=True)}
    body = map_statement(tile, lambda node: node.xreplace(renamed))
    return replace(body, indices=first.indices) if isinstance(body, Parallel) else body
