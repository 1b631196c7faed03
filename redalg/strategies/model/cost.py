"""Predict the time of a kernel under a plan, and the term that bounds it.

First version (`mcfuser`): MCFuser (SC '24), Eqs. 2-5

    t = (t_mem + t_comp)·α      t_mem = Σ volume / W      t_comp = Σ flops / P      α = (blocks + SMs) / blocks

`predict` adds what that model lacks. Every step of a block's streamed loop takes a time w on each unit of its
multiprocessor, and waits for loads and reductions. A multiprocessor has `blocks` to do in waves, as many side by side
as shared memory, registers and threads allow. Four limits slow it down, and none hides wholly behind another:

    units     blocks · steps · max w                                   memory    bytes / its rate
    blocks    waves · (first tile + steps · (Σ w · slow + wait))       L2        what all blocks load / its rate
              + (waves − 1) · turn

    t = launch + √(units² + blocks² + memory² + L2²) + t_merge

If a second kernel merges the parts, they cost its launch, and all multiprocessors read them. If they are merged in the
launch, they cost a block's wait for the counter, and one block of every tile reads the parts of its tile.

A step gives each instruction of the terms at every point of its axes (`instructions`), and blocks take the tiles that a
mask of places leaves (`live`). Rates per multiprocessor come from `device`, efficiencies and latencies from
`Constants`, fitted to times of an H200 and an H100 and to which plan was the fastest (benchmarks/data, by `python -m
benchmarks fit constants --refine`). All times are in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import hypot, prod
from typing import final

from redalg.strategies.device import REGISTERS
from redalg.strategies.levels import CLUSTER, RESIDENT
from redalg.strategies.model.selection import Joins, joins_of, joins_of_parts
from redalg.strategies.model.traffic import ACCUMULATED, VECTOR, Outline, Traffic
from redalg.strategies.model.work import Read, Work
from redalg.strategies.plan import Plan
from redalg.strategies.rules.trips import trips_together


@final
@dataclass(frozen=True)
class Constants:
    """The fitted constants of the model. Shares are of a peak; latencies are in microseconds.

    Attributes:
        product: share that matrix instructions reach; narrow: the side of a tile at which they reach half of that.
        exponential: share of special functions; arithmetic: of plain operations beside products; scalar: without.
        loads: share of load instructions, without products.
        memory: share of memory's bandwidth; cache: L2's bandwidth, as a multiple of what memory reaches.
        launch_us: of a kernel in a graph; merge_us, part_us: of the merging kernel, and of every part, beside bytes.
        arrive_us: of a merge in the launch instead: until the data that a block stored is seen, and the block has
            counted. (Three trips to L2, of about 0.25 µs each on an H200.)
        step_us: the wait of a step for its loads; ahead_us: that wait if they are fetched one step ahead; deeper: the
            exponent by which `ahead_us` falls with further steps ahead; inner_us: as `step_us`, of half a step of a
            producer's loop.
        first: kilobytes a microsecond at which a block's first tiles arrive; turn_us, row_turn_us: from one wave of
            blocks to the next, with products and without.
        lane_us, chain_us: the wait of a step of lanes, and of every operation of a merge that a lane does after
            another; join_us: of every warp, when the lanes are done.
        reduce_us: a reduction, for every doubling of its warps.
        alone, scalar_alone: the factor on the units' time if a block has a multiprocessor for itself (without products,
            times 512 / threads).
        lanes: share of a merge of two states that a lane does for every element.
        copies: of a tile, beside itself, that a thread holds if outputs carry the streamed axis.
        spill, spilled: exponent of the excess of registers, and factor of any.
        columns, special, uneven, staged: factors of warps by columns, of loading warps, of streamed tiles whose length
            is no power of two, of tiles that several warps take from shared memory without products (their elements lie
            apart); stays: of blocks that take tiles in turn.
    """

    product: float
    narrow: float
    exponential: float
    arithmetic: float
    scalar: float
    loads: float
    memory: float
    cache: float
    launch_us: float
    merge_us: float
    part_us: float
    arrive_us: float
    step_us: float
    ahead_us: float
    deeper: float
    inner_us: float
    first: float
    turn_us: float
    row_turn_us: float
    lane_us: float
    chain_us: float
    join_us: float
    reduce_us: float
    alone: float
    scalar_alone: float
    lanes: float
    copies: float
    spill: float
    spilled: float
    columns: float
    special: float
    uneven: float
    staged: float
    stays: float


H200 = Constants(
    product=0.9335, narrow=38.81, exponential=1, arithmetic=0.3552, scalar=0.7268, loads=0.1059, memory=0.9598,
    cache=3.372, launch_us=3.081, merge_us=1.051, part_us=0.07928, arrive_us=1.184, step_us=0.4929,
    ahead_us=0.1768, deeper=0.6639, inner_us=0.4415, first=124.5, turn_us=2.318, row_turn_us=0.04826,
    lane_us=0.0003956, chain_us=0.0008196, join_us=0.1164, reduce_us=0.03188, alone=0.4624, scalar_alone=0.1841,
    lanes=0.002377, copies=0.879, spill=0.2644, spilled=1.215, columns=1.259, special=0.9055, uneven=1.629,
    staged=1.484, stays=1.417,
)  # fmt: skip
COLUMNS = 0.42
"""The share of the rate of plain operations that lanes reach whose rows have several columns (H100: sums of products,
of maxima and of distances at 0.40 to 0.45)."""
APART = 5
"""Loads in whose time lanes read numbers that lie a tile apart in shared memory (H100: sums of distances)."""
SIDE, SHARED = 16, 0.6
"""Threads along the streamed elements of a tile whose products are on CUDA cores, and the share of the rate of loads
that they reach (H100: nine plans of scores of 4096 x 32000 x 2048 in float32)."""
SERIAL_ALONE = 0.9
"""As `alone`, of 128 threads that stream elements: few hide an operation's wait (H100: log products, sums of sines)."""
SPILLED = 64
"""Bytes a clock at which a multiprocessor writes and reads registers that do not fit (H200: sums of 8-bit products)."""
TOGETHER = 8
"""Elements of a row that lanes with rows of their own rescale for at once (`lower_tile.place.serial`)."""
LOOK, COMPARISON, JOIN_US, RANKED = 9.5, 3.0, 0.4, 2.5
"""Joins of the best elements (H100: 79 plans of ten rows): plain operations of an element that is looked at and of a
pair that is compared, the wait of a block for its threads, registers of an element and its rank."""
TAKE_US = 0.15
"""The wait for one element that rows take in turn out of a state of several."""
CLOCKS_US = 1755.0
"""Clocks a microsecond: the boost clock of the SXM cards; others are within a tenth of it."""
LANES, LOADS, SPECIAL = 128, 32, 16
"""Plain operations, loads and special functions of a multiprocessor a clock (CUDA C++ Programming Guide, table of
arithmetic throughput)."""
LOADING = 168
"""Registers of a thread, if some warps load and hand their registers to the others."""


