"""Single-Segment: empty state; loop over the row's tiles; finish; outputs.

Outputs that carry the streamed axis follow in a second loop (`carried`).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from sympy import S

from redalg.expression import Value
from redalg.lower_tile.ir.loaded_tiles import loaded_bytes, loaded_elements
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import Kernel, Parameter, ReduceTile, Statement, index
from redalg.lower_tile.passes.loops import over_tiles
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.carried import Carried, carries_after
from redalg.lower_tile.place.epilogue import Epilogue
from redalg.lower_tile.place.few_digits import means_of_few_digits
from redalg.lower_tile.place.frames import SEGMENT, TILE, Frame, Job, frame, taken_names
from redalg.lower_tile.place.invariants import stage_centres
from redalg.lower_tile.place.lanes import Lanes
from redalg.lower_tile.place.listed import list_tiles, lists_tiles
from redalg.lower_tile.place.serial import stream_serially
from redalg.lower_tile.place.sets import with_sets, without_fills
from redalg.lower_tile.place.slots import Slots, allocate
from redalg.lower_tile.place.space import Space
from redalg.lower_tile.place.step import Step, element_terms
from redalg.strategies.device import REGISTERS
from redalg.strategies.plan import Plan
from redalg.strategies.search.registers import WARPGROUP

AGAIN = index("again")


def single_segment(job: Job, also: tuple[str, ...] = ()) -> tuple[tuple[Kernel, ...], tuple[Parameter, ...]]:
    """One block streams a tile of rows from end to end (`also`: names that other kernels bear)."""
    names = Names((*taken_names(job), *also))
    ahead, lists, listing = list[Kernel](), list[Parameter](), None
    if lists_tiles(job):
        ahead, lists, listing = list_tiles(job, names)
    place = frame(job, names, segmented=False, listing=listing)
    assembly = Assembly(job.plan, names, job.problem.compute)
    slots, body, seen = stream_loop(job, place, assembly)
    epilogue = Epilogue(job.form, assembly, slots, place.space, job.dtypes)
    body += epilogue.build()
    if carries_after(job.form, job.plan):
        space = seen if job.plan.level == "row" else place.space.at_tile(AGAIN)
        body += Carried(
            job.form, assembly, space.with_values(epilogue.space.values), job.sums, job.within, dtypes=job.dtypes
        ).build(AGAIN)
    title = f"stream {job.form.cascade.axis}, finish"
    left_out = len(means_of_few_digits(job)) if job.plan.level == "row" else 0
    return (*ahead, in_turn(kernel_of(place, assembly, body, title), job.plan, left_out)), tuple(lists)


def kernel_of(place: Frame, assembly: Assembly, body: list[Statement], title: str) -> Kernel:
    """The kernel of a frame's grid, with the buffers that were taken for its statements."""
    return Kernel(place.grid, tuple(assembly.buffers.values()), tuple(body), title)


LANES_OF_WHOLE_ROWS, MANY_SUMS, MOST_LOADED = 1024, 3, 64
"""Lanes of a multiprocessor that have whole rows: while a block waits for its sums, another loads (H100: layer norms of
4096 x 16384 in bfloat16 take 0.66 of the time of 512 lanes alone). Smaller blocks of so many sums, which take many
registers, all run at once where that takes no more lanes: else the last of them run when all others are done (layer
norms of 2048 x 2048: 0.90 of the time; softmaxes, of two sums, 1.01). A thread then has 64 registers, and room for so
many bytes of rows."""
WIDE_BLOCK, MOST_BESIDE, OTHER_REGISTERS, ELEMENTS_OF_REGISTER = 128, 4, 22, 8
"""The threads of a block of one row from which it has a multiprocessor beside others; these at most; the registers of a
thread beside those of its elements, and the elements for which it has one more. Left alone, the compiler takes twice as
many, and a block runs alone (H200, bfloat16: layer norms of 8192 x 8192 in 0.92 of the time, of 4096 x 16384 in 0.92,
softmaxes of 8192 x 8192 in 0.93)."""


