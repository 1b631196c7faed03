"""The rule for long rows that are written again: a block fetches each in bulk to shared memory.

Threads that hold a long row have many elements each, and a multiprocessor has one block of them: nothing loads while it
stores. In shared memory a row leaves their registers free, and two to four blocks lie side by side. Exponentials are
computed twice instead. H200, the share of the time of rows in registers, or of several tiles; bfloat16: softmaxes of
21000 elements 0.70, of 24576 0.74, of 32000 0.82, of 40000 0.89, of 50264 0.83, of 50257 0.83, their logarithms of
32000 0.75; layer norms of 24576 0.84, of 32000 0.84, of 50264 0.80; root mean squares of 24576 0.89, of 32000 0.98, of
50264 1.04. Rows of two tensors: weighed softmaxes of 16384 0.80, of 24576 0.76, layer norms of sums of 12288 0.89, of
24576 0.67, gradients of softmaxes of 12288 0.90. Rows that begin anywhere, under weights of all rows: layer norms of
4095 0.94, of 8191 0.96, of 16383 0.94, of 50257 0.75, root mean squares 0.95, 0.90, 0.77, 0.80; in float32 of 20001
0.78 and 0.63. Shorter rows stay in registers: softmaxes of 20000 would take 1.06, layer norms of 2047 under weights
1.07.
"""

from __future__ import annotations

from typing import NamedTuple

from redalg.expression import Element
from redalg.expression.contents import elements_of, free_axes
from redalg.expression.dtypes import DTYPES
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec
from redalg.strategies.plan import Problem
from redalg.strategies.rules.long_rows import is_written_again
from redalg.strategies.rules.parts import blocks, row_elements
from redalg.strategies.rules.reads import reads_weights_apart
from redalg.strategies.rules.rows import row_schedule, vector
from redalg.strategies.rules.tiles import round_up
from redalg.strategies.schedule import Schedule

RESERVED, MOST_LANES = 2048, 2048
"""Bytes of shared memory that a block takes beside its rows, at most; and the threads of a multiprocessor."""
LEAST_BESIDE = 2
"""Blocks that a multiprocessor has side by side, at least: while one loads, another stores."""
LONGEST_IN_REGISTERS, LONGEST_OF_SUMS = 20480, 32768
"""Elements of 16 bits up to which rows stay in registers, and from which those of plain sums do again."""
LEAST_OF_SEVERAL = 48 * 1024
"""Bytes of the rows of several tensors from which they are fetched."""
LEAST_APART = {2: 3072, 4: 16384 + 1}
"""Bytes of an element -> elements of a row that begins anywhere, and that weights of all rows scale, at least."""
LANES_APART = ((4096, 128), (8192, 256))
"""Elements of such a row up to which so many threads take it."""
FEW_LANES, MANY_LANES = 256, 512
"""Threads of a block: the fewer, the more blocks lie side by side."""
THREADS_IN_BULK = (128, 256, 512, 1024)
"""Threads of blocks that tuning tries."""


def bulk_rows_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule | None:
    """The schedule of rows that lie in shared memory; None where they are faster in registers, or do not fit."""
    if not device.wgmma or problem.compute == "float64" or not is_written_again(form, problem, binding, longer_than=0):
        return None
    row = row_in_bulk(form, problem, binding)
    if row is None or blocks(binding, problem, 1, 1) < LEAST_BESIDE * device.multiprocessors:
        return None
    length = problem.sizes[binding.streamed.name]
    if reads_weights_apart(form, problem, binding):
        gains, threads = length % 2 == 1 and length >= LEAST_APART.get(row.size, length + 1), lanes_apart(length)
    elif row.bytes > row.size:
        gains, threads = length * row.bytes >= LEAST_OF_SEVERAL and row.size > 1, FEW_LANES
    else:
        gains = row.size == 2 and gains_in_bulk(form, length)
        threads = lanes_in_bulk(form, length * row.size, device)
    tile = round_up(length, threads * vector(problem))
    if not gains or blocks_at_once(tile * row.bytes, threads, device) < LEAST_BESIDE:
        return None
    return row_schedule(device, binding, (1, tile), threads, "row", stages=1)


class RowInBulk(NamedTuple):
    """The bytes of an element of each tensor whose rows a block fetches, and of an element of all of them."""

    size: int
    bytes: int


def row_in_bulk(form: FusedForm, problem: Problem, binding: Binding) -> RowInBulk | None:
    """The rows that a block may fetch for its one output as long as they are; None if dtypes or sums are others."""
    sizes = {DTYPES[problem.dtypes[one.name]].bytes for one in rows_along_memory(form, binding)}
    outputs = sum(one.carries for one in form.outputs)
    if len(sizes) != 1 or outputs != 1 or binding.packing is not None or not sums_rows_alone(form, binding):
        return None
    return RowInBulk(sizes.pop(), bytes_of_rows(form, problem, binding))


def blocks_at_once(row: int, threads: int, device: DeviceSpec) -> int:
    """The blocks of so many threads that a multiprocessor has side by side, by the bytes of the row of each."""
    return min(device.smem_bytes // (row + RESERVED), MOST_LANES // threads)


def rows_along_memory(form: FusedForm, binding: Binding) -> list[Element]:
    """The elements of a form that lie along memory, other ones for every row."""
    return [one for one in row_elements(form, binding) if one.indices[-1] == binding.streamed]


def bytes_of_rows(form: FusedForm, problem: Problem, binding: Binding) -> int:
    """The bytes that all rows of a block have for each streamed element."""
    names = {one.name for one in rows_along_memory(form, binding)}
    return sum(DTYPES[problem.dtypes[one]].bytes for one in names)


def sums_rows_alone(form: FusedForm, binding: Binding) -> bool:
    """Tell if the sums of a form read nothing along rows but the rows."""
    rows = rows_along_memory(form, binding)
    read = (one for reduction in form.cascade.reductions for one in elements_of(reduction.term))
    return all(one in rows for one in read if binding.streamed in free_axes(one))


def gains_in_bulk(form: FusedForm, length: int) -> bool:
    """Tell if rows of 16-bit elements of one tensor are faster in shared memory."""
    weighed = any(one.weight for one in form.accumulators)
    return length > LONGEST_IN_REGISTERS and (weighed or bool(form.pivots) or length <= LONGEST_OF_SUMS)


def lanes_in_bulk(form: FusedForm, row: int, device: DeviceSpec) -> int:
    """The threads of a row of so many bytes: few while as many blocks lie side by side as its sums wait for."""
    weighed = any(one.weight for one in form.accumulators)
    beside = blocks_at_once(row, FEW_LANES, device)
    return FEW_LANES if beside > LEAST_BESIDE + (not weighed) else MANY_LANES


def lanes_apart(length: int) -> int:
    """The threads of a row that begins anywhere, and that weights of all rows scale."""
    return next((lanes for most, lanes in LANES_APART if length <= most), MANY_LANES)
