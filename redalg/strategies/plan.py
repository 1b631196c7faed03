"""The Plan: an auditable choice, a value that prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from redalg.errors import InputError, PlanError
from redalg.expression import Axis
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec


@final
@dataclass(frozen=True)
class Problem:
    """What is to be planned for: sizes by axis, dtypes by tensor, the arithmetic's and the result's dtype, the policy.

    Attributes:
        sizes: axis name -> extent (a symbol where it is a run-time size and the program is being built).
        shapes: tensor name -> shape (likewise).
        dtypes: tensor name -> dtype (masks as `uint8`).
        compute: dtype of arithmetic and of the state.
        result: dtype of outputs (before logarithms and extrema are widened).
        empty: what a ratio over no elements is: `nan` or `zero`.
        precision: `ieee`, `tf32` or `wide`.
        varying: axes whose size is a run-time one: `sizes` then gives an example, which plans are chosen by.
        views: tensor name -> how many of the caller's dimensions each of the kernel's takes, where it takes several.
        together: axis name -> the caller's axes along all of which it numbers the elements, the last fastest.
    """

    sizes: Mapping[str, Any]
    shapes: Mapping[str, tuple[Any, ...]]
    dtypes: Mapping[str, str]
    compute: str
    result: str
    empty: str = "nan"
    precision: str = "ieee"
    varying: frozenset[str] = frozenset()
    views: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    together: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def shape_of(name: str, form: FusedForm, problem: Problem) -> tuple[Any, ...]:
    """A tensor's shape from how it is indexed: an axis gives its extent, constants their largest plus one."""
    elements = [one for stage in form.stages for one in stage.cascade.elements() if one.name == name]
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


MERGED_ROWS = 16
"""Most rows that one block of the merging kernel takes."""
LEVELS = ("thread", "warp", "block", "row")
MERGES = ("kernel", "launch")
RESIDENT = 32
"""Most blocks that live on a multiprocessor together, of any chip that redalg knows."""
CHOICES = ("block_row", "block_streamed", "block_column", "block_inner", "stages", "threads", "segments", "splits",
           "warp_specialized", "warps", "level", "block_merged", "tensor_cores", "merge", "persistent")  # fmt: skip
"""What is chosen of a plan: the rest follows from form, sizes and device."""
UNFUSED = "unfused"
"""The form that is no kernel: the definition, as operations of PyTorch."""
TUNED = ("pack", "cache")
"""Where remembered plans come from: such a plan gives way to the rules' where it has no program."""


