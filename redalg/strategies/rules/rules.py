"""The fixed rules that choose a schedule without search: Single-Segment, Multi-Segment, and their tiles.

The figures behind the rules were measured on an H200 and are kept as data in `benchmarks/`; search and tuning come
later, and replace no rule silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import final

from sympy import Mod, floor

from redalg.expression import Axis, Element
from redalg.expression.contents import free_axes
from redalg.expression.dtypes import DTYPES, is_eight_bits, is_float
from redalg.incremental.factors import group_factors
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding, bind_axes
from redalg.strategies.device import DeviceSpec, device_for
from redalg.strategies.levels import Lanes, Loop, ScalarCores, TensorCores, Unit
from redalg.strategies.plan import Problem, grid_levels, inner_levels, lane_levels
from redalg.strategies.rules.pairs import pairs_rule, pairwise_binding
from redalg.strategies.rules.parts import MOST_PARTS, blocks, power_of_two, power_within, with_parts
from redalg.strategies.rules.products import HOLDS, operands_dtype, product_dtype, values_dtype
from redalg.strategies.rules.tiles import Product, Tile, product_tile, round_up, skips_ahead, trims
from redalg.strategies.schedule import Schedule, numbers_of, with_choices


def choose(form: FusedForm, problem: Problem, target: str) -> Schedule:
    """Choose the schedule of a form for a target; it serves the run-time sizes up to the next power of two."""
    return choose_schedule(form, problem, device_for(target))


def choose_schedule(form: FusedForm, problem: Problem, device: DeviceSpec) -> Schedule:
    """Choose the schedule of a form for a device; it serves the run-time sizes up to the next power of two."""
    bounds = {name: power_of_two(problem.sizes[name]) for name in problem.varying}
    problem = replace(problem, sizes={**problem.sizes, **bounds})
    binding = bind_axes(form, problem.sizes)
    problem = replace(problem, sizes=binding.all_sizes(problem.sizes))
    multiplies = binding.contracted or form.cascade.producers
    pairwise = pairwise_binding(form, problem, device, binding)
    rule = pairs_rule if pairwise is not None else contraction_rule if multiplies else rows_rule
    schedule = with_parts(rule(form, problem, device, pairwise or binding), form, problem)
    numbers_of(schedule).verify()
    return schedule


def product_schedule(
    device: DeviceSpec, binding: Binding, tile: tuple[int, int], loop: Loop, unit: Unit, *, inner: int = 0
) -> Schedule:
    """The schedule of products, from its tile (rows, columns), its loop, and the tile of inner axes (0: whole)."""
    levels = (*grid_levels(binding, *tile), loop, *inner_levels(binding, inner), unit)
    return Schedule.of_levels(levels, binding, device)


def row_schedule(
    device: DeviceSpec, binding: Binding, tile: tuple[int, int], threads: int, level: str = "block", *,
    along: Axis | None = None,
) -> Schedule:  # fmt: skip
    """The schedule of elementwise terms, from its tile (rows, streamed elements) and the place of its lanes.

    `along`: the axis of the lanes; None for the streamed one.
    """
    (rows, streamed), axis = tile, binding.streamed.name
    lanes = Lanes((along or binding.streamed).name, threads)
    loops = lane_levels(Loop(axis, streamed), lanes, level)
    return Schedule.of_levels((*grid_levels(binding, rows, 1), *loops), binding, device)


def contraction_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule of contractions, in tiles of rows x streamed elements, on tensor cores if the dtype allows."""
    rows = problem.sizes[binding.row.name] if binding.row else 1
    columns = round_up(problem.sizes[binding.column.name] if binding.column else 1, 16)
    inner = [problem.sizes[one.cascade.axis.name] for one in form.cascade.producers]
    cores = tensor_cores(form, problem, device)
    part = equal_part(form)
    whole = [one for one in inner if not inner_rule([one], columns, cores=cores)]
    facts = TileFacts(
        rows,
        round_up(max([columns, *whole]), 16),
        trims(form, problem),
        has_bias(form, binding),
        has_aligned_rows(form, problem) and part % LEAST_PART == 0,
        long=problem.sizes[binding.streamed.name] >= LONG_LOOP
        and not skips_ahead(form)
        and rows >= LARGE_TILE[0]
        and blocks(binding, problem, LARGE_TILE[0], columns) >= device.multiprocessors,
        wide=columns > WIDE,
    )
    if not form.cascade.producers and not any(one.weight for one in form.accumulators):
        return product_rule(form, problem, device, binding, cores=cores)
    kind = scalar_tile if not cores else hopper_tile if device.wgmma else ampere_tile
    row, streamed, stages, threads, special = kind(device, facts)
    if part and part % LEAST_PART == 0:  # one stage: where a part lies is read ahead, in the few registers of a loader
        streamed, stages = gcd(part, streamed), min(stages, 1)
    cut = inner_rule(inner, columns, cores=cores)
    if cores and not any(one.weight for one in form.accumulators) and binding.contracted:
        return chain_rule(problem, device, binding, columns, cut, varies=facts.trims)
    if not cores and device.target != "c":
        columns = min(columns, WIDE)  # more do not fit in registers: blocks share them out, and make the weights again
    if cut:  # an outer loop around loads by warps of their own gave wrong sums (H200, TileLang 0.1.15)
        stages, special = INNER_STAGES if cores else stages, False
        length = problem.sizes[binding.streamed.name]
        if cores and device.wgmma and columns <= NARROW and rows >= SCORES_TILE[0] and length >= LONG_LOOP:
            (row, streamed, stages, threads), cut = SCORES_TILE, INNER // 2
    operands = "shared" if facts.wide else "registers"
    unit = TensorCores(threads, operands) if cores else ScalarCores(threads)
    loop = Loop(binding.streamed.name, streamed, stages, special)
    return product_schedule(device, binding, (row, columns), loop, unit, inner=cut)


