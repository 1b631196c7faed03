"""The rules for contractions: sums of products, and sums of terms that are computed of scores, which products make.

products alone         nothing is computed of them (`tiles`)
products of products   operands are computed of other products (`chains`)
others                 tiles of rows x streamed elements, by what the loop reads (`loop_tiles`); of many scores, or
                       of scores that are long products, larger ones (`scores`)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import final

from redalg.expression import Axis, Element
from redalg.expression.dtypes import is_eight_bits
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import Loop, ScalarCores, TensorCores
from redalg.strategies.plan import Problem
from redalg.strategies.rules.chains import chain_rule
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
from redalg.strategies.rules.parts import blocks
from redalg.strategies.rules.products import folds_pairs, operands_dtype, tensor_cores
from redalg.strategies.rules.reads import (
    LEAST_PART,
    compares_data,
    equal_part,
    has_aligned_rows,
    has_bias,
    has_products,
    reads_along,
    reads_in_outputs,
    reads_pages,
    reads_parts,
)
from redalg.strategies.rules.scores import (
    FOLDED,
    INNER,
    INNER_STAGES,
    NARROW,
    SCALAR_INNER,
    SCALAR_SCORES,
    SCORES_TILE,
    SHORT_PRODUCT,
    WHOLE_SCORES,
    WHOLE_SCORES_BESIDE,
    WIDE,
    WIDE_SCORES,
    inner_rule,
    sums_scores_alone,
)
from redalg.strategies.rules.tiles import Product, Tile, product_schedule, product_tile, round_up, skips_ahead, trims
from redalg.strategies.schedule import Schedule


@final
@dataclass(frozen=True)
class Contraction:
    """A form that multiplies, and the numbers that its rules look at.

    Attributes:
        form, problem, device, binding: as of every rule.
    """

    form: FusedForm
    problem: Problem
    device: DeviceSpec
    binding: Binding

    def extent(self, axis: Axis | None) -> int:
        """The extent of an axis; 1 of none."""
        size: int = self.problem.sizes[axis.name] if axis else 1
        return size

    @cached_property
    def cores(self) -> bool:
        """True if tensor cores multiply."""
        return tensor_cores(self.form, self.problem, self.device, self.binding)

    @cached_property
    def weighs(self) -> bool:
        """True if exponentials weigh sums."""
        return any(one.weight for one in self.form.accumulators)

    @cached_property
    def inner(self) -> list[int]:
        """The extents of the producers' axes."""
        return [self.extent(one.cascade.axis) for one in self.form.cascade.producers]

    @cached_property
    def part(self) -> int:
        """The length of the equal parts of the streamed axis, within which tiles lie; 0 if there are none."""
        return equal_part(self.form)

    @cached_property
    def alone(self) -> bool:
        """True if no product makes the weights of few rows that tensor cores multiply."""
        few = self.extent(self.binding.row) < LARGE_TILE[0] // 2
        return self.cores and self.device.wgmma and not self.inner and few and not self.part

    @cached_property
    def columns(self) -> int:
        """The columns of a tile: all of them, or as many as registers hold where they are `alone`."""
        columns = round_up(self.extent(self.binding.column), 16)
        return min(columns, WIDE) if self.alone else columns

    @cached_property
    def cut(self) -> int:
        """The part of the producers' axes that a tile holds at a time; 0 for the whole."""
        return inner_rule(self.inner, self.columns, cores=self.cores)

    @cached_property
    def facts(self) -> TileFacts:
        """The facts that the rules for tiles look at."""
        form, problem, binding, rows = self.form, self.problem, self.binding, self.extent(self.binding.row)
        whole = [one for one in self.inner if not inner_rule([one], self.columns, cores=self.cores)]
        chip = self.device.multiprocessors
        return TileFacts(
            rows,
            round_up(max([self.columns, *whole]), 16),
            trims(form, problem),
            has_bias(form, binding),
            has_aligned_rows(form, problem) and self.part % LEAST_PART == 0,
            long=self.extent(binding.streamed) >= LONG_LOOP
            and not skips_ahead(form)
            and rows >= LARGE_TILE[0]
            and blocks(binding, problem, LARGE_TILE[0], self.columns) >= chip,
            wide=self.columns > WIDE,
            plain=len(self.inner) == len(whole) == 1 and has_products(form, binding),
            few=has_few_blocks(binding, problem, self.device),
            banded=compares_data(form, binding),
            parted=reads_parts(form, binding),
            alone=self.alone,
        )


