"""The rule for rows that are read again, too few to fill the chip and too long for a block: one tile for each part.

Threads hold a part while its sums are made, and need no state of their own that moves with what they read. A merge of
few parts is short, and a part of few threads has few of them to wait for.
"""

from __future__ import annotations

from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import Loop, Parts
from redalg.strategies.plan import Problem
from redalg.strategies.rules.parts import blocks, row_elements
from redalg.strategies.rules.powers import power_of_two
from redalg.strategies.rules.reads import has_aligned_rows
from redalg.strategies.rules.rows import LONGEST_ROW, lies_in_columns, row_schedule
from redalg.strategies.schedule import Schedule

EACH, MOST_OF_TILES = 64, 16
"""Elements of a part that a thread holds, and parts of a row at most, which one block after another merges (H200: layer
norms of 32 x 131072 in bfloat16 in 0.85 of the time of 32 elements a thread)."""
CENTRED_LANES, WEIGHED_LANES = 512, 256
"""Threads of a part: of sums about the mean one block a multiprocessor (H200, layer norms in bfloat16: of 32 x
131072 0.91 of the time of lanes with states, of 16 x 262144 0.83, of 64 x 65536 0.97, of 32 x 131072 in float32 0.93);
of weighed sums two, which hide each other's waits (softmaxes of 32 x 131072 0.94 of tiles of 8192, of 16 x 262144 0.95,
of 64 x 65536 0.96, of 32 x 131072 in float32 0.99)."""


def long_rows_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule | None:
    """The schedule of one tile for a part of a row, about its mean or under weights; None where it does not serve."""
    if device.target == "c" or not is_written_again(form, problem, binding):
        return None
    weighed = any(one.weight for one in form.accumulators)
    centred = bool(form.slot_pivots) and form.centres_are_means and len(row_elements(form, binding)) == 1
    grid, length = blocks(binding, problem, 1, 1), problem.sizes[binding.streamed.name]
    few = 2 * grid <= device.multiprocessors and has_aligned_rows(form, problem)
    if problem.compute == "float64" or weighed == centred or not few:
        return None
    lanes = WEIGHED_LANES if weighed else CENTRED_LANES
    parts = power_of_two(-(-length // (EACH * lanes)))
    if not 1 < parts <= MOST_OF_TILES or 2 * grid * parts < device.multiprocessors:
        return None
    axis, tile = binding.streamed.name, EACH * lanes
    return row_schedule(device, binding, (1, tile), lanes).having(Parts(axis, parts, rows=1), Loop(axis, tile))


def is_written_again(
    form: FusedForm, problem: Problem, binding: Binding, *, longer_than: int = LONGEST_ROW
) -> bool:  # fmt: skip
    """Tell if outputs need rows again that are longer than few threads hold, of one length, and lie along memory."""
    plain = not form.places and not form.structures and not lies_in_columns(form, problem, binding)
    fixed = binding.streamed.name not in problem.varying and problem.sizes[binding.streamed.name] > longer_than
    return plain and fixed and any(one.carries for one in form.outputs)
