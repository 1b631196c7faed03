"""The sources of a state: data, and states that were made before.

A source answers four questions: its extrema and elements of several components, a start for every pivot that shifts,
and every accumulator at pivots that it is told. Elements evaluate their terms there; states move there.

    data      a = Σ Π exp(q·(u − safe(c))) · Π f(x; c)            0 where an exponent is −∞, whatever f is
    a state   A(c→c')·a,  A = Π exp(q·(c − safe(c'))) × polynomial in δ = c' − c

with safe(c) as `finite_pivot` gives it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, final

from sympy import Eq, Expr, Gt, Mul, S, exp
from sympy.logic.boolalg import And, Boolean

from redalg.expression import Axis, Label, Value, Where
from redalg.expression.contents import REMEMBERED, values_of
from redalg.incremental.combine.let import Move, Precision
from redalg.incremental.combine.lines import OO, Lines, is_below_all, is_finite_number, is_infinite, is_zero
from redalg.incremental.form import Accumulator, Extremum, FusedForm, Pivot, PivotPolicy, Structure, magnitude_of
from redalg.monoids import MONOIDS

T = TypeVar("T")
FIRST, SECOND, LANE = "a", "b", "lane"
"""Tags of slots: of the first of two states and of a running one, of the second, of states side by side."""
At = Mapping[Expr, Expr]
"""A symbol of the form -> the value of a program that stands for it."""


def finite_pivot(pivot: Pivot, c: Value, form: FusedForm) -> Expr:
    """The pivot of an empty state set to 0: it is −∞, and for a shift from extrema (the centre may be a minimum) ±∞.

    A shift that a state holds is finite or −∞. The pivot of an exponential stays at +∞: only an element of the data
    makes it so, and the result is not finite. A scale of nothing, of zeros alone, or one that is not finite is 1: there
    is nothing to scale by.
    """
    if pivot.policy is PivotPolicy.SCALE:
        return Where(And(is_finite_number(c), Gt(c, S.Zero, evaluate=False), evaluate=False), c, S.One)
    return Where(marks_empty(pivot, c, form), S.Zero, c)


def marks_empty(pivot: Pivot, c: Expr, form: FusedForm) -> Boolean:
    """Tell if a pivot is that of an empty state."""
    return is_below_all(c) if pivot.has_slot or pivot.value in form.scaling else is_infinite(c)


class Source(ABC):
    """A thing that states are made from.

    Attributes:
        full: each pivot that it holds is a number.
        of_elements: it is an element for every lane, which nothing is reduced over.
    """

    full = False
    of_elements = False

    @property
    @abstractmethod
    def steps(self) -> int:
        """Number of re-centrings until the pivots that are found are the natural ones."""

    @abstractmethod
    def extremum(self, extremum: Extremum, lines: Lines) -> Value:
        """The source's own extremum."""

    @abstractmethod
    def structure(self, structure: Structure, lines: Lines) -> tuple[Value, ...]:
        """The source's own element of several components."""

    @abstractmethod
    def start(self, pivot: Pivot, running: At, lines: Lines) -> Value:
        """A pivot before the sums are known; −∞ marks an empty source. `running`: the pivots that extrema give."""

    @abstractmethod
    def accumulator(self, accumulator: Accumulator, at: Target, lines: Lines, name: str) -> Value:
        """The source's own sum at the target's pivots; `name` is that of the last line, if the source adds any."""


@final
@dataclass(frozen=True)
class Target:
    """Pivots that sums are wanted at.

    Attributes:
        state: extremum and pivot -> its value in the state that is made.
        safe: pivot -> the number that is subtracted.
        stays: shifts that are where the first source has them, or start if that is empty: its sums do not move.
    """

    state: At
    safe: At
    stays: frozenset[Value] = frozenset()

    @property
    def values_in_terms(self) -> At:
        """The values in terms: extrema as they are, pivots as they are subtracted."""
        return {**self.state, **self.safe}


