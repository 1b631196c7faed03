"""Levels of a schedule: where an axis lives, and which level may stand directly inside which.

    Persistent(blocks)            as many blocks on a multiprocessor, which take tiles in turn
    Grid(axis, tile)              a block for every `tile` elements of a free axis
    Pad(rows)                     rows of a tile that no axis gives
    Parts(axis, count, merge)     blocks side by side along a reduced axis; their states are merged
    Loop(axis, tile, stages)      tiles one after another, the loads of `stages` tiles ahead
    Whole(axis, tile, memory)     one tile that holds the axis, in registers or in shared memory
    Lanes(axis, width)            threads side by side along an axis
    TensorCores, ScalarCores      the threads that multiply tiles

A level's states are merged where the level ends. So `Loop Lanes` merges the lanes of every tile; `Lanes Loop` keeps a
state in every lane and merges once, after the loop. Lanes lie along the streamed axis, or along that of the rows:

    Grid(c, 64) Lanes(c, 512) Loop(n, 32)       x[n, c]: neighbours in memory are rows; lanes of one row are merged
    Grid(i, 512) Loop(j, 256) Lanes(i, 128)     F(x[i], y[j]): a thread takes a tile's elements in turn for its own
                                                rows, so that there is nothing to merge
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Final, cast, final, get_args

from redalg.errors import PlanError
from redalg.expression import Axis
from redalg.expression.arguments import answer_methods

MERGED_ROWS: Final = 16
"""Most rows that one block of the merging kernel takes."""
MERGES: Final = ("kernel", "launch")
CLUSTER: Final = "cluster"
BLOCKS_OF_CLUSTER: Final = (2, 4, 8)
"""Blocks that every chip with clusters lets run together (CUDA; more than 8 are not portable)."""
MEMORIES: Final = ("registers", "shared")
RESIDENT: Final = 32
"""Most blocks that live on a multiprocessor together, of any chip that redalg knows."""
MOST_THREADS: Final = 1024
"""Threads of the largest block (CUDA)."""


@answer_methods(PlanError, "__init__")
@final
@dataclass(frozen=True)
class Persistent:
    """Blocks that stay on a multiprocessor and take one tile after another until none is left.

    Attributes:
        blocks: their number on each multiprocessor, 1 to 32.

    >>> print(Persistent(2))
    Persistent(2)
    """

    blocks: int

    def __post_init__(self) -> None:
        _check_range(self, "blocks", 1, RESIDENT)

    def __str__(self) -> str:
        return f"Persistent({self.blocks})"


@answer_methods(PlanError, "__init__")
@final
@dataclass(frozen=True)
class Grid:
    """Blocks along a free axis.

    Attributes:
        axis: its name, or the axis.
        tile: elements of it that one block holds.

    >>> from redalg import axes
    >>> print(Grid("q", 64), Grid(axes("b")), sep=", ")
    Grid(q, 64), Grid(b)
    """

    axis: str
    tile: int = 1

    def __post_init__(self) -> None:
        _take_name(self)
        _check_range(self, "tile", 1)

    def __str__(self) -> str:
        return f"Grid({self.axis})" if self.tile == 1 else f"Grid({self.axis}, {self.tile})"


@answer_methods(PlanError, "__init__")
@final
@dataclass(frozen=True)
class Pad:
    """Rows of a tile if no axis gives them: matrix instructions take 16 and more.

    Attributes:
        rows: their number; one is used.

    >>> print(Pad(16))
    Pad(16)
    """

    rows: int

    def __post_init__(self) -> None:
        _check_range(self, "rows", 2)

    def __str__(self) -> str:
        return f"Pad({self.rows})"


@answer_methods(PlanError, "__init__")
@final
@dataclass(frozen=True)
class Parts:
    """Parts of a reduced axis, each in a block of its own. Where nothing is reduced, there is nothing to merge.

    Attributes:
        axis: the streamed axis, or a producer's own.
        count: number of parts, 2 or more.
        merge: where states of the streamed axis are merged: in a `kernel` of its own; in the same `launch`, by the
            block of a tile that is done last; or in a `cluster` of 2, 4 or 8 blocks, of which each has a part of a row
            in shared memory and stores its sums in that of the others (sm_90a; around a Whole tile, the part's).
        rows: most rows that a block merges at a time.

    >>> print(Parts("k", 16), Parts("k", 16, merge="launch"), sep=", ")
    Parts(k, 16), Parts(k, 16, merge="launch")
    """

    axis: str
    count: int
    merge: str = "kernel"
    rows: int = MERGED_ROWS

    def __post_init__(self) -> None:
        _take_name(self)
        _check_range(self, "count", 2)
        _check_range(self, "rows", 1)
        _check_word(self, "merge", (*MERGES, CLUSTER))
        if self.merge == CLUSTER and self.count not in BLOCKS_OF_CLUSTER:
            raise PlanError(f"Parts(count={self.count}) should be 2, 4 or 8 blocks of a cluster.")

    def __str__(self) -> str:
        merge = "" if self.merge == "kernel" else f', merge="{self.merge}"'
        rows = "" if self.rows == MERGED_ROWS else f", rows={self.rows}"
        return f"Parts({self.axis}, {self.count}{merge}{rows})"


@answer_methods(PlanError, "__init__")
@final
@dataclass(frozen=True)
class Loop:
    """Tiles of a reduced axis, one after another.

    Attributes:
        axis: the streamed axis, or a producer's own.
        tile: elements of a tile.
        stages: tiles whose loads are under way while one is computed; 0: no pipeline.
        specialised: True if loads have warps of their own (sm_90a).

    >>> print(Loop("k", 64, stages=2))
    Loop(k, 64, stages=2)
    """

    axis: str
    tile: int
    stages: int = 0
    specialised: bool = False

    def __post_init__(self) -> None:
        _take_name(self)
        _check_range(self, "tile", 1)
        _check_range(self, "stages", 0)

    def __str__(self) -> str:
        stages = f", stages={self.stages}" if self.stages else ""
        return f"Loop({self.axis}, {self.tile}{stages}{', specialised=True' if self.specialised else ''})"


@answer_methods(PlanError, "__init__")
@final
@dataclass(frozen=True)
class Whole:
    """One tile that holds an axis, so that nothing is merged (RedFuser, section 5.4).

    Attributes:
        axis: the streamed axis.
        tile: elements of the tile, at least the axis's extent.
        memory: where a block keeps what it loads of a row: in `registers`, or in `shared` memory, which one unit
            fetches in bulk, and of which threads compute elements anew wherever they are needed (sm_90a).

    >>> print(Whole("n", 1024), Whole("n", 32768, memory="shared"))
    Whole(n, 1024) Whole(n, 32768, memory="shared")
    """

    axis: str
    tile: int
    memory: str = "registers"

    def __post_init__(self) -> None:
        _take_name(self)
        _check_range(self, "tile", 1)
        _check_word(self, "memory", MEMORIES)

    def __str__(self) -> str:
        memory = "" if self.memory == "registers" else f', memory="{self.memory}"'
        return f"Whole({self.axis}, {self.tile}{memory})"


@answer_methods(PlanError, "__init__")
@final
@dataclass(frozen=True)
class Lanes:
    """Threads of a block, side by side along an axis; of a larger tile, along its other axis one after another.

    Attributes:
        axis: the streamed axis, whose lanes are merged; or the axis of the rows, so that a thread has rows of its own.
        width: number of threads: a multiple of 32 up to 1024; 1 on the C target.

    >>> print(Lanes("n", 256), Lanes("n", 256).threads, sep=", ")
    Lanes(n, 256), 256
    """

    axis: str
    width: int

    def __post_init__(self) -> None:
        _take_name(self)
        _check_range(self, "width", 1)

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return self.width

    def __str__(self) -> str:
        return f"Lanes({self.axis}, {self.width})"


@answer_methods(PlanError, "__init__")
@final
@dataclass(frozen=True)
class TensorCores:
    """Products of tiles by matrix instructions.

    Attributes:
        threads: threads of the block, in warps.
        left: where the left operand lies that the loop computes: in `registers` (the warps share out the rows), or in
            `shared` memory (they share out the columns, which a warp of whole rows could not hold).

    >>> print(TensorCores(256, left="shared"))
    TensorCores(256, left="shared")
    """

    threads: int = 128
    left: str = "registers"

    def __post_init__(self) -> None:
        _check_range(self, "threads", 1)
        _check_word(self, "left", MEMORIES)

    def __str__(self) -> str:
        return f"TensorCores({self.threads}" + ("" if self.left == "registers" else f', left="{self.left}"') + ")"


@answer_methods(PlanError, "__init__")
@final
@dataclass(frozen=True)
class ScalarCores:
    """Products of tiles in true float32 or float64: by CUDA cores, or by the loops of the C target.

    Attributes:
        threads: threads of the block; 1 on the C target.

    >>> print(ScalarCores(128))
    ScalarCores(128)
    """

    threads: int = 128

    def __post_init__(self) -> None:
        _check_range(self, "threads", 1)

    def __str__(self) -> str:
        return f"ScalarCores({self.threads})"


Level = Persistent | Grid | Pad | Parts | Loop | Whole | Lanes | TensorCores | ScalarCores
Unit = TensorCores | ScalarCores
KINDS: Mapping[str, type[Level]] = {kind.__name__: kind for kind in get_args(Level)}
"""Every kind of level by its name."""
OUTERMOST: tuple[type[Level], ...] = (Persistent, Grid, Pad, Parts, Loop, Lanes, Whole)
INSIDE: Mapping[type[Level], tuple[type[Level], ...]] = {
    Persistent: (Grid, Pad, Parts, Loop, Lanes, Whole),
    Grid: (Grid, Pad, Parts, Loop, Lanes, Whole),
    Pad: (Parts, Loop, Lanes, Whole),
    Parts: (Loop, Lanes),
    Loop: (Loop, Parts, Lanes, TensorCores, ScalarCores),
    Whole: (Lanes,),
    Lanes: (Loop,),
    TensorCores: (),
    ScalarCores: (),
}
"""Level -> the levels that may stand directly inside it."""
INNERMOST = (Loop, Lanes, TensorCores, ScalarCores)


def check_levels(levels: tuple[Level, ...]) -> None:
    """Refuse levels that make no schedule; the error names the first that has no place, and what has."""
    kinds, around = OUTERMOST, "outermost"
    for level in levels:
        if type(level) not in kinds:
            names = ", ".join(kind.__name__ for kind in kinds) or "nothing"
            raise PlanError(f"schedule `{' '.join(map(str, levels))}`: {level} has no place {around}. There: {names}.")
        in_cluster = isinstance(level, Parts) and level.merge == CLUSTER
        kinds, around = (Whole,) if in_cluster else INSIDE[type(level)], f"directly inside {level}"
    if not levels or not isinstance(levels[-1], INNERMOST):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise PlanError(f"schedule `{' '.join(map(str, levels))}` has nothing {around}. Add one of {names}.")
    if conflict := _conflict(levels):
        raise PlanError(f"schedule `{' '.join(map(str, levels))}` {conflict}.")


def _conflict(levels: tuple[Level, ...]) -> str:
    """The reason why levels, each of which may stand where it does, make no schedule together; empty if they do."""
    lanes = [place for place, level in enumerate(levels) if isinstance(level, Lanes)]
    loops = [level.axis for level in levels if isinstance(level, Loop)]
    parts = [(level, inside) for level, inside in pairwise(levels) if isinstance(level, Parts)]
    if isinstance(levels[-1], Loop) and not lanes:
        return f"has nothing inside {levels[-1]}. Add Lanes around it or inside it, TensorCores or ScalarCores"
    if lanes and not any(isinstance(level, Loop | Whole) for level in levels):
        return "has Lanes and no tile. Put Lanes around a Loop, inside it, or inside a Whole tile"
    if lanes and (len(lanes) > 1 or len(loops) > 1 or lanes[0] < len(levels) - 2):
        return "has Lanes beside several loops or products. Put Lanes directly around one loop, or innermost"
    axes = [level.axis for level in levels if isinstance(level, Grid)] + loops
    if again := [axis for axis in axes if axes.count(axis) > 1]:
        return f"names axis {again[0]} twice. Give it a Grid if it is free, a Loop if it is reduced"
    for level, inside in parts:
        loop = levels[-1] if isinstance(inside, Lanes) else inside
        if not isinstance(loop, Loop | Whole) or loop.axis != level.axis:
            return f"cuts axis {level.axis} into parts, and {inside} inside them takes another axis"
    if (
        loops
        and any(level.axis == loops[0] for level, _ in parts)
        and any(level.axis != loops[0] for level, _ in parts)
    ):
        return "cuts the streamed axis and a producer's own axis. Cut one of them"
    if isinstance(levels[0], Persistent) and any(
        level.merge != "kernel" or level.axis != loops[0] for level, _ in parts
    ):
        return "has blocks that stay, and others that wait for all parts. Leave Persistent out"
    return ""


def _take_name(level: Level) -> None:
    """Keep an axis by its name."""
    axis: object = getattr(level, "axis", None)
    if isinstance(axis, Axis):
        object.__setattr__(level, "axis", axis.name)
    elif not isinstance(axis, str):
        kind, number = type(level).__name__, getattr(level, fields(level)[1].name)
        if isinstance(number, Axis | str):
            raise PlanError(f'{kind}({axis}, {number}): the axis comes first. Write {kind}("{number}", {axis}).')
        raise PlanError(
            f"{kind}(axis={axis}) should be an axis or its name, and it is of type {type(axis).__name__}. Name one, "
            f'as in {kind}("n", {number}).'
        )


def _check_range(level: Level, name: str, least: int, most: int | None = None) -> None:
    value = getattr(level, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"{least} or more" if most is None else f"{least} to {most}"
        raise PlanError(f"{type(level).__name__}({name}={value!r}) should be a whole number, {bounds}.")


def _check_word(level: Level, name: str, words: tuple[str, ...]) -> None:
    if getattr(level, name) not in words:
        *first, last = map(repr, words)
        choices = f"{', '.join(first)} or {last}"
        raise PlanError(f"{type(level).__name__}({name}={getattr(level, name)!r}) should be {choices}.")


def axis_of(level: Level) -> str:
    """The axis of a level; empty if it has none."""
    return str(getattr(level, "axis", ""))


def on_axis(level: Level, axis: str) -> Level:
    """A level that has an axis, along another axis."""
    same: Any = level
    return cast("Level", replace(same, axis=axis))


def level_fields(level: Level) -> dict[str, object]:
    """The attributes of a level that are not the default, by name."""
    return {entry.name: value for entry in fields(level) if (value := getattr(level, entry.name)) != entry.default}
