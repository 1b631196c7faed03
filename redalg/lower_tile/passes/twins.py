"""Compute once what two tiles hold alike, in shared memory or each element in a thread of its own.

a[j, i] = f(j, i);  b[j, e] = f(j, e);  s[e, i] += a[j, i]·b[j, e]   →   a[j, i] = f(j, i);  s[e, i] += a[j, i]·a[j, e]

Rows and columns of a covariance are two axes of one tensor, so that each has a tile of the same differences. Exact:
both are stored once, one after the other, of what no statement between them changes. Covariances of 64 columns take
0.92 of the time (H200, with counts ahead of the loop).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import final

from sympy import Dummy, S
from sympy.core.basic import Basic

from redalg.lower_tile.ir.mentions import names_in, names_stored_by, names_stored_once
from redalg.lower_tile.ir.program import (
    Kernel,
    Last,
    Loop,
    Parallel,
    Statement,
    Store,
    map_statement,
    nested_statements,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.plan import Plan

PLACES = tuple(Dummy(f"place_{place}") for place in range(4))
"""The indices of a loop, whatever their names are."""


def share_twins(kernel: Kernel, _: Plan) -> Kernel:
    """The kernel with one tile for two in shared memory that hold the same."""
    twins = Twins(kernel)
    body = twins.without_twins(kernel.body)
    if not twins.first:
        return kernel
    buffers = tuple(one for one in kernel.buffers if one.name not in twins.first)
    return replace(kernel, buffers=buffers, body=tuple(map_statement(one, twins.read) for one in body))


@final
class Twins:
    """The tiles of a kernel, and those that hold what others do: tile -> the first that holds the same."""

    def __init__(self, kernel: Kernel) -> None:
        self.first = dict[str, str]()
        once = names_stored_once(kernel)
        written = [one for one in kernel.buffers if one.name in once]
        shared = [one for one in written if one.scope == "shared" or is_read_by_element(one.name, kernel)]
        self.tiles = {one.name: one for one in shared}

    def read(self, node: Basic) -> Basic:
        """An expression that reads the first of tiles that hold the same."""
        found = {one: Load(self.first[one.name], *one.indices) for one in node.atoms(Load) if one.name in self.first}
        return node.xreplace(found) if found else node

    def without_twins(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        """Statements, in order, without those that store what another tile holds."""
        left, known = list[Statement](), dict[Hashable, tuple[str, int]]()
        for statement in body:
            if isinstance(statement, Loop | Last):
                left.append(replace(statement, body=self.without_twins(statement.body)))
                continue
            if not isinstance(statement, Parallel) or (store := self.store_of(statement)) is None:
                left.append(statement)
                continue
            key = self.key_of(statement, store)
            tile, place = known.get(key, (None, 0))
            if tile is not None and is_still_alike(statement, store.target, left[place:]):
                self.first[store.target] = tile
                continue
            known[key] = store.target, len(left)
            left.append(statement)
        return tuple(left)

    def store_of(self, loop: Parallel) -> Store | None:
        """The store of a loop that fills one of the tiles, and does nothing else; None of any other loop."""
        if len(loop.body) != 1 or len(loop.indices) > len(PLACES):
            return None
        [store] = loop.body
        return store if store.target in self.tiles and not store.once and store.guard == S.true else None

    def key_of(self, loop: Parallel, store: Store) -> Hashable:
        """The shape, dtype and content of the tile that a loop stores, alike for all names of its indices."""
        tile, places = self.tiles[store.target], dict(zip((one for one, _ in loop.indices), PLACES, strict=False))
        written = (self.read(one).xreplace(places) for one in (*store.indices, store.expr, loop.guard))
        return (tile.shape, tile.dtype, *(size for _, size in loop.indices), *written)


def is_read_by_element(name: str, kernel: Kernel) -> bool:
    """Tell if loops over a buffer's elements alone name it, ahead of the tiles: a thread reads what it stored."""
    naming = [one for one in kernel.body if name in names_in(one)]
    loops = [one for one in naming if isinstance(one, Parallel) and len(one.indices) == 1]
    return len(loops) == len(naming) and all(places_in(one, name) <= {one.indices[0][:1]} for one in loops)


def places_in(loop: Parallel, name: str) -> set[tuple[Basic, ...]]:
    """The indices at which a loop stores and reads a buffer."""
    reads = {load for store in loop.body for load in store.expr.atoms(Load) if load.name == name}
    return {load.indices for load in reads} | {store.indices for store in loop.body if store.target == name}


def is_still_alike(loop: Statement, target: str, since: Sequence[Statement]) -> bool:
    """Tell if statements, of which the first is like a loop, neither name its target nor store what it reads."""
    leaves = (one for one in nested_statements(tuple(since)) if not isinstance(one, Loop | Last))
    stored = set[str]().union(*map(names_stored_by, leaves))
    return not (names_in(loop) - {target}) & stored and all(target not in names_in(one) for one in since)
