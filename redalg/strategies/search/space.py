"""The space of schedules of a form for sizes and a device: every one that a kernel could have.

    matrix products     rows × streamed × columns × inner tiles, stages, threads, loading warps; segments or splits
    elementwise terms   level (row, thread, warp, block), rows, streamed tile, threads; segments
    segments            merged by a kernel of their own, or in the launch
    blocks              one for every tile, or as many as live on the chip together, which take tiles in turn

Tile lengths follow MCFuser (SC '24), section III: multiples of the chip's granularity, without padding if an extent is
a power of two, else with at most 5 % (rule 3). A schedule is left out here if no kernel of the device can have it
(`Plan.obstacle_at`), or if it needs more registers than a block has. If it needs too much shared memory, its estimate
leaves it out (rule 4).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import final

from redalg.expression import Axis
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import Stages
from redalg.strategies.binding import Binding, bind_axes
from redalg.strategies.device import DeviceSpec, device_for
from redalg.strategies.levels import (
    BLOCKS_OF_CLUSTER,
    CLUSTER,
    MEMORIES,
    MERGES,
    RESIDENT,
    Lanes,
    Level,
    Loop,
    Parts,
    Persistent,
    ScalarCores,
    TensorCores,
    Unit,
)
from redalg.strategies.model.cost import H200, Kernel, Prediction, predict, predict_traffic
from redalg.strategies.model.traffic import Outline, Traffic
from redalg.strategies.plan import Plan, Problem, grid_levels, inner_levels, lane_levels
from redalg.strategies.rules.bulk_rows import THREADS_IN_BULK, blocks_at_once, bytes_of_rows
from redalg.strategies.rules.by_rules import schedules_by_rules
from redalg.strategies.rules.elementwise import elementwise_schedules
from redalg.strategies.rules.loop_tiles import THREE, THREE_WARPGROUPS, fills_three
from redalg.strategies.rules.narrow import LEAST_COLUMNS, MOST_ROWS, NARROW, PARTS_OF_FEW, WIDE_COLUMNS
from redalg.strategies.rules.pairs import (
    pairwise_binding,
    serial_schedule,
    serial_stages,
    serial_tiles,
    weighs_columns,
)
from redalg.strategies.rules.parts import blocks, may_split, most_parts, rows_at_once
from redalg.strategies.rules.powers import power_of_two
from redalg.strategies.rules.products import folds_pairs, tensor_cores
from redalg.strategies.rules.reads import has_aligned_rows
from redalg.strategies.rules.rows import (
    STAGES_OF_THREADS,
    TILE_OF_THREADS,
    column_tiles,
    lies_in_columns,
    rows_by_threads,
    takes_rows_by_threads,
    vector,
)
from redalg.strategies.rules.tiles import round_up, trims
from redalg.strategies.schedule import Schedule, numbers_of
from redalg.strategies.search.registers import fits_registers, suits_warps
from redalg.strategies.search.tiling import PADDING, padding, tile_lengths

MOST_BLOCKS, LEAST_SCORES = 16, 128
"""Blocks for every multiprocessor beyond which parts gain nothing; streamed elements of a
part that is one tile, at least."""
SLACK = 1.2
"""The factor by which the estimate of shared memory may exceed the limit (rule 4)."""
STAGES = 2
"""The stages that are preferred among plans of equal predicted time."""
LEAST_OF_PART = 32
"""Elements of a row's part for each thread of a block of a cluster, at least."""
THREADS = (32, 64, 128, 256, 512, 1024)
"""Threads of a block without matrix products."""


Nest = tuple[tuple[Level, ...], tuple[Level, ...]]
"""The levels of a grid, and those of a block's loops."""


