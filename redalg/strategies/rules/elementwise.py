"""The rule for forms that reduce nothing: a block for every tile, of whole 16-byte loads.

rows of a tile and more      tiles along the streamed axis
shorter rows                 several of them in a tile
rows along memory            square tiles, where an input's neighbours in memory are rows: lines that one side reads in
                             part are in the cache when the block reads the rest
"""

from __future__ import annotations

from collections.abc import Iterator

from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import Lanes, Loop, Parts
from redalg.strategies.plan import Problem, grid_levels
from redalg.strategies.rules.powers import power_of_two
from redalg.strategies.rules.rows import lies_in_columns, row_schedule, vector
from redalg.strategies.schedule import Schedule

THREADS, LOADS = 128, 2
"""Threads of a block, and 16-byte loads of each thread (H200, gradients of 4096 x 128256 and of 4096 x 50257: of the
numbers of threads and loads below, at most 0.98 of the time of 256 threads, and 0.89 where rows are not aligned)."""
SQUARE = 64
"""Rows and streamed elements of a square tile."""


def elementwise_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule of a form that reduces nothing."""
    if device.target == "c":
        rows = problem.sizes[binding.row.name] if binding.row is not None else 1
        length = power_of_two(problem.sizes[binding.streamed.name])
        return row_schedule(device, binding, (max(1, min(4, rows)), min(128, length)), 1)
    tile = elementwise_tile(form, problem, binding, THREADS * LOADS * vector(problem))
    return tile_schedule(problem, device, binding, tile, THREADS)


def tile_schedule(
    problem: Problem, device: DeviceSpec, binding: Binding, tile: tuple[int, int], threads: int
) -> Schedule:  # fmt: skip
    """The schedule of a block for every tile (rows, streamed elements)."""
    (rows, along), streamed = tile, binding.streamed.name
    count = -(-problem.sizes[streamed] // along)
    parts = (Parts(streamed, count),) if count > 1 else ()
    levels = (*grid_levels(binding, rows, 1), *parts, Loop(streamed, along), Lanes(streamed, threads))
    return Schedule.of_levels(levels, binding, device)


def elementwise_tile(form: FusedForm, problem: Problem, binding: Binding, elements: int) -> tuple[int, int]:
    """The rows and the streamed elements of a tile of so many elements."""
    rows = max(1, problem.sizes[binding.row.name]) if binding.row is not None else 1
    length = power_of_two(max(problem.sizes[binding.streamed.name], vector(problem)))
    along = min(elements, length)
    if lies_in_columns(form, problem, binding):
        along = min(along, SQUARE)
    return min(power_of_two(rows), elements // along), along


def elementwise_schedules(
    form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding
) -> Iterator[Schedule]:  # fmt: skip
    """Yield the schedules of a form that reduces nothing, of all numbers of threads and loads; of a GPU."""
    for threads in (128, 256, 512) if device.target != "c" else ():
        for loads in (1, 2, 4):
            tile = elementwise_tile(form, problem, binding, threads * loads * vector(problem))
            yield tile_schedule(problem, device, binding, tile, threads)
