"""The parts of producers' sums that other blocks made, where a kernel adds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from sympy import Add, Expr, Integer

from redalg.expression import Axis, Value
from redalg.lower_tile.ir.program import Statement
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.space import Space


@final
@dataclass(frozen=True)
class Sums:
    """The workspace that holds the parts of a producer's sums, with dimensions (part, axes …)."""

    workspace: str
    axes: tuple[Axis, ...]
    parts: int

    def read(self, space: Space) -> Expr:
        """Σ_z part[z] at a tile's indices."""
        place = [space.at[axis] for axis in self.axes]
        return Add(*(Load(self.workspace, Integer(part), *place) for part in range(self.parts)))


def add_parts(sums: Mapping[Value, Sums], space: Space, assembly: Assembly, body: list[Statement]) -> dict[Value, Expr]:
    """The producers' values whose parts lie in workspaces: the sums of the parts, in tiles."""
    return {value: assembly.tile_of(value.name, parts.read(space), body) for value, parts in sums.items()}
