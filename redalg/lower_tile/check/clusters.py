"""Run the blocks of a cluster side by side on arrays, so that each finds what the others tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sympy import Symbol
from sympy.core.basic import Basic

from redalg.lower_tile.ir.exchange import Exchange
from redalg.lower_tile.ir.program import Kernel, Statement

Place = Sequence[int]


class Block(Protocol):
    """A block on arrays: its tiles by name, and the variables of its point of the grid."""

    tiles: dict[str, Any]
    variables: dict[Symbol, Any]

    def execute(self, statement: Statement) -> None:
        """Run a statement."""

    def value(self, node: Basic) -> Any:
        """The value of an expression."""


def variables_at(kernel: Kernel, place: Place, sizes: Mapping[Symbol, int]) -> dict[Symbol, int]:
    """The variables of a block at a place of a kernel's grid, and the run-time sizes."""
    return {**sizes, **dict(zip((name for name, _ in kernel.grid), place, strict=True))}


def run_cluster(
    blocks: Sequence[Block], body: Sequence[Statement], points: Sequence[tuple[Place, Mapping[Symbol, int]]]
) -> None:  # fmt: skip
    """Run the blocks of a cluster, statement by statement."""
    for block, (_, variables) in zip(blocks, points, strict=True):
        block.variables = dict(variables)
    for statement in body:
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
