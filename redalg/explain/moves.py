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

from sympy import Abs, Add, Dummy, Expr, Function, Mul, S, Tuple, exp, factor, fraction, together

from redalg.decompose.domain import live_term
from redalg.decompose.parse.foreign import adopt
from redalg.explain.model import Equation
from redalg.explain.notation import EACH, HAT, PRIME, displacement_degree, is_negative, marked
from redalg.expression import Axis, Let, Reduce, Value
from redalg.expression.contents import values_of
from redalg.incremental.arrays.ends import ends
from redalg.incremental.arrays.structured import NATIVE, lifted
from redalg.incremental.form import Accumulator, FusedForm, Pivot, PivotPolicy, Structure
from redalg.monoids.peaks import ARGPEAK, PEAK

Naming = Callable[[Value], Expr]
"""What a slot is called in the state that is meant."""

CLOSED_FORM_DEGREE = 2
"""Of sums that move by higher powers of δ, the update in exact arithmetic is no easier to read than the general one."""


def own(value: Value) -> Value:
    """The slot of the state at hand."""
    return value


def primed(value: Value) -> Value:
    """The slot after one more piece."""
    return marked(value, PRIME)


def hatted(value: Value) -> Value:
    """The slot of the piece itself."""
    return marked(value, HAT)


def whole(parts: tuple[Expr, ...]) -> Expr:
    """The components of an element together; the only one by itself."""
    return parts[0] if len(parts) == 1 else Tuple(*parts)


def structured(one: Structure, piece: Naming) -> list[Equation]:
    """a ⊕ b of an element of several components: by name where that says more than its components."""
    pieces, primes = tuple(map(piece, one.values)), tuple(map(primed, one.values))
    if one.monoid.name in (*NATIVE, PEAK.name, ARGPEAK.name):
        return [Equation(whole(primes), Function(one.monoid.name)(whole(one.values), whole(pieces)))]
    return [
        Equation(prime, adopt(part)) for prime, part in zip(primes, one.monoid.join(one.values, pieces), strict=True)
    ]


def _degree(one: Accumulator) -> int:
    return max(displacement_degree(term) for _, c in one.transition for term in Add.make_args(c))


def from_the_piece(expr: Expr) -> Expr:
    """(c − ĉ)^n·… → (−1)^n·(ĉ − c)^n·…, and −(a − b)·… → (b − a)·…: differences as seen from the state at hand."""
    made = []
    for one in Mul.make_args(expr):
        base, power = one.as_base_exp()
        turned = len(base.args) == 2 and any(_falls(term) for term in Add.make_args(base))
        made += [(-1) ** power, (-base) ** power] if turned and power.is_Integer else [one]
    expr = Mul(*made)
    others = [
        one
        for one in Mul.make_args(expr)
        if one.is_Add
        and any(map(is_negative, one.args))
        and not all(isinstance(term, Value) or isinstance(-term, Value) for term in one.args)
    ]
    return -expr / others[0] * -others[0] if others and is_negative(expr) else expr


