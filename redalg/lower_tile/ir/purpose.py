"""The purpose of every buffer and statement: the slots of the state, the producers and the outputs that it serves.

The placer says which buffers hold a slot or a producer (`Buffer.slot`). All else follows from who reads whom:

    purpose(b) = {slot}                            b holds a slot, or is an output
               | ∪ purpose(target)                 over the stores that read b
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from redalg.lower_tile.ir.exchange import Exchange
from redalg.lower_tile.ir.program import (
    Bind,
    Buffer,
    Contract,
    Copy,
    Fill,
    JoinBest,
    Keep,
    Kernel,
    Last,
    Loop,
    Parallel,
    ReduceTile,
    Statement,
    Store,
    TileProgram,
    expressions,
)
from redalg.lower_tile.ir.scalars import Load

Origin = Statement | Store | Buffer
"""The part of a program that a line of its text is for."""


@final
@dataclass(frozen=True)
class Purposes:
    """The purposes of the names in one kernel of a program.

    Attributes:
        program, kernel: they.
        results: parameter, or the number of a row of a pool -> the output that it holds; None if these are the
            program's own.
    """

    program: TileProgram
    kernel: Kernel
    results: Mapping[str, str] | None = None

    @cached_property
    def own(self) -> Mapping[str, str]:
        """Name -> the slot, the producer or the output that it holds."""
        slots = {one.name: one.slot for one in self.kernel.buffers if one.slot}
        outputs = {one.name: one.key for one in self.program.parameters if one.role == "output"}
        workspaces = {name: slot for slot, name in self._workspaces().items()}
        return {**workspaces, **slots, **(outputs if self.results is None else self.results)}

    def _workspaces(self) -> dict[str, str]:
        """Slot -> the workspace that a buffer of it is stored to, or read from."""
        slots = {one.name: one.slot for one in self.kernel.buffers if one.slot}
        names = {one.name for one in self.program.parameters if one.role == "workspace"}
        edges = [edge for one in self.kernel.body for edge in edges_of(one, self.rows)]
        stored = {slots[a]: b for a, b in edges if a in slots and b in names}
        return stored | {slots[b]: a for a, b in edges if b in slots and a in names}

    @cached_property
    def of(self) -> Mapping[str, frozenset[str]]:
        """Name -> what it serves; nothing if it holds a slot that nobody reads."""
        readers: dict[str, set[str]] = defaultdict(set)
        for statement in self.kernel.body:
            for read, written in edges_of(statement, self.rows):
                readers[read].add(written)
        found: dict[str, frozenset[str]] = {name: frozenset({slot}) for name, slot in self.own.items()}
        changed = True
        while changed:
            changed = False
            for read, targets in readers.items():
                if read in self.own:
                    continue
                served = frozenset().union(*(found.get(one, frozenset()) for one in targets))
                changed |= served != found.get(read, frozenset())
                found[read] = served
        return found

    def of_origin(self, origin: Origin) -> frozenset[str]:
        """The slots, producers and outputs that a statement, a store or a buffer serves."""
        if isinstance(origin, Buffer):
            return self.of.get(origin.name, frozenset())
        return frozenset().union(*(self.of.get(name, frozenset()) for name in names_written(origin, self.rows)))

    @property
    def rows(self) -> Collection[str]:
        """The names by which outputs are told apart, where one pool holds several."""
        return () if self.results is None else self.results.keys()


def names_written(origin: Statement | Store, rows: Collection[str] = ()) -> set[str]:
    """The names that a statement writes, those within it too; of a row of a pool the row's, if it is among `rows`."""
    if isinstance(origin, Loop | Last):
        return {name for one in origin.body for name in names_written(one, rows)}
    if isinstance(origin, Parallel):
        return {name_at_row(one.target, one.indices, rows) for one in origin.body}
    if isinstance(origin, Store):
        return {name_at_row(origin.target, origin.indices, rows)}
    if isinstance(origin, Copy):
        return {side_name(origin, rows)}
    if isinstance(origin, Fill):
        return {origin.buffer}
    if isinstance(origin, Contract):
        return {origin.c}
    if isinstance(origin, JoinBest):
        return {origin.best}
    if isinstance(origin, Exchange):
        return {origin.table}
    if isinstance(origin, Keep):
        return set()
    return {origin.name if isinstance(origin, Bind) else origin.target}


def side_name(copy: Copy, rows: Collection[str] = ()) -> str:
    """The name of what a copy writes."""
    target = copy.target
    return target if isinstance(target, str) else name_at_row(target.name, target.place, rows)


def name_at_row(name: str, place: Sequence[Any], rows: Collection[str]) -> str:
    """The name of what lies at a place of a buffer: that of its row, if it is among `rows`."""
    row = place[0].name if place and isinstance(place[0], Load) else ""
    return row if row in rows else name


def edges_of(statement: Statement, rows: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """(read, written) of every statement, those within it too; a copy's own name twice is left out."""
    if isinstance(statement, Loop | Last):
        for inner in statement.body:
            yield from edges_of(inner, rows)
    elif isinstance(statement, Parallel):
        for store in statement.body:
            reads = store.expr.atoms(Load) | store.guard.atoms(Load)
            written = name_at_row(store.target, store.indices, rows)
            yield from ((one.name, written) for one in sorted(reads, key=str))
    else:
        for written in names_written(statement, rows):
            yield from ((read, written) for read in reads_of(statement) if read != written)


def reads_of(statement: Statement) -> list[str]:
    """The names that a statement without a body reads."""
    if isinstance(statement, Contract):
        return [statement.a, statement.b]
    if isinstance(statement, ReduceTile):
        return [statement.source]
    if isinstance(statement, JoinBest):
        return [statement.rank]
    if isinstance(statement, Copy):
        return [statement.source if isinstance(statement.source, str) else statement.source.name]
    return sorted({one.name for expr in expressions(statement) for one in expr.atoms(Load)})
