"""The fixed rules that choose a plan without search: Single-Segment, Multi-Segment, and their tiles.

The figures behind the rules were measured on an H200 and are kept as data in `benchmarks/`; search and tuning come
later, and replace no rule silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import final

from sympy import And, Mod, floor
from sympy.core.relational import Relational

from redalg.expression import Axis, Element
from redalg.expression.contents import free_axes, values_of
from redalg.expression.dtypes import DTYPES, is_eight_bits, is_float
from redalg.incremental.factors import grouped
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding, bind_axes
from redalg.strategies.device import DeviceSpec, device_for
from redalg.strategies.plan import MERGED_ROWS, Plan, Problem
from redalg.strategies.rules.products import HOLDS, operands_dtype, product_dtype, values_dtype
from redalg.strategies.rules.tiles import Product, Tile, padded, product_tile


def choose(form: FusedForm, problem: Problem, target: str) -> Plan:
    """Choose the plan of a form for a target; one plan serves the run-time sizes up to the next power of two."""
    return chosen(form, problem, device_for(target))


def chosen(form: FusedForm, problem: Problem, device: DeviceSpec) -> Plan:
    """Choose the plan of a form for a device; one plan serves the run-time sizes up to the next power of two."""
    rounded = {name: power_of_two(problem.sizes[name]) for name in problem.varying}
    problem = replace(problem, sizes={**problem.sizes, **rounded})
    binding = bind_axes(form, problem.sizes)
    problem = replace(problem, sizes=binding.sized(problem.sizes))
    multiplies = binding.contracted or form.cascade.producers
    plan = contraction_rule(form, problem, device, binding) if multiplies else rows_rule(form, problem, device, binding)
    plan = replace(plan, splits=splits(plan, form, problem))
    plan = replace(plan, segments=1 if plan.splits > 1 else segments(plan, problem))
    if plan.segments > 1 and not plan.tensor_cores:
        plan = replace(plan, stages=0)
    plan = replace(plan, block_merged=merged(plan, problem))
    plan.verify()
    return plan


def contraction_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Plan:
    """The plan of contractions, in tiles of rows x streamed elements, on tensor cores if the dtype allows."""
    rows = problem.sizes[binding.row.name] if binding.row else 1
    columns = padded(problem.sizes[binding.column.name] if binding.column else 1, 16)
    inner = [problem.sizes[one.cascade.axis.name] for one in form.cascade.producers]
    cores = tensor_cores(form, problem, device)
    part = equal_part(form)
    whole = [one for one in inner if not inner_rule([one], columns, cores=cores)]
    schedule = Schedule(
        rows,
        padded(max([columns, *whole]), 16),
        trims(form, problem),
        biased(form, binding),
        aligned(form, problem) and part % LEAST_PART == 0,
        wide=columns > WIDE,
    )
    if not form.cascade.producers and not any(one.weight for one in form.accumulators):
        return product_rule(form, problem, device, binding, cores=cores)
    kind = scalar_tile if not cores else hopper_tile if device.wgmma else ampere_tile
    row, streamed, stages, threads, special = kind(device, schedule)
    if part and part % LEAST_PART == 0:  # one stage: where a part lies is read ahead, in the few registers of a loader
        streamed, stages = gcd(part, streamed), min(stages, 1)
    cut = inner_rule(inner, columns, cores=cores)
    if cores and not any(one.weight for one in form.accumulators) and binding.contracted:
        return chain_rule(problem, device, binding, columns, cut, varies=schedule.trims)
    warps = "columns" if cores and schedule.wide else "rows"
    if not cores and device.target != "c":
        columns = min(columns, WIDE)  # more do not fit in registers: blocks share them out, and make the weights again
    plan = Plan(device, binding, row, streamed, columns, stages, threads, 1, special, True, cores)
    if cut:  # an outer loop around loads by warps of their own gave wrong sums (H200, TileLang 0.1.15)
        plan = replace(plan, block_inner=cut, stages=INNER_STAGES if cores else stages, warp_specialized=False)
    return replace(plan, warps=warps)


def chain_rule(problem: Problem, device: DeviceSpec, binding: Binding, columns: int, cut: int, *, varies: bool) -> Plan:
    """The plan of products of products: small tiles. Few blocks share out the columns, if the inner axes are short.

    If the number of tiles `varies` from block to block, the pipeline has one stage (see `lint`).
    """
    few = 2 * blocks(binding, problem, 64, columns) < device.multiprocessors
    width = min(columns, 64 if few and not cut else WIDE)
    streamed = 64 if device.wgmma else 32
    stages = INNER_STAGES if cut else 1 if varies else 2
    return Plan(device, binding, 64, streamed, width, stages, 128, 1, False, True, True, block_inner=cut)


def product_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding, *, cores: bool) -> Plan:
    """The plan of matrix products alone, whose blocks share out the columns too."""
    products = [one for one in form.accumulators if len(one.factors) > 1]
    tile, columns = product_tile(
        Product(
            rows=problem.sizes[binding.row.name] if binding.row else 1,
            columns=problem.sizes[binding.column.name] if binding.column else 1,
            grid=prod(max(1, problem.sizes[axis.name]) for axis in binding.grid),
            eight_bits=any(is_eight_bits(operands_dtype(one, form, problem, device)) for one in products),
            plain=all(isinstance(factor, Element) for one in products for factor in one.factors),
            aligned=aligned(form, problem),
        ),
        device,
        cores=cores,
    )
    row, streamed, stages, threads, special = tile
    return Plan(device, binding, row, streamed, columns, stages, threads, 1, special, True, cores)


WIDE = 256
"""Widest operand of which a warpgroup's rows fit in registers."""
INNER, INNER_STAGES = 128, 3
"""The tile of an inner axis that is cut, and its stages (the fastest of 64 and 128 elements, and of 2 to 4 stages)."""