def _unnamed_zeros(expr: Expr) -> Expr:
    """let(name, 0) → 0: what lies on its own pivot."""
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
        made = [Equation(one.value, self._over(one.monoid.name, one.term)) for one in form.extrema]
        made += [Equation(whole(one.values), Reduce(one.monoid.name, one.term, form.cascade.reduced))
                 for one in form.structures]  # fmt: skip
        made += [Equation(one.value, one.source) for one in self.renamed]
        made += [Equation(one.value, self._over("sum", one.term)) for one in self.still]
        made += [Equation(one.value, self._centre(one), "≈") for one in form.shifted]
        return made + [Equation(one.value, self._over("sum", one.term)) for one in self.moving]

    def live(self, term: Expr) -> Expr:
        """The term where elements count."""
        return live_term(term, self.form.cascade.domain)

    def _over(self, kind: str, term: Expr) -> Expr:
        return Reduce(kind, self.live(term), self.form.cascade.reduced)

    def _centre(self, pivot: Pivot) -> Expr:
        """The natural centre of a segment: its displacement from 0, with the sums that it moves taken at 0."""
        if pivot.policy in (PivotPolicy.BLOCK_MEAN, PivotPolicy.MEMBER):
            return self._over("sum", pivot.generator) / self._over("sum", S.One)
        at_zero = dict.fromkeys((one.value for one in self.form.shifted), S.Zero)
        sums = {one.value: self._over("sum", one.term.xreplace(at_zero)) for one in self.moving}
        return pivot.source.xreplace(sums)

    # ---- which pivots move what --------------------------------------------------------------------------------------

    @property
    def renamed(self) -> tuple[Pivot, ...]:
        """Pivots that are a function of the extrema, under a name of their own."""
        held = {one.value for one in self.form.extrema}
        known = (one for one in self.form.pivots if not one.has_slot and not one.is_level)
        return tuple(one for one in known if one.value not in held)

    @property
    def centred(self) -> tuple[Pivot, ...]:
        """Pivots that are found anew at every merge."""
        return tuple(one for one in self.form.shifted if one.policy is PivotPolicy.TILE_LOCAL)

    @property
    def displaced(self) -> tuple[Pivot, ...]:
        """Pivots whose displacement stands in a transition."""
        used = {value for one in self.form.accumulators for _, c in one.transition for value in values_of(c)}
        return tuple(one for one in self.form.pivots if one.displacement in used)

    def moves(self, one: Accumulator) -> bool:
        """Whether a sum depends on where a centre found from the data lies."""
        deltas = {pivot.displacement for pivot in self.form.shifted}
        return any(values_of(c) & deltas for _, c in one.transition)

    @property
    def still(self) -> list[Accumulator]:
        """Sums that hold no centre found from the data: they come first, since the centres use them."""
        return [one for one in self.form.accumulators if not self.moves(one)]

    @property
    def moving(self) -> list[Accumulator]:
        """Sums that move with such a centre."""
        return [one for one in self.form.accumulators if self.moves(one)]

    # ---- one state moved to other pivots -----------------------------------------------------------------------------

    def moved(self, one: Accumulator, naming: Naming, to: Naming, deltas: dict[Value, Expr]) -> Expr:
        """A(c→c′)·a for the state that `naming` means."""
        known = {**deltas, **ends(self.form.shifted, naming, to)}
        total = Add(*(c.xreplace(known) * naming(value) for value, c in one.transition))
        return Mul(total, *(exp(q * (naming(pivot.value) - to(pivot.value))) for pivot, q in one.weight))

    def displacements(self, naming: Naming) -> dict[Value, Expr]:
        """δ and ρ under the names that they have for that state."""
        return {
            one.displacement: S.Zero
            if naming is own and one.has_slot and not one.is_found
            else naming(one.displacement)
            for one in self.displaced
        } | {one.ratio: naming(one.ratio) for one in self.rescaled}

    @property
    def rescaled(self) -> list[Pivot]:
        """Pivots of generators that are scaled before they are shifted."""
        return [one for one in self.form.pivots if one.scales and one.policy is not PivotPolicy.SLOPE]

    def _ratios(self, mark: Naming, naming: Naming, to: Naming) -> list[Equation]:
        """ρ = Π exp(q·(m − m′)), of magnitudes m/m′, of the generators that are scaled."""
        return [
            Equation(
                mark(one.ratio),
                naming(one.magnitude.value) / to(one.magnitude.value)
                if one.magnitude
                else Mul(*(exp(q * (naming(m.value) - to(m.value))) for m, q in one.scales)),
            )
            for one in self.rescaled
        ]

    def _deltas(self, mark: Naming, naming: Naming, to: Naming, *, late: bool) -> list[Equation]:
        """δ = c′ − c of the pivots that are known before the sums, or after (late) those that no centre moves."""
        symbols = {one: one.displacement for one in self.displaced if one.has_slot is late}
        named = self.displacements(mark)
        return [
            Equation(mark(delta), self._displacement(one, mark, naming, to))
            for one, delta in symbols.items()
            if named[delta] is not S.Zero
        ]

    def _displacement(self, pivot: Pivot, mark: Naming, naming: Naming, to: Naming) -> Expr:
        """c′ − ρ·c, on a line less what x moves times the slope; of a scale c/c′."""
        if pivot.policy is PivotPolicy.SCALE:
            return naming(pivot.value) / to(pivot.value)
        tilted = {one.value: mark(one.displacement) for one in self.form.pivots if one.slopes}
        lines = (to(slope) * tilted.get(centre, to(centre) - naming(centre)) for slope, centre in pivot.slopes
                 if isinstance(centre, Value))  # fmt: skip
        there = to(pivot.value) * self._ratio(pivot.onto, mark)
        return Add(there, -self._rescaled(pivot, mark, naming), *(-line for line in lines))

    def _rescaled(self, pivot: Pivot, mark: Naming, naming: Naming) -> Expr:
        """ρ·c, ρ under the name that `mark` gives it."""
        return naming(pivot.value) * self._ratio(pivot.scales, mark)

    def _ratio(self, scales: tuple[tuple[Pivot, Expr], ...], mark: Naming) -> Expr:
        return next((mark(one.ratio) for one in self.rescaled if scales and one.scales == scales), S.One)

    # ---- many segments -----------------------------------------------------------------------------------------------

    def level(self) -> list[Equation]:
        """The state of many segments j, from theirs."""
        each, fold = self.segment, self._fold
        made = [Equation(one.value, fold(one.monoid.name, each(one.value))) for one in self.form.extrema]
        made += [Equation(whole(one.values), fold(one.monoid.name, whole(tuple(map(each, one.values)))))
                 for one in self.form.structures]  # fmt: skip
        made += [Equation(one.value, one.source) for one in self.renamed]
        made += self._ratios(each, each, own)
        deltas = self.displacements(each)
        sums = {
            one: Equation(one.value, fold("sum", self.moved(one, each, own, deltas))) for one in self.form.accumulators
        }
        made += self._deltas(each, each, own, late=False) + [sums[one] for one in self.still]
        made += [Equation(one.value, self._common_centre(one), "≈") for one in self.form.shifted]
        return made + self._deltas(each, each, own, late=True) + [sums[one] for one in self.moving]

    @property
    def index(self) -> str:
        """The letter that numbers segments: none of the cascade's axes bears it."""
        taken = {axis.name for axis in self.form.cascade.axes()}
        return next((letter for letter in EACH if letter not in taken), "j")

    def segment(self, value: Value) -> Value:
        """The slot of segment j."""
        return marked(value, HAT, EACH[self.index])

    def _fold(self, kind: str, term: Expr) -> Expr:
        return Reduce(kind, term, (Axis(self.index),))

    def _common_centre(self, pivot: Pivot) -> Expr:
        """As for one segment: the displacement from 0, with every segment's sums moved to 0."""
        if pivot.policy in (PivotPolicy.BLOCK_MEAN, PivotPolicy.MEMBER):
            return self._rescaled(pivot, self.segment, self.segment)
        deltas = self.displacements(self.segment)
        deltas |= {one.displacement: -self._rescaled(one, self.segment, self.segment) for one in self.form.shifted}
        sums = {one.value: self._fold("sum", self.moved(one, self.segment, own, deltas)) for one in self.moving}
        return pivot.source.xreplace(sums)

    # ---- one more piece ----------------------------------------------------------------------------------------------

    def incremental(self, piece: Naming = hatted) -> list[Equation]:
        """The state after one more piece: `piece` says what the piece's own slots are."""
        form = self.form
        made = [Equation(primed(one.value), one.monoid.combine(one.value, piece(one.value))) for one in form.extrema]
        made += [equation for one in form.structures for equation in structured(one, piece)]
        made += [Equation(primed(one.value), one.source.xreplace(self._primes())) for one in self.renamed]
        made += self._ratios(own, own, primed) + self._ratios(hatted, piece, primed)
        made += self._deltas(own, own, primed, late=False) + self._deltas(hatted, piece, primed, late=False)
        made += [Equation(primed(one.value), self._next(one, piece)) for one in self.still]
        made += [
            Equation(primed(one.value), self._next_centre(one, piece), "≈" if one in self.centred else "=")
            for one in form.shifted
        ]
        made += self._deltas(own, own, primed, late=True) + self._deltas(hatted, piece, primed, late=True)
        return made + [Equation(primed(one.value), self._next(one, piece)) for one in self.moving]

    def _primes(self) -> dict[Value, Expr]:
        held = [one.value for one in self.form.extrema] + [one.value for one in self.form.accumulators]
        return {one: primed(one) for one in held}

    def _next(self, one: Accumulator, piece: Naming) -> Expr:
        theirs = self.moved(one, piece, primed, self.displacements(hatted))
        return self.moved(one, own, primed, self.displacements(own)) + theirs

    def _next_centre(self, pivot: Pivot, piece: Naming) -> Expr:
        """c + the displacement that both pieces together have from c; from 0 of a slope between what is scaled."""
        if not pivot.is_found:
            return self._rescaled(pivot, own, own)
        start = {one: S.Zero if one.onto else self._rescaled(one, own, own) for one in self.form.shifted}
        here, there = self.displacements(own), self.displacements(hatted)
        here |= {one.displacement: c - self._rescaled(one, own, own) for one, c in start.items()}
        there |= {one.displacement: c - self._rescaled(one, hatted, piece) for one, c in start.items()}
        sums = {
            one.value: self.moved(one, own, primed, here) + self.moved(one, piece, primed, there) for one in self.moving
        }
        return start[pivot] + pivot.source.xreplace({**self._primes(), **sums})

    # ---- one more element --------------------------------------------------------------------------------------------

    def element(self, value: Value) -> Expr:
        """The slots of a single element's state: each pivot lies on the element itself."""
        form = self.form
        for one in form.structures:
            if value in one.values:
                return lifted(one.monoid, one.operands, form.cascade.axis)[one.values.index(value)]
        made: dict[Value, Expr] = {one.value: one.term for one in form.extrema}
        made |= {one.value: Abs(one.base) if one.policy is PivotPolicy.SCALE else one.base for one in form.pivots
                 if one.policy is not PivotPolicy.SLOPE}  # fmt: skip
        made |= {one.value: S.Zero for one in form.pivots if one.policy is PivotPolicy.SLOPE}
        made |= {one.value: S.Zero if one.is_level else _unnamed_zeros(one.generator.xreplace(made))
                 for one in self.rescaled}  # fmt: skip
        made |= {one.value: _unnamed_zeros(one.term.xreplace(made)) for one in form.accumulators}
        return self.live(made[value])

    # ---- in exact arithmetic -----------------------------------------------------------------------------------------

    def exact(self, piece: Naming = hatted) -> list[Equation]:
        """The incremental form with the residuals that are zero in exact arithmetic left out, and δ eliminated."""
        moving = [one for one in self.moving if not one.droppable and _degree(one) <= CLOSED_FORM_DEGREE]
        if not moving or self.rescaled or len(self.centred) < len(self.displaced):
            return []
        plain = dict.fromkeys((one.displacement for one in self.centred), S.Zero)
        made = [
            Equation(primed(one.value), self._closed(self._next_centre(one, hatted), one.value, piece))
            for one in self.centred
        ]
        for one in moving:
            still = self.moved(one, own, primed, plain) + self.moved(one, hatted, primed, plain)
            made.append(Equation(primed(one.value), self._closed(self._next(one, hatted), still, piece)))
        return made

    def _closed(self, expr: Expr, still: Expr, piece: Naming) -> Expr:
        """What stays as it is, and the rest as one fraction in factored form."""
        steps = self._eliminations()
        weights = {one for step in steps for value in step.values() for one in value.atoms(exp)} | expr.atoms(exp)
        opaque = {one: Dummy(f"w{number}") for number, one in enumerate(sorted(weights, key=str))}
        rest, still = (expr - still).xreplace(opaque), still.xreplace(opaque)
        for step in steps:
            closed = {value: meaning.xreplace(opaque) for value, meaning in step.items()}
            rest, still = rest.xreplace(closed), still.xreplace(closed)
        above, below = fraction(factor(together(rest)))
        sums = {meaning.xreplace(opaque): value for value, meaning in self._unmoved().items()}
        plain = {dummy: one for one, dummy in opaque.items()}
        slots = [one.value for one in self.form.extrema] + [one.value for one in self.form.shifted]
        slots += [one.value for one in self.form.accumulators]
        named = {hatted(one): piece(one) for one in slots}
        return still.xreplace(plain).xreplace(named) + from_the_piece(above / below.xreplace(sums)).xreplace(
            plain
        ).xreplace(named)

    def _unmoved(self) -> dict[Value, Expr]:
        """The sums that no centre moves, after one more piece."""
        return {primed(one.value): self._next(one, hatted) for one in self.still}

    def _eliminations(self) -> list[dict[Value, Expr]]:
        """δ, then the new centres, then the sums in their denominators; and the residuals are zero."""
        deltas = {
            name(one.displacement): primed(one.value) - name(one.value)
            for one in self.centred
            for name in (own, hatted)
        }
        centres: dict[Value, Expr] = {primed(one.value): self._next_centre(one, hatted) for one in self.centred}
        zero: dict[Value, Expr] = {
            name(one.value): S.Zero for one in self.form.accumulators if one.droppable for name in (own, hatted)
        }
        return [deltas, centres, self._unmoved(), zero]
