"""The purpose of every buffer and statement: the slots of the state, the producers and the outputs that it serves.

The placer says which buffers hold a slot or a producer (`Buffer.slot`). All else follows from who reads whom:

    purpose(b) = {slot}                            b holds a slot, or is an output
               | ∪ purpose(target)                 over the stores that read b
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import final

from redalg.lower_tile.ir.program import (
    Bind,
    Buffer,
    Contract,
    Copy,
    Fill,
    JoinBest,
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
    """The purposes of the names in one kernel of a program."""

    program: TileProgram
    kernel: Kernel

    @cached_property
    def own(self) -> Mapping[str, str]:
        """Name -> the slot, the producer or the output that it holds."""
        slots = {one.name: one.slot for one in self.kernel.buffers if one.slot}
        outputs = {one.name: one.key for one in self.program.parameters if one.role == "output"}
        workspaces = {name: slot for slot, name in self._workspaces().items()}
        return {**outputs, **workspaces, **slots}

    def _workspaces(self) -> dict[str, str]:
        """Slot -> the workspace that a buffer of it is stored to, or read from."""
        slots = {one.name: one.slot for one in self.kernel.buffers if one.slot}
        names = {one.name for one in self.program.parameters if one.role == "workspace"}
        edges = [edge for one in self.kernel.body for edge in edges_of(one)]
        stored = {slots[a]: b for a, b in edges if a in slots and b in names}
        return stored | {slots[b]: a for a, b in edges if b in slots and a in names}

    @cached_property
    def of(self) -> Mapping[str, frozenset[str]]:
        """Name -> what it serves; nothing if it holds a slot that nobody reads."""
        readers: dict[str, set[str]] = defaultdict(set)
        for statement in self.kernel.body:
            for read, written in edges_of(statement):
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
        return frozenset().union(*(self.of.get(name, frozenset()) for name in names_written(origin)))


def names_written(origin: Statement | Store) -> set[str]:
    """The names that a statement writes, those within it too."""
    if isinstance(origin, Loop | Last):
        return {name for one in origin.body for name in names_written(one)}
    if isinstance(origin, Parallel):
        return {one.target for one in origin.body}
    if isinstance(origin, Copy):
        return {side_name(origin)}
    if isinstance(origin, Fill):
        return {origin.buffer}
    if isinstance(origin, Contract):
        return {origin.c}
    if isinstance(origin, JoinBest):
        return {origin.best}
    return {origin.name if isinstance(origin, Bind) else origin.target}


def side_name(copy: Copy) -> str:
    """The name of what a copy writes."""
    return copy.target if isinstance(copy.target, str) else copy.target.name


def edges_of(statement: Statement) -> Iterator[tuple[str, str]]:
    """(read, written) of every statement, those within it too; a copy's own name twice is left out."""
    if isinstance(statement, Loop | Last):
        for inner in statement.body:
            yield from edges_of(inner)
    elif isinstance(statement, Parallel):
        for store in statement.body:
            reads = store.expr.atoms(Load) | store.guard.atoms(Load)
            yield from ((one.name, store.target) for one in sorted(reads, key=str))
    else:
        for written in names_written(statement):
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
