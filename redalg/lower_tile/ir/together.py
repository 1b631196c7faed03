"""Kernels in one launch, level after level: all blocks wait for each other between two levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Together:
    """One launch for all kernels of a program.

    The points of the grids of a level's kernels are numbered one after another. Block w takes the points w, w + blocks,
    w + 2·blocks … of a level. It goes on to the next level when every block has come to the end of this one. All blocks
    must therefore be on the device at once.

    Attributes:
        levels: the number of kernels of each level, in the program's order.
        blocks: of the launch.
        beside: the blocks of a multiprocessor.
    """

    levels: tuple[int, ...]
    blocks: int
    beside: int = 1

    def __str__(self) -> str:
        return f"one launch of {self.blocks} blocks: levels of {', '.join(map(str, self.levels))} kernels"