@final
class States(Source):
    """States that were made before: one, or many along axes, which are merged away."""

    def __init__(
        self, form: FusedForm, tag: str, lines: Lines, over: tuple[Axis, ...] = (), *, full: bool = False
    ) -> None:
        """`tag` tells its slots from those of other states; `full`: each pivot that they hold is a number."""
        self.form, self.tag, self.over, self.full = form, tag, over, full
        self.slots: dict[Expr, Value] = {value: self.read(value) for value in slots_of(form)}
        self.pivots = dict[Expr, Value](self.slots)
        lines.add_inputs(self.slots.values())
        for pivot in form.pivots:
            if not pivot.has_slot:
                source = pivot.source.xreplace(self.slots)
                self.pivots[pivot.value] = lines.assign(f"{tag}.{pivot.value}", source, Precision.EXACT_PLACES)

    @property
    def steps(self) -> int:
        """Sums move exactly, so that one step finds the centre; chained slopes follow one after the other."""
        return self.form.links + 1

    def read(self, value: Value) -> Value:
        """A slot of these states."""
        return slot_of_tag(value, self.tag, self.over)

    def extremum(self, extremum: Extremum, lines: Lines) -> Value:
        slot = self.slots[extremum.value]
        if not self.over:
            return slot
        return lines.reduce(slot.name, extremum.monoid, slot, self.over, Precision.EXACT_PLACES)

    def structure(self, structure: Structure, lines: Lines) -> tuple[Value, ...]:
        parts = tuple(self.slots[value] for value in structure.values)
        if not self.over:
            return parts
        return lines.gather(structure, parts, self.over, self.form.cascade.axis)

    def start(self, pivot: Pivot, running: At, lines: Lines) -> Value:
        c = self._rescale(pivot, running, lines)
        if not self.over:
            return c
        name = f"{self.tag}.{pivot.value}"
        if pivot.policy is PivotPolicy.MEMBER:  # a mean of members is none
            return lines.reduce(f"{name}_last", MONOIDS["max"], c, self.over, Precision.EXACT_PLACES)
        if self.full:
            total = lines.sum(f"{name}_total", [c], self.over, Precision.EXACT_PLACES)
            mean = lines.assign(f"{name}_mean", total / lines.count(f"{name}_n", S.true, self.over))
            return lines.assign(f"{name}_finite", Where(is_finite_number(mean), mean, S.Zero), Precision.EXACT_PLACES)
        n = lines.sum(f"{name}_n", [Where(is_below_all(c), S.Zero, S.One)], self.over)
        total = lines.sum(f"{name}_total", [Where(is_below_all(c), S.Zero, c)], self.over, Precision.EXACT_PLACES)
        mean = lines.assign(f"{name}_ratio", total / Where(is_zero(n), S.One, n), Precision.EXACT_PLACES)
        mean = lines.assign(f"{name}_finite", Where(is_finite_number(mean), mean, S.Zero), Precision.EXACT_PLACES)
        return lines.assign(f"{name}_mean", Where(is_zero(n), -OO, mean), Precision.EXACT_PLACES)

    def _rescale(self, pivot: Pivot, running: At, lines: Lines) -> Value:
        """ρ·c: the pivot after the merged extrema scale its generator; −∞ for an empty state."""
        c = self.slots[pivot.value]
        if not pivot.scales and not pivot.onto:
            return c
        there: Expr = S.Zero  # a slope is β·ρ_y/ρ_x, which may not be a number: found from the sums about 0
        if pivot.policy is not PivotPolicy.SLOPE:
            there = self._ratio(pivot.scales, running, lines) * self._safe(pivot, lines)
        name = f"{self.tag}.{pivot.value}_rescaled"
        return lines.assign(name, Where(is_below_all(c), c, there), Precision.EXACT_PLACES)

    def accumulator(self, accumulator: Accumulator, at: Target, lines: Lines, name: str) -> Value:
        slot, whole, name = self.slots[accumulator.value], name, f"{self.tag}.{name}"
        precision = Precision.OWN if accumulator.is_count else Precision.COMPUTE
        terms = [self._term(value, c, at, lines) for value, c in accumulator.transition]
        terms = [term for term in terms if term is not S.Zero]
        total = lines.total(f"{name}_moved", terms, precision) if terms != [slot] else slot
        if any(not self._holds(pivot, at, lines) for pivot, _ in accumulator.weight):
            weight = self._factor(accumulator.weight, at.safe, f"{self.tag}.rescale", lines)
            if len(terms) > 1:  # of no weight what is moved far may overflow; a NaN stays
                total = lines.assign(f"{name}_kept", Where(is_zero(weight), slot, total))
            total = lines.assign(f"{name}_weighed", weight * total)
        return lines.sum(whole, [total], self.over, precision) if self.over else total

    def _term(self, value: Value, coefficient: Expr, at: Target, lines: Lines) -> Expr:
        """coefficient·value at the target's pivots."""
        slot = self.slots[value]
        if coefficient is S.One:
            return slot
        ends = self._ends(values_of(coefficient), at, lines)
        coefficient = coefficient.xreplace(ends)
        if coefficient is S.One or coefficient is S.Zero:
            return coefficient * slot
        return slot * (coefficient if coefficient.is_number else lines.assign(f"{self.tag}.move", coefficient))

    def _ends(self, asked: frozenset[Value], at: Target, lines: Lines) -> dict[Expr, Expr]:
        """The symbols of transitions -> how far pivots move, by which ratio, from where and to where."""
        ends: dict[Expr, Expr] = {}
        for pivot in self.form.pivots:
            if pivot.displacement in asked:
                ends[pivot.displacement] = self._displacement(pivot, at, lines)
            if pivot.ratio in asked:
                ends[pivot.ratio] = self._ratio(pivot.scales, at.safe, lines)
            if pivot.has_slot and pivot.departure in asked:
                ends[pivot.departure] = self.slots[pivot.value]
            if pivot.has_slot and pivot.arrival in asked:
                ends[pivot.arrival] = at.state[pivot.value]
        return ends

    def _displacement(self, pivot: Pivot, at: Target, lines: Lines) -> Expr:
        """ρ_x·c' − ρ·c; with slopes, minus Σ β'·(move of u'). It is rounded once: on a steep line the terms cancel."""
        name = f"{self.tag}.{pivot.displacement}"
        if {
            pivot.value,
            *(centre for _, centre in pivot.slopes if isinstance(centre, Value)),
        } <= at.stays and not self.over:
            return S.Zero
        if pivot.policy is PivotPolicy.SCALE:
            return self._ratio(((pivot, S.One),), at.safe, lines)
        if pivot.slopes:
            return lines.assign(name, self._along_lines(pivot, at, lines))
        here, there = self.pivots[pivot.value], at.safe[pivot.value]
        if pivot.scales:
            ratio = self._ratio(pivot.scales, at.safe, lines)
            here = lines.assign(f"{name}_from", ratio * self._safe(pivot, lines))
        if pivot.onto:
            there = lines.assign(f"{name}_to", self._ratio(pivot.onto, at.safe, lines) * there)
        if self.full and pivot.has_slot and not pivot.scales and not pivot.onto:
            return lines.assign(name, there - here)
        moved = lines.assign(f"{name}_free", there - here)
        empty = marks_empty(pivot, self.pivots[pivot.value], self.form)
        return lines.assign(name, Where(empty, S.Zero, moved))  # a power of it may overflow

    def _along_lines(self, pivot: Pivot, at: Target, lines: Lines) -> Value:
        """The move of a pivot whose generator has slopes, in float64."""
        name = f"{self.tag}.{pivot.displacement}_wide"
        pivots = {other.value: other for other in self.form.pivots}
        here, there = (lines.assign(name, part, Precision.DOUBLE)
                       for part in (self._safe(pivot, lines), at.safe[pivot.value]))  # fmt: skip
        if pivot.scales:
            here = lines.assign(name, self._ratio(pivot.scales, at.safe, lines) * here, Precision.DOUBLE)
        moved = lines.assign(name, there - here, Precision.DOUBLE)
        for slope, centre in pivot.slopes:
            if isinstance(centre, Value):
                beta = lines.assign(name, at.safe[slope], Precision.DOUBLE)
                rise = lines.assign(name, beta * self._along_lines(pivots[centre], at, lines), Precision.DOUBLE)
                moved = lines.assign(name, moved - rise, Precision.DOUBLE)
        return moved

    def _holds(self, pivot: Pivot, at: Target, lines: Lines) -> bool:
        """Tell if sums stay at a pivot: it is that of these states, and what is empty is 0 at any."""
        return at.safe[pivot.value] == self._safe(pivot, lines)

    def _safe(self, pivot: Pivot, lines: Lines) -> Value:
        c = self.pivots[pivot.value]
        return lines.assign(f"{c}_safe", finite_pivot(pivot, c, self.form), Precision.EXACT_PLACES)

    def _ratio(self, scales: tuple[tuple[Pivot, Expr], ...], running: At, lines: Lines) -> Value:
        """ρ = Π exp(q·(m − m')), 0 for a state in which every u is 0. For magnitudes m/m', 1 for zeros alone."""
        magnitude = magnitude_of(scales)
        if magnitude is None:
            return self._factor(scales, running, f"{self.tag}.rho", lines)
        m, here, there = self.pivots[magnitude.value], self._safe(magnitude, lines), running[magnitude.value]
        quotient = lines.assign(f"{self.tag}.rho", here / there)
        return lines.assign(f"{self.tag}.rho", Where(Eq(m, here, evaluate=False), quotient, S.One))

    def _factor(self, scales: tuple[tuple[Pivot, Expr], ...], running: At, name: str, lines: Lines) -> Value:
        """Π exp(q·(m − m')) from the pivots m of these states to m'."""
        moves = tuple((q, self.pivots[m.value], running[m.value]) for m, q in scales)
        return lines.assign(name, exp(exponent_of(name, moves, lines)), moves=moves)


