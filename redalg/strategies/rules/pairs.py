"""Schedules of pairwise terms: of elements of different tensors, from tensors of which none has both.

    F(x[i], y[j])           a thread keeps rows i in registers; all threads read one y[j] of a tile after another
    F(Σ_d f(x[i,d], y[j,d]))   several y[j] side by side, so that what is read of x[i, d] serves all of them
    F(x[c, k], y[k, i])     k streamed: a thread keeps rows i of several columns c; an x[c, k] serves all rows
    Σ_n f(x[n, a])·g(y[n, b])   n long, a and b short (a matrix of covariances): so are products on CUDA cores, in parts

A tile is read once for all rows of a block, so that such terms cost their arithmetic. Rows of a block: several for each
thread, so that what is computed for one waits for none, if blocks then still fill the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from redalg.expression import Axis
from redalg.expression.contents import elements_of, free_axes
from redalg.expression.dtypes import DTYPES
from redalg.incremental.fix_pivots import fixable
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding, product_sides, with_column
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import Lanes, Loop
from redalg.strategies.plan import Problem, grid_levels, lane_levels
from redalg.strategies.rules.parts import blocks, fills_at_once, serial_segments, shares_weights
from redalg.strategies.rules.powers import power_of_two
from redalg.strategies.rules.rows import lies_in_columns
from redalg.strategies.rules.tiles import trims
from redalg.strategies.schedule import Schedule

THREADS, TILE, SHORT_TILE, LONG = 128, 256, 64, 4096
"""Threads of a block; elements of a tile, of a shorter one for axes below `LONG` elements (LANES.md, N-body)."""
ROWS = (4, 2, 1)
"""Rows of a thread."""
WIDE = ((256, 16), (128, 16), (128, 8), (128, 4), (128, 2))
"""(rows, columns) of a block whose threads keep rows of several columns (H100: sums, maxima, sums of exponentials)."""
TALL_TILE, TALL_THREADS = (64, 64), 64
"""(rows, columns) of a block of a product over a long axis, and its threads (H100, 1e6 x 64: 0.93 of 128 threads)."""
LEAST_SIDE, FEW_SUMS, FEWEST_SUMS = 4, 256, 64
"""The shortest side of such a tile; the sums of a tile that one warp makes, in longer tiles of the axis; and those up
to which they are longer still (H200, covariances of 1e6 x 3, 8 and 17: 0.27, 0.33, 0.43 of the time of `torch.cov`)."""
WIDE_TILES = (32, 16, 64)
"""Elements of its tiles; the rules take the first, the second where lanes read numbers that lie a tile apart (H100:
sums of distances in 0.84 of the time), and the third for one sum that is rescaled, in one part (log products 0.992)."""
TALL_STREAMED = {"float32": WIDE_TILES[0], "float64": WIDE_TILES[1]}
"""Streamed elements of a tile of a product over a long axis, by the dtype of its sums (H200, covariances of 262144 x 64
in float64: 0.63 of the time of `torch.cov`)."""
SLOTS_OF_A_SUM = 2
"""Slots of a sum that an extremum rescales, and of that extremum."""
WEIGHED = (64, 128)
"""Columns of a block, one a thread, that exponentials of a row's numbers weigh (H200, weighted sums in float32:
256 x 4096 x 512 in 0.90 of the time of lanes that have a maximum each, 64 x 2048 x 256 0.43, 32 x 16384 x 128 0.70,
1024 x 512 x 64 0.86)."""
STATES = 32
"""Slots of all rows of a thread, at most."""
ROW_BYTES = 1 << 16
"""Shared memory for what producers read of a block's rows, at most."""
FULL = 4
"""Blocks on each multiprocessor that keep it busy."""


