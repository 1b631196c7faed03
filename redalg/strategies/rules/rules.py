"""The fixed rules that choose a schedule without search: Single-Segment, Multi-Segment, and their tiles.

The figures behind the rules were measured on an H200 and are kept as data in `benchmarks/`; search and tuning come
later, and replace no rule silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import gcd, prod

from sympy import And, Mod, floor

from redalg.expression import Axis, Element
from redalg.expression.contents import elements_of, free_axes, quotient_of
from redalg.expression.dtypes import is_eight_bits
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding, bind_axes, product_sides
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import Loop, ScalarCores, TensorCores, Unit
from redalg.strategies.live import Live
from redalg.strategies.plan import Problem, grid_levels, inner_levels
from redalg.strategies.rules.elementwise import elementwise_rule
from redalg.strategies.rules.long_rows import long_rows_rule
from redalg.strategies.rules.loop_tiles import (
    FEW_WAVES,
    LARGE_TILE,
    LONG_LOOP,
    THREE_WARPGROUPS,
    TileFacts,
    ampere_tile,
    hopper_tile,
    scalar_tile,
)
from redalg.strategies.rules.pairs import pairs_rule, pairwise_binding
from redalg.strategies.rules.parts import blocks, with_parts
from redalg.strategies.rules.powers import power_of_two
from redalg.strategies.rules.products import HOLDS, folds_pairs, operands_dtype, product_dtype, values_dtype
from redalg.strategies.rules.rows import has_aligned_rows, rows_rule
from redalg.strategies.rules.tiles import Product, Tile, product_tile, round_up, skips_ahead, trims
from redalg.strategies.schedule import Schedule, numbers_of, with_choices


def choose_schedule(form: FusedForm, problem: Problem, device: DeviceSpec) -> Schedule:
    """Choose the schedule of a form for a device; it serves the run-time sizes up to the next power of two."""
    bounds = {name: power_of_two(problem.sizes[name]) for name in problem.varying}
    problem = replace(problem, sizes={**problem.sizes, **bounds})
    binding = bind_axes(form, problem.sizes)
    problem = replace(problem, sizes=binding.all_sizes(problem.sizes))
    if form.is_elementwise:
        return elementwise_rule(form, problem, device, binding)
    multiplies = binding.contracted or form.cascade.producers
    pairwise = pairwise_binding(form, problem, device, binding)
    rule = pairs_rule if pairwise is not None else contraction_rule if multiplies else rows_rule
    schedule = long_rows_rule(form, problem, device, binding) if rule is rows_rule else None
    if schedule is None:
        schedule = with_parts(rule(form, problem, device, pairwise or binding), form, problem)
    numbers_of(schedule).verify(problem)
    return schedule


def product_schedule(
    device: DeviceSpec, binding: Binding, tile: tuple[int, int], loop: Loop, unit: Unit, *, inner: int = 0
) -> Schedule:
    """The schedule of products, from its tile (rows, columns), its loop, and the tile of inner axes (0: whole)."""
    levels = (*grid_levels(binding, *tile), loop, *inner_levels(binding, inner), unit)
    return Schedule.of_levels(levels, binding, device)


def contraction_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule of contractions, in tiles of rows x streamed elements, on tensor cores if the dtype allows."""
    rows = problem.sizes[binding.row.name] if binding.row else 1
    columns = round_up(problem.sizes[binding.column.name] if binding.column else 1, 16)
    inner = [problem.sizes[one.cascade.axis.name] for one in form.cascade.producers]
    cores = tensor_cores(form, problem, device, binding)
    part = equal_part(form)
    alone = cores and device.wgmma and not form.cascade.producers and rows < LARGE_TILE[0] // 2 and not part
    columns = min(columns, WIDE) if alone else columns
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
        plain=len(inner) == len(whole) == 1 and has_products(form, binding),
        few=has_few_blocks(binding, problem, device),
        banded=compares_data(form, binding),
        parted=reads_parts(form, binding),
        alone=alone,
    )
    if not form.cascade.producers and not any(one.weight for one in form.accumulators):
        return product_rule(form, problem, device, binding, cores=cores)
    kind = scalar_tile if not cores else hopper_tile if device.wgmma else ampere_tile
    row, streamed, stages, threads, special = kind(device, facts)
    if part and part % LEAST_PART == 0:
        streamed = gcd(part, streamed)
        stages = min(stages, 1) if reads_pages(form) else stages
    if folds_pairs(form, binding):
        streamed, stages, special = min(streamed, FOLDED), min(stages, 1), False
    cut = inner_rule(inner, columns, cores=cores)
    if cores and not any(one.weight for one in form.accumulators) and binding.contracted:
        tile = gradient_tile(form, problem, device, binding, facts) if device.wgmma and not cut else None
        if tile is not None:
            streamed, stages = tile
            loop = Loop(binding.streamed.name, streamed, stages, True)
            return product_schedule(device, binding, (LARGE_TILE[0], columns), loop, TensorCores(256))
        return chain_rule(problem, device, binding, columns, cut, varies=facts.trims)
    if not cores and device.target != "c":
        columns = min(columns, WIDE)  # more do not fit in registers: blocks share them out, and make the weights again
    many = columns <= NARROW and rows >= SCORES_TILE[0] and problem.sizes[binding.streamed.name] >= LONG_LOOP
    free = many and not part and device.target != "c"  # tiles of any length serve
    if free and cores and device.wgmma and not cut and facts.aligned and SHORT_PRODUCT < facts.width <= WIDE:
        row, streamed, stages, threads, special = WIDE_SCORES
    if free and not cores and not facts.trims and max(inner, default=0) >= SCALAR_INNER:
        (row, streamed, stages, threads, special), cut = SCALAR_SCORES, SCALAR_INNER
    elif cut:  # an outer loop around loads by warps of their own gave wrong sums (H200, TileLang 0.1.15)
        stages, special = INNER_STAGES if cores else stages, False
        if cores and device.wgmma and many:
            alone = facts.aligned and sums_scores_alone(form, problem, binding)
            beside = reads_along(form, binding.streamed)
            tile_alone = WHOLE_SCORES_BESIDE if beside else WHOLE_SCORES
            (row, streamed, stages, threads, special), cut = tile_alone if alone else SCORES_TILE, INNER // 2
    operands = "shared" if facts.wide else "registers"
    unit = TensorCores(threads, operands) if cores else ScalarCores(threads)
    loop = Loop(binding.streamed.name, streamed, stages, special)
    return product_schedule(device, binding, (row, columns), loop, unit, inner=cut)