def chain_rule(
    problem: Problem, device: DeviceSpec, binding: Binding, columns: int, cut: int, *, varies: bool
) -> Schedule:
    """The schedule of products of products: small tiles. Few blocks share out the columns if inner axes are short.

    If the number of tiles `varies` from block to block, the pipeline has one stage (see `lint`).
    """
    few = 2 * blocks(binding, problem, 64, columns) < device.multiprocessors
    width = min(columns, 64 if few and not cut else WIDE)
    streamed = 64 if device.wgmma else 32
    stages = INNER_STAGES if cut else 1 if varies else 2
    loop = Loop(binding.streamed.name, streamed, stages)
    return product_schedule(device, binding, (64, width), loop, TensorCores(128), inner=cut)


def product_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding, *, cores: bool) -> Schedule:
    """The schedule of matrix products alone, whose blocks share out the columns too."""
    products = [one for one in form.accumulators if len(one.factors) > 1]
    tile, columns = product_tile(
        Product(
            rows=problem.sizes[binding.row.name] if binding.row else 1,
            columns=problem.sizes[binding.column.name] if binding.column else 1,
            grid=prod(max(1, problem.sizes[axis.name]) for axis in binding.grid),
            eight_bits=any(is_eight_bits(operands_dtype(one, form, problem, device)) for one in products),
            plain=all(isinstance(factor, Element) for one in products for factor in one.factors),
            aligned=has_aligned_rows(form, problem),
        ),
        device,
        cores=cores,
    )
    row, streamed, stages, threads, special = tile
    unit = TensorCores(threads) if cores else ScalarCores(threads)
    loop = Loop(binding.streamed.name, streamed, stages, special)
    return product_schedule(device, binding, (row, columns), loop, unit)


WIDE = 256
"""Widest operand of which a warpgroup's rows fit in registers."""
NARROW, SCORES_TILE = 16, (128, 192, 4, 256)
"""Columns of sums that weigh no values, and the tile (rows, streamed, stages, threads) of long scores that such sums
take: more would leave no registers for them (H100: losses of 4096 x 32000 x 2048 take 0.84 of the time of 256 wide)."""
INNER, INNER_STAGES = 128, 3
"""The tile of an inner axis that is cut, and its stages (the fastest of 64 and 128 elements, and of 2 to 4 stages)."""


def inner_rule(inner: list[int], columns: int, *, cores: bool) -> int:
    """The tile length of the producers' axes: 0 (whole) if short beside the columns, or if they fit; else cut."""
    longest = max(inner, default=0)
    return INNER if longest > max(columns, 512 if cores else 256) else 0


@final
@dataclass(frozen=True)
class TileFacts:
    """The facts that the rules for tiles look at.

    Attributes:
        rows: extent of the row axis.
        width: the widest operand (inner and column extents), padded to 16.
        trims: the loop's trip count varies, from block to block or from call to call.
        biased: an input is read for every row and streamed element (a mask or a bias).
        aligned: every streamed input's rows are multiples of 16 bytes, as the bulk copy engine needs.
        long: tiles of 128 rows fill the GPU, and each streams `LONG_LOOP` elements or more, from the first on.
        wide: the columns are more than a warp's rows have registers for.
    """

    rows: int
    width: int
    trims: bool
    biased: bool
    aligned: bool
    long: bool = False
    wide: bool = False


