"""The statement by which the blocks of a cluster tell each other what they have summed of their parts of a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sympy import Expr


@final
@dataclass(frozen=True)
class Exchange:
    """Every block copies rows of its table to its place in the tables of all; none goes on before all have.

    Attributes:
        source: a tile in shared memory: reduction, warp.
        table: one of all blocks: reduction, block, warp.
        rows: the rows that are copied: the reductions.
        part: the block's own place among the blocks.
        blocks: their number.
        is_first: True if blocks may not yet have begun to run, whose tables the others write.
    """

    source: str
    table: str
    rows: tuple[int, ...]
    part: Expr
    blocks: int
    is_first: bool

    def __str__(self) -> str:
        rows = ", ".join(map(str, self.rows))
        return f"{self.table}[{rows}, {self.part}] of {self.blocks} blocks <- {self.source}[{rows}]"
