"""The interpreter of the FusedForm: leaf, merge and finish on arrays, in any order of merging.

The state is a tuple of named arrays. Nothing here knows which array library runs it.
"""

from __future__ import annotations

from typing import Any, final

from sympy import Expr, Mul, S

from redalg.decompose.cascade import Cascade, Producer
from redalg.decompose.domain import live_term
from redalg.expression import Axis, Value, Where
from redalg.expression.contents import is_indicator, values_of
from redalg.incremental.arrays.arrays import ArrayOps
from redalg.incremental.arrays.conditioned import Conditioned
from redalg.incremental.arrays.ends import ends
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.arrays.structured import defined, folded, joined
from redalg.incremental.factors import grouped
from redalg.incremental.form import Accumulator, FormOutput, FusedForm, Pivot, PivotPolicy, magnitude_of
from redalg.monoids import MONOIDS, Monoid

INF = float("inf")
SUM = MONOIDS["sum"]
Slots = dict[Value, Any]


@final
class Executor:
    """Runs a form on one array library. `policy` says what an empty ratio is: `nan` or `zero`."""

    def __init__(self, form: FusedForm, ops: ArrayOps, policy: str = "nan") -> None:
        self.form, self.ops, self.policy = form, ops, policy
        self.axis, self.reduced = form.cascade.axis, form.cascade.reduced
        self.places = tuple(form.cascade.axes().index(axis) for axis in self.reduced)
        self.scales = form.scaling
        self.magnitudes = {pivot.value for pivot in form.pivots if pivot.policy is PivotPolicy.SCALE}
        self.extrema = {one.value: (one.monoid, live_term(one.term, form.cascade.domain)) for one in form.extrema}
        self.indices = {one.value for one in form.cascade.reductions if one.dtype == "int64"}

    # ---- leaf --------------------------------------------------------------------------------------------------------

    def leaf(self, scope: Scope) -> Slots:
        """The state of the block that the scope's ranges name."""
        produce(self.form.cascade, scope)
        live = self._live(scope)
        slots: Slots = {}
        for structure in self.form.structures:
            slots |= zip(structure.values, folded(structure, self.reduced, scope), strict=True)
        scope = scope if live is None else scope.under(live)
        for value, (monoid, term) in self.extrema.items():
            array = self._masked(scope.unrounded(term), live, float(monoid.identity))
            slots[value] = self._along(monoid, scope, array)
        begun = scope
        if any(pivot.scales for pivot in self.form.shifted):
            running = self._running(scope, slots)
            begun = scope.extended({value: self._safe(value, array) for value, array in running.items()})
        for pivot in self.form.shifted:
            slots[pivot.value] = self._started(pivot, begun, live)
        for _ in range(self._steps()):
            slots |= self._recentred(scope, {**slots, **self._accumulators(scope, slots, live)})
        return slots | self._accumulators(scope, slots, live)

    def _running(self, scope: Scope, slots: Slots) -> Slots:
        """The pivots that follow from the extrema."""
        inner = scope.over({}, dict(slots))
        return {one.value: inner.unrounded(one.source) for one in self.form.pivots if not one.has_slot}

    def _steps(self) -> int:
        """Number of re-centrings of a block: a weighted centre far from the block's mean is rounded as the mean is.

        Chained slopes are found one after the other, each from the residuals of those before.
        """
        if not any(pivot.is_found for pivot in self.form.shifted):
            return 0
        return self.form.links + (2 if any(one.weight for one in self.form.accumulators) else 1)

    def _live(self, scope: Scope) -> Any:
        """Boolean array: true at the elements that count; None if all count."""
        return None if self.form.cascade.domain is S.true else scope.evaluate(self.form.cascade.domain)

    def _masked(self, array: Any, live: Any, outside: float) -> Any:
        return array if live is None else self.ops.where(live, array, self.ops.scalar(outside))

    def _along(self, monoid: Monoid, scope: Scope, array: Any) -> Any:
        """⊕ along the reduced axes; its identity over no elements."""
        return along(monoid, scope, array, self.reduced)

    def _started(self, pivot: Pivot, scope: Scope, live: Any) -> Any:
        """A pivot of a block before its sums are known; −∞ over no elements marks an empty state."""
        mean = self._block_mean(pivot, scope, live)
        if pivot.policy is PivotPolicy.SLOPE:
            return self.ops.where(mean == -INF, mean, self.ops.scalar(0.0))
        return self._nearest(mean, pivot, scope, live) if pivot.policy is PivotPolicy.MEMBER else mean

    def _nearest(self, mean: Any, pivot: Pivot, scope: Scope, live: Any) -> Any:
        """The live element of the block nearest to its mean."""
        base = scope.number(live_term(pivot.generator, self.form.cascade.domain))
        live = None if live is None else self._reach(live, base)
        far = self._masked(self.ops.functions["Abs"](base - mean), live, INF)
        found = self.ops.where(far == self._along(MONOIDS["min"], scope, far), base, self.ops.scalar(-INF))
        found = self._along(MONOIDS["max"], scope, self._masked(found, live, -INF))
        return self.ops.where(self.ops.isfinite(found), found, mean)

    def _block_mean(self, pivot: Pivot, scope: Scope, live: Any) -> Any:
        """Mean of u over the block's live elements (0 where it is not finite, −∞ over none: an empty state)."""
        base = scope.unrounded(live_term(pivot.generator, self.form.cascade.domain))  # about far places it is float64
        live = None if live is None else self._reach(live, base)
        total = self._along(SUM, scope, self._masked(base, live, 0.0))
        here = scope.evaluate(S.true) if live is None else live
        number = self.ops.to_compute(self._counted(here, scope))
        mean = total / self.ops.where(number == 0, self.ops.scalar(1.0), number)
        mean = self.ops.where(self.ops.isfinite(mean), mean, self.ops.scalar(0.0))
        return self.ops.where(number == 0, self.ops.scalar(-INF), mean)

    def _counted(self, condition: Any, scope: Scope) -> Any:
        counted = self.ops.count(spread(condition, scope, self.reduced), self.places[0])
        for place in self.places[1:]:
            counted = self.ops.reduce("sum", counted, place)
        return counted

    def _accumulators(self, scope: Scope, slots: Slots, live: Any) -> Slots:
        extrema = {value: slots[value] for value in self.extrema}  # a running scale is made of them
        inner = scope.extended({**extrema, **self._safe_pivots(scope, slots)})
        weights: dict[Any, Any] = {}
        for accumulator in self.form.accumulators:
            if accumulator.weight and accumulator.weight not in weights:
                weights[accumulator.weight] = self._weight(accumulator, inner, live)
        return {
            accumulator.value: self._accumulator(accumulator, inner, live, weights.get(accumulator.weight))
            for accumulator in self.form.accumulators
        }

    def _uncounted(self, accumulator: Accumulator, scope: Scope, live: Any) -> Any:
        """True at elements of no weight: an exponent is −∞. Any other weight of 0 is too small for a float."""
        bases = (scope.number(live_term(pivot.base, self.form.cascade.domain)) for pivot, _ in accumulator.weight)
        uncounted: Any = None
        for base in bases:
            none = self._masked(base, live, -INF) == -INF
            uncounted = none if uncounted is None else uncounted | none
        return uncounted

    def _safe_pivots(self, scope: Scope, slots: Slots) -> Slots:
        made = self.pivots(scope, slots)
        return {value: self._safe(value, array) for value, array in made.items()}

    def _accumulator(self, accumulator: Accumulator, scope: Scope, live: Any, weight: Any) -> Any:
        domain = self.form.cascade.domain
        if accumulator.is_count:
            everywhere = scope.evaluate(S.true) if live is None else live
            return self._counted(everywhere, scope)
        factors = [scope.number(live_term(factor, domain)) for factor in accumulator.factors]
        if weight is not None:
            if accumulator.factors[0] is not S.One:
                none = self._uncounted(accumulator, scope, live)
                weight = self.ops.where(none, self.ops.scalar(0.0), weight * factors[0])
            factors[0] = weight
            factors[1:] = [self._reached(factor, live) for factor in factors[1:]]
        elif live is not None:
            factors = self._masked_factors(factors, live)
        for guard in indicators(accumulator) if len(factors) > 1 else ():  # of one operand: 0 times what another hides
            factors = [self._reached(factor, scope.passes(guard)) for factor in factors]
        return contracted(scope, factors, self.reduced) if len(factors) > 1 else \
            self._along(SUM, scope, factors[0])  # fmt: skip

    def _weight(self, accumulator: Accumulator, scope: Scope, live: Any) -> Any:
        exponent: Any = None
        for pivot, q in accumulator.weight:
            u = scope.unrounded(live_term(pivot.base, self.form.cascade.domain))
            term = u - scope.values[pivot.value]
            term = term if q == 1 else term * scope.rate(q)
            exponent = term if exponent is None else exponent + term
        return self.ops.exp(self._masked(self.ops.to_compute(exponent), live, -INF))

    def _masked_factors(self, factors: list[Any], live: Any) -> list[Any]:
        """Apply the mask to the only factor or to one whose axes include its own; else append it as a factor."""
        for place, factor in enumerate(factors):
            if all(a >= b or b == 1 for a, b in zip(factor.shape, live.shape, strict=True)) or len(factors) == 1:
                factors[place] = self.ops.where(live, factor, self.ops.scalar(0.0))
                break
        else:
            factors = [*factors, self.ops.to_compute(live)]
        return [self._reached(factor, live) for factor in factors]

    def _reach(self, live: Any, array: Any) -> Any:
        """Mask of an array's elements: true if one counts for any element of the free axes that the array lacks."""
        for place, size in enumerate(array.shape):
            if size == 1 and live.shape[place] > 1 and place not in self.places:
                live = self.ops.any(live, place)
        return live

    def _reached(self, factor: Any, live: Any) -> Any:
        """An operand of a contraction, set to 0 where it does not count: 0 times an element there need not be 0."""
        if live is None:
            return factor
        return self.ops.where(self._reach(live, factor), factor, self.ops.scalar(0.0))

    # ---- pivots ------------------------------------------------------------------------------------------------------

    def pivots(self, scope: Scope, slots: Slots) -> Slots:
        """The value of every pivot in a state."""
        running = self._running(scope, slots)
        return {one.value: slots[one.value] if one.has_slot else running[one.value] for one in self.form.pivots}

    def _safe(self, pivot: Value, array: Any) -> Any:
        """Set the pivot of an empty state to 0: it is −∞, and for a shift (the centre may be a minimum) ±∞.

        The pivot of an exponential stays at +∞: only an element of the data makes it so, and the result is not finite.
        """
        if pivot in self.magnitudes:  # of nothing, of zeros alone, or not finite: nothing to scale by
            usable = self.ops.isfinite(array) & (array > 0)
            return self.ops.where(usable, array, self.ops.scalar(1.0))
        empty = array == -INF if pivot in self.scales else self.ops.functions["Abs"](array) == INF
        return self.ops.where(empty, self.ops.scalar(0.0), array)

    def _recentred(self, scope: Scope, slots: Slots) -> Slots:
        """c + δ for every tile-local pivot; the old c if that is not finite."""
        safe = {one.value: self._safe(one.value, slots[one.value]) for one in self.form.shifted}
        inner = scope.over({}, {**slots, **safe})
        made: Slots = {}
        for pivot in self.form.shifted:
            c = slots[pivot.value]
            if pivot.is_found:
                moved = c + inner.number(pivot.source)
                c = self.ops.where(self.ops.isfinite(moved), moved, c)
            made[pivot.value] = c
        return made

    # ---- merge -------------------------------------------------------------------------------------------------------

    def merge(self, scope: Scope, a: Slots, b: Slots) -> Slots:
        """a ⊕ b, a before b: choose a pivot, move both there, add."""
        slots: Slots = {}
        for value, (monoid, _) in self.extrema.items():
            slots[value] = self._combine(monoid.reduction, a[value], b[value])
        for structure in self.form.structures:
            first, second = (tuple(state[value] for value in structure.values) for state in (a, b))
            made = zip(structure.values, joined(structure, first, second, self.axis, scope), strict=True)
            slots |= {value: self._within(value, array, scope, a[value]) for value, array in made}
        for pivot in self.form.shifted:
            first, second = a[pivot.value], b[pivot.value]
            if pivot.scales or pivot.onto:
                first, second = (self._rescaled(pivot, scope, state, slots) for state in (a, b))
            slots[pivot.value] = self.ops.where(first == -INF, second, first)
        if any(pivot.is_found for pivot in self.form.shifted):
            for _ in range(self.form.links + 1):
                slots |= self._recentred(scope, slots | self._sum(scope, slots, a, b))
        return slots | self._sum(scope, slots, a, b)

    def _within(self, value: Value, array: Any, scope: Scope, like: Any) -> Any:
        """Cut a component to its own axes: the join added the axes of the others, along which it does not vary."""
        for place, axis in enumerate(scope.axes):
            if axis not in value.indices and array.shape[place] != 1:
                if array.shape[place] == 0:
                    return like
                array = self.ops.cut(array, place, 0, 1)
        return array

    def _rescaled(self, pivot: Pivot, scope: Scope, state: Slots, slots: Slots) -> Any:
        """ρ·c: the pivot after the merged extrema scale its generator; −∞ for an empty state."""
        old, new = (self._running(scope, one) for one in (state, slots))
        c = state[pivot.value]
        if pivot.policy is PivotPolicy.SLOPE:  # β·ρ_y/ρ_x, which may not be a number: found from the sums about 0
            return self.ops.where(c == -INF, c, self.ops.scalar(0.0))
        return self.ops.where(c == -INF, c, self._ratio(pivot.scales, scope, old, new) * self._safe(pivot.value, c))

    def _ratio(self, scales: tuple[tuple[Pivot, Expr], ...], scope: Scope, old: Slots, new: Slots) -> Any:
        """ρ = Π exp(q·(m − m')), 0 for a state in which every u is 0. For magnitudes it is m/m'."""
        if (magnitude := magnitude_of(scales)) is not None:
            return self._moved_scale(magnitude.value, old, new)
        exponent: Any = 0.0
        for m, q in scales:
            exponent = exponent + (old[m.value] - self._safe(m.value, new[m.value])) * scope.rate(q)
        return self.ops.exp(exponent)

    def _combine(self, kind: str, a: Any, b: Any) -> Any:
        names = {"max": "Max", "min": "Min"}
        if kind in names:
            return self.ops.functions[names[kind]](a, b)
        return a + b

    def _sum(self, scope: Scope, target: Slots, a: Slots, b: Slots) -> Slots:
        moved_a, moved_b = self._moved(scope, a, target), self._moved(scope, b, target)
        return {value: moved_a[value] + moved_b[value] for value in moved_a}

    def _moved(self, scope: Scope, slots: Slots, target: Slots) -> Slots:
        """The accumulators of a state at the target's pivots: A(c→c')·a."""
        old, new = self.pivots(scope, slots), self.pivots(scope, target)
        values = {**slots, **ends(self.form.shifted, old.__getitem__, new.__getitem__)}
        for pivot in self.form.pivots:
            values[pivot.ratio] = self._ratio(pivot.scales, scope, old, new) if pivot.scales else None
            onto = self._ratio(pivot.onto, scope, old, new) if pivot.onto else 1.0
            values[pivot.displacement] = self._displaced(pivot, scope, (old, new), values[pivot.ratio], onto)
        inner = scope.over({}, values)
        return {one.value: self._moved_one(one, inner, old, new) for one in self.form.accumulators}

    def _displaced(self, pivot: Pivot, scope: Scope, sides: tuple[Slots, Slots], ratio: Any, onto: Any) -> Any:
        """ρ_x·c' − ρ·c; with slopes, minus Σ β'·(move of u'). It is rounded once: on a steep line the terms cancel."""
        old, new = sides
        if pivot.policy is PivotPolicy.SCALE:
            return self._moved_scale(pivot.value, old, new)
        if not pivot.slopes:
            here = self._safe(pivot.value, old[pivot.value])
            delta = onto * self._safe(pivot.value, new[pivot.value]) - (here if ratio is None else ratio * here)
            nothing = self.ops.functions["Abs"](old[pivot.value]) == INF  # an empty state: a power of δ may overflow
            return self.ops.where(nothing, self.ops.scalar(0.0), delta)
        ratios = {one.value: self._ratio(one.scales, scope, old, new) for one in self.form.pivots if one.scales}
        pivots = {one.value: one for one in self.form.pivots}

        def moved(link: Pivot) -> Any:
            here = self.ops.wide(self._safe(link.value, old[link.value]))
            total = self.ops.wide(self._safe(link.value, new[link.value])) - ratios.get(link.value, 1.0) * here
            for slope, centre in link.slopes:
                if isinstance(centre, Value):
                    total = total - self.ops.wide(self._safe(slope, new[slope])) * moved(pivots[centre])
            return total

        return self.ops.to_compute(moved(pivot))

    def _moved_scale(self, scale: Value, old: Slots, new: Slots) -> Any:
        """m/m' of a scale; 1 for a state of zeros alone."""
        before, after = (self._safe(scale, one[scale]) for one in (old, new))
        return self.ops.where(old[scale] == before, before / after, self.ops.scalar(1.0))

    def _moved_one(self, accumulator: Accumulator, scope: Scope, old: Slots, new: Slots) -> Any:
        total: Any = None
        for value, coefficient in accumulator.transition:
            term = scope.values[value] if coefficient is S.One else scope.number(coefficient) * scope.number(value)
            total = term if total is None else total + term
        if not accumulator.weight:
            return self.ops.to_compute(total) if self.ops.is_float(total) else total
        exponent: Any = 0.0
        for pivot, q in accumulator.weight:
            exponent = exponent + (old[pivot.value] - self._safe(pivot.value, new[pivot.value])) * scope.rate(q)
        weight = self.ops.exp(exponent)
        if len(accumulator.transition) > 1:  # of no weight what is moved far may overflow; a NaN stays
            total = self.ops.where(weight == 0, scope.values[accumulator.value], total)
        return self.ops.to_compute(weight * total)

    def identity(self, scope: Scope) -> Slots:
        """The empty state: a leaf of no elements."""
        start, _ = scope.ranges[self.axis]
        return self.leaf(scope.over({self.axis: (start, start)}, dict(scope.values)))

    # ---- finish ------------------------------------------------------------------------------------------------------

    def finish(self, scope: Scope, slots: Slots) -> dict[str, Any]:
        """The outputs of a state that carry no reduced axis, each with one dimension per axis."""
        return self.outputs(scope, self.resolved(scope, slots), carries=False)

    def resolved(self, scope: Scope, slots: Slots) -> Slots:
        """The values that `finish` knows: the slots, the pivots, and every value that it assigns."""
        values = {**slots, **self._safe_pivots(scope, slots), **{k: v for k, v in slots.items() if k in self.extrema}}
        values |= {one.value: produced(one, scope.over({})) for one in self.form.parameters}
        inner = scope.over({}, values)
        for assignment in self.form.assignments:
            read = inner.evaluate if assignment.value in self.indices else inner.number
            inner.values[assignment.value] = read(assignment.expr)
        return inner.values

    def outputs(self, scope: Scope, values: Slots, *, carries: bool) -> dict[str, Any]:
        """The outputs from the resolved values. If they carry a reduced axis, they span the scope's range of it."""
        wanted = [one for one in self.form.outputs if one.carries is carries]
        inner, made = self._knowing(scope, values, wanted), {}
        for output in wanted:
            array = inner.evaluate(output.expr)
            if self.policy == "zero" and output.empty != S.false:
                array = self.ops.where(inner.evaluate(output.empty), self.ops.scalar(0.0), inner.number(output.expr))
            made[output.name] = array
        return made

    def conditions(self, scope: Scope, values: Slots, *, carries: bool) -> dict[str, Any]:
        """κ of the outputs that `outputs` returns for the same arguments (`conditioned`)."""
        wanted = [one for one in self.form.outputs if one.carries is carries]
        conditioned = Conditioned(self.form, self._knowing(scope, values, wanted))
        return {one.name: conditioned.of(one) for one in wanted}

    def _knowing(self, scope: Scope, values: Slots, wanted: list[FormOutput]) -> Scope:
        """The scope with the resolved values, and with the producers that outputs read directly."""
        inner = scope.over({}, dict(values))
        used = {value for one in wanted for value in values_of(one.expr)}
        for producer in self.form.cascade.producers:
            if producer.value in used and producer.value not in values:
                inner.values[producer.value] = produced(producer, scope)
        return inner


