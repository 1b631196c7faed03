"""Number the rows of a kernel along one dimension, where tensors have several ahead of a row's elements.

    grid b < B, q < ⌈Q / R⌉:  x[b, R·q + i, j], s[b, R·q + i]    →   grid r < ⌈B·Q / R⌉:  x[R·r + i, j], s[R·r + i]
    i of the block if R·q + i < Q                                →   if R·r + i < B·Q

Exact where every place that names b or q is that of row Q·b + R·q + i: the rows are the same ones, R of them at a time.
Blocks then have R rows each, whatever Q is, but for the last one (`adjoining_rows` takes these as one array).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, final

from sympy import Expr, Lt, Symbol
from sympy.core.basic import Basic

from redalg.lower_tile.ir.program import (
    Copy,
    Parallel,
    Region,
    Statement,
    Store,
    TileProgram,
    expressions,
)
from redalg.lower_tile.ir.row_pieces import I, J
from redalg.lower_tile.ir.row_places import accesses_of, first_row, with_one_dimension
from redalg.lower_tile.ir.scalars import Load


def join_rows(program: TileProgram, rows: int, width: int) -> TileProgram:
    """A program of one kernel, whose blocks take so many rows of a tile's width, with its rows numbered along one
    dimension; the same one if they are already, or if some place is not that of a row."""
    [kernel] = program.kernels
    parameters = {one.name: one for one in program.parameters}
    moving = frozenset[Basic](variable for variable, _ in kernel.grid)
    taken = [(name, place) for name, place in accesses_of(kernel.body, width) if name in parameters]
    places = [(name, place) for name, place in taken if any(one.free_symbols & {*moving, I} for one in place)]
    found = {first_row(place, parameters[name]) for name, place in places}
    first = found.pop() if len(found) == 1 else None
    if first is None or first.has(Load) or len(moving) == 1 or first.free_symbols != moving:
        return program
    name, place = places[0]
    dimensions = len(place) - (place[-1] == J)
    shape = parameters[name].shape[:dimensions]
    [tiled] = [(one, size) for one, size in zip(place, shape, strict=False) if one.has(I)]
    row = RowNumbers(kernel.grid[0][0], rows, prod(shape), dimensions, Lt(*tiled), moving)
    body = tuple(row.of_statement(one) for one in kernel.body)
    if any(node.free_symbols & (moving - {row.block}) for one in body for node in expressions(one)):
        return program
    names = {name for name, _ in places}
    flat = tuple(with_one_dimension(one, dimensions) if one.name in names else one for one in program.parameters)
    blocks = ((row.block, -(-row.total // rows)),)
    return replace(program, parameters=flat, kernels=(replace(kernel, grid=blocks, body=body),))


@final
@dataclass(frozen=True)
class RowNumbers:
    """The rows of a kernel, along one dimension.

    Attributes:
        block: the variable of the grid that numbers blocks.
        number: the rows of a block.
        total: all rows.
        dimensions: of tensors, that numbered them.
        there: the condition that a block has row I.
        moving: the variables of the grid that numbered blocks.
    """

    block: Symbol
    number: int
    total: int
    dimensions: int
    there: Basic
    moving: frozenset[Basic]

    @property
    def first(self) -> Expr:
        """The number of a block's first row."""
        return self.number * self.block

    def of_statement(self, statement: Statement) -> Statement:
        """A statement about rows that numbers them along one dimension."""
        if isinstance(statement, Copy):
            return replace(statement, source=self.of_side(statement.source), target=self.of_side(statement.target))
        if isinstance(statement, Parallel):
            return replace(statement, body=tuple(self.of_store(one) for one in statement.body))
        return statement

    def of_side(self, side: Region | str) -> Region | str:
        """A part of a tensor, of the block's rows; a buffer as it is."""
        places = side.place if isinstance(side, Region) else ()
        starts = [one[0] if isinstance(one, tuple) else one for one in places]
        if isinstance(side, str) or not any(one.free_symbols & self.moving for one in starts):
            return side
        return Region(side.name, ((self.first, self.number), *side.place[self.dimensions :]))

    def of_store(self, store: Store) -> Store:
        """A store whose reads and whose place are of rows along one dimension."""
        loads = {load: Load(load.name, *self.of_place(load.indices)) for node in (store.expr, store.guard)
                 for load in node.atoms(Load)}  # fmt: skip
        put: Mapping[Basic, Any] = {self.there: Lt(self.first + I, self.total), **loads}
        indices = self.of_place(store.indices)
        return replace(store, indices=indices, expr=store.expr.xreplace(put), guard=store.guard.xreplace(put))

    def of_place(self, place: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """A place in a tensor of rows; of any other, the same."""
        is_of_row = any(one.free_symbols & self.moving for one in place)
        return (self.first + I, *place[self.dimensions :]) if is_of_row else place