def pairwise_binding(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Binding | None:
    """The binding of terms of elements of different tensors; None if terms are others, or rows too few for a block.

    On the C target there is none, since a thread has no others beside it.
    """
    if is_tall(form, problem, device, binding):
        return binding
    if binding.row is None or binding.column is not None or binding.packing is not None or not form.is_serial:
        return None
    if device.target == "c" or form.places or any(output.carries for output in form.outputs):
        return None
    if weighs_columns(form, problem, binding):
        return binding
    if form.cascade.producers:
        return binding if has_short_differences(form, problem, binding) else None
    axes = [free_axes(element) for element in form.cascade.elements()]
    streamed = [one for one in axes if binding.streamed in one]
    if not streamed or problem.sizes[binding.row.name] < THREADS:
        return None
    if not any(binding.row in one for one in streamed):
        return binding if any(binding.row in one for one in axes) else None
    column = next((axis for axis in binding.grid if _are_apart(axis, binding.row, streamed)), None)
    wide = column is not None and all({column, binding.row} <= set(output.axes) for output in form.outputs)
    return with_column(binding, column) if column is not None and wide and problem.sizes[column.name] > 1 else None


def weighs_columns(form: FusedForm, problem: Problem, binding: Binding) -> bool:
    """Tell if lanes lie along columns that exponentials of a row's numbers weigh: a tile of them has one maximum."""
    wide = binding.row is not None and problem.sizes[binding.row.name] >= WEIGHED[0]
    whole = not form.cascade.producers and not form.structures
    return wide and whole and shares_weights(form, binding) and lies_in_columns(form, problem, binding)


def is_tall(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> bool:
    """Tell if a form is sums of products on CUDA cores over a long axis, whose rows and columns do not fill the GPU."""
    row, column, streamed = binding.row, binding.column, binding.streamed
    if not binding.contracted or row is None or column is None or binding.packing is not None or not form.is_serial:
        return False
    others = form.cascade.producers or form.extrema or form.structures or any(one.carries for one in form.outputs)
    if others or device.target == "c" or problem.compute not in TALL_STREAMED or problem.precision == "tf32":
        return False
    factors = [factor for one in form.accumulators if len(one.factors) > 1 for factor in one.factors]
    read = {problem.dtypes[element.name] for factor in factors for element in elements_of(factor)}
    axes = [free_axes(factor) for factor in factors]
    few = blocks(binding, problem, *TALL_TILE) * 2 <= device.multiprocessors
    return (
        read == {problem.compute}
        and few
        and problem.sizes[streamed.name] >= LONG
        and streamed.name not in problem.varying
        and all(fixable(pivot, form) for pivot in form.slot_pivots)
        and all(streamed in one and not {row, column} <= one for one in axes)
    )


def has_short_differences(form: FusedForm, problem: Problem, binding: Binding) -> bool:
    """Tell if producers reduce a term of rows and streamed elements, which is no product, over a short axis.

    A block then holds all of the axis for its rows, and a thread computes several producers' values side by side.
    """
    if binding.contracted or binding.row is None or problem.sizes[binding.row.name] < THREADS:
        return False
    pair = {binding.row, binding.streamed}
    terms = [one.term for producer in form.cascade.producers for one in producer.cascade.reductions]
    axes = [free_axes(element) for term in terms for element in elements_of(term)]
    return (
        all(binding.streamed in one.axes and not one.cascade.producers for one in form.cascade.producers)
        and all(row_bytes(problem, axis) * THREADS <= ROW_BYTES for axis in binding.inner)
        and not any(pair <= one for one in axes)
        and any(binding.row in one for one in axes)
        and not any(product_sides(term, binding) for term in terms)
    )


def row_bytes(problem: Problem, inner: Axis) -> int:
    """The bytes of a row's inputs along a producer's axis."""
    return max(DTYPES[problem.compute].bytes, 4) * problem.sizes[inner.name]


def _are_apart(axis: Axis, row: Axis, streamed: list[frozenset[Axis]]) -> bool:
    """Tell if streamed elements have an axis, others the rows, and none has both."""
    return any(axis in one for one in streamed) and not any({axis, row} <= one for one in streamed)


def lie_apart(form: FusedForm, binding: Binding) -> bool:
    """Tell if neighbouring lanes read an input in rows along the streamed axis."""
    elements = [one for one in form.cascade.elements() if one.indices and binding.row in free_axes(one)]
    return any(one.indices[-1] == binding.streamed for one in elements)


def pairs_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule of pairwise terms: as many rows a thread as leave every multiprocessor its blocks."""
    length = max(1, problem.sizes[binding.streamed.name])
    if binding.contracted:
        return serial_schedule(device, binding, tall_tile(problem, binding), serial_stages(form, problem))
    if weighs_columns(form, problem, binding):
        return serial_schedule(device, binding, weighed_tile(problem, device, binding), serial_stages(form, problem))
    wide = WIDE_TILES[1] if lie_apart(form, binding) else WIDE_TILES[0]
    tile = wide if binding.column is not None else TILE if length >= LONG else SHORT_TILE
    full = FULL if binding.column is None else FULL // 2
    slots = len(form.slots)
    choices = [*block_tiles(binding, problem)]
    if form.cascade.producers:
        tile = SHORT_TILE
        whole = sum(row_bytes(problem, axis) for axis in binding.inner)
        choices = [one for one in choices if whole * one[0] <= ROW_BYTES] or choices[-1:]
    for rows, columns in [one for one in choices if prod(one) * slots <= STATES * THREADS] or choices[-1:]:
        grid = blocks(binding, problem, rows, columns)
        many = grid * serial_segments(device, binding, length, tile, grid) >= full * device.multiprocessors
        if many or fills_at_once(device, binding, grid):
            break
    rescales = slots <= SLOTS_OF_A_SUM and any(one.weight for one in form.accumulators)
    if tile == WIDE_TILES[0] and rescales and serial_segments(device, binding, length, tile, grid) == 1:
        tile = WIDE_TILES[2]
    return serial_schedule(device, binding, (rows, columns, tile, THREADS), serial_stages(form, problem))


def tall_tile(problem: Problem, binding: Binding) -> tuple[int, int, int, int]:
    """(rows, columns, streamed elements, threads) of a block of a product over a long axis: no side is padded twice."""
    extents = [problem.sizes[axis.name] for axis in (binding.row, binding.column) if axis is not None]
    rows, columns = (min(most, max(LEAST_SIDE, power_of_two(length)))
                     for most, length in zip(TALL_TILE, extents, strict=True))  # fmt: skip
    if rows * columns <= FEW_SUMS:
        times = 4 if rows * columns <= FEWEST_SUMS else 2
        return rows, columns, times * TALL_STREAMED[problem.compute], TALL_THREADS // 2
    threads = THREADS if problem.compute == "float64" and (rows, columns) == TALL_TILE else TALL_THREADS
    return rows, columns, TALL_STREAMED[problem.compute], threads


def weighed_tile(problem: Problem, device: DeviceSpec, binding: Binding) -> tuple[int, int, int, int]:
    """(rows, columns, streamed elements, threads) of a block of columns that share their weights: a thread a column."""
    width = WEIGHED[1] if binding.row and problem.sizes[binding.row.name] > WEIGHED[0] else WEIGHED[0]
    many = blocks(binding, problem, width, 1) >= FULL * device.multiprocessors
    return width, 1, SHORT_TILE // 2 if many and width == WEIGHED[0] else SHORT_TILE, width


def block_tiles(binding: Binding, problem: Problem) -> Iterator[tuple[int, int]]:
    """Yield (rows, columns) of a block, of which less than half is beyond the ends of their axes; the smallest last."""
    if binding.row is None or binding.column is None:
        yield from ((rows * THREADS, 1) for rows in ROWS)
        return
    most = 2 * problem.sizes[binding.row.name], 2 * problem.sizes[binding.column.name]
    yield from (one for one in WIDE if one == WIDE[-1] or (one[0] < most[0] and one[1] < most[1]))


def serial_stages(form: FusedForm, problem: Problem) -> int:
    """The stages of the loop over tiles: loads run a tile ahead, but where the number of tiles varies (`lint`)."""
    return 1 if trims(form, problem) else 2


def serial_schedule(device: DeviceSpec, binding: Binding, numbers: tuple[int, int, int, int], stages: int) -> Schedule:
    """The schedule of (rows of a block, its columns, elements of a tile, threads), with so many stages of loads."""
    rows, columns, tile, threads = numbers
    if binding.row is None:
        raise AssertionError("pairwise terms without rows")
    loops = lane_levels(Loop(binding.streamed.name, tile, stages), Lanes(binding.row.name, threads), "block")
    return Schedule.of_levels((*grid_levels(binding, rows, columns), *loops), binding, device)


def serial_tiles(problem: Problem, binding: Binding, *, weighed: bool) -> Iterator[tuple[int, int, int, int]]:
    """Yield (rows of a block, its columns, elements of a tile, threads) of the search.

    `weighed`: the rows are columns that share their weights.
    """
    if binding.contracted:
        rows, columns, *_ = tall_tile(problem, binding)
        counts = (TALL_THREADS // 2, TALL_THREADS) if rows * columns <= FEW_SUMS else (TALL_THREADS, THREADS)
        yield from ((rows, columns, tile, count) for tile, count in product(WIDE_TILES, counts))
        return
    if weighed:
        yield from ((width, 1, tile, width) for width, tile in product(WEIGHED, (SHORT_TILE // 2, SHORT_TILE)))
        return
    if binding.column is not None:
        yield from ((rows, columns, tile, THREADS) for (rows, columns), tile in product(WIDE, WIDE_TILES))
        return
    for rows, tile, threads in product(ROWS, (TILE, SHORT_TILE), (THREADS, 2 * THREADS)):
        yield rows * threads, 1, tile, threads