def inner_rule(inner: list[int], columns: int, *, cores: bool) -> int:
    """The tile length of the producers' axes: 0 (whole) if short beside the columns, or if they fit; else cut."""
    longest = max(inner, default=0)
    return INNER if longest > max(columns, 512 if cores else 256) else 0


@final
@dataclass(frozen=True)
class Schedule:
    """The facts that the rules for tiles look at.

    Attributes:
        rows: extent of the row axis.
        width: the widest operand (inner and column extents), padded to 16.
        trims: the loop's trip count varies, from block to block or from call to call.
        biased: an input is read for every row and streamed element (a mask or a bias).
        aligned: every streamed input's rows are multiples of 16 bytes, as the bulk copy engine needs.
        wide: the columns are more than a warp's rows have registers for.
    """

    rows: int
    width: int
    trims: bool
    biased: bool
    aligned: bool
    wide: bool = False


def hopper_tile(_: DeviceSpec, schedule: Schedule) -> Tile:
    """The tile on sm_90a: several small blocks an SM up to width 64, one large warp-specialised block beyond."""
    if schedule.wide:
        return 64, 64, 2 if schedule.aligned else 1, 256, schedule.aligned
    if schedule.biased or (schedule.rows < 64 and schedule.width < 96):
        return 64, 64, 1 if schedule.trims else 2, 128, False
    if schedule.rows < 64:
        return 64, 128 if schedule.width <= 128 else 64, 2 if schedule.aligned else 1, 128, schedule.aligned
    if schedule.width <= 64:
        return 64, 64, 1 if schedule.trims else 2, 128, False
    if schedule.width < 96:
        return 128, 64, 1, 256, False
    if schedule.width <= 128:
        return (128, 128, 2, 256, True) if schedule.aligned else (128, 64, 1, 256, False)
    return 128, 64, 1, 256, schedule.aligned


