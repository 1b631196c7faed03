"""Kernels in one launch, level after level: all blocks wait for each other between two levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Rounds:
    """Levels that are one text: in every round the same kernels run, on other instances.

    The last variable of a kernel's grid counts its instances. In round r these are first[r] … first[r + 1] − 1.

    Attributes:
        count: of the rounds.
        firsts: of every kernel the parameter that has `first`, of count + 1 integers.
        after: the number of levels before the first round; the rest follows the last one.
    """

    count: int
    firsts: tuple[str, ...]
    after: int

    def __str__(self) -> str:
        return f"{self.count} rounds of {len(self.firsts)} kernels after level {self.after}"


@final
@dataclass(frozen=True)
class Together:
    """One launch for all kernels of a program.

    The points of the grids of a level's kernels are numbered one after another. Block w takes the points w, w + blocks,
    w + 2·blocks … of a level. It goes on to the next level when every block has come to the end of this one. All blocks
    must therefore be on the device at once.

    Attributes:
        levels: the number of kernels of each level, in the program's order; those of rounds stand between them.
        blocks: of the launch.
        beside: the blocks of a multiprocessor.
        rounds: levels that are one text, if there are any.
        owners: of every kernel the number of the step that it is of, the first of those that are alike; −1 of a copy.
    """

    levels: tuple[int, ...]
    blocks: int
    beside: int = 1
    rounds: Rounds | None = None
    owners: tuple[int, ...] = ()

    @property
    def place_of_rounds(self) -> slice:
        """The places of the kernels that run in every round, among all kernels."""
        if self.rounds is None:
            return slice(0, 0)
        before = sum(self.levels[: self.rounds.after])
        return slice(before, before + len(self.rounds.firsts))

    def __str__(self) -> str:
        rounds = f", {self.rounds}" if self.rounds else ""
        return f"one launch of {self.blocks} blocks: levels of {', '.join(map(str, self.levels))} kernels{rounds}"