@final
@dataclass(frozen=True)
class Space:
    """Schedules of a form for a problem on a device, in a fixed order; `plans()` lists them."""

    stages: Stages
    problem: Problem
    target: str

    @cached_property
    def form(self) -> FusedForm:
        """The form of the loop, which the plans are for."""
        return self.stages.loop

    @cached_property
    def device(self) -> DeviceSpec:
        """The device's limits."""
        return device_for(self.target)

    @cached_property
    def binding(self) -> Binding:
        """The role of every axis."""
        return bind_axes(self.form, self.problem.sizes)

    @cached_property
    def sized_problem(self) -> Problem:
        """The problem with the extents of axes that packing makes."""
        return replace(self.problem, sizes=self.binding.all_sizes(self.problem.sizes))

    @cached_property
    def outline(self) -> Outline:
        """The facts that the cost model reads of the form."""
        return Outline(self.form, self.binding, self.problem, self.device)

    @cached_property
    def rules_schedule(self) -> Schedule:
        """The rules' preferred schedule."""
        return self.by_rules[0]

    @cached_property
    def by_rules(self) -> tuple[Schedule, ...]:
        """The rules' schedules, in the order in which they are tried."""
        return tuple(schedules_by_rules(self.stages, self.problem, self.device))

    def predict(self, schedule: Schedule) -> Prediction:
        """Predict the time of a schedule by the model."""
        return predict(self.outline, numbers_of(schedule))

    def plans(self, merges: Collection[str] = MERGES, *, persistent: bool = True) -> Iterator[Schedule]:
        """Yield every schedule, the rules' own first; one with parts merges them in one of the given ways."""
        return (schedule for schedule, _ in self.traffics(merges, persistent=persistent))

    def traffics(
        self, merges: Collection[str] = MERGES, *, persistent: bool = True
    ) -> Iterator[tuple[Schedule, Traffic]]:
        """Yield every schedule with its traffic, in the order of `plans`."""
        yield self.rules_schedule, Traffic(self.outline, numbers_of(self.rules_schedule))
        for schedule in self.tile_schedules(merges):
            plan = numbers_of(schedule)
            if plan.obstacle_at(self.problem):
                continue
            traffic = Traffic(self.outline, plan)
            if not self.has_room(traffic):
                continue
            if schedule != self.rules_schedule:
                yield schedule, traffic
            if persistent and (blocks := self.resident_blocks(plan)):
                twin = Traffic(self.outline, replace(plan, persistent=blocks))
                if self.has_room(twin):
                    yield self.schedule_of_levels((Persistent(blocks), *schedule.levels)), twin

    def rank(self, merges: Collection[str] = MERGES, *, persistent: bool = True) -> list[tuple[Prediction, Schedule]]:
        """Schedules with their predictions, the fastest first (of equals, those of two stages).

        Rule 4 leaves in some that are estimated to need more shared memory than a block has: these are the last.
        """
        most, entries = self.device.smem_bytes, list[tuple[Prediction, int, Schedule]]()
        for schedule, traffic in self.traffics(merges, persistent=persistent):
            entries.append((predict_traffic(traffic), abs(traffic.plan.stages - STAGES), schedule))
        entries.sort(key=lambda one: (one[0].smem_bytes > most, one[0].time_us, one[1]))
        return [(prediction, schedule) for prediction, _, schedule in entries]

    def has_room(self, traffic: Traffic) -> bool:
        """Tell if the tiles of a traffic fit a block's shared memory, within the error of the estimate (rule 4)."""
        return traffic.smem_bytes <= SLACK * self.device.smem_bytes

    @property
    def multiplies(self) -> bool:
        """True if any tile is a matrix product."""
        return bool(self.binding.contracted or self.form.cascade.producers) and self.pairwise is None

    def admits(self, schedule: Schedule) -> bool:
        """Tell if a schedule, of other sizes perhaps, is one of this space: the same rules, applied to one."""
        plan = numbers_of(schedule)
        if self.form.is_elementwise:
            return schedule in self.tile_schedules()
        if plan.obstacle_at(self.problem) or plan.segments not in self.parts(plan):
            return False
        if plan.persistent and plan.persistent != self.resident_blocks(replace(plan, persistent=0)):
            return False
        if plan.splits > 1 and plan.splits not in self.splits(plan):
            return False
        if not self.multiplies:
            tile = (plan.level, plan.block_row, plan.block_streamed)
            length = max(1, self.extent(self.binding.streamed))
            if self.pairwise is not None:
                numbers = plan.block_row, plan.block_column, plan.block_streamed, plan.threads
                return plan.is_serial and numbers in self.serial_tiles()
            if self.in_columns:
                return plan.along_rows and tile[1:] in column_tiles(plan.threads, self.extent(self.binding.row))
            if plan.is_serial:
                same = (*tile[1:], plan.threads) == TILE_OF_THREADS and plan.stages == STAGES_OF_THREADS
                return self.by_threads and same
            if plan.fetches_rows:
                own = plan.segments, plan.threads, plan.block_streamed
                return plan.block_row == 1 and own in self.rows_in_bulk()
            return plan.threads in THREADS and tile in self.levels(plan.threads, length, vector(self.problem))
        lengths = tile_lengths_of(plan)
        pipeline: tuple[object, ...] = plan.stages, plan.warp_specialized, schedule.levels[-1]
        fits = all(length in choices for length, choices in zip(lengths, self.tiles(), strict=True))
        return fits and pipeline in list[object](self.pipelines()) and self.has_registers(plan)

    def schedule_of_levels(self, levels: tuple[Level, ...]) -> Schedule:
        """The schedule of levels that make one."""
        return Schedule.of_levels(levels, self.pairwise or self.binding, self.device)

    def tile_schedules(
        self, merges: Collection[str] = MERGES, products: Iterable[Nest] | None = None
    ) -> Iterator[Schedule]:  # fmt: skip
        """Yield schedules of every tile (of `products`, if given), with every number of parts."""
        if self.form.is_elementwise:
            yield from elementwise_schedules(self.form, self.problem, self.device, self.binding)
            return
        streamed = self.binding.streamed.name
        if products is None:
            products = self.products(product(*self.tiles()), list(self.pipelines())) if self.multiplies else self.rows()
        for grid, body in products:
            whole = self.schedule_of_levels((*grid, *body))
            plan = numbers_of(whole)
            if self.multiplies and not self.has_registers(plan):
                continue
            for count in self.parts(plan):
                if count == plan.segments:
                    yield whole
                    continue
                for merge in merges:
                    parts = Parts(streamed, count, merge, rows_at_once(plan, self.sized_problem, merge))
                    yield self.schedule_of_levels((*grid, parts, *body))
            for count in self.splits(plan):
                inner = inner_levels(self.binding, plan.block_inner, count)
                yield self.schedule_of_levels((*grid, body[0], *inner, body[-1]))

    # ---- matrix products ---------------------------------------------------------------------------------------------

    def extent(self, axis: Axis | None) -> int:
        """The length of an axis; 1 for none."""
        return self.sized_problem.sizes[axis.name] if axis is not None else 1

    @cached_property
    def cores(self) -> bool:
        """True if tensor cores make the products."""
        return tensor_cores(self.form, self.problem, self.device, self.binding)

    def tiles(self) -> tuple[Sequence[int], ...]:
        """The lengths of tiles: rows, streamed elements, columns, producers' own axes."""
        step = (64 if self.device.wgmma else 16) if self.cores else 16
        deep = 32 if self.outline.eight_bits and self.cores else 16
        rows = tile_lengths(self.extent(self.binding.row), step, 256 if self.cores else 128)
        if self.cores and self.device.wgmma and fills_three(self.extent(self.binding.row)):
            rows = tuple(sorted({*rows, THREE_WARPGROUPS[0]}))
        streamed = tile_lengths(self.extent(self.binding.streamed), deep, 256)
        whole = round_up(self.extent(self.binding.column), 16)
        parts = (length for length in (64, 128, 192, 256) if length < whole and padding(whole, length) <= PADDING)
        return rows, streamed, (*parts, whole), self.inner()

    def products(
        self, tiles: Iterable[tuple[int, ...]], pipelines: Sequence[tuple[int, bool, Unit]]
    ) -> Iterator[Nest]:  # fmt: skip
        """Yield the grid and the loops of products, for tiles of rows x streamed elements x columns x inner ones."""
        streamed = self.binding.streamed.name
        for row, along, column, inner in tiles:
            grid, within = grid_levels(self.binding, row, column), inner_levels(self.binding, inner)
            for stages, special, unit in pipelines:
                yield grid, (Loop(streamed, along, stages, special), *within, unit)

    def inner(self) -> tuple[int, ...]:
        """The tile lengths of the producers' own axes; 0 for the whole axis."""
        longest = max(
            (self.sized_problem.sizes[one.cascade.axis.name] for one in self.form.cascade.producers), default=0
        )
        cut = tuple(length for length in (64, 128, 256) if longest > length)
        return (0, *cut) if longest <= 1024 else cut

    def pipelines(self) -> Iterator[tuple[int, bool, Unit]]:
        """Yield (stages, loading warps, the threads that multiply)."""
        cores = self.cores
        if self.device.target == "c":
            yield 0, False, ScalarCores(1)
            return
        varies = trims(self.form, self.problem)
        plain = not self.stages.multiplies_apart and not folds_pairs(self.form, self.binding)
        may_load = plain and self.device.wgmma and has_aligned_rows(self.form, self.problem)
        special = (False, True) if cores and may_load else (False,)
        lefts = MEMORIES if cores and self.binding.contracted else MEMORIES[:1]
        for stages, threads, loads, operands in product((0, 1, 2, 3, 4), (128, 256, THREE), special, lefts):
            alone = operands == "registers" or threads == 256
            if threads == THREE and not loads:
                continue
            if (loads or not varies or stages < 2) and (stages or not loads) and alone:
                yield stages, loads, TensorCores(threads, operands) if cores else ScalarCores(threads)

    # ---- elementwise terms -------------------------------------------------------------------------------------------

    def has_registers(self, plan: Plan) -> bool:
        """Tell if warps share out the products of a plan, and its threads have registers for their sums."""
        return suits_warps(plan, self.form) and fits_registers(plan, self.form)

    @cached_property
    def pairwise(self) -> Binding | None:
        """The binding of pairwise terms; None if terms are others."""
        return pairwise_binding(self.form, self.problem, self.device, self.binding)

    @cached_property
    def by_threads(self) -> bool:
        """Tell if a thread may take a row."""
        return takes_rows_by_threads(self.form, self.problem, self.device, self.binding)

    @cached_property
    def in_columns(self) -> bool:
        """Tell if lanes lie along the rows."""
        return lies_in_columns(self.form, self.problem, self.binding)

    def serial_tiles(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the tiles of pairwise terms."""
        weighed = weighs_columns(self.form, self.problem, self.binding)
        return serial_tiles(self.sized_problem, self.pairwise or self.binding, weighed=weighed)

    def rows(self) -> Iterator[Nest]:
        """Yield the grid and the loops of tiles of rows x streamed elements, at every level."""
        if self.device.target == "c":
            return
        length = max(1, self.extent(self.binding.streamed))
        wide, streamed = vector(self.problem), self.binding.streamed.name
        if self.pairwise is not None:
            stages = serial_stages(self.form, self.problem)
            for numbers in self.serial_tiles():
                levels = serial_schedule(self.device, self.pairwise, numbers, stages).levels
                yield levels[:-2], levels[-2:]
            return
        if self.in_columns:
            for threads in THREADS:
                for columns, along in column_tiles(threads, self.extent(self.binding.row)):
                    lanes, loop = Lanes(str(self.binding.row), threads), Loop(streamed, along)
                    yield grid_levels(self.binding, columns, 1), (lanes, loop)
            return
        if self.by_threads:
            levels = rows_by_threads(self.device, self.binding).levels
            yield levels[:-2], levels[-2:]
        for threads in THREADS:
            for level, row, along in self.levels(threads, length, wide):
                loops = lane_levels(Loop(streamed, along), Lanes(streamed, threads), level)
                yield grid_levels(self.binding, row, 1), loops
        for count, threads, along in self.rows_in_bulk():
            loops = lane_levels(Loop(streamed, along, 1), Lanes(streamed, threads), "row")
            cluster = (Parts(streamed, count, CLUSTER),) if count > 1 else ()
            yield grid_levels(self.binding, 1, 1), (*cluster, *loops)

    def rows_in_bulk(self) -> Iterator[tuple[int, int, int]]:
        """Yield (blocks, threads, streamed elements) of rows in shared memory that are written again: one block has
        room for a row, or the blocks of a cluster share it out, where no two have room side by side."""
        if not self.device.wgmma or not self.outline.carried or self.form.structures or self.form.places:
            return
        length, row = self.extent(self.binding.streamed), bytes_of_rows(self.form, self.problem, self.binding)
        wide = vector(self.problem)
        for count, threads in product((1, *BLOCKS_OF_CLUSTER), THREADS_IN_BULK):
            along = round_up(-(-length // count), threads * wide)
            fits = row > 0 and blocks_at_once(along * row, threads, self.device) > 0
            together = blocks_at_once(length * row, threads, self.device) > 1
            cut = not together and length % wide == 0 and along >= LEAST_OF_PART * threads
            if fits and (count == 1 or cut):
                yield count, threads, along

    def levels(self, threads: int, length: int, wide: int) -> Iterator[tuple[str, int, int]]:
        """Yield (level, rows, streamed elements) for a number of threads."""
        widths = [1 << power for power in range(7, 15)]
        if all(one.is_ranked for one in self.form.structures) and not self.form.places:
            whole = {power_of_two(max(length, LEAST_COLUMNS)), round_up(length, threads * wide)}
            yield from (("row", row, along) for along in sorted(whole) for row in self.beside(along)
                        if along // threads * row <= 96 and along <= 16384)  # fmt: skip
        if not self.form.places and (self.form.structures or self.form.is_lanewise):  # of lanes one slope serves all
            lanes = (threads * wide * times for times in (1, 2, 4))
            yield from (("thread", 1, along) for along in lanes if along <= power_of_two(length) and threads >= 64)
        if self.form.places or all(one.is_ranked for one in self.form.structures):
            yield from (("block", row, along) for along in widths for row in self.beside(along)
                        if along <= power_of_two(length) and 4 <= along * row // threads <= 64)  # fmt: skip

    def beside(self, along: int) -> Iterator[int]:
        """The rows of a tile: several if they are short (each is reduced alone; many compile for minutes)."""
        most = power_of_two(self.extent(self.binding.row)) if along >= self.extent(self.binding.streamed) else 1
        most = min(most, 8 if along > NARROW else 32 if along > WIDE_COLUMNS // 2 else 2 * MOST_ROWS)
        return (1 << power for power in range(9) if 1 << power <= most and (power == 0 or along << power <= 4096))

    # ---- parts -------------------------------------------------------------------------------------------------------

    def parts(self, plan: Plan) -> Iterable[int]:
        """The numbers of segments: powers of two, with at least a tile each, at most `MOST_BLOCKS` a multiprocessor."""
        if plan.device.target == "c" or plan.level == "row":
            return (plan.segments,)
        grid = blocks(plan.binding, self.sized_problem, plan.block_row, plan.block_column)
        tiles = -(-max(1, self.extent(plan.binding.streamed)) // plan.block_streamed)
        if plan.loads_within:
            return (tiles,) if plan.block_streamed >= LEAST_SCORES else ()
        most = PARTS_OF_FEW if plan.along_rows else most_parts(plan.binding, self.sized_problem, plan.device)
        most = min(most, tiles, max(1, MOST_BLOCKS * plan.device.multiprocessors // grid))
        return [1 << power for power in range(most.bit_length())]

    def splits(self, plan: Plan) -> Iterable[int]:
        """The numbers of parts of the producers' axes, if their tiles are few."""
        if not may_split(plan, self.form):
            return ()
        longest = min(self.sized_problem.sizes[one.cascade.axis.name] for one in self.form.cascade.producers)
        return [parts for parts in (2, 4, 8, 16) if parts * plan.block_inner <= longest]

    # ---- blocks that stay --------------------------------------------------------------------------------------------

    def resident_blocks(self, plan: Plan) -> int:
        """The blocks of a multiprocessor that could take a plan's tiles in turn; 0 if they would be done after one."""
        if plan.device.target == "c" or plan.merge == "launch" or plan.splits > 1 or plan.fetches_rows:
            return 0
        kernel = Kernel(Traffic(self.outline, replace(plan, persistent=RESIDENT)), H200)
        return resident if (resident := kernel.resident()) * plan.device.multiprocessors < kernel.traffic.grid else 0


def tile_lengths_of(plan: Plan) -> tuple[int, ...]:
    """The lengths of a tile of products: rows, streamed elements, columns, producers' own axes."""
    return plan.block_row, plan.block_streamed, plan.block_column, plan.block_inner
