"""The rules for elementwise terms: rows and columns by lanes, whole rows in one tile, the best of a row.

columns          lanes along the rows' axis, where neighbours along it are neighbours in memory
a short row      one tile that holds it
the best         tiles of which each adds its best to a set
other rows       lanes that keep a state each; the more, the fewer rows there are to fill the chip with
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from redalg.expression import Axis
from redalg.expression.contents import free_axes
from redalg.expression.dtypes import DTYPES, is_float
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import Lanes, Loop
from redalg.strategies.plan import Problem, grid_levels, lane_levels
from redalg.strategies.rules.narrow import (
    BLOCKS_OF_FEW,
    COLUMNS_OF_NARROW_TILE,
    LANES_OF_FEW,
    LONG_COLUMN,
    has_few_columns,
    lanes_of_best,
    narrow_rows,
    ranked_rows,
    tile_of_few_columns,
)
from redalg.strategies.rules.parts import MOST_PARTS, blocks, has_lone_rows, is_centred, is_short_row, streamed_elements
from redalg.strategies.rules.powers import power_of_two, power_within
from redalg.strategies.rules.reads import has_aligned_rows, loads_by_vectors, reads_weights_apart, writes_weights
from redalg.strategies.rules.tiles import round_up
from redalg.strategies.schedule import Schedule


def rows_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule of elementwise terms: a whole row in one tile if short or needed again; else by lanes."""
    length = max(1, problem.sizes[binding.streamed.name])
    rows = max(1, problem.sizes[binding.row.name] if binding.row else 1)
    if device.target == "c":
        level = "thread" if form.structures and not form.places else "block"
        return row_schedule(device, binding, (min(4, rows), min(128, round_up(length, 1))), 1, level)
    if form.places:
        return ranked_rule(form, problem, device, binding)
    if lies_in_columns(form, problem, binding):
        return columns_rule(form, problem, device, binding)
    fixed_length = binding.streamed.name not in problem.varying
    if form.structures:
        return structures_rule(form, problem, device, binding)
    if takes_rows_by_threads(form, problem, device, binding):
        return rows_by_threads(device, binding)
    if fixed_length and length <= whole_row(form, binding, blocks(binding, problem, 1, 1) <= device.multiprocessors):
        return on_chip(form, binding, problem, device)
    level = "thread" if len(form.slots) * vector(problem) <= LANE_REGISTERS and form.is_lanewise else "block"
    carries = any(one.carries for one in form.outputs)
    if carries and fixed_length and length > LONGEST_ROW and takes_long_tile(form, problem, device, binding):
        return row_schedule(device, binding, (1, LONGEST_TILE), LONGEST_TILE // IN_REGISTERS)
    if fixed_length and shares_tiles(form, problem, device, binding):
        return tiled_rule(form, problem, device, binding)
    if level == "thread" and fixed_length and is_short_row(form, problem, device, binding):
        return short_row(device, binding, length, vector(problem))
    threads = 128 if len(form.slots) <= FEW_SLOTS and not carries else 256
    if level == "thread" and fixed_length:
        threads = max(threads, lanes_of_row(form, problem, device, binding))
    lone = fixed_length and has_lone_rows(binding, problem, device)
    loads = LOADS_AT_ONCE * LANES_OF_PARTS // threads if lone else 1
    return row_schedule(device, binding, (1, threads * loads * vector(problem)), threads, level)


TILE_OF_THREADS = (64, 16, 64)
"""Rows of a block of which a thread takes each, elements of a tile, and threads."""
STAGES_OF_THREADS = 2
"""Stages of the loads of such a tile."""
SHORTEST_OF_THREADS = 32
"""Elements of a row that a thread does not take: the whole tile of such a row lies in one thread, or in two."""
LONGEST_OF_THREADS = 128
"""Elements of the longest row that a thread takes."""
SHORT_OF_THREADS = 64
"""Elements of a row whose whole tile is no slower than threads, unless `LOADED` of them are loaded at a time."""
LOADED = 4
"""Elements that a load of a whole tile takes, where the length is a multiple of them."""
ROWS_OF_THREADS = 128
"""Rows for each multiprocessor from which a thread takes one."""
PADDED_ROW = 0.75
"""The share of a whole tile up to which rows of few states are padded."""


def rows_by_threads(device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule of which a thread takes a row, from tiles in shared memory."""
    rows, streamed, threads = TILE_OF_THREADS
    return row_schedule(device, binding, (rows, streamed), threads, along=binding.row, stages=STAGES_OF_THREADS)


def takes_rows_by_threads(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> bool:
    """Tell if a thread takes a row of several states, which a whole tile would pad, or hold too many of for every lane.

    H200, float32, the share of the time of whole tiles. Six statistics: 16896 x 48 0.64, 131072 x 33 0.16, x 50 0.27,
    x 110 0.77, 65536 x 64 0.82, x 128 0.75. Kurtoses: 131072 x 40 0.58, x 72 0.61, x 99 0.86, x 120 0.97, in bfloat16
    x 52 0.57; x 33 1.12, x 50 1.00, x 64 1.18, x 128 1.24. Variances: x 40 0.84, x 70 0.89, x 72 0.80; x 100 1.12,
    x 33 1.13. Logsumexps: x 40 1.00, x 100 1.28.
    """
    rows, length = (problem.sizes[axis.name] if axis else 1 for axis in (binding.row, binding.streamed))
    if {str(binding.row), binding.streamed.name} & problem.varying or any(one.carries for one in form.outputs):
        return False
    many = rows >= ROWS_OF_THREADS * device.multiprocessors
    if not (form.is_serial and many and SHORTEST_OF_THREADS < length <= LONGEST_OF_THREADS):
        return False
    states, share = len(form.slots), length / power_of_two(length)
    if states > 2 * FEW_SLOTS:
        return True
    padded = share < 1 if states > FEW_SLOTS else share <= PADDED_ROW
    return padded and states > FEW_SLOTS // 2 and (length % LOADED == 0 or length > SHORT_OF_THREADS)


def structures_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule of monoids: lanes that keep a state each; a short row whose best place is wanted is ranked whole."""
    rows, length = (max(1, problem.sizes[axis.name]) if axis else 1 for axis in (binding.row, binding.streamed))
    if binding.streamed.name in problem.varying or not all(one.is_ranked for one in form.structures):
        return lanes_of_structures(device, binding, length)
    whole = ranked_rows(rows, length)
    if whole is not None:
        return row_schedule(device, binding, (whole.rows, whole.columns), whole.threads, "row")
    few = blocks(binding, problem, 1, 1) <= 2 * device.multiprocessors
    tile, lanes = lanes_of_best(length, few=few)
    return row_schedule(device, binding, (1, tile), lanes, "thread" if form.is_lanewise else "block")


def lanes_of_structures(device: DeviceSpec, binding: Binding, length: int) -> Schedule:
    """The schedule of lanes that keep a state of monoids each."""
    return row_schedule(device, binding, (1, min(1024, power_of_two(max(length, 128)))), 128, "thread")


LANES_OF_TILE, LANES_OF_FEW_ROWS, LONG_ROW_OF_STATES = 128, 256, 8192
"""Lanes that share the tiles of a long row: more where there are few rows; and the longest row that is one tile."""


def shares_tiles(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> bool:
    """Tell if the lanes of a long row reduce it tile by tile: if exponentials weigh its sums, or of many states.

    A tile has one maximum, and is rescaled for once; lanes with states of their own would rescale for every element
    (H100: logsumexps of 511 x 50257 take 0.81 of their time, of 16 x 1e6 0.88, a mean and a variance under weights of
    4096 x 16384 0.6, of 64 x 262144 0.7), but for a few rows in many parts (H200: lanes take 0.74 of the time of tiles
    for 2 x 8388608). Where rows of one or two inputs fill the chip, several states are kept once (kurtoses of
    511 x 50257 in float16: 0.79, correlations of 8192 rows: 0.96).
    """
    grid, carries = blocks(binding, problem, 1, 1), any(one.carries for one in form.outputs)
    if has_lone_rows(binding, problem, device) and not carries:
        return False
    if any(one.weight for one in form.accumulators):
        return 2 * grid <= device.multiprocessors or not carries
    reads = streamed_elements(form, binding)
    inputs = {one.name for one in reads}
    several = len(form.slots) > FEW_SLOTS and len(inputs) == len(reads) <= FEW_SLOTS // 2
    return form.is_lanewise and not carries and several and grid > 2 * device.multiprocessors


ROWS_OF_WARPS, WEIGHED_SLOTS = 15, 2
"""Rows for each multiprocessor from which a warp takes one, if it has more states than these: a maximum and a sum."""


def tiled_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule of long rows that are reduced tile by tile.

    A warp alone takes a row of several inputs whose sums are weighed: they leave fewer registers (H100: two softmaxes
    beside each other in 0.77 of the time). So it takes one of many rows with more than a maximum and a sum (H200:
    means and variances under weights of 4096 x 16384 in 0.89, of 4096 x 32768 in bfloat16 0.94, means of 2048 x 50257
    0.95, of 8192 x 32768 in bfloat16 0.95, of 4096 x 16384 1.01; variances of 1024 x 65536 1.17).

    One tile takes a row of several states if it is not long (kurtoses of 4096 x 8192 in float16 in 0.90 of the time of
    two tiles, correlations of 8192 x 8192 in 0.99).
    """
    rows, inputs = blocks(binding, problem, 1, 1), {one.name for one in streamed_elements(form, binding)}
    few, many_rows = rows <= 2 * device.multiprocessors, rows >= ROWS_OF_WARPS * device.multiprocessors
    weighs = any(one.weight for one in form.accumulators)
    by_warps = weighs and (len(inputs) > 1 or (many_rows and len(form.slots) > WEIGHED_SLOTS))
    if not weighs and problem.sizes[binding.streamed.name] <= LONG_ROW_OF_STATES:
        whole = power_of_two(problem.sizes[binding.streamed.name])
        return row_schedule(device, binding, (1, whole), LANES_OF_TILE, "row")
    most = max(32, power_of_two(problem.sizes[binding.streamed.name]) // IN_REGISTERS)
    lone = has_lone_rows(binding, problem, device)
    many = 2 * LANES_OF_FEW_ROWS if lone else LANES_OF_FEW_ROWS if few else LANES_OF_TILE
    lanes = min(most, 32 if by_warps else many)
    return row_schedule(device, binding, (1, lanes * IN_REGISTERS), lanes)


def takes_long_tile(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> bool:
    """Tell if long tiles take rows that are read again. Lanes take sums about means of rows that begin at vectors
    (H200, layer norms of 512 x 128256 in float32 0.81 of the time, of 256 x 256001 1.09)."""
    many = 2 * blocks(binding, problem, 1, 1) > device.multiprocessors
    narrow = problem.compute != "float64" and len(form.slots) <= FEW_SLOTS
    vectors = loads_by_vectors(form, problem) or vector(problem) <= WIDE_LOAD
    return many and narrow and vectors and not (form.slot_pivots and has_aligned_rows(form, problem))


LANES_IN_FLIGHT, LOADS_OF_LANE, LANES_OF_PARTS = 1024, 8, 256
"""Lanes of a multiprocessor whose 16-byte loads keep the memory busy, loads that a lane makes at least, and the lanes
of a part of a row (H100: variances of 256 x 200704 in float16 take 0.64 of the time of 128 lanes a row, logsumexps of
511 x 50257 0.64, variances of 132 x 1e6 in 1024 lanes 0.99 of the time of 512 in two parts)."""


def lanes_of_row(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> int:
    """The lanes that share a row: the more, the fewer rows there are to fill the chip with."""
    grid, wide = blocks(binding, problem, 1, 1), vector(problem)
    rescales_few = len(form.slots) <= FEW_SLOTS and any(one.weight for one in form.accumulators)
    if grid == 1 and has_lone_rows(binding, problem, device) and not rescales_few:
        return 2 * LANES_OF_PARTS
    if 2 * grid <= device.multiprocessors:
        return LANES_OF_PARTS
    registers = 1024 if len(form.slots) * wide <= LANE_REGISTERS // 3 else 512
    loads = problem.sizes[binding.streamed.name] // (LOADS_OF_LANE * wide)
    return power_within(min(LANES_IN_FLIGHT * device.multiprocessors // grid, loads, registers))


SHORT_TRIPS, LOADS_AT_ONCE = 8, 4
"""Trips of a block that reads a short row alone, and the 16-byte loads of a lane in a trip."""


def short_row(device: DeviceSpec, binding: Binding, length: int, wide: int) -> Schedule:
    """The schedule of a short row: a few trips, in which each lane has several loads in flight."""
    tile = power_of_two(-(-length // SHORT_TRIPS))
    threads = max(128, min(512, tile // (LOADS_AT_ONCE * wide)))
    return row_schedule(device, binding, (1, max(tile, threads * wide)), threads, "thread")


COLUMNS_OF_TILE = 64
"""Neighbouring columns that a block reads together: fewer if that fills the GPU at once, or parts do not (H200). Those
that numbers of rows weigh have fewer threads (256 x 4096 x 512 in float32 in 0.93 of the time of 256)."""
WIDE_TILE_OF_COLUMNS, MANY_COLUMNS = 128, 2048
"""The columns that a block of few threads reads together if there are so many for each multiprocessor (H100: sums in
bfloat16 over 4 to 64 heads of 4 x 2048 x 128 in 0.21 to 0.88 of the time of narrow tiles, logarithms of sums of
exponentials in 0.19 to 0.78)."""


def lies_in_columns(form: FusedForm, problem: Problem, binding: Binding) -> bool:
    """Tell if neighbours along the rows' axis are neighbours in memory, in the largest tensor that is streamed.

    Then lanes lie along the rows, if each may keep a state of its own and the rows fill a tile.
    """
    own = form.structures or form.is_lanewise or (form.is_tilted and form.shares_slopes)
    streamed = streamed_elements(form, binding)
    if binding.row is None or binding.packing is not None or form.places or not own or not streamed:
        return False
    if problem.sizes[binding.row.name] < COLUMNS_OF_NARROW_TILE and not are_few_columns(problem, binding):
        return False
    largest = max(streamed, key=lambda one: (prod(problem.sizes[axis.name] for axis in free_axes(one)), str(one)))
    return bool(largest.indices[-1] == binding.row)


def are_few_columns(problem: Problem, binding: Binding) -> bool:
    """Tell if columns are few, of one number in all calls, and so long that lanes each take many of their elements."""
    row, streamed = str(binding.row), binding.streamed.name
    known = not {row, streamed} & problem.varying
    return known and has_few_columns(problem.sizes[row]) and problem.sizes[streamed] >= LONG_COLUMN


def columns_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule of elementwise terms over columns: neighbouring threads read neighbouring columns."""
    grid, chips = blocks(binding, problem, COLUMNS_OF_TILE, 1), device.multiprocessors
    row = problem.sizes[binding.row.name] if binding.row else 1
    fills = grid * MOST_PARTS >= chips * BLOCKS_OF_FEW
    if are_few_columns(problem, binding) and (row < COLUMNS_OF_NARROW_TILE or not fills):
        return row_schedule(device, binding, tile_of_few_columns(row), LANES_OF_FEW, "thread", along=binding.row)
    wide = min(WIDE_TILE_OF_COLUMNS, power_within(row))
    if blocks(binding, problem, wide, 1) * wide >= MANY_COLUMNS * chips and len(form.slots) <= 2 * FEW_SLOTS:
        threads = max(32, wide // 2)
        return row_schedule(device, binding, (wide, 4 * threads // wide), threads, "thread", along=binding.row)
    if grid >= chips and any(binding.row not in free_axes(one) for one in streamed_elements(form, binding)):
        columns, threads, each = COLUMNS_OF_NARROW_TILE, 128, 1
    elif grid >= chips:
        columns, threads, each = COLUMNS_OF_NARROW_TILE, 256, 2
    elif grid * MOST_PARTS >= chips:
        columns, threads, each = COLUMNS_OF_TILE, 512, 4
    else:
        columns, threads, each = COLUMNS_OF_NARROW_TILE, 1024, 4
    threads = threads if len(form.slots) <= 2 * FEW_SLOTS else 256
    return row_schedule(device, binding, (columns, threads // columns * each), threads, "thread", along=binding.row)


def column_tiles(threads: int, row: int) -> Iterator[tuple[int, int]]:
    """Yield (columns, streamed elements) of tiles whose lanes lie along the `row` columns, for a number of threads."""
    narrow = row < COLUMNS_OF_NARROW_TILE
    slim = tile_of_few_columns(row)[0] if has_few_columns(row) else COLUMNS_OF_NARROW_TILE
    widths = {slim, power_of_two(row)} if narrow else {slim} - {COLUMNS_OF_NARROW_TILE}
    yield from ((width, threads // width * each) for width in sorted(widths) for each in (1, 2, 4, 8))
    if narrow:
        return
    if threads < 128:
        yield from product((threads, 2 * threads), (1, 2, 4))
        return
    for columns, each in product((32, 64, 128), (1, 2, 4, 8)):
        yield columns, threads // columns * each


WHOLE_SELECTED = 2048
"""Elements of a row that one tile selects from."""
LONGEST_SELECTED = 8192
"""Elements of a tile of a longer row, at most. The first tile of a row costs a dozen counts, each other one, so that
tiles grow with rows and with places, of 16 elements a thread (H100: of ten shapes within 1.06 of the best of ten)."""
FEW_PLACES, SHORT_SELECTED = 16, 2048
"""Places up to which tiles are short, of 32 elements a thread (H100: 8 of 1024 x 50257 in 0.78 of the time)."""


def ranked_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule that selects the best of a row: one tile for a short row, else a block for every row."""
    rows, length = (max(1, problem.sizes[axis.name]) if axis else 1 for axis in (binding.row, binding.streamed))
    grid, most = blocks(binding, problem, 1, 1), max(problem.sizes[one.name] for one in form.places)
    if length <= WHOLE_SELECTED or problem.compute == "float64":
        wide = 8192 if grid <= device.multiprocessors else WHOLE_SELECTED
        streamed = min(wide, power_of_two(max(length, 128)))
        row = 1 if streamed >= 1024 else min(power_of_two(rows), 1024 // streamed)
        return row_schedule(device, binding, (row, streamed), 256 if streamed > WHOLE_SELECTED else 128)
    tile = min(LONGEST_SELECTED, max(512, 32 * power_of_two(most), power_of_two(length // 16)))
    if most <= FEW_PLACES:
        tile = min(tile, SHORT_SELECTED)
        return row_schedule(device, binding, (1, tile), max(32, tile // 32))
    tile = LONGEST_SELECTED if grid <= device.multiprocessors else tile
    return row_schedule(device, binding, (1, tile), min(256, tile // 16))


LANE_REGISTERS, FEW_SLOTS = 96, 4
"""Numbers of state that a thread may hold for its lanes (of 255 registers, the loads and the moves take others)."""
SHORT_ROW, LONG_ROW, LONG_WEIGHED_ROW, LONGEST_ROW = 2048, 10240, 12288, 16384
"""Elements of a row that one tile takes whole, the more the less is reduced of it (measured on an H200; H100: group
norms of 10240 elements in 0.84 of the time of lanes). Up to the third 256 threads take weighed rows of 16 bits (H200,
logarithms of softmaxes: of 8192 x 12000 in 0.91 of the time of 512, of 4096 x 16384 1.03; softmaxes of that 0.97)."""
IN_REGISTERS, WARPS_AT_ONCE = 32, 24
"""Elements of a tile that a thread holds; and the warps that a multiprocessor runs at once if each centres a row."""
LONGEST_TILE, WIDE_LOAD = 32768, 4
"""The tile of longer rows that are read again, 32 elements a thread; and the elements of a load up to which rows need
not be aligned for it (H100: weights of 511 x 50257 in float32 take 0.63 of the time of tiles of 1024, deviations of
1024 rows 0.80, rows of 32768 in bfloat16 over their root mean square 0.86; weights of 50257 in bfloat16 1.03)."""


def whole_row(form: FusedForm, binding: Binding, few: bool) -> int:
    """The longest row that one tile takes: long if it is needed again, or if lanes would rescale their sums.

    Sums about the mean of one input need it again, for the mean is found first (H100, variances in float32: of 1 x 4096
    in 0.93 of the time of lanes, of 128 x 6000 0.77, of 1024 x 16384 0.96; kurtoses of 4096 x 10240
    in float16 0.60 of the time of tiles, of 4096 x 16384 0.90). So do outputs as long as the row (H200, softmaxes of
    4096 x 16384 in bfloat16: 0.95 of the time of two tiles).
    """
    again = any(one.carries for one in form.outputs)
    of_rows = [one for one in streamed_elements(form, binding) if free_axes(one) != {binding.streamed}]
    centred = bool(form.slot_pivots) and form.centres_are_means and len(of_rows) == 1
    if centred and not again:
        return LONGEST_ROW
    if few or not (again or any(one.weight for one in form.accumulators)):
        return SHORT_ROW
    return LONGEST_ROW if centred or again or not form.pivots else LONG_ROW


def on_chip(form: FusedForm, binding: Binding, problem: Problem, device: DeviceSpec) -> Schedule:
    """The schedule of one tile for a row (for several if short), of 32 elements a thread: fewer threads meet sooner.

    Two centred rows of 1024 elements, unless all warps that hold one each in 16 bits, and write it, run at once (H100,
    layer norms of 4096 x 1024 in bfloat16: 0.95 of the time of one row, of 1000 x 1024 1.03). So are those of one sum
    alone (H200, root mean squares of 16384 x 1024 in bfloat16: 0.95 of the time of one row, of 4096 x 1024 0.96).
    Longer ones take fewer threads, which meet at each of the sums (of 8192 x 8192 in 128 threads 0.95 of the time of
    256; H200, of 4096 x 16384 in 16 bits 0.96 of 512), also if they are not read again (variances of 1 x 8192 in 128
    threads 0.97, of 1024 x 8192 0.98); softmaxes of 8192 x 8192 as long as in 256, which spill. Two warps take a row of
    1024 elements that is not written again (cross entropies of 4096 x 1024 in bfloat16: 0.94 of the time of one). One
    warp takes two rows of 512 (32768 x 512: variances in float32 0.89 of the time of four warps, softmaxes
    in bfloat16 0.96, layer norms 0.98).
    """
    rows, length = (max(1, problem.sizes[axis.name]) if axis else 1 for axis in (binding.row, binding.streamed))
    centred = is_centred(form)
    again = any(one.carries for one in form.outputs)
    if (short := narrow_rows(rows, length, again=again)) is not None:
        return row_schedule(device, binding, (short.rows, short.columns), short.threads, "row")
    narrow = vector(problem) > WIDE_LOAD
    few_lanes = centred and (length <= LONG_ROW_OF_STATES or not again or narrow)
    streamed = power_of_two(length)
    if length > SHORT_APART and again and reads_weights_apart(form, problem, binding):
        few = length <= SHORT_OF_WEIGHTS and (centred != narrow or length % 2 == 0)
        threads = min(512, max(32, streamed // (IN_REGISTERS // 2 if few else IN_REGISTERS)))
        return row_schedule(device, binding, (1, round_up(length, threads * vector(problem))), threads, "row")
    if few_lanes and again and length < streamed and narrow:
        return ragged_rows(device, binding, (rows, length), vector(problem))
    weighed = again and narrow and any(one.weight for one in form.accumulators)
    if few_lanes or (weighed and length <= LONG_ROW_OF_STATES):
        most = LANES_OF_TILE
    else:
        some = length <= (LONG_ROW if not weighed else LONGEST_ROW if writes_weights(form) else LONG_WEIGHED_ROW)
        most = 256 if some else 512
    threads = min(most, max(32, streamed // IN_REGISTERS))
    if streamed == 1024 and not centred and not again:
        threads = 64
    if length > 1024:
        streamed = round_up(length, threads * vector(problem))
    at_once = blocks(binding, problem, 1, 1) <= WARPS_AT_ONCE * device.multiprocessors
    alone = at_once and again and narrow
    plain = again and narrow and not form.pivots and len(form.slots) <= 2 and length == streamed
    if streamed == 1024 and rows > 1 and (plain or (centred and not alone)):
        return row_schedule(device, binding, (2, streamed), 64, "row")
    row = 1 if streamed >= 1024 else min(power_of_two(rows), 1024 // streamed)
    together = 32 if streamed == 512 else 128
    return row_schedule(device, binding, (row, streamed), threads if row == 1 else together, "row")


SHORT_APART, SHORT_OF_WEIGHTS = 512, 4096
"""Elements of rows that begin anywhere, and that weights of all rows scale. Shorter ones than the first are taken as
others. Up to the second a thread holds 16: of plain sums in 16 bits, of sums about the mean in 32, and of rows that
begin at pairs. The rest has 32 a thread, in as many threads as that takes (H200, bfloat16: root mean squares of 65536 x
1001 in 0.93 of the time of 32, of 32768 x 2047 0.89, layer norms 1.05 and 1.04, of 65536 x 1002 0.74; float32, layer
norms of 16384 x 2047 0.84, of 8192 x 4095 0.82, root mean squares 1.00 and 1.06). Longer ones take as many threads as
others (layer norms of 4096 x 16383 in bfloat16: 0.66 of the time of 128)."""
MOST_IN_REGISTERS = 40
"""Elements of a centred row that a thread holds, if no tile of 32 a thread is as long as the row."""


def ragged_rows(device: DeviceSpec, binding: Binding, shape: tuple[int, int], wide: int) -> Schedule:
    """The schedule of centred rows of 16 bits that are written again, and whose length is no power of two.

    A warp alone takes what it can (H100, layer norms of x + y in bfloat16, 9.4e6 elements: of 768 in 0.86 of the time
    of two rows in two warps, of 1280 in 0.94 of that of two warps, of 2560 in two warps 0.92, of 384, 192 and 96 in a
    warp with 512 places 0.93 to 0.96).
    """
    rows, length = shape
    if length <= 16 * IN_REGISTERS:
        streamed = power_of_two(length)
        return row_schedule(
            device, binding, (min(power_of_two(rows), 16 * IN_REGISTERS // streamed), streamed), 32, "row"
        )
    threads = min(LANES_OF_TILE, max(32, power_of_two(-(-length // MOST_IN_REGISTERS))))
    return row_schedule(device, binding, (1, round_up(length, threads * wide)), threads, "row")


def vector(problem: Problem) -> int:
    """The number of elements of the narrowest floating-point input that one 16-byte load takes."""
    return 16 // min([DTYPES[dtype].bytes for dtype in problem.dtypes.values() if is_float(dtype)] or [4])


def row_schedule(
    device: DeviceSpec, binding: Binding, tile: tuple[int, int], threads: int, level: str = "block", *,
    along: Axis | None = None, stages: int = 0,
) -> Schedule:  # fmt: skip
    """The schedule of elementwise terms, from its tile (rows, streamed elements) and the place of its lanes.

    `along`: the axis of the lanes; None for the streamed one. `stages`: the depth of the loads' pipeline.
    """
    (rows, streamed), axis = tile, binding.streamed.name
    lanes = Lanes((along or binding.streamed).name, threads)
    loops = lane_levels(Loop(axis, streamed, stages), lanes, level)
    return Schedule.of_levels((*grid_levels(binding, rows, 1), *loops), binding, device)