@final
@dataclass(frozen=True)
class Prediction:
    """A time and its parts.

    Attributes:
        time_us: of the whole, launches included.
        terms: the time that each unit would take alone, in microseconds.
        smem_bytes: shared memory of a block, estimated.
    """

    time_us: float
    terms: Mapping[str, float]
    smem_bytes: int = 0

    @property
    def bound(self) -> str:
        """The term that takes longest."""
        return max(self.terms, key=lambda name: self.terms[name])


def mcfuser(outline: Outline, plan: Plan) -> Prediction:
    """Predict by Eqs. 2-5, over every block of the grid."""
    traffic = Traffic(outline, plan)
    memory = traffic.grid * traffic.loaded_bytes / (plan.device.memory_gb_s * 1e3)
    compute = traffic.grid * traffic.flops / (plan.device.product_tflops * 1e6)
    slow = (traffic.grid + plan.device.multiprocessors) / traffic.grid
    return Prediction((memory + compute) * slow, {"memory": memory * slow, "tensor cores": compute * slow})


def predict(outline: Outline, plan: Plan, constants: Constants = H200) -> Prediction:
    """Predict the time of a plan for the form that an outline describes (`Space.outline`)."""
    return predict_traffic(Traffic(outline, plan), constants)


def predict_traffic(traffic: Traffic, constants: Constants = H200) -> Prediction:
    """Predict the time of a plan from its traffic."""
    kernel, plan = Kernel(traffic, constants), traffic.plan
    busiest = -(-kernel.traffic.grid // plan.device.multiprocessors)
    waves = -(-busiest // kernel.resident())
    units, traffic_us = kernel.units_us(busiest), {"memory": kernel.memory_us(), "L2": kernel.cache_us(busiest)}
    launch_us = constants.launch_us + kernel.merge_us()
    total = launch_us + hypot(kernel.slower * max(units.values()), kernel.waves_us(waves), *traffic_us.values())
    terms = {**units, **traffic_us, "latency": kernel.waiting_us * waves, "launch": launch_us}
    return Prediction(total, terms, kernel.traffic.smem_bytes)


@final
@dataclass(frozen=True)
class Kernel:
    """A plan's block on the units of a multiprocessor."""

    traffic: Traffic
    constants: Constants

    @cached_property
    def work(self) -> Work:
        """The arithmetic of an element."""
        return self.traffic.outline.work

    @cached_property
    def plan(self) -> Plan:
        """The plan."""
        return self.traffic.plan

    # ---- a step ------------------------------------------------------------------------------------------------------

    @cached_property
    def cells(self) -> int:
        """The rows of a tile times its streamed elements, and its columns if every row keeps a state of each."""
        columns = self.plan.block_column if self.plan.is_serial else 1
        return self.plan.block_row * self.plan.block_streamed * columns

    @cached_property
    def step_us(self) -> dict[str, float]:
        """The time of one step on each unit of a multiprocessor, if the step has it for itself."""
        constants, plan, traffic = self.constants, self.plan, self.traffic
        plain = (constants.arithmetic if plan.multiplies else constants.scalar) * LANES * CLOCKS_US
        plain *= COLUMNS / constants.scalar if plan.is_serial and plan.block_column > 1 else 1.0
        units = {"arithmetic": self.operations() / plain}
        if plan.along_rows:
            own = sum(map(self.reads_of_lane, self.work.reads)) * plan.threads if plan.is_serial else plan.block_row
            units["loads"] = own * plan.block_streamed / (LOADS * CLOCKS_US)
        elif not plan.multiplies:
            units["loads"] = self.cells * traffic.outline.loads / (constants.loads * LOADS * CLOCKS_US)
        if special := self.special():
            units["special functions"] = special / (constants.exponential * SPECIAL * CLOCKS_US)
        if traffic.flops and plan.tensor_cores:
            peak = plan.device.product_tflops * 1e6 / plan.device.multiprocessors
            units["tensor cores"] = traffic.flops / traffic.steps / (peak * constants.product * self.rate())
        elif traffic.flops:
            products = traffic.flops / 2 / traffic.steps
            units["arithmetic"] += products / plain
            units["loads"] = products * self.shared_reads() / (SHARED * LOADS * CLOCKS_US)
        return units

    def reads_of_lane(self, read: Read) -> float:
        """The loads of a lane for a streamed element: one for all of its rows, one each, or one for four columns."""
        plan, outline = self.plan, self.traffic.outline
        if outline.column in read.axes:
            return plan.block_column * ACCUMULATED / VECTOR
        rows = plan.block_row / plan.threads
        return rows * (APART if read.beside else 1) if outline.rows & {*read.axes} else 1.0

    def shared_reads(self) -> float:
        """The numbers that a thread reads from shared memory for each of its products on CUDA cores."""
        rows = max(1.0, self.plan.block_row * SIDE / self.plan.threads)
        return 1 / rows + SIDE / max(SIDE, self.plan.block_streamed)

    def rate(self) -> float:
        """The share of the full rate that a product of these tiles reaches; for 8 bits, twice that share."""
        columns = self.plan.block_column if self.plan.binding.contracted else self.plan.block_streamed
        side = min(self.plan.block_streamed, columns)
        shape = side / (side + self.constants.narrow)
        return shape * (2 if self.traffic.outline.eight_bits else 1)

    def operations(self) -> float:
        """The plain operations of a step: those of the terms, merges of states, rescaled sums, joins of the best."""
        plan, work, (found, _) = self.plan, self.work, self.traffic.tiles.instructions
        if plan.is_serial:
            found += self.cells * (work.slots + work.wide) * (work.rescaling > 0) / TOGETHER
        elif plan.level == "thread":
            found += self.cells * self.constants.lanes * work.merging
        if plan.binding.contracted and plan.multiplies:
            found += plan.block_row * plan.block_column * work.rescaled
        if self.joins is not None:
            found += self.operations_of(self.joins) / self.traffic.steps
        return found

    def special(self) -> float:
        """The special functions of a step: those of the terms, and of rescaled states of lanes."""
        _, found = self.traffic.tiles.instructions
        if self.plan.keeps_states:
            found += self.cells * self.work.rescaling / (TOGETHER if self.plan.is_serial else 1)
        return found

    @cached_property
    def joins(self) -> Joins | None:
        """The joins of the best elements of a row; None unless a block keeps several of one row."""
        plan = self.plan
        if self.work.kept is None or plan.multiplies or plan.block_row > 1 or plan.level != "block":
            return None
        kept = self.traffic.outline.sizes[self.work.kept.name]
        return joins_of(kept, self.plan.block_streamed, self.traffic.steps, self.plan.threads)

    def operations_of(self, joins: Joins) -> float:
        """The plain operations of joins of a block."""
        return LOOK * joins.looked + COMPARISON * joins.compared

    @cached_property
    def waiting_us(self) -> float:
        """The time that a block waits: for loads and inner loads; for reductions, or a lane's earlier operations."""
        constants, plan, traffic = self.constants, self.plan, self.traffic
        each = 2 * constants.inner_us * (self.inner - 1) * self.exposed_share
        if self.joins is not None:
            return traffic.steps * (each + constants.step_us * self.exposed_share) + JOIN_US * self.joins.waits
        if plan.level == "thread":
            chain = constants.chain_us * self.work.merging * self.cells / plan.threads
            load = constants.lane_us / trips_together(traffic.outline.form, plan, traffic.outline.problem)
            return traffic.steps * (each + load + chain) + constants.join_us * self.warps
        rows = 0 if plan.is_serial else 1 if plan.multiplies else plan.block_row
        reduce_us = constants.reduce_us * self.work.reductions * rows * self.warps.bit_length()
        return traffic.steps * (each + constants.step_us * self.exposed_share + reduce_us)

    @cached_property
    def exposed_share(self) -> float:
        """The share of a load's wait that is left by beginning ahead; loading warps do, by one of two products."""
        two = bool(self.traffic.outline.inner) and self.plan.binding.contracted
        ahead = max(self.plan.stages - 1, int(self.plan.warp_specialized and two))
        ratio = self.constants.ahead_us / self.constants.step_us
        return 1.0 if ahead < 1 else ratio / float(ahead) ** self.constants.deeper

    @cached_property
    def warps(self) -> int:
        """The number of warps that a row's reductions join."""
        return 1 if self.plan.multiplies else max(1, self.plan.threads // 32)

    @cached_property
    def inner(self) -> int:
        """The number of steps of the producers' own loops."""
        return prod(map(self.traffic.trips.__getitem__, self.traffic.outline.inner))

    # ---- blocks together ---------------------------------------------------------------------------------------------

    @cached_property
    def registers(self) -> float:
        """The registers of a thread: for sums, for the tile in hand, and for the rest."""
        plan = self.plan
        columns = plan.block_column if plan.binding.contracted else 0
        sums = self.work.wide * (2 if self.traffic.outline.eight_bits else 1)  # a tile's product is added in float32
        numbers = plan.block_row * columns * sums + (
            1.5 * self.cells if plan.multiplies and self.traffic.outline.inner else 0
        )
        if plan.is_serial:
            numbers += plan.block_row * plan.block_column * (self.work.slots + len(self.work.reads))
        elif plan.level == "thread":
            numbers += self.cells * self.work.slots
        elif self.joins is not None:
            numbers += self.cells * RANKED
        elif not plan.multiplies:
            numbers += self.cells * (1 + self.constants.copies * self.traffic.outline.carried)
        return max(LOADING if plan.warp_specialized else 0, numbers / plan.threads + 40)

    def resident(self) -> int:
        """The number of blocks that live on a multiprocessor together."""
        threads = self.plan.threads + (128 if self.plan.warp_specialized else 0)
        registers = min(self.most_registers, self.registers) * threads
        by_memory = self.plan.device.smem_bytes // max(1024, self.traffic.smem_bytes + 1024)
        most = self.plan.persistent or RESIDENT
        return max(1, min(int(REGISTERS // registers), 2048 // threads, by_memory, most))

    def waves_us(self, waves: int) -> float:
        """The time of the waves of blocks, each from its first tile to its last step."""
        constants, plan, first = self.constants, self.plan, 0.0
        if plan.is_serial:
            alone = SERIAL_ALONE * 128 / plan.threads
        else:
            alone = constants.alone if plan.multiplies else max(1.0, constants.scalar_alone * 512 / plan.threads)
        busy = self.traffic.steps * sum(self.step_us.values()) * alone
        if plan.multiplies:
            first = self.traffic.loaded_bytes / (self.traffic.steps * self.inner * constants.first * 1e3)
        turn = constants.turn_us if plan.multiplies else constants.row_turn_us
        wave_us = self.slower * (busy + self.waiting_us) * self.traffic.passes
        return waves * (wave_us + first) + (waves - 1) * turn

    @cached_property
    def slower(self) -> float:
        """The factor by which spilled registers, warps by columns, loading warps and uneven tiles slow the units."""
        constants, plan = self.constants, self.plan
        excess = self.registers / self.most_registers
        factor = constants.spilled * excess**constants.spill if excess > 1 else 1.0
        factor *= constants.columns if plan.warps == "columns" else 1.0
        factor *= constants.special if plan.warp_specialized else 1.0
        factor *= constants.stays if plan.persistent else 1.0
        if plan.multiplies:
            uneven = plan.binding.contracted and plan.block_streamed & (plan.block_streamed - 1)
            return factor * (constants.uneven if uneven else 1.0)
        apart = not plan.along_rows and plan.level != "thread" and any(not one.beside for one in self.work.reads)
        return factor * (constants.staged if apart and self.warps > 1 else 1.0)

    @cached_property
    def most_registers(self) -> float:
        """The most registers that a thread may have."""
        return min(240.0 if self.plan.warp_specialized else 255.0, REGISTERS / self.plan.threads)

    def units_us(self, blocks: int) -> dict[str, float]:
        """The time that every unit takes for a multiprocessor's blocks."""
        steps, units = self.traffic.mean_steps * self.traffic.passes, dict(self.step_us)
        if self.plan.multiplies and self.registers > self.most_registers:
            spilled = 4 * self.plan.threads * (self.registers - self.most_registers)
            units["spills"] = 2 * spilled / (SPILLED * CLOCKS_US)
        return {name: time * blocks * steps for name, time in units.items()}

    # ---- the whole ---------------------------------------------------------------------------------------------------

    def memory_us(self) -> float:
        """The time of memory: inputs and outputs move once (inputs again if a kernel does), parts to merge twice."""
        outline, again = self.traffic.outline, self.traffic.passes > 1 and self.plan.segments > 1
        return (outline.moved_bytes + again * outline.read_bytes + 2 * self.partial_bytes) / self.bandwidth

    @cached_property
    def bandwidth(self) -> float:
        """The bytes that memory moves in a microsecond."""
        return self.plan.device.memory_gb_s * 1e3 * self.constants.memory

    def cache_us(self, busiest: int) -> float:
        """The time of L2: every block loads for itself, and every multiprocessor has as many blocks as the busiest."""
        loads = busiest * self.plan.device.multiprocessors * self.traffic.loaded_bytes * self.traffic.passes
        share = self.traffic.mean_steps / self.traffic.steps
        return share * loads / (self.bandwidth * self.constants.cache)

    @cached_property
    def partial_bytes(self) -> float:
        """The bytes that the parts leave in memory."""
        plan, grid = self.plan, self.traffic.grid
        if plan.splits > 1:
            return grid * 4.0 * self.cells
        if plan.segments == 1 or plan.merge == CLUSTER:
            return 0.0
        return grid * plan.block_row * self.row_bytes

    @cached_property
    def row_bytes(self) -> float:
        """The bytes that a row of a block leaves."""
        return 4.0 * (self.work.slots + (self.plan.block_column if self.plan.binding.contracted else 0))

    def merge_us(self) -> float:
        """The time of a merge, by a second kernel or by every tile's last block; and of writing the axis's outputs."""
        plan, constants = self.plan, self.constants
        if plan.splits == 1 and (plan.segments == 1 or plan.merge == CLUSTER):
            return 0.0
        each, third = constants.part_us * plan.segments * plan.splits, constants.merge_us * (self.traffic.passes - 1)
        kept = self.traffic.outline.sizes[self.work.kept.name] if self.work.kept is not None else 0
        each += TAKE_US * kept * plan.segments
        if self.joins is not None:
            joins = joins_of_parts(kept, plan.segments, plan.threads)
            each = JOIN_US * joins.waits + self.operations_of(joins) / (constants.scalar * LANES * CLOCKS_US)
        if plan.merge == "kernel":
            return constants.merge_us + third + each + self.partial_bytes / (self.bandwidth * constants.cache)
        row, chips = plan.binding.row, plan.device.multiprocessors
        live = 1 if row is None else min(plan.block_row, max(1, self.traffic.outline.sizes[row.name]))
        at_once = plan.block_row if plan.along_rows else plan.block_merged
        merge = plan.segments * live * self.row_bytes / (self.bandwidth * constants.cache / chips)
        turns = max(1.0, self.traffic.grid / (plan.segments * chips))
        return constants.arrive_us + third + (each * -(-live // at_once) + merge) * turns
