"""The problem that a schedule is for, and the flat view of a schedule.

A `Plan` holds the numbers of a schedule by the role of its axes. The builders of tile programs and the cost model read
it; a schedule is what users write, lists show and files keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from redalg.errors import InputError, PlanError
from redalg.expression import Axis, Element
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import (
    CLUSTER,
    MERGED_ROWS,
    MOST_THREADS,
    Grid,
    Lanes,
    Level,
    Loop,
    Pad,
    Parts,
    Persistent,
    ScalarCores,
    TensorCores,
    Whole,
)


@final
@dataclass(frozen=True)
class Problem:
    """The problem to plan for: sizes by axis, dtypes by tensor, the arithmetic's and the result's dtype, the policy.

    Attributes:
        sizes: axis name -> extent (a symbol if it is a run-time size and the program is being built).
        shapes: tensor name -> shape (likewise).
        dtypes: tensor name -> dtype (masks as `uint8`).
        compute: dtype of arithmetic and of the state.
        result: dtype of outputs (before logarithms and extrema are widened).
        empty: the value of a ratio over no elements: `nan` or `zero`.
        precision: `ieee`, `tf32` or `wide`.
        memory: the most bytes that a plan may store in between; None for the plan's own limit.
        varying: axes with a run-time size: `sizes` then gives an example, by which plans are chosen.
        views: tensor name -> the number of the caller's dimensions in each of the kernel's, if one holds several.
        together: axis name -> the caller's axes whose elements it numbers together, the last varying fastest.
        scalars: name -> the value of a run-time scalar that predictions may count on. Programs hold for any.
    """

    sizes: Mapping[str, Any]
    shapes: Mapping[str, tuple[Any, ...]]
    dtypes: Mapping[str, str]
    compute: str
    result: str
    empty: str = "nan"
    precision: str = "ieee"
    memory: int | None = None
    varying: frozenset[str] = frozenset()
    views: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    together: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)


def shape_of(name: str, elements: Iterable[Element], problem: Problem) -> tuple[Any, ...]:
    """Return a tensor's shape, from its indices: an axis gives its extent, constants give their largest plus one."""
    elements = [element for element in elements if element.name == name]
    extents = []
    for place, indices in enumerate(zip(*(one.indices for one in elements), strict=True)):
        axes = [one for one in indices if isinstance(one, Axis)]
        if not axes and not all(one.is_Integer for one in indices):
            raise InputError(
                f"tensor `{name}`: dimension {place} is indexed by `{indices[0]}`, which does not tell its extent. "
                f'Pass shapes={{"{name}": (…)}}.'
            )
        extents.append(problem.sizes[axes[0].name] if axes else 1 + max(int(one) for one in indices))
    return tuple(extents)


CHOICES = ("block_row", "block_streamed", "block_column", "block_inner", "stages", "threads", "segments", "splits",
           "warp_specialized", "warps", "level", "block_merged", "tensor_cores", "merge", "persistent",
           "along_rows")  # fmt: skip
"""The fields of a plan that a schedule decides; the others follow from form, sizes and device."""
WIDEST_IN_CLUSTER = 512
"""Threads of the largest block of a cluster: 32 warps' sums would be copied by one whole warp (`workarounds.known`)."""
PADDED_COLUMNS = 16
"""Columns of a product's tile if no axis gives them."""