def has_products(form: FusedForm, binding: Binding) -> bool:
    """Tell if all producers multiply rows by streamed elements."""
    parts = (part for producer in form.cascade.producers for part in producer.cascade.reductions)
    return all(product_sides(part.term, binding) for part in parts)


def has_few_blocks(binding: Binding, problem: Problem, device: DeviceSpec) -> bool:
    """Tell if the largest tiles of rows fill the GPU, but so few times that the longest loops of a wave decide."""
    columns, chips = problem.sizes[binding.column.name] if binding.column else 1, device.multiprocessors
    fine, coarse = (blocks(binding, problem, tile[0], columns) for tile in (LARGE_TILE, THREE_WARPGROUPS))
    return fine >= chips and coarse < FEW_WAVES * chips


WHOLE_SCORES_BESIDE: Tile = (128, 192, 4, 256, True)
"""The same if another tensor is read along the scores, a bias say: wider tiles spill registers."""


def reads_in_outputs(form: FusedForm, binding: Binding) -> bool:
    """Tell if an output reads a tensor, by row and column, beside the products."""
    read = [one for output in form.outputs for one in elements_of(output.expr)]
    return any(binding.column in free_axes(one) and binding.rows & free_axes(one) for one in read)


def reads_along(form: FusedForm, axis: Axis) -> bool:
    """Tell if a term of the loop reads a tensor along an axis beside the products."""
    terms = [*(one.term for one in form.accumulators), *(one.term for one in form.extrema)]
    return any(axis in free_axes(one) for term in terms for one in elements_of(term))


def sums_scores_alone(form: FusedForm, problem: Problem, binding: Binding) -> bool:
    """Tell if a form sums numbers of one product's scores: parts of one tile each have few states to merge."""
    plain = not form.structures and not binding.contracted
    return plain and len(form.cascade.producers) == 1 and binding.streamed.name not in problem.varying


GRADIENT_COLUMNS = 256
"""Columns of all sums together that leave registers for two tiles of 128 x 64 scores, 32 numbers a thread each."""
NARROW_COLUMNS, SHORT_LOOP = 64, 2048
"""Columns of all sums, and a streamed axis, up to which small tiles are faster (H100, dQ of 512, 1024 and 2048 keys at
d 64: 0.84, 0.92 and 0.97 of the time; at d 128 1.17 to 1.21)."""