@final
@dataclass(frozen=True)
class Plan:
    """Form, tiles and schedule of one kernel.

    Attributes:
        device: the target's limits.
        binding: the role of every axis.
        form: `online`; or `unfused`, of which the fields of a kernel say nothing (`unfused_plan` makes it).
        strategy: `single-segment` (one block streams a row) or `multi-segment` (parts in parallel, then the merge).
        block_row, block_streamed, block_column: tile lengths (elements).
        stages: depth of the load pipeline.
        threads: threads of a block.
        segments: parts of the streamed axis.
        warp_specialized: whether loads get warps of their own (sm_90a).
        multiplies: whether any tile is a matrix product (a contraction, or a producer that is one).
        tensor_cores: whether contractions use matrix instructions (otherwise true float32 on CUDA cores).
        warps: whether the warps of a contraction share out its `rows` (a row's weights stay in registers) or its
            `columns` (which a warp of whole rows could not hold).
        block_inner: elements of a producer's own axis that a tile holds, a multiple of 16; 0 where it holds all.
        splits: parts of the producers' own axes that blocks sum at once, for another kernel to add (1: none).
        level: where tiles become one state (RedFuser, section 5.3): `thread` (every lane of the tile keeps a state of
            its own, merged once at the end), `warp` (each tile is reduced by one warp), `block` (by all threads), or
            `row` (one tile holds the whole row: nothing is merged, the non-incremental form of section 5.4).
        block_merged: most rows that a block merges at a time, of parts of the streamed axis.
        merge: where parts are merged: by a `kernel` of its own, or in the same `launch`, by the block of a tile that is
            done last (which saves a launch; a tile's parts are then merged by one block).
        persistent: blocks of a multiprocessor that stay and take one tile after another until none is left; 0: a block
            for every tile.
        operations: of the unfused form, how many operations of PyTorch it is; equality does not see it.
        predicted_us: predicted time in microseconds, None while no model is asked; equality does not see it.
        origin: who chose it: `rules`, the `model`, the caller (`given`), a `pack` or `cache` of tuned plans; equality
            does not see it.
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
    form: str = "online"
    warps: str = "rows"
    block_inner: int = 0
    splits: int = 1
    level: str = "block"
    block_merged: int = MERGED_ROWS
    merge: str = "kernel"
    persistent: int = 0
    operations: int = field(default=0, compare=False)
    predicted_us: float | None = field(default=None, compare=False)
    origin: str = field(default="rules", compare=False)

    @property
    def strategy(self) -> str:
        """Single-Segment or Multi-Segment (RedFuser, section 4)."""
        return "single-segment" if self.segments == 1 else "multi-segment"

    def choices(self) -> dict[str, int | str | bool]:
        """What was chosen, by name: `replace` on another plan of the form makes this one of it."""
        if self.form == UNFUSED:
            return {"form": UNFUSED}
        return {name: getattr(self, name) for name in CHOICES}

    def __str__(self) -> str:
        if self.form == UNFUSED:
            return f"unfused form: {self.operations} operations by PyTorch"
        rows = f"{self.binding.row or 'one row'} {self.block_row}"
        columns = f" x {self.binding.column} {self.block_column}" if self.binding.column else ""
        grid = " ".join(map(str, self.binding.grid)) or "-"
        unit = "tensor cores" if self.tensor_cores else "CUDA cores" if self.device.target != "c" else "scalar loops"
        parts = [
            f"{self.form} form, {self.strategy}" + (f" ({self.segments})" if self.segments > 1 else ""),
            *(["merged in the launch"] if self.merge == "launch" else []),
            *([f"persistent ({self.persistent} blocks a multiprocessor)"] if self.persistent else []),
            f"tile {rows} x {self.binding.streamed} {self.block_streamed}{columns}",
            *([] if self.level == "block" else [f"{self.level} level"]),
            f"grid {grid}",
            *(["products as plain sums"] if self.binding.plain else []),
            *([f"contractions split in {self.splits}"] if self.splits > 1 else []),
            *([f"inner axes in tiles of {self.block_inner}"] if self.block_inner else []),
            f"{self.stages} stages, {self.threads} threads",
            *(["warps by columns"] if self.warps == "columns" else []),
            f"warp specialisation {'on' if self.warp_specialized else 'off'}",
            unit,
            self.device.target,
        ]
        return "; ".join(parts)

    def verify(self) -> None:
        """Refuse what no kernel can have."""
        self._verify_parts()
        self._verify_tiles()

    def _verify_parts(self) -> None:
        """Levels, parts, and the blocks that take them."""
        if self.level not in LEVELS:
            raise PlanError(f"plan `{self}` asks for level {self.level!r}. Use one of {', '.join(map(repr, LEVELS))}.")
        if self.level in ("row", "thread", "warp") and self.multiplies:
            raise PlanError(f"plan `{self}` multiplies tiles, which every thread takes part in. Use level 'block'.")
        if self.level == "row" and self.segments > 1:
            raise PlanError(f"plan `{self}` holds a row in one tile and cuts it into {self.segments}. Use one segment.")
        if self.merge not in MERGES:
            raise PlanError(f"plan `{self}` merges by {self.merge!r}. Use one of {', '.join(map(repr, MERGES))}.")
        if self.merge == "launch" and self.segments == 1:
            raise PlanError(f"plan `{self}` merges parts in the launch and has one. Use merge='kernel', or segments.")
        if self.persistent and (self.merge == "launch" or self.splits > 1):
            other = "the last block to come merges" if self.merge == "launch" else "contractions are split"
            raise PlanError(f"plan `{self}` has blocks that take tiles in turn, and {other}. Use persistent=0.")
        if not 0 <= self.persistent <= RESIDENT:
            raise PlanError(
                f"plan `{self}` has {self.persistent} blocks that stay on a multiprocessor. Use 0 to {RESIDENT}."
            )
        if self.splits < 1 or (self.splits > 1 and (self.segments > 1 or not self.block_inner)):
            raise PlanError(
                f"plan `{self}` has {self.splits} splits. Use one; or several, one segment and a block_inner."
            )

    def _verify_tiles(self) -> None:
        """Tiles, and the threads that work on one."""
        if self.level == "warp" and self.threads != 32 and self.device.target != "c":
            raise PlanError(f"plan `{self}` gives a tile to one warp and has {self.threads} threads. Use 32.")
        if self.segments < 1 or self.block_row < 1 or self.block_streamed < 1 or self.stages < 0:
            raise PlanError(f"plan `{self}` has a tile, a segment count or a stage count out of range.")
        if self.device.target != "c" and (self.threads % 32 or not 32 <= self.threads <= 1024):
            raise PlanError(f"plan `{self}` has {self.threads} threads. Use a multiple of 32 from 32 to 1024.")
        if self.block_inner < 0 or self.block_inner % 16:
            raise PlanError(f"plan `{self}` cuts inner axes into tiles of {self.block_inner}. Use a multiple of 16.")
        if self.block_inner and self.warp_specialized and self.splits == 1:
            raise PlanError(f"plan `{self}` specialises warps in a loop within a loop, which sums wrongly. Use it off.")
        cuda_cores = self.multiplies and not self.tensor_cores and self.device.target != "c"
        if cuda_cores and (self.block_streamed % 16 or self.block_column % 16 or self.block_row % (self.threads // 16)):
            raise PlanError(
                f"plan `{self}` multiplies on CUDA cores, whose tiles are a multiple of 16 streamed elements "
                f"and columns, and of {self.threads // 16} rows (threads / 16). Use such tiles."
            )
        if self.warp_specialized and not self.device.wgmma:
            raise PlanError(f"plan `{self}` specialises warps, which {self.device.target} cannot. Turn it off.")


def unfused_plan(device: DeviceSpec, binding: Binding, operations: int = 0, **said: Any) -> Plan:
    """The definition as so many operations of PyTorch; `said` are `predicted_us` and `origin`."""
    return Plan(device, binding, 1, 1, 1, 0, 0, 1, False, False, False, form=UNFUSED, operations=operations, **said)
