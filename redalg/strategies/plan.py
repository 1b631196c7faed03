"""The Plan: an auditable choice, a value that prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from redalg.errors import InputError, PlanError
from redalg.expression import Axis, Element
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec


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
        varying: axes with a run-time size: `sizes` then gives an example, by which plans are chosen.
        views: tensor name -> the number of the caller's dimensions in each of the kernel's, if one holds several.
        together: axis name -> the caller's axes whose elements it numbers together, the last varying fastest.
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


MERGED_ROWS = 16
"""Most rows that one block of the merging kernel takes."""
LEVELS = ("thread", "warp", "block", "row")
MERGES = ("kernel", "launch")
RESIDENT = 32
"""Most blocks that live on a multiprocessor together, of any chip that redalg knows."""
CHOICES = ("block_row", "block_streamed", "block_column", "block_inner", "stages", "threads", "segments", "splits",
           "warp_specialized", "warps", "level", "block_merged", "tensor_cores", "merge", "persistent")  # fmt: skip
"""The choices of a plan; its other fields follow from form, sizes and device."""
UNFUSED = "unfused"
"""The form without a kernel of its own: the definition, as operations of PyTorch."""
TUNED = ("pack", "cache")
"""The origins of remembered plans: such a plan gives way to the rules' plan if it has no program."""


@final
@dataclass(frozen=True)
class Plan:
    """Form, tiles and schedule of one kernel.

    Attributes:
        device: the target's limits.
        binding: the role of every axis.
        form: `online`; or `unfused`, for which the fields of a kernel have no meaning (`unfused_plan` makes it).
        strategy: `single-segment` (one block streams a row) or `multi-segment` (parts in parallel, then the merge).
        block_row, block_streamed, block_column: tile lengths (elements).
        stages: depth of the load pipeline.
        threads: threads of a block.
        segments: parts of the streamed axis.
        warp_specialized: True if loads have warps of their own (sm_90a).
        multiplies: True if any tile is a matrix product (a contraction, or a producer that is one).
        tensor_cores: True if contractions use matrix instructions (otherwise true float32 on CUDA cores).
        warps: the side that the warps of a contraction share out: its `rows` (a row's weights stay in registers) or
            its `columns` (which a warp of whole rows could not hold).
        block_inner: elements of a producer's own axis that a tile holds, a multiple of 16; 0 if it holds all.
        splits: parts of the producers' own axes that blocks sum at once, for another kernel to add (1: none).
        level: the place where tiles become one state (RedFuser, section 5.3): `thread` (every lane of the tile keeps
            a state of its own, merged once at the end), `warp` (one warp reduces each tile), `block` (all threads do),
            or `row` (one tile holds the whole row: nothing is merged, the non-incremental form of section 5.4).
        block_merged: most rows that a block merges at a time, of parts of the streamed axis.
        merge: the place where parts are merged: a `kernel` of its own, or the same `launch`, in the block of a tile
            that is done last (this saves a launch; one block then merges the parts of a tile).
        persistent: blocks of a multiprocessor that stay and take one tile after another until none is left; 0: a block
            for every tile.
        operations: of the unfused form, the number of its operations of PyTorch; equality does not see it.
        predicted_us: predicted time in microseconds, None if no model was asked; equality does not see it.
        origin: the source of the plan: `rules`, the `model`, the caller (`given`), a `pack` or `cache` of tuned plans;
            equality does not see it.
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
        """The choices of the plan, by name: `replace` with them turns another plan of the form into this one."""
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
        """Raise `PlanError` if no kernel can have this plan."""
        self._verify_parts()
        self._verify_tiles()

    def _verify_parts(self) -> None:
        """Check the levels, the parts, and the blocks that take them."""
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
        """Check the tiles, and the threads that work on one."""
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
    """The plan of a definition as `operations` operations of PyTorch; `said` are `predicted_us` and `origin`."""
    return Plan(device, binding, 1, 1, 1, 0, 0, 1, False, False, False, form=UNFUSED, operations=operations, **said)