LONG_LOOP = 1024
LARGE_TILE: Tile = (128, 256, 1, 256, True)
"""The tile of long loops (H100, 4 x 16 x 4096² in float16: 0.90 and 0.89 of the time of others at d 128 and 64; where
causal, 0.95 and below)."""


def hopper_tile(_: DeviceSpec, facts: TileFacts) -> Tile:
    """The tile on sm_90a: several small blocks an SM up to width 64, one large warp-specialised block beyond."""
    if facts.wide:
        return 64, 64, 2 if facts.aligned else 1, 256, facts.aligned
    if facts.biased or (facts.rows < 64 and facts.width < 96):
        return 64, 64, 1 if facts.trims else 2, 128, False
    if facts.rows < 64:
        return 64, 128 if facts.width <= 128 else 64, 2 if facts.aligned else 1, 128, facts.aligned
    if facts.long and facts.aligned and (facts.width <= 64 or 96 <= facts.width <= 128):
        return LARGE_TILE
    if facts.width <= 64:
        return 64, 64, 1 if facts.trims else 2, 128, False
    if facts.width < 96:
        return 128, 64, 1, 256, False
    if facts.width <= 128:
        return (128, 128, 2, 256, True) if facts.aligned else (128, 64, 1, 256, False)
    return 128, 64, 1, 256, facts.aligned


def ampere_tile(_: DeviceSpec, facts: TileFacts) -> Tile:
    """The tile on sm_80, sm_86: a varying trip count allows one stage only (TileLang's pipeline pass fails at two)."""
    if facts.wide:
        return 64, 64, 1, 256, False
    if facts.trims or facts.biased:
        return (64, 64, 1, 128, False) if facts.width <= 128 else (64, 32, 1, 128, False)
    if facts.width <= 64:
        return 64, 64, 2, 128, False
    return (64, 32, 2, 128, False) if facts.width <= 128 else (64, 32, 1, 128, False)


def scalar_tile(device: DeviceSpec, facts: TileFacts) -> Tile:
    """The tile of true float32 on CUDA cores, and of the C target's stack arrays."""
    if device.target == "c":
        return min(32, facts.rows), 32, 0, 1, False
    if facts.rows < 16:
        return 16, 64 if facts.width <= 128 else 32, 1, 128, False
    if facts.width <= 64:
        return 64, 64, 1, 128, False
    return (128, 64, 1, 256, False) if device.wgmma and facts.width <= 128 else (64, 32, 1, 128, False)


def has_bias(form: FusedForm, binding: Binding) -> bool:
    """Tell if an input is indexed by both the row and the streamed axis."""
    axes_read = [free_axes(one) for one in form.cascade.elements()]
    return any(binding.streamed in axes and binding.rows & axes for axes in axes_read if not by_group(axes, binding))


def by_group(axes: AbstractSet[Axis], binding: Binding) -> bool:
    """Tell if the only row axis among `axes` is the grouped one, whose groups the grid numbers."""
    return binding.packing is not None and binding.rows & axes == {binding.packing.grouped}


LEAST_PART = 32
"""Shortest equal part of the streamed axis (a page) that a tile is cut to; elements of shorter parts are gathered."""


def equal_part(form: FusedForm) -> int:
    """The length that tiles of the streamed axis must divide to lie within one part of it; 0 if any will do."""
    axis, lengths = form.cascade.axis, list[int]()
    for element in form.cascade.elements():
        for part in element.atoms(floor, Mod):
            above, below = part.args[0].as_numer_denom() if isinstance(part, floor) else part.args
            if above == axis and below.is_Integer:
                lengths.append(int(below))
    return gcd(*lengths)


def has_aligned_rows(form: FusedForm, problem: Problem) -> bool:
    """Tell if the rows of every streamed floating-point input are multiples of 16 bytes."""
    for element in form.cascade.elements():
        if form.cascade.axis in free_axes(element) and is_float(problem.dtypes[element.name]) and element.indices:
            last = element.indices[-1]
            size = problem.sizes[last.name] if isinstance(last, Axis) else 1
            if size * DTYPES[problem.dtypes[element.name]].bytes % 16:
                return False
    return True


