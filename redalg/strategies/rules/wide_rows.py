"""The rule for rows that are written again, many and long: a block holds one whole, and reads nothing twice.

Threads hold 40 to 80 elements each, in place of a second read of the row (H200, in bfloat16 and float32: softmaxes of
20000 elements in 0.49 and 0.79 of the time of tiles of 32768, of 32000 in 0.82 and 0.72, of 40000 in bfloat16 0.58, of
50257 in float32 0.88; their logarithms 0.56 and 0.85, 0.93 and 0.94, 0.63, 0.90; layer norms 0.52 and 0.79, 0.83 and
0.78, 0.53, 0.86; root mean squares 0.74 and 0.93, 0.95 and 0.97, 0.72, 0.93; of 50264 in bfloat16 0.75, layer norms
0.71, root mean squares 0.83). Of 65536 elements in bfloat16 they take 1.05 to 1.36.
"""

from __future__ import annotations

from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec
from redalg.strategies.plan import Problem
from redalg.strategies.rules.long_rows import is_written_again
from redalg.strategies.rules.parts import blocks, row_elements
from redalg.strategies.rules.reads import loads_by_vectors, reads_weights_apart, writes_weights
from redalg.strategies.rules.rows import FEW_SLOTS, WIDE_LOAD, row_schedule, vector
from redalg.strategies.rules.tiles import round_up
from redalg.strategies.schedule import Schedule

LANES = (256, 512, 1024)
"""Threads of a block: the fewest whose elements are no more than a thread holds."""
OF_WEIGHTS, OF_MEANS, OF_OTHERS = 80, 64, 16
"""Elements of 4 bytes that a thread holds: of weights that it writes again, of sums about the mean, of others."""
OF_NARROW, OF_NARROW_SUMS = 80, 64
"""Elements of 2 bytes that a thread holds, and of plain sums."""
OF_WEIGHTS_APART = 48
"""Elements that a thread holds of rows that begin anywhere, and that weights of all rows scale (H200, bfloat16: layer
norms of 4096 x 20001 in 0.74 of the time of 80)."""
MOST_NARROW, MOST_WIDE = 57344, 53248
"""Elements of the longest row, of 2 bytes and of 4."""


def wide_rows_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule | None:
    """The schedule of one tile for a long row that is written again; None where it does not serve."""
    if device.target == "c" or problem.compute == "float64" or not is_written_again(form, problem, binding):
        return None
    narrow = vector(problem) > WIDE_LOAD
    length, grid = problem.sizes[binding.streamed.name], blocks(binding, problem, 1, 1)
    fits = length <= (MOST_NARROW if narrow else MOST_WIDE) and len(form.slots) <= FEW_SLOTS
    alone = len(row_elements(form, binding)) == 1
    if not (fits and alone) or 2 * grid <= device.multiprocessors or (narrow and not loads_by_vectors(form, problem)):
        return None
    most = most_elements(form, narrow=narrow)
    if reads_weights_apart(form, problem, binding):
        most = min(most, OF_WEIGHTS_APART)
    threads = next((one for one in LANES if length <= most * one), LANES[-1])
    return row_schedule(device, binding, (1, round_up(length, threads * vector(problem))), threads, "row")


def most_elements(form: FusedForm, *, narrow: bool) -> int:
    """The elements of a row that a thread holds, at most, of the fewest threads."""
    weighed = any(one.weight for one in form.accumulators)
    if narrow:
        return OF_NARROW if weighed or form.pivots else OF_NARROW_SUMS
    return OF_WEIGHTS if writes_weights(form) else OF_MEANS if form.slot_pivots else OF_OTHERS
