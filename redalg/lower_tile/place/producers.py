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

from sympy import Expr, Integer, S, Symbol, expand_mul

from redalg.decompose.cascade import Producer, Reduction
from redalg.expression import Axis, Element, Value, Where
from redalg.expression.contents import free_axes, values_of
from redalg.expression.dtypes import is_eight_bits
from redalg.incremental.factors import grouped
from redalg.incremental.form import FusedForm
from redalg.lower_tile.ir.program import Contract, Fill, Loop, Statement, index
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.expressions import buffer_of, numeric_factor
from redalg.lower_tile.place.operands import Operands, operand_dtype
from redalg.lower_tile.place.space import I, J, Space, U
from redalg.strategies.rules.products import HOLDS
from redalg.strategies.rules.tiles import round_up


@final
@dataclass(frozen=True)
class Part:
    """The part of a reduction that a tile of the inner axis gives, in the buffer `name`; `clear` if it is the first."""

    space: Space
    reduction: Reduction
    axis: Axis
    name: str
    operands: Operands
    clear: bool = True


@final
class Production:
    """Build the tiles of producers in the loop's body; with `part`, only for the part of their axes that it numbers."""

    def __init__(self, assembly: Assembly, operands: Operands, part: Symbol | None = None) -> None:
        self.assembly, self.operands, self.part = assembly, operands, part

    def add(self, space: Space, producer: Producer, to: Value, body: list[Statement]) -> Space:
        """Add a producer's value to the tile of another. The returned space reads the value itself as 0."""
        [reduction] = producer.cascade.reductions
        self._reduced(space, reduction, producer.cascade.axis, buffer_of(space.values[to]), body, onto=True)
        return space.with_values({producer.value: S.Zero})

    def produce(self, space: Space, producer: Producer, body: list[Statement]) -> Space:
        """Compute a producer's value, and return the space that can read it."""
        cascade = producer.cascade
        if cascade.producers:
            raise AssertionError(f"{producer.name} has producers of its own, which are stages or stand beside it")
        values, expr = dict[Value, Expr](), cascade.outputs[0].expr
        for reduction in cascade.reductions:
            wanted = producer.name if expr == reduction.value else f"{producer.name}_{reduction.name}"
            name = self._reduced(space.with_values(values), reduction, cascade.axis, wanted, body)
            values[reduction.value] = Load(name, I, J)
        if expr in values:
            return space.with_values({producer.value: values[expr]})
        read = space.with_values(values).read(expr)
        if numeric_factor(read)[1].is_Atom or isinstance(numeric_factor(read)[1], Load):
            return space.with_values({producer.value: read})  # a number times a tile needs no tile of its own
        return space.with_values({producer.value: self.assembly.tile_of(producer.name, read, body)})

    def _reduced(
        self, space: Space, reduction: Reduction, axis: Axis, wanted: str, body: list[Statement], *, onto: bool = False
    ) -> str:
        """The tile of one reduction over the inner axis: at once, or in a loop over tiles of the axis."""
        name = wanted if onto else self.assembly.new(wanted, I, J, note=f"{reduction.monoid} over {axis}").name
        size, length = space.problem.sizes[axis.name], inner_length(space, axis)
        if length >= size and self.part is None:
            place = along(space, axis, S.Zero, length)
            self._part(Part(place, reduction, axis, name, self.operands, clear=not onto), body)
            return name
        variable, inner = index(self.assembly.names.fresh(f"{axis.name}_tile")), list[Statement]()
        tiles = -(-size // (length * space.plan.splits)) if self.part is not None else -(-size // length)
        first = variable * length if self.part is None else (self.part * tiles + variable) * length
        place, operands = along(space, axis, first, length), Operands(self.assembly, inner)
        self._part(Part(place, reduction, axis, name, operands, clear=False), inner)
        body += [] if onto else [Fill(name, reduction.monoid.identity)]
        body.append(Loop(variable, Integer(tiles), space.plan.stages, tuple(inner)))
        return name

    def _part(self, part: Part, body: list[Statement]) -> None:
        """Reduce a part: a product of two factors as a contraction, any other term one element after the other."""
        is_sum = part.reduction.monoid.name == "sum"
        sides = row_and_stream_factors(part.space, part.reduction.term) if is_sum else None
        if sides is None:
            self._serial(part, body)
        else:
            self._product(part, sides, body)

    def _product(self, part: Part, sides: tuple[Expr, Expr], body: list[Statement]) -> None:
        """Append one matrix product of a row factor and a streamed factor."""
        (row, streamed), space, axis = sides, part.space, part.axis
        binding, dtype = space.plan.binding, operand_dtype(space, row)
        rows = (binding.row, axis) if space.by_row(row) else (axis,)
        if is_eight_bits(dtype) and not (space.plan.device.fp8 and dtype in HOLDS and space.start[axis][1] % 32 == 0):
            dtype = "float16"
        elif dtype == "float16" and not (isinstance(row, Element) and isinstance(streamed, Element)):
            dtype = space.problem.compute  # what is computed may not fit: float16 holds nothing above 65504
        operand = part.operands.operand
        a = operand(space, row, tuple(one for one in rows if one is not None), (I, U), body, dtype=dtype)
        turned = not is_eight_bits(dtype) and lies_along(space, streamed, (axis, binding.streamed))
        axes, indices = ((axis, binding.streamed), (U, J)) if turned else ((binding.streamed, axis), (J, U))
        b = operand(space, streamed, axes, indices, body, dtype=dtype)
        body.append(Contract(a, b, part.name, transposed=not turned, clear=part.clear))

    def _serial(self, part: Part, body: list[Statement]) -> None:
        """Append name[i, j] := [name[i, j]] ⊕_u term, one u after the other."""
        space, axis, monoid = part.space, part.axis, part.reduction.monoid
        inner, held = part.operands.staged(space, part.reduction.term, body), Load(part.name, I, J)
        made = monoid.combine(held, inner.read(part.reduction.term))
        if space.ragged(axis):
            made = Where(inner.at[axis] < space.problem.sizes[axis.name], made, held)
        if part.clear:
            body.append(Fill(part.name, monoid.identity))
        step = self.assembly.stores((held, made))
        body.append(Loop(U, Integer(space.start[axis][1]), 0, (step,), pipelined=False))


def addable_producers(form: FusedForm, space: Space) -> dict[Value, Value]:
    """The producers that may be added to the tile of an earlier one, with that one.

    Both are products, and only their sum is used.
    """
    products = [one for one in form.cascade.producers if is_sum_of_products(one, space)]
    found: dict[Value, Value] = {}
    for place, product in enumerate(products):
        earlier = (other.value for other in products[:place] if other.value not in found)
        to = next((other for other in earlier if only_added(product.value, other, form)), None)
        if to is not None:
            found[product.value] = to
    return found


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
    whole = round_up(space.problem.sizes[axis.name], 16)
    return min(space.plan.block_inner or whole, whole)


def along(space: Space, axis: Axis, first: Expr, length: int) -> Space:
    """The space with a tile of a producer's axis along u."""
    return replace(space, at={**space.at, axis: first + U}, start={**space.start, axis: (first, length)})


def row_and_stream_factors(space: Space, term: Expr) -> tuple[Expr, Expr] | None:
    """The pair (row factor, streamed factor) of a term that is their product, in one dtype; None for other terms."""
    factors = grouped(term, ())
    streamed = space.plan.binding.streamed
    if len(factors) != 2 or values_of(term):
        return None
    b, a = sorted(factors, key=lambda one: streamed not in free_axes(one))
    if streamed not in free_axes(b) or streamed in free_axes(a) or space.by_row(b):
        return None
    return (a, b) if operand_dtype(space, a) == operand_dtype(space, b) else None


def lies_along(space: Space, factor: Expr, axes: tuple[Axis, Axis]) -> bool:
    """True if a factor is an input whose tile lies along the given axes, in their order."""
    part = space.region(factor) if isinstance(factor, Element) else None
    return part is not None and part[1] == axes
