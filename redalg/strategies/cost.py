"""The time of a kernel under a plan, predicted, and the term that bounds it.

First version (`mcfuser`): MCFuser (SC '24), Eqs. 2-5

    t = (t_mem + t_comp)·α      t_mem = Σ volume / W      t_comp = Σ flops / P      α = (blocks + SMs) / blocks

`predict` adds what that lacks. Of a block, every step of the streamed loop takes a time on each unit of its
multiprocessor; blocks that live on one together (as many as shared memory, registers and threads allow) share the
units, and each waits for its own loads and barriers:

    t_group(g) = steps · max(max over units of g·w,  Σ over units of w·slow + latency)
    t = launch + max(Σ t_group over a multiprocessor's blocks, bytes / DRAM rate, bytes / L2 rate) + t_merge

Rates per multiprocessor come from `device`, efficiencies and latencies from `Constants`, fitted to an H200's times
(benchmarks/results/sweep-*.json, by `python -m benchmarks.calibrate`). All times are in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import final

from redalg.strategies.plan import Plan
from redalg.strategies.traffic import Outline, Traffic
from redalg.strategies.work import Work


@final
@dataclass(frozen=True)
class Constants:
    """What was fitted. Shares are of a peak; latencies are in microseconds.

    Attributes:
        product: share that matrix instructions reach; narrow: the side of a tile at which they reach half of that.
        exponential: share of special functions; arithmetic: of plain operations beside products; scalar: without.
        loads: share of load instructions, without products.
        memory: share of memory's bandwidth; cache: L2's bandwidth, as a multiple of what memory reaches.
        launch_us: of a kernel in a graph; merge_us, part_us: of the one that merges, and of every part, beside bytes.
        step_us, ahead_us, lane_us: what a step waits for loads: fetched in it, fetched ahead, taken by lanes.
        inner_us: what a step of a producer's own loop waits; reduce_us: a reduction, for every doubling of its warps.
        alone, scalar_alone: how much longer the units take of a block that has a multiprocessor for itself (without
            products, times 512 / threads).
        lanes: share of a merge of two states that a lane does for every element.
        spill: exponent of the excess of registers; columns, special: factors of warps by columns, of loading warps.
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
    step_us: float
    ahead_us: float
    lane_us: float
    inner_us: float
    reduce_us: float
    alone: float
    scalar_alone: float
    lanes: float
    spill: float
    columns: float
    special: float


H200 = Constants(
    product=0.508, narrow=18.7, exponential=1.0, arithmetic=0.442, scalar=0.377, loads=0.084, memory=0.775, cache=1.94,
    launch_us=2.52, merge_us=1.46, part_us=0.15, step_us=0.396, ahead_us=0.127, lane_us=0.062, inner_us=0.316,
    reduce_us=0.051, alone=0.651, scalar_alone=0.158, lanes=0.29, spill=1.14, columns=1.19, special=0.925,
)  # fmt: skip
CLOCKS_US = 1755.0
"""Clocks a microsecond: the boost clock of the SXM cards; others are within a tenth of it."""
LANES, LOADS, SPECIAL = 128, 32, 16
"""Plain operations, loads and special functions of a multiprocessor a clock (CUDA C++ Programming Guide, table of
arithmetic throughput)."""
REGISTERS, LOADING = 65536, 168
"""Of a multiprocessor; of a thread where some warps load and hand their registers to the others."""


@final
@dataclass(frozen=True)
class Prediction:
    """A time and its parts.

    Attributes:
        time_us: of the whole, launches included.
        terms: what each unit would take alone, in microseconds.
    """

    time_us: float
    terms: Mapping[str, float]

    @property
    def bound(self) -> str:
        """The term that takes longest."""
        return max(self.terms, key=lambda name: self.terms[name])


def mcfuser(outline: Outline, plan: Plan) -> Prediction:
    """Eqs. 2-5, over every block of the grid."""
    traffic = Traffic(outline, plan)
    memory = traffic.grid * traffic.loaded_bytes / (plan.device.memory_gb_s * 1e3)
    compute = traffic.grid * traffic.flops / (plan.device.product_tflops * 1e6)
    slow = (traffic.grid + plan.device.multiprocessors) / traffic.grid
    return Prediction((memory + compute) * slow, {"memory": memory * slow, "tensor cores": compute * slow})


