"""Schedules of pairwise terms: of rows and streamed elements, from tensors of which none has both axes.

    F(x[i], y[j])     a thread keeps rows i in registers; the block's threads read one y[j] of a tile after another

A tile is read once for all rows of a block, so that such terms cost their arithmetic. Rows of a block: several for each
thread, so that what is computed for one waits for none, if blocks then still fill the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from redalg.expression.contents import free_axes
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import Lanes, Loop
from redalg.strategies.plan import Problem, grid_levels, lane_levels
from redalg.strategies.rules.parts import blocks, serial_segments
from redalg.strategies.rules.tiles import trims
from redalg.strategies.schedule import Schedule

THREADS, TILE, SHORT_TILE, LONG = 128, 256, 64, 4096
"""Threads of a block; elements of a tile, of a shorter one for axes below `LONG` elements (LANES.md, N-body)."""
ROWS = (4, 2, 1)
"""Rows of a thread."""
FEW_SLOTS = 8
"""Slots of a row of which a thread holds four."""
FULL = 4
"""Blocks on each multiprocessor that keep it busy."""


def is_pairwise(form: FusedForm, problem: Problem, binding: Binding) -> bool:
    """Tell if terms pair rows with streamed elements of other tensors, and rows fill the threads of a block."""
    if binding.row is None or binding.column is not None or binding.packing is not None or not form.is_serial:
        return False
    if form.cascade.producers or form.places or any(output.carries for output in form.outputs):
        return False
    axes = [free_axes(element) for element in form.cascade.elements()]
    streamed = [one for one in axes if binding.streamed in one]
    apart = bool(streamed) and not any(binding.row in one for one in streamed)
    has_rows = any(binding.row in one for one in axes)
    return apart and has_rows and problem.sizes[binding.row.name] >= THREADS


def pairs_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule of pairwise terms: as many rows a thread as leave every multiprocessor its blocks."""
    length = max(1, problem.sizes[binding.streamed.name])
    tile = TILE if length >= LONG else SHORT_TILE
    choices = [rows for rows in ROWS if rows * len(form.slots) <= ROWS[0] * FEW_SLOTS] or [1]
    for rows in choices:
        grid = blocks(binding, problem, rows * THREADS, 1)
        if grid * serial_segments(device, length, tile, grid) >= FULL * device.multiprocessors:
            break
    return serial_schedule(device, binding, (rows, tile, THREADS), serial_stages(form, problem))


def serial_stages(form: FusedForm, problem: Problem) -> int:
    """The stages of the loop over tiles: loads run a tile ahead, but where the number of tiles varies (`lint`)."""
    return 1 if trims(form, problem) else 2


def serial_schedule(device: DeviceSpec, binding: Binding, numbers: tuple[int, int, int], stages: int) -> Schedule:
    """The schedule of (rows of a thread, elements of a tile, threads), whose loads run ahead in so many stages."""
    rows, tile, threads = numbers
    if binding.row is None:
        raise AssertionError("pairwise terms without rows")
    loops = lane_levels(Loop(binding.streamed.name, tile, stages), Lanes(binding.row.name, threads), "block")
    return Schedule.of_levels((*grid_levels(binding, rows * threads, 1), *loops), binding, device)


def serial_tiles() -> Iterator[tuple[int, int, int]]:
    """Yield (rows of a thread, elements of a tile, threads) of the search."""
    yield from product(ROWS, (TILE, SHORT_TILE), (THREADS, 2 * THREADS))