def contraction_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule:
    """The schedule of contractions, in tiles of rows x streamed elements, on tensor cores if the dtype allows."""
    own = Contraction(form, problem, device, binding)
    if not form.cascade.producers and not own.weighs:
        return product_rule(form, problem, device, binding, cores=own.cores)
    if own.cores and not own.weighs and binding.contracted:
        return chain_rule(form, problem, binding, own.facts, device=device, columns=own.columns, cut=own.cut)
    (row, streamed, stages, threads, special), cut = scores_tile(own, loop_tile(own))
    columns = own.columns
    if not own.cores and device.target != "c":
        columns = min(columns, WIDE)  # more do not fit in registers: blocks share them out, and make the weights again
    operands = "shared" if own.facts.wide else "registers"
    unit = TensorCores(threads, operands) if own.cores else ScalarCores(threads)
    loop = Loop(binding.streamed.name, streamed, stages, special)
    return product_schedule(device, binding, (row, columns), loop, unit, inner=cut)


def loop_tile(own: Contraction) -> Tile:
    """The tile of a loop by its facts, which lies within a page, and is short if arithmetic folds pairs."""
    kind = scalar_tile if not own.cores else hopper_tile if own.device.wgmma else ampere_tile
    row, streamed, stages, threads, special = kind(own.device, own.facts)
    if own.part and own.part % LEAST_PART == 0:
        streamed = gcd(own.part, streamed)
        stages = min(stages, 1) if reads_pages(own.form) else stages
    if folds_pairs(own.form, own.binding):
        streamed, stages, special = min(streamed, FOLDED), min(stages, 1), False
    return row, streamed, stages, threads, special


def scores_tile(own: Contraction, tile: Tile) -> tuple[Tile, int]:
    """The tile of many scores, and the part of their products that it holds (0: all); others keep their `tile`."""
    facts, wgmma = own.facts, own.cores and own.device.wgmma
    many = own.columns <= NARROW and facts.rows >= SCORES_TILE[0] and own.extent(own.binding.streamed) >= LONG_LOOP
    free = many and not own.part and own.device.target != "c"  # tiles of any length serve
    if free and wgmma and not own.cut and facts.aligned and SHORT_PRODUCT < facts.width <= WIDE:
        return WIDE_SCORES, 0
    if free and not own.cores and not facts.trims and max(own.inner, default=0) >= SCALAR_INNER:
        return SCALAR_SCORES, SCALAR_INNER
    if not own.cut:
        return tile, 0
    if many and wgmma:
        alone = facts.aligned and sums_scores_alone(own.form, own.problem, own.binding)
        beside = reads_along(own.form, own.binding.streamed)
        return (SCORES_TILE if not alone else WHOLE_SCORES_BESIDE if beside else WHOLE_SCORES), INNER // 2
    row, streamed, stages, threads, _ = tile
    # An outer loop around loads by warps of their own gave wrong sums (H200, TileLang 0.1.15).
    return (row, streamed, INNER_STAGES if own.cores else stages, threads, False), own.cut


def has_few_blocks(binding: Binding, problem: Problem, device: DeviceSpec) -> bool:
    """Tell if the largest tiles of rows fill the GPU, but so few times that the longest loops of a wave decide."""
    columns, chips = problem.sizes[binding.column.name] if binding.column else 1, device.multiprocessors
    fine, coarse = (blocks(binding, problem, tile[0], columns) for tile in (LARGE_TILE, THREE_WARPGROUPS))
    return fine >= chips and coarse < FEW_WAVES * chips


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