def predict(outline: Outline, plan: Plan, constants: Constants = H200) -> Prediction:
    """The time of a plan of what an outline describes (`Space.outline`)."""
    one = Kernel(Traffic(outline, plan), constants)
    busiest = -(-one.traffic.grid // plan.device.multiprocessors)
    together = one.resident()
    groups, rest = divmod(busiest, together)
    running = groups * one.group_us(together) + (one.group_us(rest) if rest else 0.0)
    moved = {"memory": one.memory_us(), "L2": one.cache_us()}
    waiting = {"latency": one.latency_us() * -(-busiest // together), "launch": constants.launch_us + one.merge_us()}
    total = max(running, *moved.values()) + waiting["launch"]
    return Prediction(total, {**one.units_us(busiest), **moved, **waiting})


@final
@dataclass(frozen=True)
class Kernel:
    """A plan's block on the units of a multiprocessor."""

    traffic: Traffic
    constants: Constants

    @property
    def work(self) -> Work:
        """The arithmetic of an element."""
        return self.traffic.outline.work

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.traffic.plan

    # ---- a step ------------------------------------------------------------------------------------------------------

    @property
    def cells(self) -> int:
        """Rows times streamed elements of a tile."""
        return self.plan.block_row * self.plan.block_streamed

    def step_us(self) -> dict[str, float]:
        """What one step takes on each unit of a multiprocessor that it has for itself."""
        fitted, plan, traffic = self.constants, self.plan, self.traffic
        plain = (fitted.arithmetic if plan.multiplies else fitted.scalar) * LANES * CLOCKS_US
        found = {"arithmetic": self.operations() / plain}
        if not plan.multiplies:
            found["loads"] = self.cells * traffic.outline.loads / (fitted.loads * LOADS * CLOCKS_US)
        if self.work.exponentials:
            special = fitted.exponential * SPECIAL * CLOCKS_US
            found["special functions"] = self.cells * self.work.exponentials / special
        if traffic.flops and plan.tensor_cores:
            peak = plan.device.product_tflops * 1e6 / plan.device.multiprocessors
            found["tensor cores"] = traffic.flops / traffic.steps / (peak * fitted.product * self.rate())
        elif traffic.flops:
            found["arithmetic"] += traffic.flops / 2 / traffic.steps / plain
        return found

    def rate(self) -> float:
        """How much of the full rate a product of these tiles reaches, and twice it of 8 bits."""
        columns = self.plan.block_column if self.plan.binding.contracted else self.plan.block_streamed
        shape = min(side / (side + self.constants.narrow) for side in (self.plan.block_streamed, columns))
        return shape * (2 if self.traffic.outline.eight_bits else 1)

    def operations(self) -> float:
        """Plain operations of a step: on every element, on every column of a rescaled sum, and lane by lane."""
        plan, per = self.plan, float(self.work.operations)
        if plan.level == "thread":
            per += self.constants.lanes * self.work.merging
        rescaled = plan.block_row * plan.block_column * self.work.rescaled if plan.binding.contracted else 0
        return self.cells * per + rescaled

    def latency_us(self) -> float:
        """Waiting of one block: for loads, for inner loads, for reductions."""
        fitted, plan, traffic = self.constants, self.plan, self.traffic
        ahead = plan.stages > 1 or plan.warp_specialized
        each = fitted.lane_us if plan.level == "thread" else fitted.ahead_us if ahead else fitted.step_us
        inner = prod(traffic.trips[loop] for loop in traffic.outline.inner)
        each += fitted.inner_us * (inner - 1) * (1 if ahead else 2)
        if plan.level != "thread":
            warps = 1 if plan.level == "warp" or plan.multiplies else max(1, plan.threads // 32)
            rows = 1 if plan.multiplies else plan.block_row
            each += fitted.reduce_us * self.work.reductions * rows * warps.bit_length()
        return traffic.steps * each

    # ---- blocks together ---------------------------------------------------------------------------------------------

    def registers(self) -> float:
        """Of a thread: sums, the tile in hand, and the rest."""
        plan = self.plan
        columns = plan.block_column if plan.binding.contracted else 0
        held = plan.block_row * columns * self.work.wide + (1.5 * self.cells if plan.multiplies else 0)
        if plan.level == "thread":
            held += self.cells * self.work.slots
        elif not plan.multiplies:
            held += self.cells
        return max(LOADING if plan.warp_specialized else 0, held / plan.threads + 40)

    def resident(self) -> int:
        """Blocks that live on a multiprocessor together."""
        threads = self.plan.threads + (128 if self.plan.warp_specialized else 0)
        registers = min(self.most_registers(), self.registers()) * threads
        by_memory = self.plan.device.smem_bytes // max(1024, self.traffic.smem_bytes + 1024)
        return max(1, min(int(REGISTERS // registers), 2048 // threads, by_memory, 32))

    def group_us(self, blocks: int) -> float:
        """Blocks side by side from start to end."""
        fitted, plan, units = self.constants, self.plan, self.step_us()
        alone = fitted.alone if plan.multiplies else max(1.0, fitted.scalar_alone * 512 / plan.threads)
        busy = self.traffic.steps * max(max(units.values()) * blocks, sum(units.values()) * alone)
        slower = max(1.0, self.registers() / self.most_registers()) ** fitted.spill
        slower *= fitted.columns if plan.warps == "columns" else 1.0
        slower *= fitted.special if plan.warp_specialized else 1.0
        return slower * (busy + self.latency_us())

    def most_registers(self) -> float:
        """That a thread may have."""
        return min(255.0, REGISTERS / self.plan.threads)

    def units_us(self, blocks: int) -> dict[str, float]:
        """What every unit takes for a multiprocessor's blocks."""
        return {name: time * blocks * self.traffic.steps for name, time in self.step_us().items()}

    # ---- the whole ---------------------------------------------------------------------------------------------------

    def memory_us(self) -> float:
        """Every input and output once, and what segments leave to be merged twice."""
        return (self.traffic.outline.moved_bytes + 2 * self.partial_bytes()) / self.bandwidth()

    def bandwidth(self) -> float:
        """Bytes a microsecond of memory."""
        return self.plan.device.memory_gb_s * 1e3 * self.constants.memory

    def cache_us(self) -> float:
        """All that blocks load, each for itself."""
        return self.traffic.grid * self.traffic.loaded_bytes / (self.bandwidth() * self.constants.cache)

    def partial_bytes(self) -> float:
        """What the parts leave in memory."""
        plan, grid = self.plan, self.traffic.grid
        if plan.splits > 1:
            return grid * 4.0 * self.cells
        if plan.segments == 1:
            return 0.0
        row = plan.block_row * (self.work.slots + (plan.block_column if plan.binding.contracted else 0))
        return grid * 4.0 * row

    def merge_us(self) -> float:
        """The second kernel."""
        if self.plan.segments == 1 and self.plan.splits == 1:
            return 0.0
        moved = self.partial_bytes() / (self.bandwidth() * self.constants.cache)
        parts = self.plan.segments * self.plan.splits
        return self.constants.merge_us + self.constants.part_us * parts + moved