def indicators(accumulator: Accumulator) -> list[Where]:
    """The masks among the factors of a sum."""
    return [part for factor in accumulator.factors for part in Mul.make_args(factor) if is_indicator(part)]


def produce(cascade: Cascade, scope: Scope) -> None:
    """Evaluate the producers over the scope's ranges, as they are defined."""
    for producer in cascade.producers:
        if producer.value not in scope.values:
            scope.values[producer.value] = produced(producer, scope)


def produced(producer: Producer, scope: Scope) -> Any:
    """One producer's value: its cascade evaluated as defined, contractions by einsum."""
    inner = scope.over({}, dict(scope.values))
    define(producer.cascade, inner)
    return inner.number(producer.cascade.outputs[0].expr)


def define(cascade: Cascade, scope: Scope) -> None:
    """Evaluate the definition, reduction by reduction: the interpreter of the Cascade (and the unfused reference)."""
    produce(cascade, scope)
    for reduction in cascade.reductions:
        if reduction.is_scalar and not reduction.monoid.held:
            scope.values[reduction.value] = _defined(reduction.monoid, reduction.term, scope, cascade.reduced)
        else:
            scope.values[reduction.value] = defined(reduction, cascade.reduced, scope)


def _defined(monoid: Monoid, term: Expr, scope: Scope, reduced: tuple[Axis, ...]) -> Any:
    factors = grouped(term, ()) if monoid is SUM and term.is_Mul else ()
    if len(factors) > 1:
        return contracted(scope, [scope.number(one) for one in factors], reduced)
    return along(monoid, scope, scope.number(term), reduced)