@final
@dataclass(frozen=True)
class Plan:
    """The levels of a schedule as numbers by role.

    Attributes:
        device: the target's limits.
        binding: the role of every axis.
        block_row, block_streamed, block_column: tile lengths (elements).
        stages: depth of the load pipeline; of one tile that holds the whole row: 1 if it lies in shared memory.
        threads: threads of a block.
        segments: parts of the streamed axis.
        warp_specialized: True if loads have warps of their own (sm_90a).
        multiplies: True if any tile is a matrix product (a contraction, or a producer that is one).
        tensor_cores: True if contractions use matrix instructions (otherwise true float32 on CUDA cores).
        warps: the side that the warps of a contraction share out: its `rows` (a row's weights stay in registers) or
            its `columns` (which a warp of whole rows could not hold).
        block_inner: elements of a producer's own axis that a tile holds, a multiple of 16; 0 if it holds all.
        splits: parts of the producers' own axes that blocks sum at once, for another kernel to add (1: none).
        level: the place where tiles become one state (RedFuser, section 5.3): `thread` (lanes outside the loop),
            `block` (lanes inside it), or `row` (one tile holds the whole row).
        block_merged: most rows that a block merges at a time, of parts of the streamed axis.
        merge: the place where parts are merged: a `kernel` of its own, the same `launch`, or a `cluster` of blocks.
        persistent: blocks of a multiprocessor that stay and take one tile after another; 0: a block for every tile.
        along_rows: True if neighbouring threads have neighbouring rows, and not neighbouring streamed elements. Lanes
            inside the loop then take the elements of a tile in turn (`is_serial`).
    """

    device: DeviceSpec
    binding: Binding
    block_row: int
    block_streamed: int
    block_column: int
    stages: int
    threads: int
    segments: int
    warp_specialized: bool
    multiplies: bool
    tensor_cores: bool
    warps: str = "rows"
    block_inner: int = 0
    splits: int = 1
    level: str = "block"
    block_merged: int = MERGED_ROWS
    merge: str = "kernel"
    persistent: int = 0
    along_rows: bool = False

    @property
    def strategy(self) -> str:
        """Single-Segment or Multi-Segment (RedFuser, section 4)."""
        return "single-segment" if self.segments == 1 else "multi-segment"

    @property
    def keeps_states(self) -> bool:
        """True if a thread keeps states from tile to tile."""
        return self.level == "thread" or self.is_serial

    @property
    def is_serial(self) -> bool:
        """True if every thread has rows of its own and takes the elements of a tile one after another."""
        return self.along_rows and self.level == "block"

    def has_one_tile(self, problem: Problem) -> bool:
        """Tell if every part is one tile of the streamed axis."""
        axis = self.binding.streamed.name
        length = self.binding.all_sizes(problem.sizes)[axis]
        return axis not in problem.varying and self.segments * self.block_streamed >= length

    @property
    def fetches_rows(self) -> bool:
        """True if one tile that holds the whole row lies in shared memory."""
        return self.level == "row" and self.stages > 0

    def of_whole_rows(self) -> Plan:
        """The plan of one block in place of a cluster, whose tile holds a whole row."""
        if self.merge != CLUSTER:
            return self
        return replace(self, segments=1, merge="kernel", block_streamed=self.segments * self.block_streamed)

    @property
    def loads_within(self) -> bool:
        """True if warps load for a loop over the producers' axes."""
        return bool(self.block_inner) and self.warp_specialized and self.splits == 1

    def obstacle_at(self, problem: Problem) -> str:
        """The reason why no kernel of the device has these numbers at some sizes; empty if there is none."""
        if self.device.target != "c" and self.loads_within and not self.has_one_tile(problem):
            return ("specialises warps in a loop around another, which sums wrongly. Use one that is not specialised, "
                    "or as many parts as tiles")  # fmt: skip
        return self.obstacle

    @property
    def obstacle(self) -> str:
        """The reason why no kernel of the device has these numbers at any sizes; empty if there is none."""
        if self.fetches_rows and not self.device.wgmma:
            return f"fetches rows in bulk, which {self.device.target} cannot. Keep them in registers"
        if self.device.target == "c":
            return ""
        if self.threads % 32 or not 32 <= self.threads <= MOST_THREADS:
            return f"gives a block {self.threads} threads. Use a multiple of 32 from 32 to {MOST_THREADS}"
        if self.warp_specialized and not self.device.wgmma:
            return f"specialises warps, which {self.device.target} cannot. Use a loop that is not specialised"
        if self.merge == CLUSTER and not self.fetches_rows:
            return 'merges parts in a cluster whose rows are in registers. Use Whole(…, memory="shared")'
        if self.merge == CLUSTER and self.threads > WIDEST_IN_CLUSTER:
            return f"gives a block of a cluster {self.threads} threads. Use {WIDEST_IN_CLUSTER} or fewer"
        if self.fetches_rows and self.block_row > 1:
            return f"fetches {self.block_row} rows a block in bulk. Use one, or keep them in registers"
        if self.fetches_rows and self.persistent:
            return "fetches rows in bulk in blocks that stay. Leave Persistent out"
        if self.block_inner % 16:
            return f"cuts inner axes into tiles of {self.block_inner}. Use a multiple of 16"
        if self.along_rows and self.level == "row":
            return "holds the streamed axis in one tile and has lanes along the rows. Use a Loop"
        apart = self.multiplies and not self.tensor_cores
        if apart and (self.block_streamed % 16 or self.block_column % 16 or self.block_row % (self.threads // 16)):
            return (
                "multiplies on CUDA cores, whose tiles are a multiple of 16 streamed elements and columns, and of "
                f"{self.threads // 16} rows (threads / 16). Use such tiles"
            )
        return ""

    def verify(self, problem: Problem) -> None:
        """Raise `PlanError` if no kernel of the device has these numbers at these sizes."""
        if obstacle := self.obstacle_at(problem):
            raise PlanError(f"schedule `{self}` {obstacle}.")

    def __str__(self) -> str:
        plain = "; products as plain sums" if self.binding.plain else ""
        return f"{' '.join(map(str, levels_of(self)))}; {self.device.target}{plain}"


def levels_of(plan: Plan) -> tuple[Level, ...]:
    """The levels of a plan, from the outermost in."""
    turns = (Persistent(plan.persistent),) if plan.persistent else ()
    return (*turns, *grid_levels(plan.binding, plan.block_row, plan.block_column), *_body_levels(plan))


def grid_levels(binding: Binding, rows: int, columns: int) -> tuple[Level, ...]:
    """The grid: its own axes, then rows and columns in tiles; rows that no axis gives are padding."""
    grid: list[Level] = [Grid(axis.name) for axis in binding.grid]
    if binding.row is not None:
        grid.append(Grid(binding.row.name, rows))
    if binding.column is not None:
        grid.append(Grid(binding.column.name, columns))
    padded = (Pad(rows),) if binding.row is None and rows > 1 else ()
    return (*grid, *padded)


def _body_levels(plan: Plan) -> tuple[Level, ...]:
    """The parts, the loops, and the threads."""
    streamed = plan.binding.streamed.name
    parts = (Parts(streamed, plan.segments, plan.merge, plan.block_merged),) if plan.segments > 1 else ()
    loop = Loop(streamed, plan.block_streamed, plan.stages, plan.warp_specialized)
    if not plan.multiplies:
        axis = plan.binding.row.name if plan.along_rows and plan.binding.row is not None else streamed
        return (*parts, *lane_levels(loop, Lanes(axis, plan.threads), plan.level))
    left = "shared" if plan.warps == "columns" else "registers"
    unit = TensorCores(plan.threads, left) if plan.tensor_cores else ScalarCores(plan.threads)
    return (*parts, loop, *inner_levels(plan.binding, plan.block_inner, plan.splits), unit)


def lane_levels(loop: Loop, lanes: Lanes, level: str) -> tuple[Level, ...]:
    """The loop and the lanes of elementwise terms: lanes outside it, inside it, or in one tile in place of the loop."""
    if level == "row":
        return Whole(loop.axis, loop.tile, "shared" if loop.stages else "registers"), lanes
    return (lanes, loop) if level == "thread" else (loop, lanes)


def inner_levels(binding: Binding, tile: int, splits: int = 1) -> tuple[Level, ...]:
    """The loops over the producers' own axes, each perhaps in parts; none if a tile holds all of them."""
    found = list[Level]()
    for axis in binding.inner if tile else ():
        found += [Parts(axis.name, splits), Loop(axis.name, tile)] if splits > 1 else [Loop(axis.name, tile)]
    return tuple(found)
