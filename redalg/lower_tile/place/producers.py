"""Producers: what a cascade on another axis makes for every row and streamed element of the tile.

    s[i, j] = Σ_u a[i, u]·b[j, u]      s = a · bᵀ, or a · b where the tensor lies that way round
    s[i, j] = ⊕_u f(i, j, u)           for u: s = s ⊕ f
    an inner axis in tiles             s = identity; for c: load the tiles of c; s = s ⊕ their part
    f(s₁ + s₂)   →   s₁ = s₁ + a₂ · b₂ᵀ;  f(s₁)      exact, where s₂ stands in such sums alone: one longer contraction

An inner axis that the plan cuts (`block_inner`) is a loop of its own, pipelined as the plan says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from sympy import Expr, Integer, Mul, S, Symbol, expand_mul

from redalg.decompose.cascade import Producer
from redalg.expression import Axis, Element, Value, Where
from redalg.expression.contents import elements_of
from redalg.expression.dtypes import is_eight_bits
from redalg.incremental.combine.let import Fold
from redalg.incremental.form import FusedForm
from redalg.lower_tile.ir.program import Contract, Fill, Loop, Statement, index
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.operands import Operands, operand_dtype
from redalg.lower_tile.place.space import I, J, Space, U
from redalg.monoids import MONOIDS
from redalg.strategies.binding import product_sides
from redalg.strategies.rules.products import HOLDS
from redalg.strategies.rules.tiles import round_up

STEPS = 4
"""Elements of an inner axis that a thread's loop takes at once: four numbers of a row are one load."""


