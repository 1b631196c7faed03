"""Run blocks on arrays, those of a cluster side by side: each finds what the others tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sympy import Symbol
from sympy.core.basic import Basic

from redalg.lower_tile.ir.exchange import Exchange
from redalg.lower_tile.ir.program import Kernel, Statement


class Block(Protocol):
    """A block on arrays: its tiles by name, and the variables of its point of the grid."""

    tiles: dict[str, Any]
    variables: dict[Symbol, Any]

    def execute(self, statement: Statement) -> None:
        """Run a statement."""

    def value(self, node: Basic) -> Any:
        """The value of an expression."""


def variables_at(kernel: Kernel, place: Sequence[int], sizes: Mapping[Symbol, int]) -> dict[Symbol, int]:
    """The variables of a block at a place of a kernel's grid, and the run-time sizes."""
    return {**sizes, **dict(zip((name for name, _ in kernel.grid), place, strict=True))}


def run_blocks(blocks: Sequence[Block], kernel: Kernel, points: Sequence[dict[Symbol, int]]) -> None:
    """Run the blocks of a cluster, or one block, for points of the grid: as many at once as there are blocks."""
    for first in range(0, len(points), len(blocks)):
        for block, variables in zip(blocks, points[first:], strict=False):
            block.variables = variables
        for statement in kernel.body:
            for block in blocks:
                if isinstance(statement, Exchange):
                    tell_others(block, statement, blocks)
                else:
                    block.execute(statement)


def tell_others(block: Block, exchange: Exchange, blocks: Sequence[Block]) -> None:
    """Copy a block's rows of a table to its place in those of all blocks."""
    part, rows = int(block.value(exchange.part)), list(exchange.rows)
    for other in blocks:
        other.tiles[exchange.table][rows, part] = block.tiles[exchange.source][rows]
