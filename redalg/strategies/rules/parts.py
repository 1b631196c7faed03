"""The rules for parts: how many blocks share an axis that is reduced, and how their states are merged."""

from __future__ import annotations

from math import prod

from redalg.expression import Element
from redalg.expression.contents import free_axes, values_of
from redalg.expression.dtypes import DTYPES
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import MERGED_ROWS, Loop, Parts
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.rules.narrow import BLOCKS_OF_FEW, PARTS_OF_FEW, has_few_columns
from redalg.strategies.rules.powers import power_of_two, power_within
from redalg.strategies.schedule import Schedule, numbers_of


def with_parts(schedule: Schedule, form: FusedForm, problem: Problem) -> Schedule:
    """The schedule with parts of the producers' axes, or of the streamed axis, where its blocks leave the chip idle."""
    plan = numbers_of(schedule)
    if (count := splits(plan, form, problem)) > 1:
        return schedule.having(*(Parts(axis.name, count) for axis in plan.binding.inner))
    if plan.keeps_states and not plan.along_rows and is_short_row(form, problem, plan.device, plan.binding):
        return schedule
    weighs = any(one.weight for one in form.accumulators) or any(one.is_ranked for one in form.structures)
    if plan.is_serial and shares_weights(form, plan.binding):
        count = parts_of_weighed(plan, problem)
    else:
        count = segments(plan, problem, selects=bool(form.places), weighs=weighs)
    if count == 1:
        return schedule
    axis = plan.binding.streamed.name
    rows = rows_at_once(plan, problem)
    pipeline = plan.stages if plan.tensor_cores or plan.is_serial else 0
    return schedule.having(
        Parts(axis, count, rows=rows), Loop(axis, plan.block_streamed, pipeline, plan.warp_specialized)
    )


def shares_weights(form: FusedForm, binding: Binding) -> bool:
    """Tell if exponentials weigh the sums, and are the same for all rows of a block."""
    weights = [pivot for one in form.accumulators for pivot, _ in one.weight]
    return bool(weights) and all(binding.row not in free_axes(pivot.base) for pivot in weights)


BLOCKS_OF_WEIGHED = 2
"""Blocks of columns that share their weights, on each multiprocessor (H200, float32: 64 x 2048 x 256 in 0.93 of the
time of one, 0.83 of four; 32 x 16384 x 128 0.80 of four)."""