# ---- along the reduced axes ------------------------------------------------------------------------------------------


def spread(array: Any, scope: Scope, axes: tuple[Axis, ...]) -> Any:
    """The array with the full length of the axes, whether it varies along them or not."""
    lengths = {scope.place(axis): scope.length(axis) for axis in axes}
    return scope.ops.expand(array, [lengths.get(place, size) for place, size in enumerate(array.shape)])


def along(monoid: Monoid, scope: Scope, array: Any, axes: tuple[Axis, ...]) -> Any:
    """⊕ along the axes, which stay with length 1; its identity over no elements."""
    places = {scope.place(axis) for axis in axes}
    if not all(scope.length(axis) for axis in axes):
        shape = [1 if place in places else size for place, size in enumerate(array.shape)]
        return scope.ops.full(shape, float(monoid.identity))
    array = spread(array, scope, axes)
    for place in sorted(places, reverse=True):
        array = scope.ops.reduce(monoid.reduction, array, place)
    return array


def contracted(scope: Scope, factors: list[Any], axes: tuple[Axis, ...]) -> Any:
    """Σ of a product over the axes, as a contraction; if no factor varies along an axis, its elements are counted."""
    lengths = {scope.place(axis): scope.length(axis) for axis in axes}
    return scope.ops.contract(factors, lengths)