def exponent_of(name: str, moves: Sequence[Move], lines: Lines) -> Value:
    """Σ q·(u − c) of (q, u, c), each difference a line: SymPy would write 3·(u − c) as 3·u − 3·c, and lose digits."""
    below = [lines.assign(f"{name}_below", u - c, Precision.EXACT_PLACES) for _, u, c in moves]
    return lines.total(f"{name}_exponent", [Mul(q, term) for (q, _, _), term in zip(moves, below, strict=True)])


def tag_slots(state: Mapping[Value, T], tag: str, over: tuple[Axis, ...] = ()) -> dict[Value, T]:
    """The contents of a state, by the slots of the states that bear a tag."""
    return {slot_of_tag(value, tag, over): content for value, content in state.items()}


@lru_cache(REMEMBERED)
def slot_of_tag(value: Value, tag: str, over: tuple[Axis, ...] = ()) -> Value:
    """A slot of the states that bear a tag, which may lie side by side along axes."""
    return Value(Label(f"{tag}.{value.name}"), *value.indices, *over)


def slots_of(form: FusedForm) -> tuple[Value, ...]:
    """The values that a state holds, in the order of its slots."""
    pivots = (pivot.value for pivot in form.pivots if pivot.has_slot)
    return (*form.independent_values, *pivots, *(one.value for one in form.accumulators))
