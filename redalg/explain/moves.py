"""The forms of a state, as equations: of one segment, of many, after one more piece, after one more element.

    first level    a = Σ_l B(x_l; c)                               RedFuser, Eq. 6-8
    level k        a = ⊕_j A(ĉⱼ→c)·âⱼ                              Eq. 11
    incremental    a′ = A(c→c′)·a ⊕ A(ĉ→c′)·â                      Eq. 15
    element        the same, with the state of one element for â   Eq. 16

with A(c→c′) = exp(q·(c − c′)) × polynomial in δ = c′ − c. All follow from the form's transitions by renaming alone.
Of a generator that is scaled before it is shifted, δ = c′ − ρ·c with ρ = exp(m − m′), and a sum of degree k takes ρ^k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from sympy import Add, Dummy, Expr, Function, Mul, S, Tuple, exp, factor, fraction, together

from redalg.decompose.domain import live_term
from redalg.decompose.parse.foreign import adopt
from redalg.explain.model import Equation
from redalg.explain.notation import EACH, HAT, PRIME, displacement_degree, is_negative, mark_value
from redalg.expression import Axis, Let, Reduce, Value
from redalg.expression.contents import operations_of, values_of
from redalg.incremental.arrays.structured import NATIVE
from redalg.incremental.combine.structures import lift_place
from redalg.incremental.form import Accumulator, FusedForm, Pivot, PivotPolicy, Structure
from redalg.monoids.peaks import ARGPEAK, PEAK

Naming = Callable[[Value], Expr]
"""The name of a slot in the state that is meant."""

CLOSED_FORM_OPERATIONS = 60
"""Operations of the largest coefficient of a sum with an update in exact arithmetic: a larger one fills pages."""
CLOSED_FORM_DEGREE = 2
"""The highest power of δ with an update in exact arithmetic: above it, the general update is as easy to read."""


def own(value: Value) -> Value:
    """The slot of the state at hand."""
    return value


def prime_slot(value: Value) -> Value:
    """The slot after one more piece."""
    return mark_value(value, PRIME)


def hat_slot(value: Value) -> Value:
    """The slot of the piece itself."""
    return mark_value(value, HAT)


def element_tuple(parts: tuple[Expr, ...]) -> Expr:
    """The components of an element as a tuple; a single component stands alone."""
    return parts[0] if len(parts) == 1 else Tuple(*parts)


def structure_equations(structure: Structure, piece: Naming) -> list[Equation]:
    """a ⊕ b of elements of several components: by the monoid's name if that says more than the components."""
    pieces, primes = tuple(map(piece, structure.values)), tuple(map(prime_slot, structure.values))
    if structure.monoid.name in (*NATIVE, PEAK.name, ARGPEAK.name):
        return [
            Equation(
                element_tuple(primes),
                Function(structure.monoid.name)(element_tuple(structure.values), element_tuple(pieces)),
            )
        ]
    return [
        Equation(prime, adopt(part))
        for prime, part in zip(primes, structure.monoid.join(structure.values, pieces), strict=True)
    ]


def _degree(accumulator: Accumulator) -> int:
    return max(displacement_degree(term) for _, c in accumulator.transition for term in Add.make_args(c))


def largest_coefficient(accumulator: Accumulator) -> int:
    """The operations of the largest coefficient by which a sum moves."""
    return max((operations_of(c) for _, c in accumulator.transition), default=0)


def from_the_piece(expr: Expr) -> Expr:
    """(c − ĉ)^n·… → (−1)^n·(ĉ − c)^n·…, and −(a − b)·… → (b − a)·…: differences as seen from the state at hand."""
    factors = []
    for multiplier in Mul.make_args(expr):
        base, power = multiplier.as_base_exp()
        flips = len(base.args) == 2 and any(_falls(term) for term in Add.make_args(base))
        factors += [(-1) ** power, (-base) ** power] if flips and power.is_Integer else [multiplier]
    expr = Mul(*factors)
    sums = [
        multiplier
        for multiplier in Mul.make_args(expr)
        if multiplier.is_Add
        and any(map(is_negative, multiplier.args))
        and not all(isinstance(term, Value) or isinstance(-term, Value) for term in multiplier.args)
    ]
    return -expr / sums[0] * -sums[0] if sums and is_negative(expr) else expr