def tensor_cores(form: FusedForm, problem: Problem, device: DeviceSpec) -> bool:
    """Tell if every contraction multiplies in a dtype of matrix instructions (or TF32 is allowed)."""
    if device.target == "c":
        return False
    dtypes = {operands_dtype(one, form, problem, device) for one in form.accumulators if len(one.factors) > 1}
    terms = [one.term for producer in form.cascade.producers for one in producer.cascade.reductions]
    for term in terms:
        first, *others = (values_dtype(factor, problem) for factor in group_factors(term, ()))
        dtypes |= {product_dtype(first, other, problem, device) for other in others}
    tf32 = {"float32"} if problem.precision == "tf32" else set()
    return dtypes <= set(HOLDS) | tf32


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
    if form.structures:
        lanes = min(1024, power_of_two(max(length, 128)))
        return row_schedule(device, binding, (1, lanes), 128, "thread")
    fixed_length = binding.streamed.name not in problem.varying
    if fixed_length and length <= whole_row(form, blocks(binding, problem, 1, 1) <= device.multiprocessors):
        return on_chip(device, binding, length, rows, vector(problem))
    level = "thread" if len(form.slots) * vector(problem) <= LANE_REGISTERS and form.is_lanewise else "block"
    carries = any(one.carries for one in form.outputs)
    if carries and fixed_length and length > LONGEST_ROW and takes_long_tile(form, problem, device, binding):
        return row_schedule(device, binding, (1, LONGEST_TILE), LONGEST_TILE // 32)
    threads = 128 if len(form.slots) <= FEW_SLOTS and not carries else 256
    if level == "thread" and fixed_length:
        threads = max(threads, lanes_of_row(form, problem, device, binding))
    return row_schedule(device, binding, (1, threads * vector(problem)), threads, level)


def takes_long_tile(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> bool:
    """Tell if long rows that are read again are taken in long tiles: blocks fill the chip, and threads hold a tile."""
    many = 2 * blocks(binding, problem, 1, 1) > device.multiprocessors
    narrow = problem.compute != "float64" and len(form.slots) <= FEW_SLOTS
    return many and narrow and (has_aligned_rows(form, problem) or vector(problem) <= WIDE_LOAD)


LANES_IN_FLIGHT, LOADS_OF_LANE, LANES_OF_PARTS = 1024, 8, 256
"""Lanes of a multiprocessor whose 16-byte loads keep the memory busy, loads that a lane makes at least, and the lanes
of a part of a row (H100: variances of 256 x 200704 in float16 take 0.64 of the time of 128 lanes a row, logsumexps of
511 x 50257 0.64, variances of 132 x 1e6 in 1024 lanes 0.99 of the time of 512 in two parts)."""


def lanes_of_row(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> int:
    """The lanes that share a row: the more, the fewer rows there are to fill the chip with."""
    grid, wide = blocks(binding, problem, 1, 1), vector(problem)
    if 2 * grid <= device.multiprocessors:
        return LANES_OF_PARTS
    registers = 1024 if len(form.slots) * wide <= LANE_REGISTERS // 3 else 512
    loads = problem.sizes[binding.streamed.name] // (LOADS_OF_LANE * wide)
    return power_within(min(LANES_IN_FLIGHT * device.multiprocessors // grid, loads, registers))


COLUMNS_OF_TILE, COLUMNS_OF_NARROW_TILE = 64, 32
"""Neighbouring columns that a block reads together: fewer if that fills the GPU at once, or parts do not (H200)."""


def lies_in_columns(form: FusedForm, problem: Problem, binding: Binding) -> bool:
    """Tell if neighbours along the rows' axis are neighbours in memory, in the largest tensor that is streamed.

    Then lanes lie along the rows, if each may keep a state of its own and the rows fill a tile.
    """
    own = form.structures or form.is_lanewise or (form.is_tilted and form.shares_slopes)
    streamed = [one for one in form.cascade.elements() if one.indices and binding.streamed in free_axes(one)]
    if binding.row is None or binding.packing is not None or form.places or not own or not streamed:
        return False
    if problem.sizes[binding.row.name] < COLUMNS_OF_NARROW_TILE:
        return False
    largest = max(streamed, key=lambda one: (prod(problem.sizes[axis.name] for axis in free_axes(one)), str(one)))
    return bool(largest.indices[-1] == binding.row)


def columns_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule of elementwise terms over columns: neighbouring threads read neighbouring columns."""
    grid, chips = blocks(binding, problem, COLUMNS_OF_TILE, 1), device.multiprocessors
    if grid >= chips:
        columns, threads, each = COLUMNS_OF_NARROW_TILE, 256, 2
    elif grid * MOST_PARTS >= chips:
        columns, threads, each = COLUMNS_OF_TILE, 512, 4
    else:
        columns, threads, each = COLUMNS_OF_NARROW_TILE, 1024, 4
    threads = threads if len(form.slots) <= 2 * FEW_SLOTS else 256
    return row_schedule(device, binding, (columns, threads // columns * each), threads, "thread", along=binding.row)


WHOLE_SELECTED = 2048
"""Elements of a row that one tile selects from."""
WARPS_OF_ROWS, FEW_PLACES = 4, 32
"""Rows for each multiprocessor from which one warp selects from a row (H100: of 1024 rows in 0.57 of the time of four
warps, of 132 rows in 1.5), and places up to which its tiles are small (8 of 4096 elements in 0.82)."""


def ranked_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule that selects the best of a row: one tile for a short row, else a block for every row."""
    rows, length = (max(1, problem.sizes[axis.name]) if axis else 1 for axis in (binding.row, binding.streamed))
    grid, most = blocks(binding, problem, 1, 1), max(problem.sizes[one.name] for one in form.places)
    if length <= WHOLE_SELECTED or problem.compute == "float64":
        wide = 8192 if grid <= device.multiprocessors else WHOLE_SELECTED
        streamed = min(wide, power_of_two(max(length, 128)))
        row = 1 if streamed >= 1024 else min(power_of_two(rows), 1024 // streamed)
        return row_schedule(device, binding, (row, streamed), 256 if streamed > WHOLE_SELECTED else 128)
    if grid < WARPS_OF_ROWS * device.multiprocessors:
        return row_schedule(device, binding, (1, WHOLE_SELECTED), 128)
    return row_schedule(device, binding, (1, 256 if most <= FEW_PLACES else 512), 32)


LANE_REGISTERS, FEW_SLOTS = 96, 4
"""Numbers of state that a thread may hold for its lanes (of 255 registers, the loads and the moves take others)."""
SHORT_ROW, LONG_ROW, LONGEST_ROW = 2048, 8192, 16384
"""Elements of a row that one tile takes whole, the more the less is reduced of it (measured on an H200)."""
LONGEST_TILE, WIDE_LOAD = 32768, 4
"""The tile of longer rows that are read again, 32 elements a thread; and the elements of a load up to which rows need
not be aligned for it (H100: softmax of 511 x 50257 in float32 takes 0.63 of the time of tiles of 1024, layer norms of
1024 rows 0.80, root mean squares of 4096 x 32768 in bfloat16 0.86; softmax of 50257 in bfloat16 1.03)."""


def whole_row(form: FusedForm, few: bool) -> int:
    """The longest row that one tile takes: long if it is needed again, or if lanes would rescale their sums."""
    again = any(one.carries for one in form.outputs)
    if few or not (again or any(one.weight for one in form.accumulators)):
        return SHORT_ROW
    return LONG_ROW if form.pivots else LONGEST_ROW


def on_chip(device: DeviceSpec, binding: Binding, length: int, rows: int, wide: int) -> Schedule:
    """The schedule of one tile for a row (for several if short), of 32 elements a thread: fewer threads meet sooner."""
    streamed = power_of_two(max(length, 128))
    threads = min(512, max(32, streamed // 32))
    if length > 1024:
        streamed = round_up(length, threads * wide)
    row = 1 if streamed >= 1024 else min(power_of_two(rows), 1024 // streamed)
    return row_schedule(device, binding, (row, streamed), threads if row == 1 else 128, "row")


def vector(problem: Problem) -> int:
    """The number of elements of the narrowest floating-point input that one 16-byte load takes."""
    return 16 // min([DTYPES[dtype].bytes for dtype in problem.dtypes.values() if is_float(dtype)] or [4])


def smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Yield the schedule, then some with fewer stages, then with fewer streamed elements, then with fewer rows."""
    plan = numbers_of(schedule)
    if plan.level == "row":
        yield schedule
        return
    for row in (plan.block_row, plan.block_row // 2, plan.block_row // 4):
        lengths = (plan.block_streamed, plan.block_streamed // 2, plan.block_streamed // 4)
        for streamed in lengths if plan.warps == "rows" else lengths[:1]:  # which warps by columns share out
            for stages in range(plan.stages, -1, -1):
                if (streamed >= 16 and row >= 16) or (row, streamed) == (plan.block_row, plan.block_streamed):
                    threads = plan.threads if row == plan.block_row else 128
                    special = plan.warp_specialized and stages > 0
                    yield with_choices(schedule, block_row=row, block_streamed=streamed, stages=stages, threads=threads,
                                  warp_specialized=special)  # fmt: skip