def ampere_tile(_: DeviceSpec, schedule: Schedule) -> Tile:
    """The tile on sm_80, sm_86: a varying trip count allows one stage only (TileLang's pipeline pass fails at two)."""
    if schedule.wide:
        return 64, 64, 1, 256, False
    if schedule.trims or schedule.biased:
        return (64, 64, 1, 128, False) if schedule.width <= 128 else (64, 32, 1, 128, False)
    if schedule.width <= 64:
        return 64, 64, 2, 128, False
    return (64, 32, 2, 128, False) if schedule.width <= 128 else (64, 32, 1, 128, False)


def scalar_tile(device: DeviceSpec, schedule: Schedule) -> Tile:
    """The tile of true float32 on CUDA cores, and of the C target's stack arrays."""
    if device.target == "c":
        return min(32, schedule.rows), 32, 0, 1, False
    if schedule.rows < 16:
        return 16, 64 if schedule.width <= 128 else 32, 1, 128, False
    if schedule.width <= 64:
        return 64, 64, 1, 128, False
    return (128, 64, 1, 256, False) if device.wgmma and schedule.width <= 128 else (64, 32, 1, 128, False)


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


def trims(form: FusedForm, problem: Problem) -> bool:
    """Tell if the loop's trip count is known only at run time: the domain bounds it, or its axis varies."""
    return form.cascade.axis.name in problem.varying or any(
        isinstance(condition, Relational) and form.cascade.axis in free_axes(condition)
        for condition in And.make_args(form.cascade.domain)
    )


def biased(form: FusedForm, binding: Binding) -> bool:
    """Tell if an input is indexed by both the row and the streamed axis."""
    read = [free_axes(one) for one in form.cascade.elements()]
    return any(binding.streamed in axes and binding.rows & axes for axes in read if not by_group(axes, binding))


def by_group(axes: AbstractSet[Axis], binding: Binding) -> bool:
    """Tell if the only row axis among `axes` is the grouped one, whose groups the grid numbers."""
    return binding.packing is not None and binding.rows & axes == {binding.packing.grouped}


LEAST_PART = 32
"""Shortest equal part of the streamed axis (a page) that a tile is cut to; elements of shorter parts are gathered."""


def equal_part(form: FusedForm) -> int:
    """The length that tiles of the streamed axis must divide to lie within one part of it; 0 if any will do."""
    axis, found = form.cascade.axis, list[int]()
    for element in form.cascade.elements():
        for part in element.atoms(floor, Mod):
            above, below = part.args[0].as_numer_denom() if isinstance(part, floor) else part.args
            if above == axis and below.is_Integer:
                found.append(int(below))
    return gcd(*found)


def aligned(form: FusedForm, problem: Problem) -> bool:
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
    made = {operands_dtype(one, form, problem, device) for one in form.accumulators if len(one.factors) > 1}
    terms = [one.term for producer in form.cascade.producers for one in producer.cascade.reductions]
    for term in terms:
        first, *others = (values_dtype(factor, problem) for factor in grouped(term, ()))
        made |= {product_dtype(first, other, problem, device) for other in others}
    tf32 = {"float32"} if problem.precision == "tf32" else set()
    return made <= set(HOLDS) | tf32


def rows_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Plan:
    """The plan of elementwise terms: a whole row in one tile if short or needed again for outputs; else by lanes."""
    length = max(1, problem.sizes[binding.streamed.name])
    rows = max(1, problem.sizes[binding.row.name] if binding.row else 1)
    if device.target == "c":
        level = "thread" if form.structures and not form.places else "block"
        width = min(256, padded(length, 1))
        return Plan(device, binding, min(4, rows), width, 1, 0, 1, 1, False, False, False, level=level)
    if form.places:
        return ranked_rule(problem, device, binding)
    if form.structures:
        lanes = min(1024, power_of_two(max(length, 128)))
        return Plan(device, binding, 1, lanes, 1, 0, 128, 1, False, False, False, level="thread")
    known = binding.streamed.name not in problem.varying
    if known and length <= whole_row(form, blocks(binding, problem, 1, 1) <= device.multiprocessors):
        return on_chip(device, binding, length, rows, vector(problem))
    level = "thread" if len(form.slots) * vector(problem) <= LANE_REGISTERS and form.is_lanewise else "block"
    threads = 128 if len(form.slots) <= FEW_SLOTS and not any(one.carries for one in form.outputs) else 256
    lanes = threads * vector(problem)
    return Plan(device, binding, 1, lanes, 1, 0, threads, 1, False, False, False, level=level)


