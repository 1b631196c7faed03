"""The rule for short rows that begin anywhere in a 16-byte load, or fill no tile of a power of two: a block takes
several, which it loads as one array.

Lanes take rows from shared memory (`lower_tile.passes.adjoining_rows`): eight or sixteen, where the rows of a warp lie
in banks of their own; a warp takes a long one. A thread takes two rows, unless it then holds too much.

H200, the time of a copy and the share of the time of rows that are loaded one by one. Softmaxes in bfloat16: of 262144
x 101 in 28 (27) µs, 0.6, of 131072 x 255 35 (34), 0.65, x 383 50 (49), 0.57, of 65536 x 515 35 (34), 0.71, x 777 52
(50), 0.94. Layer norms: 32, 0.6; 43, 0.85; 59, 0.67; 43, 0.75; 62, 0.78. Root mean squares: 29, 0.35; 35, 0.6; 51,
0.58; 36, 0.62; 53, 0.78. In float32, layer norms of 131072 x 255: 67 (66), 0.5, of 65536 x 383 51 (50), 0.8, x 515 68
(66), 0.83; root mean squares of 16384 x 2047 71 (65), 0.93.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from sympy import S

from redalg.expression import Axis, Element
from redalg.expression.contents import elements_of, free_axes, values_of
from redalg.expression.dtypes import DTYPES
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import BANK_BYTES, BANKS, LOAD_BYTES, WARP, DeviceSpec
from redalg.strategies.plan import Problem
from redalg.strategies.rules.narrow import NarrowTile
from redalg.strategies.rules.parts import blocks, is_centred, row_elements
from redalg.strategies.rules.powers import power_of_two
from redalg.strategies.rules.reads import MOST_ELEMENTS, reads_weights_apart
from redalg.strategies.rules.rows import (
    lies_in_columns,
    row_schedule,
    takes_rows_by_threads,
)
from redalg.strategies.rules.tiles import round_up
from redalg.strategies.schedule import Schedule

LONGEST = 832
"""Elements of a row, at most: longer ones are as fast alone (softmaxes of 65536 x 1001 in bfloat16 1.0)."""
LONGEST_UNEVEN = 640
"""Elements of a row that begins at vectors, at most: of 16 bits, or of sums about the mean (H200, bfloat16, softmaxes
and layer norms: of 131072 x 192 in 0.83 and 0.67 of the time of a tile of 256, x 384 0.97 and 0.65, of 65536 x 576 0.83
and 0.86, x 768 1.02 and 1.05; float32: x 192 1.01 and 0.91, x 576 1.01 and 0.85)."""
LONGEST_OF_WEIGHTS = {2: 1024, 4: 2048}
"""Bytes of an element -> elements of a row, at most, that weights of all rows scale, and whose sums are plain, or which
begins at pairs (layer norms of 65536 x 1001 in bfloat16 would take 1.12 of the time)."""
SHORTEST, NARROW, MOST_OF_EIGHT = 32, 64, 128
"""Elements of a row of another rule, at most; of one that only eight lanes take; and of one that eight lanes take."""
MOST_OF_SIXTEEN, MOST_OF_PAIRS, MOST_OF_BANKS = 192, 256, 128
"""Elements of a row that sixteen lanes take, at most; if each takes two at once, or the row is not written again; if an
element fills a bank."""
MOST_BYTES = 72 * 1024
"""Shared memory of a block's rows, at most: those that it reads, and those that it writes."""
LEAST_THREADS, BYTES_OF_TWO_ROWS = 64, 1664
"""Threads of a block, at least; and bytes of rows of which a thread takes elements of two."""