def gradient_tile(
    form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding, facts: TileFacts
) -> tuple[int, int] | None:
    """The streamed elements and stages of sums whose operands are computed of two products or more: tiles of 128 rows.

    None if their sums and scores do not fit in registers, or if there are too few rows. (H100, the gradients of
    4 x 16 x 4096² scores at d 128 and 64: 0.8 to 0.9 of the time of tiles of 64 x 64, where causal 0.6 to 0.8.)
    """
    rows, products = LARGE_TILE[0], sum(len(one.factors) > 1 for one in form.accumulators)
    columns = round_up(problem.sizes[binding.column.name] if binding.column else 1, 16)
    few = facts.rows < rows or blocks(binding, problem, rows, columns) < device.multiprocessors
    if len(form.cascade.producers) < 2 or few or facts.biased or not facts.aligned:
        return None
    short = columns * products <= NARROW_COLUMNS and problem.sizes[binding.streamed.name] <= SHORT_LOOP
    edges = products == 1 and facts.trims and loses_to_edges(form, problem, binding)
    if columns * products > GRADIENT_COLUMNS or short or edges:
        return None
    return 128 if columns * products <= GRADIENT_COLUMNS // 2 else 64, 2 * products


LARGE_EDGES = 1 / 16
"""The share of elements that tiles of 128 x 128 take beyond those of 64 x 64, from which these are faster (H200, a band
of 512 keys among 4096: 0.11 of them; dQ at d 128 and 64 in 0.85 and 0.73 of the time; causal, 1024 keys: 0.06, 0.98;
2048 keys: 0.03, 1.01; two products, dK and dV, in 0.99 and, causal, 512 keys, 1.02)."""


def loses_to_edges(form: FusedForm, problem: Problem, binding: Binding) -> bool:
    """Tell if much of large tiles lies outside a mask of places."""
    live = Live(form, binding, problem.sizes)
    large, small = (side * live.tiles(side, side) for side in (128, 64))
    return large - small > LARGE_EDGES * large


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


SHARED_COLUMNS = 64
"""The columns of which a second warpgroup takes a multiple, where a tile has 64 rows."""


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
            alone=len(products) == 1 and not reads_in_outputs(form, binding),
        ),
        device,
        cores=cores,
    )
    row, streamed, stages, threads, special = tile
    if cores and columns % SHARED_COLUMNS:
        threads = min(threads, 2 * row)
    left = "shared" if form.slot_pivots else "registers"  # whose layout the sums of an operand's rows do not take
    unit = TensorCores(threads, left) if cores else ScalarCores(threads)
    loop = Loop(binding.streamed.name, streamed, stages, special)
    return product_schedule(device, binding, (row, columns), loop, unit)


WIDE = 256
"""Widest operand of which a warpgroup's rows fit in registers."""
NARROW = 16
"""Columns of sums that weigh no values."""
SHORT_PRODUCT = 128
"""Products of a score up to which the tiles of sums that weigh values serve others as well."""
WIDE_SCORES: Tile = (128, 128, 2, 256, True)
"""The tile of scores of more than `SHORT_PRODUCT` and up to `WIDE` products each (H100: a contrastive loss of 8192²
scores of 256 products takes 0.65 of the time of tiles of 64 elements)."""
SCALAR_SCORES: Tile = (128, 128, 1, 128, False)
SCALAR_INNER = 64
"""The tile of long scores on CUDA cores, 16 x 8 of them a thread, and the part of their products that it holds (H100,
float32: a loss of 4096 x 32000 x 2048 in 16.7 ms, in tiles of 64 x 64 37.4, in two stages 21.8; sums of 8192² scores of
64, 128 and 256 products in 0.40, 0.63 and 0.37 of the time)."""
SCORES_TILE: Tile = (128, 192, 4, 256, False)
"""The tile of long scores that such sums take: more would leave no registers for them."""
WHOLE_SCORES: Tile = (128, 256, 3, 256, True)
"""The tile of scores if every block makes one alone, and its few sums are a part: then no loop is around the product's,
and warps of their own may load (H100: a loss of 4096 x 32000 x 2048 takes 0.70 of the time of few parts of
`SCORES_TILE`; in tiles of 160 and 192 elements 0.72 and 0.79, without such warps 0.95)."""
FOLDED = 128
"""Elements of a tile whose pairs with rows arithmetic folds, at most: tiles are turned as they are loaded."""
INNER, INNER_STAGES = 128, 3
"""The tile of an inner axis that is cut, and its stages (the fastest of 64 and 128 elements, and of 2 to 4 stages)."""


def inner_rule(inner: list[int], columns: int, *, cores: bool) -> int:
    """The tile length of the producers' axes: 0 (whole) if short beside the columns, or if they fit; else cut."""
    longest = max(inner, default=0)
    return INNER if longest > max(columns, 512 if cores else 256) else 0


