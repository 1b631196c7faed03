"""The rule for rows that are written again, and that no block holds: the blocks of a cluster hold a part each.

Several tiles in turn would read such a row twice. H200, the share of the time of that; bfloat16: softmaxes of 65536
elements 0.80, of 128256 0.79, of 151936 0.76, their logarithms of 128256 0.75; layer norms of 65536 0.83, of 128256
0.98, of 151936 0.88; root mean squares 0.91, 0.99, 0.78; float32: softmaxes of 65536 0.81, of 128256 0.79, of 256000
0.98, layer norms 0.81, 0.86, 1.13, root mean squares 0.91, 0.75, 0.87. Rows of two tensors of 32000 elements: layer
norms of sums in bfloat16 0.68, weighed softmaxes 0.97, in float32 0.91. Rows that begin anywhere; bfloat16: softmaxes
of 65537 elements 0.70, of 128257 0.79, of 151937 0.79, layer norms 0.52, 0.51, 0.50, root mean squares 0.66, 0.55,
0.56; float32: softmaxes of 65537 0.87, of 128257 0.89, of 256001 1.00, layer norms 0.48, 0.69, 0.87, root mean squares
0.63, 0.74, 0.71.
"""

from __future__ import annotations

from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import LOAD_BYTES, DeviceSpec
from redalg.strategies.levels import BLOCKS_OF_CLUSTER, CLUSTER, Parts, Whole
from redalg.strategies.plan import Problem
from redalg.strategies.rules.bulk_rows import (
    FEW_LANES,
    LEAST_BESIDE,
    MANY_LANES,
    RowInBulk,
    blocks_at_once,
    row_in_bulk,
)
from redalg.strategies.rules.long_rows import is_written_again
from redalg.strategies.rules.parts import blocks, is_centred
from redalg.strategies.rules.reads import MOST_ELEMENTS
from redalg.strategies.rules.rows import row_schedule, vector
from redalg.strategies.rules.tiles import round_up
from redalg.strategies.rules.wide_rows import MOST_NARROW, MOST_WIDE
from redalg.strategies.schedule import Schedule

BLOCKS_TOGETHER = 3
"""Blocks of few threads that a multiprocessor has side by side, of as few parts as leave room for them."""
MOST_ANYWHERE = 80
"""Elements of a thread at most where rows begin anywhere: it stores each alone."""
LEAST_OF_SEVERAL = 2 * MOST_NARROW
"""Bytes of the rows of several tensors, from which no two blocks have room for them."""


def cluster_rows_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule | None:
    """The schedule of rows whose parts lie in the shared memory of a cluster; None where it does not serve."""
    if not device.wgmma or problem.compute == "float64" or not is_written_again(form, problem, binding):
        return None
    row, length = row_in_bulk(form, problem, binding), problem.sizes[binding.streamed.name]
    if row is None or length <= longest_of_block(row):
        return None
    axis, wide = binding.streamed.name, LOAD_BYTES // row.size
    anywhere = length * row.size % LOAD_BYTES > 0
    if anywhere and row.bytes > row.size:
        return None  # not timed
    for count in BLOCKS_OF_CLUSTER:
        part = round_up(-(-length // count), wide)
        narrow = round_up(part, FEW_LANES * vector(problem))
        beside = blocks_at_once(narrow * row.bytes, FEW_LANES, device)
        is_short = not anywhere or part <= MOST_ANYWHERE * FEW_LANES
        if beside >= BLOCKS_TOGETHER and is_short:
            threads = FEW_LANES
            break
    else:
        threads = MANY_LANES
    tile = round_up(part, threads * vector(problem))
    many = blocks(binding, problem, 1, 1) * count >= 2 * LEAST_BESIDE * device.multiprocessors
    least = LEAST_BESIDE if is_centred(form) and not anywhere else 1
    if not many or blocks_at_once(tile * row.bytes, threads, device) < least:
        return None
    schedule = row_schedule(device, binding, (1, tile), threads, "row", stages=1)
    return schedule.having(Parts(axis, count, merge=CLUSTER), Whole(axis, tile, memory="shared"))


def longest_of_block(row: RowInBulk) -> int:
    """Elements of the longest rows that a block takes alone; of 8 or 64 bits it takes all."""
    if row.bytes > row.size:
        return LEAST_OF_SEVERAL // row.bytes
    return {2: MOST_NARROW, 4: MOST_WIDE}.get(row.size, MOST_ELEMENTS)