def adjoining_rows_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule | None:
    """The schedule of rows that a block loads as one array; None where rows begin at vectors, are long, or few."""
    if device.target == "c" or problem.varying or binding.row is None or binding.packing is not None:
        return None
    elements = row_elements(form, binding)
    if form.places or form.structures or lies_in_columns(form, problem, binding) or not elements:
        return None
    length = problem.sizes[binding.streamed.name]
    tensors = {one.name: DTYPES[problem.dtypes[one.name]].bytes for one in elements}
    narrowest, again = min(tensors.values()), any(one.carries for one in form.outputs)
    begins_anywhere = any(length * size % (LOAD_BYTES // 2) for size in tensors.values())
    if begins_anywhere:
        weights_apart = reads_weights_apart(form, problem, binding)
        gains = is_in_reach(form, length, (narrowest, len(tensors)), weights_apart=weights_apart)
    else:
        gains = again and is_uneven(form, length, narrowest)
    if not gains or length <= (SHORTEST if again and begins_anywhere else NARROW):
        return None
    if takes_rows_by_threads(form, problem, device, binding):
        return None
    tile = tile_of_rows(length, narrowest, len(tensors), again=again)
    if tile is None:
        return None
    fills = blocks(binding, problem, tile.rows, 1) >= 2 * device.multiprocessors
    numbered = prod(problem.sizes[axis.name] for axis in {*form.cascade.axes()}) <= MOST_ELEMENTS
    fits = numbered and 2 * tile.rows * length * sum(tensors.values()) <= MOST_BYTES
    whole = problem.sizes[binding.row.name] % tile.rows == 0
    if not (fills and fits and are_rows(form, binding, elements, whole=whole)):
        return None
    return row_schedule(device, binding, (tile.rows, tile.columns), tile.threads, "row")


def are_rows(form: FusedForm, binding: Binding, elements: Sequence[Element], *, whole: bool) -> bool:
    """Tell if the rows of a block adjoin in every tensor that has them, at these elements.

    `whole`: they are along the last axis ahead of the elements alone. Else rows of all axes adjoin, where nothing reads
    some of these axes by themselves.
    """
    streamed, orders = binding.streamed, {one.indices[:-1] for one in elements}
    if len(orders) != 1 or any(one.indices[-1] != streamed for one in elements):
        return False
    (order,) = orders
    if order[-1] != binding.row or not all(isinstance(one, Axis) for one in order) or streamed in order:
        return False
    return whole or len(order) == 1 or are_read_together(form, order, streamed)


def are_read_together(form: FusedForm, order: tuple[Axis, ...], streamed: Axis) -> bool:
    """Tell if all tensors that have some axes have all of them in order, and expressions read none by itself."""
    rows = ((*order, streamed), order)
    own = [one for one in form.cascade.elements() if free_axes(one) & {*order}]
    exprs = [*(one.term for one in form.cascade.reductions), *(one.expr for one in form.outputs), form.cascade.domain]
    apart = (free_axes(one.xreplace(dict.fromkeys((*elements_of(one), *values_of(one)), S.Zero))) for one in exprs)
    outputs = all(one.axes in rows for one in form.outputs) and not form.cascade.producers
    return outputs and all(one.indices in rows for one in own) and not any(axes & {*order} for axes in apart)


def is_in_reach(form: FusedForm, length: int, tensors: tuple[int, int], *, weights_apart: bool) -> bool:
    """Tell if rows that begin anywhere are no faster alone, of (bytes of an element, number) of tensors."""
    size, number = tensors
    if length * number <= LONGEST or not weights_apart:
        return length * number <= LONGEST
    plain = not is_centred(form) or in_one_bank(length, size) > 1
    return number == 1 and length <= LONGEST_OF_WEIGHTS.get(size, 0) and plain


def is_uneven(form: FusedForm, length: int, size: int) -> bool:
    """Tell if rows that begin at vectors and are written again, of elements of so many bytes, are slower alone: no tile
    is as long as one."""
    short = length != power_of_two(length) and length <= LONGEST_UNEVEN
    return short and (size < BANK_BYTES or (size == BANK_BYTES and is_centred(form)))


def tile_of_rows(length: int, size: int, tensors: int, *, again: bool) -> NarrowTile | None:
    """The tile of rows of a length, of elements of so many bytes; None of narrow rows that meet in a bank."""
    together, rows = in_one_bank(length, size), LOAD_BYTES // size
    apart = length <= MOST_OF_EIGHT and size < BANK_BYTES and lie_in_own_banks(length * size, 8 * size * together)
    if length <= NARROW and not apart:
        return None
    most = MOST_OF_PAIRS if together > 1 or not again else MOST_OF_BANKS if size >= BANK_BYTES else MOST_OF_SIXTEEN
    if apart:
        lanes, rows = 8, 2 * rows
    else:
        lanes = 16 if length <= most else max(WARP, power_of_two(length // WARP))
    if length > LONGEST:
        rows = LOAD_BYTES // gcd(length * size, LOAD_BYTES)
    threads = rows * lanes // (2 if length * size * tensors <= BYTES_OF_TWO_ROWS else 1)
    more = max(1, LEAST_THREADS // threads)
    return NarrowTile(more * rows, round_up(length, lanes * together), more * threads)


def in_one_bank(length: int, size: int) -> int:
    """The elements that a thread takes from shared memory at once: of every row as many."""
    return gcd(length, max(1, BANK_BYTES // size))


def lie_in_own_banks(row: int, part: int) -> bool:
    """Tell if the four rows that a warp takes, a part of each at once, lie in banks of their own, by their bytes."""
    whole = BANKS * BANK_BYTES
    places = sorted(number * row % whole for number in range(WARP // 8))
    return all(
        (after - before) % whole >= part // 2 for before, after in zip(places, [*places[1:], places[0]], strict=True)
    )