REGISTERS_TO_LOAD, STEP = 24, 8
"""Registers of a thread that loads, and the number of which registers are multiples (PTX ISA, `setmaxnreg`)."""


def in_turn(kernel: Kernel, plan: Plan, left_out: int = 0) -> Kernel:
    """The streaming kernel, its grid's points shared out among blocks that stay where the plan asks for them.

    `left_out`: sums about means that totals give.
    """
    groups = plan.threads // WARPGROUP if plan.warp_specialized else 0
    registers = (REGISTERS // WARPGROUP - REGISTERS_TO_LOAD) // groups // STEP * STEP if groups > 2 else 0
    turns = plan.persistent * plan.device.multiprocessors
    return replace(kernel, blocks=turns, beside=blocks_beside(kernel, plan, left_out), registers=registers)


def blocks_beside(kernel: Kernel, plan: Plan, left_out: int = 0) -> int:
    """The blocks of whole rows that a multiprocessor must have room for; 1 if that is left to the compiler."""
    if plan.level != "row":
        return 1
    extents = [extent for _, extent in kernel.grid if isinstance(extent, int)]
    wave = -(-prod(extents) // plan.device.multiprocessors) if len(extents) == len(kernel.grid) else MOST_BESIDE
    if plan.block_row == 1 and plan.threads >= WIDE_BLOCK and plan.device.target != "c":
        elements = loaded_elements(kernel) // plan.threads
        registers = elements + elements // ELEMENTS_OF_REGISTER + OTHER_REGISTERS
        return max(1, min(wave, MOST_BESIDE, REGISTERS // (registers * plan.threads)))
    if 2 * plan.threads >= LANES_OF_WHOLE_ROWS:
        return max(1, LANES_OF_WHOLE_ROWS // plan.threads)
    several = left_out + sum(isinstance(one, ReduceTile) for one in kernel.body) >= MANY_SUMS
    if not several or loaded_bytes(kernel) > MOST_LOADED * plan.threads or len(extents) < len(kernel.grid):
        return 1
    return wave if LANES_OF_WHOLE_ROWS < 2 * wave * plan.threads <= 2 * LANES_OF_WHOLE_ROWS else 1


def stream_loop(job: Job, place: Frame, assembly: Assembly) -> tuple[Slots, list[Statement], Space]:
    """The empty state, what is loaded once, and the loop; then what the last tile left in registers."""
    whole = place.span
    if job.plan.level == "thread":
        first = SEGMENT * place.space.tiles if job.plan.segments > 1 and not whole.moving else S.Zero
        lanes = Lanes(job.form, assembly, place.space, (first, whole.start, whole.stop), job.within)
        slots, body = lanes.build()
        return slots, [*whole.bound, *body], place.space
    if job.plan.is_serial:
        return *stream_serially(job.form, assembly, place), place.space
    slots, body = allocate(job.form, assembly, job.problem)
    before: list[Statement] = []
    by_totals = means_of_few_digits(job) if job.plan.level == "row" else frozenset[Value]()
    space = stage_centres(element_terms(job.form), place.space, assembly, before)
    step = Step(job.form, assembly, space, before, job.sums, by_totals=by_totals)
    if job.plan.level == "row":  # the tile is the state
        body = without_fills(body, {slots.loads[value].name for value in slots.numbers})
    taken_in = tuple(step.build(slots))
    if job.plan.level == "row":
        return slots, [*before, *body, *taken_in], step.space
    loop = over_tiles(TILE, (whole.start, whole.stop), job.plan.stages, taken_in)
    if step.is_alone:
        return slots, [*whole.bound, *before, *body, loop], step.space
    return slots, [*whole.bound, *before, *with_sets(job, assembly, slots.loads, body, [loop])], step.space