def ranked_rule(problem: Problem, device: DeviceSpec, binding: Binding) -> Plan:
    """The plan that selects the best of a row: tiles as wide as the streamed axis allows, and few rows."""
    few = blocks(binding, problem, 1, 1) <= device.multiprocessors
    rows = max(1, problem.sizes[binding.row.name] if binding.row else 1)
    streamed = min(8192 if few else 2048, power_of_two(max(problem.sizes[binding.streamed.name], 128)))
    row = 1 if streamed >= 1024 else min(power_of_two(rows), 1024 // streamed)
    threads = 256 if streamed > 2048 else 128
    return Plan(device, binding, row, streamed, 1, 0, threads, 1, False, False, False)


LANE_REGISTERS, FEW_SLOTS = 96, 4
"""Numbers of state that a thread may hold for its lanes (of 255 registers, the loads and the moves take others)."""
SHORT_ROW, LONG_ROW, LONGEST_ROW = 2048, 8192, 16384
"""Elements of a row that one tile takes whole, the more the less is reduced of it (measured on an H200)."""


def whole_row(form: FusedForm, few: bool) -> int:
    """The longest row that one tile takes: long if it is needed again, or if lanes would rescale their sums."""
    again = any(one.carries for one in form.outputs)
    if few or not (again or any(one.weight for one in form.accumulators)):
        return SHORT_ROW
    return LONG_ROW if form.pivots else LONGEST_ROW


def on_chip(device: DeviceSpec, binding: Binding, length: int, rows: int, wide: int) -> Plan:
    """The plan of one tile for a row (for several if short), at 32 elements a thread: fewer threads meet sooner."""
    streamed = power_of_two(max(length, 128))
    threads = min(512, max(32, streamed // 32))
    if length > 1024:
        streamed = padded(length, threads * wide)
    row = 1 if streamed >= 1024 else min(power_of_two(rows), 1024 // streamed)
    threads = threads if row == 1 else 128
    return Plan(device, binding, row, streamed, 1, 0, threads, 1, False, False, False, level="row")


def vector(problem: Problem) -> int:
    """The number of elements of the narrowest floating-point input that one 16-byte load takes."""
    return 16 // min([DTYPES[dtype].bytes for dtype in problem.dtypes.values() if is_float(dtype)] or [4])


def blocks(binding: Binding, problem: Problem, block_row: int, block_column: int) -> int:
    """The number of blocks of a grid without segments."""
    grid = prod([max(1, problem.sizes[axis.name]) for axis in binding.grid])
    grid *= -(-problem.sizes[binding.column.name] // block_column) if binding.column is not None else 1
    return grid * (-(-max(1, problem.sizes[binding.row.name]) // block_row) if binding.row is not None else 1)


LEAST_SEGMENT, RESIDENT = 4096, 4
"""Elements of a segment that are worth a block of their own and a part to merge; blocks beside each other on an SM."""
LEAST_BYTES = 1 << 16
"""Bytes of such a segment, if every multiprocessor has a block already and two or four would keep it busier."""


def lane_segments(plan: Plan, problem: Problem, grid: int) -> int:
    """The number of parts of a row, if its lanes need nothing of each other until its end."""
    length, chips = problem.sizes[plan.binding.streamed.name], plan.device.multiprocessors
    if grid > chips:
        return 1
    most = length // LEAST_SEGMENT
    if 2 * grid > chips:
        elements = sum(prod(shape) for shape in problem.shapes.values() if len(shape) > 1)
        most = elements * 4 // (grid * LEAST_BYTES)
    wanted = min(RESIDENT * chips // grid, most, 64)
    return 1 << max(0, wanted.bit_length() - 1)


def segments(plan: Plan, problem: Problem) -> int:
    """The number of parts of the streamed axis: enough that the grid fills the chip. Each has at least four tiles (two
    if there are many, one if a tile is a loop itself)."""
    if plan.device.target == "c" or plan.level == "row":
        return 1
    grid = blocks(plan.binding, problem, plan.block_row, plan.block_column)
    tiles_along = -(-max(1, problem.sizes[plan.binding.streamed.name]) // plan.block_streamed)
    if plan.level == "thread":
        return lane_segments(plan, problem, grid)
    if 2 * grid > plan.device.multiprocessors:
        return 1
    tiles = tiles_along // (1 if plan.block_inner else 4 if tiles_along < 16 else 2)
    if plan.binding.streamed.name in problem.varying and tiles > 1:  # one number for all lengths
        tiles = plan.device.multiprocessors
    wanted = min(plan.device.multiprocessors // grid, tiles, 64)
    return 1 << max(0, wanted.bit_length() - 1)


SPREAD = 128
"""Blocks of the merging kernel above which they take more rows."""


def merged(plan: Plan, problem: Problem) -> int:
    """The number of rows that a block merges at a time: in a kernel, as many as leave every multiprocessor a block."""
    most = min(plan.block_row, MERGED_ROWS)
    if plan.merge == "launch" or (plan.multiplies and not plan.tensor_cores):
        return most

    def fills(rows: int) -> bool:
        return blocks(plan.binding, problem, max(1, rows), plan.block_column) >= SPREAD

    return max(1, next(filter(fills, (most, most // 4)), most // 4))


SPLIT_TILES, MOST_SPLITS = 2, 16
"""Tiles of the inner axis that a part has at least, and parts that one expression adds."""


def splits(plan: Plan, form: FusedForm, problem: Problem) -> int:
    """The number of parts of the producers' axes: enough that the tiles of their values fill the chip."""
    if not may_split(plan, form):
        return 1
    along = -(-problem.sizes[plan.binding.streamed.name] // plan.block_streamed)
    inner = min(problem.sizes[one.cascade.axis.name] for one in form.cascade.producers) // plan.block_inner
    wanted = plan.device.multiprocessors // (blocks(plan.binding, problem, plan.block_row, plan.block_column) * along)
    return max(1, min(wanted, inner // SPLIT_TILES, MOST_SPLITS))


def power_of_two(length: int) -> int:
    """The least power of two that is not below `length`."""
    return 1 << max(0, length - 1).bit_length()


def smaller(plan: Plan) -> Iterator[Plan]:
    """Yield the plan, then plans with fewer stages, then with fewer streamed elements, then with fewer rows."""
    if plan.level == "row":
        yield plan
        return
    for row in (plan.block_row, plan.block_row // 2, plan.block_row // 4):
        lengths = (plan.block_streamed, plan.block_streamed // 2, plan.block_streamed // 4)
        for streamed in lengths if plan.warps == "rows" else lengths[:1]:  # which warps by columns share out
            for stages in range(plan.stages, -1, -1):
                threads = plan.threads if row == plan.block_row else 128
                special = plan.warp_specialized and stages > 0
                if (streamed >= 16 and row >= 16) or (row, streamed) == (plan.block_row, plan.block_streamed):
                    yield replace(
                        plan,
                        block_row=row,
                        block_streamed=streamed,
                        stages=stages,
                        threads=threads,
                        warp_specialized=special,
                    )