@final
@dataclass(frozen=True)
class Inner:
    """A fold over an inner axis, for every row and streamed element of a tile, in the buffer `target`.

    Attributes:
        fold: the line.
        target: the buffer's name.
        clear: the buffer holds nothing yet.
        part: the number of the part of the axis that is folded, if the plan cuts the axis into parts.
    """

    fold: Fold
    target: str
    clear: bool = True
    part: Symbol | None = None

    @property
    def axis(self) -> Axis:
        """The inner axis."""
        [axis] = self.fold.over
        return axis

    def build(self, space: Space, operands: Operands, body: list[Statement]) -> None:
        """Append the fold: all of the axis at once, or a loop over tiles of it."""
        size, length = space.problem.sizes[self.axis.name], inner_length(space, self.axis)
        if length >= size and self.part is None:
            self._tile(along(space, self.axis, S.Zero, length), operands, body)
            return
        assembly, inner = operands.assembly, list[Statement]()
        variable = index(assembly.names.fresh(f"{self.axis.name}_tile"))
        tiles = -(-size // (length * space.plan.splits)) if self.part is not None else -(-size // length)
        first = variable * length if self.part is None else (self.part * tiles + variable) * length
        tile = replace(self, clear=False)
        tile._tile(along(space, self.axis, first, length), Operands(assembly, inner), inner)
        body += [Fill(self.target, self.fold.folding.identity)] if self.clear else []
        body.append(Loop(variable, Integer(tiles), space.plan.stages, tuple(inner)))

    def _tile(self, space: Space, operands: Operands, body: list[Statement]) -> None:
        """Fold a tile: a product of two factors as a contraction, any other term one element after the other."""
        term = Mul(*self.fold.folding.factors)
        is_product = self.fold.folding.kind == "sum" and not space.plan.is_serial
        sides = row_and_stream_factors(space, term) if is_product else None
        if sides is None:
            self._serial(term, space, operands, body)
        else:
            self._product(sides, space, operands, body)

    def _product(self, sides: tuple[Expr, Expr], space: Space, operands: Operands, body: list[Statement]) -> None:
        """Append one matrix product of a row factor and a streamed factor."""
        (row, streamed), axis = sides, self.axis
        binding, dtype = space.plan.binding, operand_dtype(space, row)
        rows = (binding.row, axis) if space.by_row(row) else (axis,)
        if is_eight_bits(dtype) and not (space.plan.device.fp8 and dtype in HOLDS and space.start[axis][1] % 32 == 0):
            dtype = "float16"
        elif dtype == "float16" and not (isinstance(row, Element) and isinstance(streamed, Element)):
            dtype = space.problem.compute  # what is computed may not fit: float16 holds nothing above 65504
        a = operands.operand(space, row, tuple(one for one in rows if one is not None), (I, U), body, dtype=dtype)
        turned = not is_eight_bits(dtype) and lies_along(space, streamed, (axis, binding.streamed))
        axes, indices = ((axis, binding.streamed), (U, J)) if turned else ((binding.streamed, axis), (J, U))
        b = operands.operand(space, streamed, axes, indices, body, dtype=dtype)
        body.append(Contract(a, b, self.target, transposed=not turned, clear=self.clear))

    def _serial(self, term: Expr, space: Space, operands: Operands, body: list[Statement]) -> None:
        """Append target[i, j] := [target[i, j]] ⊕_u term, one u after the other."""
        space = self._stage_lanes(term, space, operands, body)
        inner, before = operands.stage(space, term, body), Load(self.target, *operands.assembly.tile)
        after = MONOIDS[self.fold.folding.kind].combine(before, inner.read(term))
        if space.is_ragged(self.axis):
            after = Where(inner.at[self.axis] < space.problem.sizes[self.axis.name], after, before)
        if self.clear:
            body.append(Fill(self.target, self.fold.folding.identity))
        step = operands.assembly.stores((before, after))
        unrolled = STEPS if space.plan.is_serial else 1
        body.append(Loop(U, Integer(space.start[self.axis][1]), 0, (step,), pipelined=False, unrolled=unrolled))

    def _stage_lanes(self, term: Expr, space: Space, operands: Operands, body: list[Statement]) -> Space:
        """The space with tiles, turned round, of what lies along the axis: for every u, lanes then read neighbours.

        Warps of their own load tiles as they lie in memory.
        """
        if not space.plan.multiplies or space.plan.warp_specialized or space.plan.device.target == "c":
            return space
        staged, axis, binding = {}, self.axis, space.plan.binding
        for lanes, place in ((binding.row, I), (binding.streamed, J)):
            for element, lane in inputs_along(space, term, lanes, axis):
                name = operands.load_turned(space, element, (axis, lane), (U, place), body, along=True)
                staged[element] = (name, (axis, lane))
        return space.with_staged(staged)


def inputs_along(space: Space, expr: Expr, lane: Axis | None, axis: Axis) -> list[tuple[Element, Axis]]:
    """The inputs of an expression whose tile has an axis of lanes, then the given axis; each with the axis of lanes."""
    if lane is None:
        return []
    parts = {one: space.region(one) for one in sorted(elements_of(expr), key=str)}
    return [(one, lane) for one, part in parts.items() if part is not None and part[1] == (lane, axis)]


def stage_sides(form: FusedForm, space: Space, operands: Operands, body: list[Statement]) -> Space:
    """The space with the tiles of all that producers read; in those of rows, neighbouring lanes read neighbours."""
    row = space.plan.binding.row
    for producer in form.cascade.producers:
        axis = producer.cascade.axis
        inner, staged = along(space, axis, S.Zero, inner_length(space, axis)), {}
        for element, lane in inputs_along(inner, producer.definition, row, axis):
            staged[element] = (operands.load_turned(inner, element, (axis, lane), (U, I), body), (axis, lane))
        space = space.with_staged(staged)
        space = space.with_staged(operands.stage(inner.with_staged(staged), producer.definition, body).staged)
    return space


def addable_producers(form: FusedForm, space: Space) -> dict[Value, Value]:
    """The producers that may be added to the tile of an earlier one, with that one.

    Both are products, and only their sum is used.
    """
    products = [one for one in form.cascade.producers if is_sum_of_products(one, space)]
    targets: dict[Value, Value] = {}
    for place, product in enumerate(products):
        earlier = (other.value for other in products[:place] if other.value not in targets)
        to = next((other for other in earlier if only_added(product.value, other, form)), None)
        if to is not None:
            targets[product.value] = to
    return targets


def is_sum_of_products(producer: Producer, space: Space) -> bool:
    """True if a producer is one sum of products, for every row and streamed element."""
    sum_alone = producer.cascade.sum_alone
    return (
        sum_alone is not None
        and row_and_stream_factors(along(space, producer.cascade.axis, S.Zero, 1), sum_alone) is not None
    )


def only_added(value: Value, to: Value, form: FusedForm) -> bool:
    """True if `value` stands only in sums with `to`: put `to − value` for `to`, and `value` is gone."""
    exprs = [one.term for one in form.extrema]
    exprs += [operand for structure in form.structures for operand in structure.operands]
    exprs += [pivot.base for pivot in form.pivots] + [factor for a in form.accumulators for factor in a.factors]
    exprs += [output.expr for output in form.outputs]
    exprs += [expr for producer in form.cascade.producers for expr in producer.cascade.expressions()]
    used = [expr for expr in exprs if expr.has(value) or expr.has(to)]
    return not form.cascade.domain.has(value, to) and not any(
        expand_mul(e.xreplace({to: to - value})).has(value) for e in used
    )


def inner_length(space: Space, axis: Axis) -> int:
    """The length of a producer's axis in a tile: all of it, padded to what matrix instructions take, or a part."""
    size = space.problem.sizes[axis.name]
    if space.plan.is_serial:
        return size
    whole = round_up(size, 16)
    return min(space.plan.block_inner or whole, whole)


def along(space: Space, axis: Axis, first: Expr, length: int) -> Space:
    """The space with a tile of a producer's axis along u."""
    return replace(space, at={**space.at, axis: first + U}, start={**space.start, axis: (first, length)})


def row_and_stream_factors(space: Space, term: Expr) -> tuple[Expr, Expr] | None:
    """The pair (row factor, streamed factor) of a term that is their product, in one dtype; None for other terms."""
    sides = product_sides(term, space.plan.binding)
    return sides if sides is not None and len({operand_dtype(space, one) for one in sides}) == 1 else None


def lies_along(space: Space, factor: Expr, axes: tuple[Axis, Axis]) -> bool:
    """True if a factor is an input whose tile lies along the given axes, in their order."""
    part = space.region(factor) if isinstance(factor, Element) else None
    return part is not None and part[1] == axes
