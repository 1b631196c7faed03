"""Data as a source of a state: every term at the pivots that it is told, reduced over the reduced axes.

The data of a block are reduced over all of them. A tile of a kernel is a block of which the kernel makes the producers.
A lane's own element is a tile that nothing is reduced over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, final

from sympy import Abs, Eq, Expr, Mul, Ne, Or, S, exp
from sympy.logic.boolalg import And, Boolean, Not

from redalg.decompose.domain import live_term
from redalg.expression import Axis, Value, Where
from redalg.expression.contents import free_axes, is_indicator, of_kind
from redalg.expression.infinite import may_mask
from redalg.incremental.combine.define import add_producers
from redalg.incremental.combine.let import Precision
from redalg.incremental.combine.lines import OO, Lines, is_below_all, is_finite_number, is_zero
from redalg.incremental.combine.sources import At, Source, Target, exponent_of
from redalg.incremental.combine.structures import lift_place
from redalg.incremental.form import Accumulator, Extremum, FusedForm, Pivot, PivotPolicy, Structure
from redalg.monoids import MONOIDS


@final
class Elements(Source):
    """The data of a block, reduced over all reduced axes, or over those of `over`."""

    def __init__(
        self, form: FusedForm, lines: Lines, over: tuple[Axis, ...] | None = None, *, tile: bool = False,
        ends: bool = False, by_totals: frozenset[Value] = frozenset(),
    ) -> None:  # fmt: skip
        """Adds the lines of the form's producers, unless the data are a `tile`: it is given their values.

        `ends`: the form's axis may end within the tile, so that elements beyond its end do not count.
        `by_totals`: pivots about which a sum of differences is made of the total that their mean has.
        """
        self.form, self.tile, self.by_totals = form, tile, by_totals
        self.totals = dict[Expr, tuple[Value, Value, Value]]()
        self.over = form.cascade.reduced_axes if over is None else over
        self.of_elements = not self.over
        producers = form.cascade.producers
        self.given = tuple(one.value for one in producers) if tile else ()
        lines.add_inputs(self.given)
        self.produced = {} if tile else add_producers(producers, lines, {})
        self.domain: Boolean = form.cascade.domain.xreplace(self.produced)
        if ends:
            axis = form.cascade.axis
            self.domain = And(axis < axis.extent, self.domain)

    @property
    def steps(self) -> int:
        """A weighted centre far from the block's mean is rounded as the mean is, and so is found twice.

        Chained slopes are found one after the other, each from the residuals of those before.
        """
        return self.form.links + (2 if any(one.weight for one in self.form.accumulators) else 1)

    def extremum(self, extremum: Extremum, lines: Lines) -> Value:
        u = self._generator(extremum.term, {}, lines)
        masked = self._mask(u, lines) if extremum.monoid.identity is -OO else \
            Where(self.domain, u, extremum.monoid.identity)  # fmt: skip
        return lines.reduce(extremum.value.name, extremum.monoid, masked, self.over, Precision.EXACT_PLACES)

    def _mask(self, u: Value, lines: Lines) -> Value:
        """u, or −∞ where it does not count."""
        return lines.assign("u_tile" if self.tile else "u_live", Where(self.domain, u, -OO), Precision.EXACT_PLACES)

    def structure(self, structure: Structure, lines: Lines) -> tuple[Value, ...]:
        operands = tuple(operand.xreplace(self.produced) for operand in structure.operands)
        parts = lift_place(structure.monoid, operands, self.form.cascade.reduced_axes[0])
        if not self.over:
            return tuple(lines.assign(value.name, part, Precision.OWN)
                         for value, part in zip(structure.values, parts, strict=True))  # fmt: skip
        return lines.gather(structure, parts, self.over)

    def start(self, pivot: Pivot, running: At, lines: Lines) -> Value:
        name, u = pivot.value.name, self._generator(pivot.generator, running, lines)
        counts = self._condition_on(self.domain, u, lines)
        if not self.over:
            start = S.Zero if pivot.policy is PivotPolicy.SLOPE else Where(is_finite_number(u), u, S.Zero)
            return lines.assign(f"{name}_first", Where(counts, start, -OO), Precision.EXACT_PLACES)
        n = lines.count(f"{name}_n", counts, self.over)
        if pivot.policy is PivotPolicy.SLOPE:
            return lines.assign(f"{name}_start", Where(is_zero(n), -OO, S.Zero))
        total = lines.sum(f"{name}_total", [Where(counts, u, S.Zero)], self.over, Precision.EXACT_PLACES)
        if pivot.value in self.by_totals:
            self.totals[pivot.base - pivot.value] = pivot.value, total, n
        ratio = total / Where(is_zero(n), S.One, n)
        mean = lines.assign(f"{name}_ratio", ratio, Precision.EXACT_PLACES)
        mean = lines.assign(f"{name}_finite", Where(is_finite_number(mean), mean, S.Zero), Precision.EXACT_PLACES)
        mean = lines.assign(f"{name}_mean", Where(is_zero(n), -OO, mean), Precision.EXACT_PLACES)
        return self._nearest(pivot, u, mean, counts, lines) if pivot.policy is PivotPolicy.MEMBER else mean

    def _nearest(self, pivot: Pivot, u: Value, mean: Value, counts: Boolean, lines: Lines) -> Value:
        """The live element of the block nearest to its mean."""
        name = pivot.value.name
        u = lines.assign(f"{name}_u", u)
        far = Abs(lines.assign(f"{name}_off", u - mean))
        far = lines.assign(f"{name}_far", Where(counts, far, OO))
        least = lines.reduce(f"{name}_least", MONOIDS["min"], far, self.over)
        nearest = Eq(far, least, evaluate=False)
        chosen = Where(nearest, u, -OO) if counts is S.true else Where(And(counts, nearest), u, -OO)
        member = lines.reduce(f"{name}_found", MONOIDS["max"], chosen, self.over)
        return lines.assign(f"{name}_member", Where(is_finite_number(member), member, mean), Precision.EXACT_PLACES)

    def accumulator(self, accumulator: Accumulator, at: Target, lines: Lines, name: str) -> Value:
        name = f"{name}_tile" if self.tile else name
        if accumulator.is_count:
            return lines.count(name, self.domain, self.over)
        if not accumulator.weight and accumulator.term in self.totals:
            pivot, total, n = self.totals[accumulator.term]
            return lines.assign(name, total - n * at.safe[pivot])
        values = {**self.produced, **at.values_in_terms}
        terms = [live_term(factor, self.form.cascade.domain).xreplace(values) for factor in accumulator.factors]
        weights = self._weights(values, lines)
        terms = [term.xreplace(weights) for term in terms]
        factors = [lines.assign(f"{name}_factor", term) for term in terms if term is not S.One]
        if self.tile and len(terms) == 2:
            return self._product(accumulator, at, factors, lines, name)
        if accumulator.weight:
            first = [] if accumulator.factors[0] is S.One else [factors.pop(0)]
            weighed = self._weigh(accumulator, at, first, lines)
            factors = [weighed, *(self._mask_operand(self.domain, factor, lines) for factor in factors)]
        else:
            factors = self._mask_factors(factors or [S.One], lines)
        for guard in indicators(accumulator) if len(factors) > 1 else ():  # of one operand: 0 times what another hides
            condition = holds_where(guard).xreplace(values)
            factors = [self._mask_operand(condition, factor, lines) for factor in factors]
        return lines.sum(name, factors, self.over)

    def _weights(self, values: Mapping[Any, Expr], lines: Lines) -> dict[Expr, Value]:
        """The exponentials that several products of matrices compute of a tile's producers, once for all of them."""
        if not self.tile:
            return {}
        products = [one.factors for one in self.form.accumulators if len(one.factors) == 2]
        common = Counter(node for factors in products for node in
                         {node for factor in factors for node in weights_in(factor)})  # fmt: skip
        shared = [node.xreplace(values) for node, times in common.items() if times > 1]
        return {node: lines.assign("weight", node) for node in sorted(shared, key=str)}

    def _product(self, accumulator: Accumulator, at: Target, factors: list[Value], lines: Lines, name: str) -> Value:
        """A matrix product of a tile: a masked factor of rows, and one of columns."""
        *first, second = factors
        left = self._weigh(accumulator, at, first, lines) if accumulator.weight else \
            Where(self.domain, first[0] if first else S.One, S.Zero)  # fmt: skip
        right = self._mask_operand(self.domain, second, lines)
        return lines.sum(name, [left, right], self.over, of=accumulator.value)

    def _weigh(self, accumulator: Accumulator, at: Target, first: list[Value], lines: Lines) -> Expr:
        """The weight, times the first factor; 0 where an exponent masks, not where the weight is too small."""
        bases = [self._mask(self._generator(pivot.base, {}, lines), lines) for pivot, _ in accumulator.weight]
        name = accumulator.weight[0][0].value.name
        moves = tuple((q, u, at.safe[pivot.value]) for u, (pivot, q) in zip(bases, accumulator.weight, strict=True))
        weight = lines.assign("weight", exp(exponent_of(name, moves, lines)), moves=moves)
        if not first:
            return weight
        meaning: dict[Expr, Expr] = {one.value: one.definition for one in self.form.cascade.producers}
        masking = [u for u, (pivot, _) in zip(bases, accumulator.weight, strict=True)
                   if self.domain is not S.true or may_mask(pivot.base.xreplace(meaning))]  # fmt: skip
        if not masking:
            return lines.assign(f"{accumulator.value.name}_weighed", weight * first[0])
        dead = Or(*map(is_below_all, masking), evaluate=False)
        if self.of_elements and all(q.is_positive for _, q in accumulator.weight) and len(moves) == 1:
            return weight * Where(dead, S.Zero, first[0])  # the weight is 0 where the factor counts for nothing
        return lines.assign(f"{accumulator.value.name}_weighed", Where(dead, S.Zero, weight * first[0]))

    def _mask_factors(self, factors: list[Expr], lines: Lines) -> list[Expr]:
        """Apply the mask to the only factor or to one whose axes include its own; else append it as a factor."""
        if self.domain is S.true:
            return factors
        axes = free_axes(self.domain)
        place = next((place for place, one in enumerate(factors) if axes <= free_axes(one)), None)
        if len(factors) == 1:
            place = 0
        masked = [Where(self.domain, factor, S.Zero) if number == place
                  else self._mask_operand(self.domain, factor, lines)
                  for number, factor in enumerate(factors)]  # fmt: skip
        return masked if place is not None else [*masked, Where(self.domain, S.One, S.Zero)]

    def _generator(self, u: Expr, running: At, lines: Lines) -> Value:
        expr = live_term(u, self.form.cascade.domain).xreplace({**self.produced, **running})
        return lines.assign("u_tile" if self.tile else "u", expr, Precision.EXACT_PLACES)

    def _mask_operand(self, condition: Boolean, factor: Expr, lines: Lines) -> Expr:
        """An operand of a contraction, set to 0 where it does not count: 0 times an element there need not be 0."""
        return Where(self._condition_on(condition, factor, lines), factor, S.Zero)

    def _condition_on(self, condition: Boolean, factor: Expr, lines: Lines) -> Boolean:
        """True at the elements of a factor that count for any element of the free axes which the factor lacks."""
        missing = free_axes(condition) - free_axes(factor) - set(self.over)
        if not missing:
            return condition
        if self.tile:  # 0 times what another row hides is 0, but of an infinity
            parts = And.make_args(condition)
            return And(*(one for one in parts if not free_axes(one) - free_axes(factor) - set(self.over)))
        some = lines.some("some", condition, tuple(sorted(missing, key=str)))
        return Ne(some, S.Zero, evaluate=False)


def weights_in(factor: Expr) -> list[Expr]:
    """The exponentials of an operand that hold producers, each with the mask that it stands in."""
    masked = [one for one in of_kind(Where, factor) if one.args[2] is S.Zero and isinstance(one.args[1], exp)]
    within = {one.args[1] for one in masked}
    found = [*masked, *(one for one in of_kind(exp, factor) if one not in within)]
    return [one for one in found if one.has(Value)]


def indicators(accumulator: Accumulator) -> list[Where]:
    """The masks among the factors of a sum."""
    return [part for factor in accumulator.factors for part in Mul.make_args(factor) if is_indicator(part)]


def holds_where(indicator: Where) -> Boolean:
    """The condition under which an indicator is 1."""
    return indicator.condition if indicator.args[1] is S.One else Not(indicator.condition, evaluate=False)