def parts_of_weighed(plan: Plan, problem: Problem) -> int:
    """The parts of columns that share their weights."""
    grid = blocks(plan.binding, problem, plan.block_row, plan.block_column)
    tiles = problem.sizes[plan.binding.streamed.name] // (TILES_OF_PAIRS * plan.block_streamed)
    return power_within(max(1, min(BLOCKS_OF_WEIGHED * plan.device.multiprocessors // grid, tiles, MOST_PARTS)))


SHORT_BYTES = 1 << 18
"""Bytes of a row, one of few, that a block reads alone (H100, variances in float32: 1, 16 and 128 rows of 32768 take
0.75, 0.64 and 0.88 of the time of parts or of one load a trip, one row of 8192 0.60, of 65536 0.96; of 131072 1.24)."""


def is_short_row(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> bool:
    """Tell if the rows of one input are too few to fill the chip, and too short for parts of them to pay."""
    reads, axis = streamed_elements(form, binding), binding.streamed.name
    if len(reads) != 1 or axis in problem.varying or any(one.carries for one in form.outputs):
        return False
    few = blocks(binding, problem, 1, 1) <= device.multiprocessors
    return few and problem.sizes[axis] * DTYPES[problem.dtypes[reads[0].name]].bytes <= SHORT_BYTES


def streamed_elements(form: FusedForm, binding: Binding) -> list[Element]:
    """The elements of a form that are read along the streamed axis."""
    return [one for one in form.cascade.elements() if binding.streamed in free_axes(one)]


def is_centred(form: FusedForm) -> bool:
    """Tell if sums are about the mean."""
    return any(one.value not in form.scaling for one in form.slot_pivots)


def row_elements(form: FusedForm, binding: Binding) -> list[Element]:
    """The elements of a form that are read along the streamed axis, other ones for every row."""
    return [one for one in streamed_elements(form, binding) if binding.row is None or binding.row in one.indices]


def may_split(plan: Plan, form: FusedForm) -> bool:
    """Tell if blocks of a plan may take parts of the producers' axes."""
    product = plan.block_inner and plan.tensor_cores and not plan.binding.contracted
    return bool(product) and splittable(form, plan.binding)


def splittable(form: FusedForm, binding: Binding) -> bool:
    """Tell if every producer is one sum over its axis, for every row and streamed element."""
    producers = form.cascade.producers
    if any(binding.rows and not binding.rows & set(one.axes) for one in producers):
        return False
    terms = [one.cascade.sum_alone for one in producers if form.cascade.axis in one.axes]
    return (
        bool(producers)
        and len(terms) == len(producers)
        and all(term is not None and not values_of(term) for term in terms)
    )


LEAST_SEGMENT = 4096
"""Elements of a part that are worth a block of their own, and a merge."""
RESIDENT_LANES = 512
"""Lanes of the blocks that stand beside each other on a multiprocessor."""
BUSY = 0.8
"""The share of the time that is enough for blocks of columns to keep the multiprocessors busy."""
TILES_OF_COLUMNS = 4
"""Tiles of columns that a part has, at least."""
TILES_OF_PAIRS = 2
"""Tiles of pairs that a part has, at least."""
MOST_PARTS = 64
"""Parts of an axis, at most."""
MOST_PARTS_OF_SETS = 256
"""Parts of an axis of which the best are selected, at most: many sets are merged at a time."""
MOST_PARTS_OF_PRODUCTS = 512
"""Parts of the axis of a product that threads make, at most."""
SCALAR_BLOCKS = 2
"""Blocks of a multiprocessor beside each other that make scores on CUDA cores (H100: 8192² scores of 64 products in
0.81 of the time of one)."""
SHORT_SERIAL = 128
"""Elements of an axis that a thread streams alone (H200, six statistics of 65536 x 100 in 0.65 of the time of 2 parts,
which are merged by a kernel of their own)."""
SERIAL_BLOCKS = 8
"""Blocks of pairs on a multiprocessor, at least (H200: 20000 bodies in 32 parts take 0.94 of their time in 16)."""
FEW_SERIAL_BLOCKS = 4
"""Blocks of pairs on a multiprocessor, at least, if a thread has rows of several columns, or producers of its own: few
of them wait for each other (H100: sums of distances in 2 parts take 1.12, k-means in 2 parts 1.05; log-domain products
of 512 x 1024 x 1024, of which each multiprocessor has two blocks already, in 2 parts 1.06)."""


def lane_segments(plan: Plan, problem: Problem, grid: int, *, weighs: bool) -> int:
    """The number of parts of a row, if its lanes need nothing of each other until its end."""
    length, chips = problem.sizes[plan.binding.streamed.name], plan.device.multiprocessors
    if plan.is_serial:
        parts = serial_segments(plan.device, plan.binding, length, plan.block_streamed, grid)
        wide = plan.binding.contracted and problem.compute == "float64"  # a merge reads as many bytes
        return min(parts, MOST_PARTS_OF_PRODUCTS // 2) if wide else parts
    if plan.along_rows and plan.binding.row is not None and has_few_columns(problem.sizes[plan.binding.row.name]):
        beside = -(-problem.sizes[plan.binding.row.name] // plan.block_row)
        each = BLOCKS_OF_FEW if beside == 1 else 1
        tiles = length // (TILES_OF_COLUMNS * plan.block_streamed)
        return power_within(max(1, min(each * chips * beside // grid, tiles, PARTS_OF_FEW)))
    if plan.along_rows:  # every tile is short, and a part needs few of them
        most = min(length // (TILES_OF_COLUMNS * plan.block_streamed), MOST_PARTS)
        return power_within(min(busy_parts(grid, (1 + weighs) * chips), most))
    if 2 * grid > chips:
        return 1
    most = min(RESIDENT_LANES * chips // (grid * plan.threads), length // LEAST_SEGMENT)
    return power_within(min(most, most_parts(plan.binding, problem, plan.device)))


LONE_ROW = 1 << 21
"""Elements of one or two rows from which each multiprocessor takes two parts of them."""


def most_parts(binding: Binding, problem: Problem, device: DeviceSpec) -> int:
    """The parts of an axis, at most: of one or two long rows, as many as give each multiprocessor one or two.

    H200, 1 x 16777216 in float32: 128 parts of a variance take 0.62 of the time of 64 (256 0.72), of weights that are
    written 0.70, 256 of a logsumexp 0.55. 2 x 8388608: 128 parts of a variance 0.81, of a logsumexp 0.74.
    """
    lone = has_lone_rows(binding, problem, device)
    return power_within(2 * device.multiprocessors // blocks(binding, problem, 1, 1)) if lone else MOST_PARTS


def has_lone_rows(binding: Binding, problem: Problem, device: DeviceSpec) -> bool:
    """Tell if rows are so long and few that every part of them has a multiprocessor: a lane has several loads then."""
    few = blocks(binding, problem, 1, 1) * MOST_PARTS <= device.multiprocessors
    return few and problem.sizes[binding.streamed.name] >= LONE_ROW


def busy_parts(grid: int, chips: int) -> int:
    """The fewest parts with which blocks keep the multiprocessors busy; many parts make many short loops."""
    counts = [power_within(max(1, chips // grid)) << power for power in range(3)]
    fill = {count: grid * count / (chips * -(-grid * count // chips)) for count in counts}
    return next((count for count in counts if fill[count] >= BUSY), max(counts, key=lambda count: fill[count]))


def serial_segments(device: DeviceSpec, binding: Binding, length: int, tile: int, grid: int) -> int:
    """The number of parts of an axis that threads stream one element after another: several blocks hide its waits."""
    alone = binding.column is None and not binding.inner
    if length <= SHORT_SERIAL or fills_at_once(device, binding, grid):
        return 1
    resident = SERIAL_BLOCKS if alone else FEW_SERIAL_BLOCKS
    most = MOST_PARTS_OF_PRODUCTS if binding.contracted else MOST_PARTS
    wanted = -(-resident * device.multiprocessors // grid)
    return power_within(min(power_of_two(wanted), length // (TILES_OF_PAIRS * tile), most))


def fills_at_once(device: DeviceSpec, binding: Binding, grid: int) -> bool:
    """Tell if blocks of which each thread has rows of several columns leave no multiprocessor to wait for others."""
    return binding.column is not None and 2 * grid >= 3 * device.multiprocessors


def segments(plan: Plan, problem: Problem, *, selects: bool = False, weighs: bool = False) -> int:
    """The number of parts of the streamed axis: enough that the grid fills the chip.

    Each has at least four tiles (two if there are many, one if a tile is a loop itself). A block that selects waits,
    or whose tiles exponentials weigh, and others beside it hide that; then two tiles are enough.
    """
    if plan.device.target == "c" or plan.level == "row":
        return 1
    grid = blocks(plan.binding, problem, plan.block_row, plan.block_column)
    tiles_along = -(-max(1, problem.sizes[plan.binding.streamed.name]) // plan.block_streamed)
    if plan.keeps_states:
        return lane_segments(plan, problem, grid, weighs=weighs)
    if plan.loads_within:
        return tiles_along
    waits = (selects or weighs) and not plan.multiplies
    beside = RESIDENT_LANES // plan.threads if waits else SCALAR_BLOCKS if is_scalar(plan) else 1
    chips = plan.device.multiprocessors * max(1, beside)
    if 2 * grid > chips:
        return 1
    tiles = tiles_along // (1 if plan.block_inner else 4 if tiles_along < 16 and not waits else 2)
    if plan.binding.streamed.name in problem.varying and tiles > 1:  # one number for all lengths
        tiles = plan.device.multiprocessors
    most = MOST_PARTS_OF_SETS if selects else most_parts(plan.binding, problem, plan.device)
    return power_within(min(chips // grid, tiles, most))


def is_scalar(plan: Plan) -> bool:
    """Tell if a plan makes scores on CUDA cores, in tiles of a part of their products."""
    return plan.multiplies and not plan.tensor_cores and bool(plan.block_inner) and not plan.binding.contracted


SPREAD = 128
"""Blocks of the merging kernel above which they take more rows."""


def rows_at_once(plan: Plan, problem: Problem, merge: str = "kernel") -> int:
    """The number of rows that a block merges at a time: in a kernel, as many as leave every multiprocessor a block."""
    most = min(plan.block_row, MERGED_ROWS)
    if merge == "launch" or (plan.multiplies and not plan.tensor_cores):
        return most

    def fills(rows: int) -> bool:
        return blocks(plan.binding, problem, max(1, rows), plan.block_column) >= SPREAD

    return max(1, next(filter(fills, (most, most // 4)), most // 4))


SPLIT_TILES = 2
"""Tiles of a producer's axis that a part has, at least."""
MOST_SPLITS = 16
"""Parts of a producer's axis, at most: one expression adds them."""


def splits(plan: Plan, form: FusedForm, problem: Problem) -> int:
    """The number of parts of the producers' axes: enough that the tiles of their values fill the chip."""
    if not may_split(plan, form):
        return 1
    along = -(-problem.sizes[plan.binding.streamed.name] // plan.block_streamed)
    inner = min(problem.sizes[one.cascade.axis.name] for one in form.cascade.producers) // plan.block_inner
    wanted = plan.device.multiprocessors // (blocks(plan.binding, problem, plan.block_row, plan.block_column) * along)
    return max(1, min(wanted, inner // SPLIT_TILES, MOST_SPLITS))


def blocks(binding: Binding, problem: Problem, block_row: int, block_column: int) -> int:
    """The number of blocks of a grid without segments."""
    grid = prod([max(1, problem.sizes[axis.name]) for axis in binding.grid])
    grid *= -(-problem.sizes[binding.column.name] // block_column) if binding.column is not None else 1
    return grid * (-(-max(1, problem.sizes[binding.row.name]) // block_row) if binding.row is not None else 1)
