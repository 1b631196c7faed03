"""The two tiles of a row that begins anywhere: its vectors, and its ends.

    elements   0 … begin − 1   begin … begin + wide·number − 1   the rest
               ends            vectors                           ends

A statement about a row's elements names the place of one in J, the index of its loop, and in the variables of loops
over tiles. A piece says what stands for that place, and for the conditions and names that go with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

from sympy import Expr, Lt, Min, S, floor
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.lower_tile.ir.program import Buffer, Copy, Region, index

I, J = map(index, ("i", "j"))
"""The indices of a loop over a tile: of rows, and of elements."""


@final
@dataclass(frozen=True)
class Vectors:
    """The tile of a row's vectors.

    Attributes:
        width: elements of the tile.
        wide: elements of a vector.
        first: the place in a tensor of the first vector.
        begin: that in the row.
        number: of the vectors of the row.
    """

    width: int
    wide: int
    first: Expr
    begin: Expr
    number: Expr
    takes_each_alone = False

    def at(self) -> dict[Basic, Basic]:
        """The terms in place of the indices of loops, where they tell an element of the row."""
        return {J: self.begin + J}

    def live(self, place: Expr) -> Boolean:
        """The condition that a row has the element that a statement takes at a place of it."""
        return Lt(floor(place / self.wide), self.number)

    def count(self, step: Basic) -> Expr:
        """The elements of the row that a step of a loop over tiles takes."""
        return Min(self.width, self.wide * self.number - self.width * step)

    def in_tensor(self, place: Expr) -> Expr:
        """The place in a tensor of the element that a statement takes at a place of the row."""
        return self.first + place

    def fetch(self, tensor: str, tile: str) -> Copy:
        """The copy of the row's vectors in bulk to its tile; their number is the same for all rows."""
        length = int(self.wide * self.number)
        return Copy(Region(tensor, ((self.first, length),)), Region(tile, (S.Zero, (S.Zero, length))), in_bulk=True)

    def tile(self, name: str) -> str:
        """The tile of this piece of a row in place of one of the row."""
        return name


@final
@dataclass(frozen=True)
class Ends:
    """The tile of what lies ahead of a row's first vector, and behind its last one.

    Attributes:
        row: the place in a tensor of the row's first element.
        place: that in the row of element J of the tile.
        inside: the condition that it is at an end of the row.
        number: of the elements at the ends.
        width: elements of the tile.
        tiles: name of a tile of the row -> that of its ends.
        steps: the variables of loops over tiles, which take no step here.
    """

    row: Expr
    place: Expr
    inside: Boolean
    number: Expr
    width: int
    tiles: Mapping[str, str]
    steps: frozenset[Basic]
    takes_each_alone = True

    def at(self) -> dict[Basic, Basic]:
        """The terms in place of the indices of loops, where they tell an element of the row."""
        return {J: self.place, **dict.fromkeys(self.steps, S.Zero)}

    def live(self, _: Expr) -> Boolean:
        """The condition that a row has the element that a statement takes at a place of it."""
        return self.inside

    def count(self, _: Basic) -> Expr:
        """The elements of the row that are at its ends."""
        return self.number

    def in_tensor(self, _: Expr) -> Expr:
        """The place in a tensor of the element that a statement takes at a place of the row."""
        return self.row + self.place

    def tile(self, name: str) -> str:
        """The tile of this piece of a row in place of one of the row."""
        return self.tiles[name]

    def tile_like(self, tile: Buffer) -> Buffer:
        """The buffer in place of one of the row."""
        return replace(tile, name=self.tiles[tile.name], shape=(*tile.shape[:-1], self.width))


Piece = Vectors | Ends
