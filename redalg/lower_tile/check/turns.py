"""The order in which a program's kernels run, and the points of a launch that each of its blocks takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from redalg.lower_tile.ir.program import Kernel, TileProgram

Point = tuple[int, ...]
Blocks = Iterable[Sequence[Point]]
"""The blocks of a launch: for each block, the points of the grid that it takes."""


def kernels_in_order(program: TileProgram, memory: Mapping[str, Any]) -> Iterator[tuple[Kernel, range | None]]:
    """Yield the kernels of a program as they run, those of rounds once a round, with the instances that they take."""
    together = program.together
    if together is None or together.rounds is None:
        yield from ((kernel, None) for kernel in program.kernels)
        return
    rounds, repeated = together.rounds, together.place_of_rounds
    yield from ((kernel, None) for kernel in program.kernels[: repeated.start])
    for number in range(rounds.count):
        for kernel, first in zip(program.kernels[repeated], rounds.firsts, strict=True):
            yield kernel, range(*map(int, memory[first][number : number + 2]))
    yield from ((kernel, None) for kernel in program.kernels[repeated.stop :])


def points_of_blocks(kernel: Kernel, extents: tuple[int, ...]) -> Blocks:
    """The points of the grid that each block of a launch takes, in order; those of the blocks of each cluster."""
    points = [place[::-1] for place in product(*map(range, reversed(extents)))]
    if kernel.cluster > 1:
        return [points[first : first + kernel.cluster] for first in range(0, len(points), kernel.cluster)]
    stride = kernel.blocks or len(points)
    return [points[block::stride] for block in range(stride)]