def _unnamed_zeros(expr: Expr) -> Expr:
    """let(name, 0) → 0, for an element that lies on its own pivot."""
    return expr.xreplace({one: one.expr for one in expr.atoms(Let) if one.expr.is_number})


def _falls(term: Expr) -> bool:
    return is_negative(term) and isinstance(-term, Value) and HAT in (-term).name


@final
@dataclass(frozen=True)
class Moves:
    """The forms of one FusedForm."""

    form: FusedForm

    # ---- one segment -------------------------------------------------------------------------------------------------

    def first_level(self) -> list[Equation]:
        """The state of a segment, from its elements."""
        form = self.form
        equations = [Equation(one.value, self._over(one.monoid.name, one.term)) for one in form.extrema]
        equations += [Equation(element_tuple(structure.values), Reduce(structure.monoid.name, structure.term,
                                                            form.cascade.reduced_axes))
                 for structure in form.structures]  # fmt: skip
        equations += [Equation(one.value, one.source) for one in self.derived_pivots]
        equations += [Equation(one.value, self._over("sum", one.term)) for one in self.still_sums]
        equations += [Equation(one.value, self._centre(one), "≈") for one in form.slot_pivots]
        return equations + [Equation(one.value, self._over("sum", one.term)) for one in self.moving_sums]

    def live(self, term: Expr) -> Expr:
        """The term where elements count."""
        return live_term(term, self.form.cascade.domain)

    def _over(self, kind: str, term: Expr) -> Expr:
        return Reduce(kind, self.live(term), self.form.cascade.reduced_axes)

    def _centre(self, pivot: Pivot) -> Expr:
        """The natural centre of a segment: its displacement from 0, with the sums that it moves taken at 0."""
        if pivot.policy in (PivotPolicy.BLOCK_MEAN, PivotPolicy.MEMBER):
            return self._over("sum", pivot.generator) / self._over("sum", S.One)
        at_zero = dict.fromkeys((one.value for one in self.form.slot_pivots), S.Zero)
        sums = {one.value: self._over("sum", one.term.xreplace(at_zero)) for one in self.moving_sums}
        return pivot.source.xreplace(sums)

    # ---- which pivots move what --------------------------------------------------------------------------------------

    @property
    def derived_pivots(self) -> tuple[Pivot, ...]:
        """Pivots that are a function of the extrema, under a name of their own."""
        extrema = {one.value for one in self.form.extrema}
        pivots = (one for one in self.form.pivots if not one.has_slot and not one.is_level)
        return tuple(one for one in pivots if one.value not in extrema)

    @property
    def tile_centres(self) -> tuple[Pivot, ...]:
        """Pivots that are found anew at every merge."""
        return tuple(one for one in self.form.slot_pivots if one.policy is PivotPolicy.TILE_LOCAL)

    @property
    def displaced_pivots(self) -> tuple[Pivot, ...]:
        """Pivots whose displacement stands in a transition."""
        values = {value for one in self.form.accumulators for _, c in one.transition for value in values_of(c)}
        return tuple(one for one in self.form.pivots if one.displacement in values)

    def moves(self, accumulator: Accumulator) -> bool:
        """Tell if a sum depends on the place of a centre that is found from the data."""
        deltas = {pivot.displacement for pivot in self.form.slot_pivots}
        return any(values_of(c) & deltas for _, c in accumulator.transition)

    @property
    def still_sums(self) -> list[Accumulator]:
        """Sums that hold no centre found from the data: they come first, since the centres use them."""
        return [one for one in self.form.accumulators if not self.moves(one)]

    @property
    def moving_sums(self) -> list[Accumulator]:
        """Sums that move with a centre found from the data."""
        return [one for one in self.form.accumulators if self.moves(one)]

    # ---- one state moved to other pivots -----------------------------------------------------------------------------

    def move_sum(self, accumulator: Accumulator, naming: Naming, to: Naming, deltas: dict[Value, Expr]) -> Expr:
        """A(c→c′)·a for the state that `naming` means."""
        ends = {one.departure: naming(one.value) for one in self.form.slot_pivots}
        ends |= {one.arrival: to(one.value) for one in self.form.slot_pivots}
        meanings = {**deltas, **ends}
        total = Add(*(c.xreplace(meanings) * naming(value) for value, c in accumulator.transition))
        return Mul(total, *(exp(q * (naming(pivot.value) - to(pivot.value))) for pivot, q in accumulator.weight))

    def displacements(self, naming: Naming) -> dict[Value, Expr]:
        """δ and ρ under the names that `naming` gives them."""
        return {
            pivot.displacement: S.Zero
            if naming is own and pivot.has_slot and not pivot.is_found
            else naming(pivot.displacement)
            for pivot in self.displaced_pivots
        } | {one.ratio: naming(one.ratio) for one in self.scaled_pivots}

    @property
    def scales(self) -> list[Expr]:
        """Pivots that divide, in order: each is 1 where nothing but zeros has come."""
        return [one.value for one in self.form.pivots if one.policy is PivotPolicy.SCALE]

    @property
    def scaled_pivots(self) -> list[Pivot]:
        """Pivots of generators that are scaled before they are shifted."""
        return [one for one in self.form.pivots if one.scales and one.policy is not PivotPolicy.SLOPE]

    def _ratios(self, mark: Naming, naming: Naming, to: Naming) -> list[Equation]:
        """ρ of each generator that is scaled: Π exp(q·(m − m′)), or m/m′ if a magnitude scales it."""
        return [
            Equation(
                mark(pivot.ratio),
                naming(pivot.magnitude.value) / to(pivot.magnitude.value)
                if pivot.magnitude
                else Mul(*(exp(q * (naming(m.value) - to(m.value))) for m, q in pivot.scales)),
            )
            for pivot in self.scaled_pivots
        ]

    def _deltas(self, mark: Naming, naming: Naming, to: Naming, *, late: bool) -> list[Equation]:
        """δ = c′ − c of the pivots known before the sums, or (late) after the sums that no centre moves."""
        symbols = {one: one.displacement for one in self.displaced_pivots if one.has_slot is late}
        names = self.displacements(mark)
        return [
            Equation(mark(delta), self._displacement(pivot, mark, naming, to))
            for pivot, delta in symbols.items()
            if names[delta] is not S.Zero
        ]

    def _displacement(self, pivot: Pivot, mark: Naming, naming: Naming, to: Naming) -> Expr:
        """c′ − ρ·c, on a line less the displacement of x times the slope; of a scale c/c′."""
        if pivot.policy is PivotPolicy.SCALE:
            return naming(pivot.value) / to(pivot.value)
        displacements = {one.value: mark(one.displacement) for one in self.form.pivots if one.slopes}
        lines = (to(slope) * displacements.get(centre, to(centre) - naming(centre)) for slope, centre in pivot.slopes
                 if isinstance(centre, Value))  # fmt: skip
        there = to(pivot.value) * self._ratio(pivot.onto, mark)
        return Add(there, -self._scaled_centre(pivot, mark, naming), *(-line for line in lines))

    def _scaled_centre(self, pivot: Pivot, mark: Naming, naming: Naming) -> Expr:
        """ρ·c, ρ under the name that `mark` gives it."""
        return naming(pivot.value) * self._ratio(pivot.scales, mark)

    def _ratio(self, scales: tuple[tuple[Pivot, Expr], ...], mark: Naming) -> Expr:
        return next((mark(one.ratio) for one in self.scaled_pivots if scales and one.scales == scales), S.One)

    # ---- many segments -----------------------------------------------------------------------------------------------

    def level(self) -> list[Equation]:
        """The state of many segments, from the state of each segment j."""
        each, fold = self.segment, self._fold
        equations = [Equation(one.value, fold(one.monoid.name, each(one.value))) for one in self.form.extrema]
        equations += [Equation(element_tuple(structure.values),
                               fold(structure.monoid.name, element_tuple(tuple(map(each, structure.values)))))
                      for structure in self.form.structures]  # fmt: skip
        equations += [Equation(one.value, one.source) for one in self.derived_pivots]
        equations += self._ratios(each, each, own)
        deltas = self.displacements(each)
        sums = {
            accumulator: Equation(accumulator.value, fold("sum", self.move_sum(accumulator, each, own, deltas)))
            for accumulator in self.form.accumulators
        }
        equations += self._deltas(each, each, own, late=False) + [sums[one] for one in self.still_sums]
        equations += [Equation(one.value, self._common_centre(one), "≈") for one in self.form.slot_pivots]
        return equations + self._deltas(each, each, own, late=True) + [sums[one] for one in self.moving_sums]

    @property
    def index(self) -> str:
        """The letter that numbers segments; no axis of the cascade has this name."""
        names = {axis.name for axis in self.form.cascade.axes()}
        return next((letter for letter in EACH if letter not in names), "j")

    def segment(self, value: Value) -> Value:
        """The slot of segment j."""
        return mark_value(value, HAT, EACH[self.index])

    def _fold(self, kind: str, term: Expr) -> Expr:
        return Reduce(kind, term, (Axis(self.index),))

    def _common_centre(self, pivot: Pivot) -> Expr:
        """The natural centre, as for one segment: its displacement from 0, with every segment's sums moved to 0."""
        if pivot.policy in (PivotPolicy.BLOCK_MEAN, PivotPolicy.MEMBER):
            return self._scaled_centre(pivot, self.segment, self.segment)
        deltas, here = self.displacements(self.segment), self.segment
        deltas |= {one.displacement: -self._scaled_centre(one, here, here) for one in self.form.slot_pivots}
        sums = {one.value: self._fold("sum", self.move_sum(one, self.segment, own, deltas)) for one in self.moving_sums}
        return pivot.source.xreplace(sums)

    # ---- one more piece ----------------------------------------------------------------------------------------------

    def incremental(self, piece: Naming = hat_slot) -> list[Equation]:
        """The state after one more piece; `piece` gives the piece's own slots."""
        form = self.form
        extrema = ((one.value, one.monoid.combine(one.value, piece(one.value))) for one in form.extrema)
        equations = [Equation(prime_slot(value), expr) for value, expr in extrema]
        equations += [equation for one in form.structures for equation in structure_equations(one, piece)]
        primes = self._primes()
        equations += [Equation(prime_slot(one.value), one.source.xreplace(primes)) for one in self.derived_pivots]
        equations += self._ratios(own, own, prime_slot) + self._ratios(hat_slot, piece, prime_slot)
        deltas = {
            late: self._deltas(own, own, prime_slot, late=late) + self._deltas(hat_slot, piece, prime_slot, late=late)
            for late in (False, True)
        }
        equations += deltas[False]
        equations += [Equation(prime_slot(one.value), self._next(one, piece)) for one in self.still_sums]
        for pivot in form.slot_pivots:
            relation = "≈" if pivot in self.tile_centres else "="
            equations.append(Equation(prime_slot(pivot.value), self._next_centre(pivot, piece), relation))
        equations += deltas[True]
        return equations + [Equation(prime_slot(one.value), self._next(one, piece)) for one in self.moving_sums]

    def _primes(self) -> dict[Value, Expr]:
        slots = [one.value for one in self.form.extrema] + [one.value for one in self.form.accumulators]
        return {one: prime_slot(one) for one in slots}

    def _next(self, accumulator: Accumulator, piece: Naming) -> Expr:
        theirs = self.move_sum(accumulator, piece, prime_slot, self.displacements(hat_slot))
        return self.move_sum(accumulator, own, prime_slot, self.displacements(own)) + theirs

    def _next_centre(self, pivot: Pivot, piece: Naming) -> Expr:
        """c + the displacement of both pieces together from c; for a slope between scaled generators, from 0."""
        if not pivot.is_found:
            return self._scaled_centre(pivot, own, own)
        start = {one: S.Zero if one.onto else self._scaled_centre(one, own, own) for one in self.form.slot_pivots}
        here, there = self.displacements(own), self.displacements(hat_slot)
        here |= {one.displacement: c - self._scaled_centre(one, own, own) for one, c in start.items()}
        there |= {one.displacement: c - self._scaled_centre(one, hat_slot, piece) for one, c in start.items()}
        sums = {
            accumulator.value: self.move_sum(accumulator, own, prime_slot, here)
            + self.move_sum(accumulator, piece, prime_slot, there)
            for accumulator in self.moving_sums
        }
        return start[pivot] + pivot.source.xreplace({**self._primes(), **sums})

    # ---- one more element --------------------------------------------------------------------------------------------

    def element(self, value: Value) -> Expr:
        """The slots of a single element's state: each pivot lies on the element itself, and a scale is 1.

        Its magnitude as the scale would divide an element of 0 by 0.
        """
        form = self.form
        for structure in form.structures:
            if value in structure.values:
                return lift_place(structure.monoid, structure.operands, form.cascade.axis)[
                    structure.values.index(value)
                ]
        slots: dict[Value, Expr] = {one.value: one.term for one in form.extrema}
        slots |= {pivot.value: S.One if pivot.policy is PivotPolicy.SCALE else pivot.base
                  for pivot in form.pivots if pivot.policy is not PivotPolicy.SLOPE}  # fmt: skip
        slots |= {one.value: S.Zero for one in form.pivots if one.policy is PivotPolicy.SLOPE}
        slots |= {pivot.value: S.Zero if pivot.is_level else _unnamed_zeros(pivot.generator.xreplace(slots))
                  for pivot in self.scaled_pivots}  # fmt: skip
        slots |= {one.value: _unnamed_zeros(one.term.xreplace(slots)) for one in form.accumulators}
        return self.live(slots[value])

    # ---- in exact arithmetic -----------------------------------------------------------------------------------------

    def exact(self, piece: Naming = hat_slot) -> list[Equation]:
        """The incremental form without the residuals that are zero in exact arithmetic, and with δ eliminated."""
        sums = [one for one in self.moving_sums if not one.droppable and _degree(one) <= CLOSED_FORM_DEGREE]
        if any(largest_coefficient(one) > CLOSED_FORM_OPERATIONS for one in sums):
            return []
        if not sums or self.scaled_pivots or len(self.tile_centres) < len(self.displaced_pivots):
            return []
        plain = dict.fromkeys((one.displacement for one in self.tile_centres), S.Zero)
        updates = [(pivot.value, self._next_centre(pivot, hat_slot), pivot.value) for pivot in self.tile_centres]
        for accumulator in sums:
            ours, theirs = (self.move_sum(accumulator, naming, prime_slot, plain) for naming in (own, hat_slot))
            updates.append((accumulator.value, self._next(accumulator, hat_slot), ours + theirs))
        return [Equation(prime_slot(value), self._closed_form(expr, still, piece)) for value, expr, still in updates]

    def _closed_form(self, expr: Expr, still: Expr, piece: Naming) -> Expr:
        """The part that stays as it is, and the rest as one fraction in factored form."""
        steps = self._eliminations()
        weights = {one for step in steps for value in step.values() for one in value.atoms(exp)} | expr.atoms(exp)
        opaque = {one: Dummy(f"w{number}") for number, one in enumerate(sorted(weights, key=str))}
        rest, still = (expr - still).xreplace(opaque), still.xreplace(opaque)
        for step in steps:
            meanings = {value: meaning.xreplace(opaque) for value, meaning in step.items()}
            rest, still = rest.xreplace(meanings), still.xreplace(meanings)
        above, below = fraction(factor(together(rest)))
        sums = {meaning.xreplace(opaque): value for value, meaning in self._still_updates().items()}
        plain = {dummy: one for one, dummy in opaque.items()}
        slots = [one.value for one in self.form.extrema] + [one.value for one in self.form.slot_pivots]
        slots += [one.value for one in self.form.accumulators]
        names = {hat_slot(one): piece(one) for one in slots}
        return still.xreplace(plain).xreplace(names) + from_the_piece(above / below.xreplace(sums)).xreplace(
            plain
        ).xreplace(names)

    def _still_updates(self) -> dict[Value, Expr]:
        """The sums that no centre moves, after one more piece."""
        return {prime_slot(one.value): self._next(one, hat_slot) for one in self.still_sums}

    def _eliminations(self) -> list[dict[Value, Expr]]:
        """The values of δ, then of the new centres, then of the sums in their denominators; the residuals are zero."""
        deltas = {
            name(pivot.displacement): prime_slot(pivot.value) - name(pivot.value)
            for pivot in self.tile_centres
            for name in (own, hat_slot)
        }
        centres: dict[Value, Expr] = {
            prime_slot(pivot.value): self._next_centre(pivot, hat_slot) for pivot in self.tile_centres
        }
        zero: dict[Value, Expr] = {
            name(accumulator.value): S.Zero
            for accumulator in self.form.accumulators
            if accumulator.droppable
            for name in (own, hat_slot)
        }
        return [deltas, centres, self._still_updates(), zero]