def has_bias(form: FusedForm, binding: Binding) -> bool:
    """Tell if an input is indexed by both the row and the streamed axis, and not by their parts alone."""
    axes_read = [free_axes(one) for one in form.cascade.elements() if not has_parts(one, binding)]
    return any(binding.streamed in axes and binding.rows & axes for axes in axes_read if not by_group(axes, binding))


def has_parts(element: Element, binding: Binding) -> bool:
    """Tell if an element is one for whole tiles of the rows and of the streamed axis, as that of a block mask."""
    mine = [one for one in element.indices if free_axes(one) & {*binding.rows, binding.streamed}]
    return all(any(quotient_of(one, axis) >= LARGE_TILE[0] for axis in free_axes(one)) for one in mine)


def reads_parts(form: FusedForm, binding: Binding) -> bool:
    """Tell if an input is indexed by a quotient of the row or the streamed axis."""
    indices = [index for element in form.cascade.elements() for index in element.indices]
    axes = {*binding.rows, binding.streamed}
    return any(quotient_of(index, axis) > 1 for index in indices for axis in free_axes(index) & axes)


def compares_data(form: FusedForm, binding: Binding) -> bool:
    """Tell if a mask compares an input along the rows with one along the streamed axis."""
    for condition in And.make_args(form.cascade.domain):
        axes = [free_axes(one) for one in elements_of(condition)]
        by_row = any(binding.rows & one and binding.streamed not in one for one in axes)
        if by_row and any(binding.streamed in one and not binding.rows & one for one in axes):
            return True
    return False


def by_group(axes: AbstractSet[Axis], binding: Binding) -> bool:
    """Tell if the only row axis among `axes` is the grouped one, whose groups the grid numbers."""
    return binding.packing is not None and binding.rows & axes == {binding.packing.grouped}


LEAST_PART = 32
"""Shortest equal part of the streamed axis (a page) that a tile is cut to; elements of shorter parts are gathered."""


def reads_pages(form: FusedForm) -> bool:
    """Tell if a place within a part is an index: where the part lies is read ahead, in few registers of a loader."""
    return any(one.args[0] == form.cascade.axis for element in form.cascade.elements() for one in element.atoms(Mod))


def equal_part(form: FusedForm) -> int:
    """The length that tiles of the streamed axis must divide to lie within one part of it; 0 if any will do."""
    axis, lengths = form.cascade.axis, list[int]()
    for element in form.cascade.elements():
        for part in element.atoms(floor, Mod):
            above, below = part.args[0].as_numer_denom() if isinstance(part, floor) else part.args
            if above == axis and below.is_Integer:
                lengths.append(int(below))
    return gcd(*lengths)


def tensor_cores(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> bool:
    """Tell if contractions, of which there are some, all multiply in a dtype of matrix instructions (or TF32)."""
    if device.target == "c":
        return False
    dtypes = {operands_dtype(one, form, problem, device) for one in form.accumulators if len(one.factors) > 1}
    reductions = (part for producer in form.cascade.producers for part in producer.cascade.reductions)
    for sides in filter(None, (product_sides(part.term, binding) for part in reductions)):
        left, right = (values_dtype(side, problem) for side in sides)
        dtypes.add(product_dtype(left, right, problem, device))
    tf32 = {"float32"} if problem.precision == "tf32" else set()
    return bool(dtypes) and dtypes <= set(HOLDS) | tf32


def smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Yield the schedule, then some with fewer stages, streamed elements, rows, and at last inner elements."""
    plan = numbers_of(schedule)
    if plan.level == "row":
        yield schedule
        return
    fewer = (64, 32) if plan.threads > 256 else (plan.block_row // 2, plan.block_row // 4)
    for row in (plan.block_row, *fewer):
        lengths = (plan.block_streamed, plan.block_streamed // 2, plan.block_streamed // 4)
        for streamed in lengths if plan.warps == "rows" else lengths[:1]:  # which warps by columns share out
            for stages in range(plan.stages, -1, -1):
                if (streamed >= 16 and row >= 16) or (row, streamed) == (plan.block_row, plan.block_streamed):
                    threads = plan.threads if row == plan.block_row else 128
                    special = plan.warp_specialized and stages > 0
                    yield with_choices(schedule, block_row=row, block_streamed=streamed, stages=stages, threads=threads,
                                  warp_specialized=special)  # fmt: skip
    least = {"block_row": min(plan.block_row, 16), "block_streamed": min(plan.block_streamed, 16), "stages": 0}
    for inner in (plan.block_inner // 2, plan.block_inner // 4):
        if inner >= 16 and inner % 16 == 0 and plan.warps == "rows":
            threads = min(plan.threads, 128)
            yield with_choices(schedule, **least, block_inner=inner, threads=threads, warp_specialized=False)
