"""The FusedForm: what a state holds, how a block of data becomes one, how two merge, and how one is finished.

    leaf      extremum   m = ⊕ u(x)                        over the live elements of the block
              structure  (m, i, …) = ⊕ lift(u(x), n)       over all elements of the block, in their order
              accumulator a = Σ Π exp(q·(u − safe(c))) · Π f(x; c)        a term of zero weight is 0, whatever f is
    merge     c = choose(c₁, c₂);  a = A(c₁→c)·a₁ ⊕ A(c₂→c)·a₂
              A(c→c')  =  Π exp(q·(c − safe(c'))) × polynomial in δ = c' − c      0 where the weight is 0
              of u that is scaled by exp(−m) and then shifted: × ρ^degree, δ = c' − ρ·c, ρ = exp(m − safe(m')) ≤ 1
              of u that is scaled by a magnitude: ρ = m/m'
    finish    assignments in order, then outputs

with safe(c) = 0 where c = −∞ (an empty state), so that nothing is ever −∞ − (−∞).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import final

from sympy import Expr, Mul, S, Tuple, exp, fraction
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Cascade, Producer
from redalg.display import Displayed
from redalg.expression import Axis, Label, Let, Value
from redalg.expression.contents import bound_axes, values_of
from redalg.monoids import Monoid


@final
class PivotPolicy(Enum):
    """The rules by which a pivot's value is chosen; every finite value is algebraically exact."""

    RUNNING = "running"
    """A function of the extrema and of parameters: known before the accumulators are."""
    TILE_LOCAL = "tile-local"
    """The natural centre of the block itself, found from its own accumulators; merged states are re-centred."""
    BLOCK_MEAN = "block-mean"
    """The mean of u over the first block: for centres with more axes than u, which would destroy a contraction."""
    MEMBER = "member"
    """The element of the first block nearest to its mean: for most u, u − c loses no digit, however far u lies."""
    SCALE = "scale"
    """Not a shift of u but its largest magnitude so far: (u/c)^p neither overflows nor vanishes where u^p does."""
    SLOPE = "slope"
    """Not a shift of u but the slope of another generator on u, found from each block; merged states share one."""


@final
@dataclass(frozen=True)
class Slot:
    """One array of the state: its name, kind and axes.

    Kinds: `extremum`, `component` and `index` (an integer) of a structure, `pivot`, `accumulator`, `count`.

    >>> import redalg as ra
    >>> slot, *_ = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n"))).state
    >>> print(slot, slot.axes)
    sum_0[b] accumulator (b,)
    """

    name: str
    kind: str
    axes: tuple[Axis, ...]

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.axes))}] {self.kind}"


@final
@dataclass(frozen=True)
class Extremum:
    """A slot for a reduction of x alone: `value` = ⊕ `term`, where an element of the monoid is one number."""

    value: Value
    monoid: Monoid
    term: Expr


RANKED = ("argmax", "argmin", "topk")
"""Monoids whose elements are ranked, wherever they stand in a tile; those of others are joined lane by lane."""
PLACED = (*RANKED, "argpeak")
"""Monoids of which a component is the place of an element, which is right only if pieces say where they start."""


@final
@dataclass(frozen=True)
class Structure:
    """The slots of a reduction of x alone by a monoid of several components: (value, …) = ⊕ lift(term, …, n).

    Attributes:
        values: a symbol for each component.
        monoid: the monoid that joins them.
        term: the operand, a Tuple of several.
        place: the axis that numbers the elements of a component, if each holds several.
    """

    values: tuple[Value, ...]
    monoid: Monoid
    term: Expr
    place: Axis | None = None

    @property
    def is_ranked(self) -> bool:
        """Tell if its elements are ranked."""
        return self.monoid.name in RANKED

    @property
    def has_place_component(self) -> bool:
        """Tell if a component is a place."""
        return self.monoid.name in PLACED

    @property
    def integers(self) -> tuple[Value, ...]:
        """The components that are integers."""
        return tuple(value for value, part in zip(self.values, self.monoid.components, strict=True) if part.integer)

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The terms that are lifted."""
        return tuple(self.term.args) if isinstance(self.term, Tuple) else (self.term,)


@final
@dataclass(frozen=True)
class Pivot:
    """c: the number that is subtracted from `base` (u) in exponents and in shifted factors.

    Attributes:
        value: the symbol c.
        base: u(x).
        policy: how c is chosen.
        source: RUNNING: c as an expression of extrema and parameters. TILE_LOCAL: the displacement from c to the
            natural centre, as an expression of slots. SLOPE: the same for the slope. BLOCK_MEAN: 0. MEMBER: 0, or the
            displacement to the line on which residuals have mean 0.
        slopes: (β, c') pairs: u − c − Σ β·(u' − c') is summed; c' is 0 if u' is not shifted.
        scales: (pivot m, q) pairs of the exponentials exp(q·v) that u has for factors, v the base of m, and `rest` the
            other factors: y = Π exp(q·(v − m))·rest − c is summed, scaled first and then shifted. SLOPE: those
            of the generator that the line is taken from, and `onto` those of the generator that it is along. Or
            one pair (m, 1) of a magnitude m near the largest |u|, and y = rest/m − c.
    """

    value: Value
    base: Expr
    policy: PivotPolicy
    source: Expr
    slopes: tuple[tuple[Value, Expr], ...] = ()
    scales: tuple[tuple[Pivot, Expr], ...] = ()
    rest: Expr = S.One
    onto: tuple[tuple[Pivot, Expr], ...] = ()

    @cached_property
    def displacement(self) -> Value:
        """The symbol δ = c' − ρ·c that stands for the pivot's move in transitions, ρ = 1 unscaled.

        For a scale it is c/c'; for a slope along a generator that is scaled itself, ρ_x·c' − ρ·c.
        """
        return Value(Label(f"delta_{self.value.name}"), *self.value.indices)

    @cached_property
    def ratio(self) -> Value:
        """The symbol ρ = Π exp(q·(m − m')), or m/m' for a magnitude, by which u is scaled anew if the pivot moves."""
        return Value(Label(f"rho_{self.value.name}"), *self.value.indices)

    @cached_property
    def departure(self) -> Value:
        """The symbol of c, from which the pivot moves, if a transition is no polynomial in δ."""
        return Value(Label(f"from_{self.value.name}"), *self.value.indices)

    @cached_property
    def arrival(self) -> Value:
        """The symbol of c', to which the pivot moves, if a transition is no polynomial in δ."""
        return Value(Label(f"to_{self.value.name}"), *self.value.indices)

    @cached_property
    def generator(self) -> Expr:
        """The number that is shifted: u, or u over its scales."""
        if self.magnitude is not None:
            return Let(f"{self.magnitude.value.name}_ratio", self.rest / self.magnitude.value)
        return Mul(*(exp(q * Let(f"below_{m.value.name}", m.base - m.value)) for m, q in self.scales), self.rest) \
            if self.scales else self.base  # fmt: skip

    @property
    def magnitude(self) -> Pivot | None:
        """The scale that u is divided by before it is shifted, if that is a magnitude and no exponential."""
        return magnitude_of(self.scales)

    @property
    def residual(self) -> Expr:
        """u − c, or u if it is only scaled."""
        return self.generator if self.is_level else self.generator - self.value

    def about(self, c: Expr) -> Expr:
        """u − c under one node, so that nothing else is added before it."""
        return Let(f"{self.value.name}_shifted", self.generator if self.is_level else self.generator - c)

    @property
    def is_level(self) -> bool:
        """Tell if u is scaled and not shifted: c is 0."""
        return not self.has_slot and self.source is S.Zero

    @property
    def is_found(self) -> bool:
        """Tell if c is found anew from the slots, of a block and of a merged state."""
        return self.has_slot and self.source is not S.Zero

    @property
    def has_slot(self) -> bool:
        """Tell if the state must hold c (a running pivot or scale is recomputed from the extrema)."""
        return self.policy not in (PivotPolicy.RUNNING, PivotPolicy.SCALE)


def magnitude_of(scales: tuple[tuple[Pivot, Expr], ...]) -> Pivot | None:
    """The magnitude among scales; None if they are of exponentials."""
    return next((m for m, _ in scales if m.policy is PivotPolicy.SCALE), None)


@final
@dataclass(frozen=True)
class Accumulator:
    """One sum of the state.

    Attributes:
        value: its symbol.
        weight: ((pivot, q), …): the exponential factors exp(q·(u − c)), q a number or made of scalars.
        factors: the other factors, grouped by axes so that two groups are a contraction (a matrix product).
        transition: ((accumulator, coefficient(δ)), …): its value at a moved pivot, before the weight's rescaling.
        droppable: zero at the natural pivot in exact arithmetic; kept, since in rounded arithmetic it corrects.
    """

    value: Value
    weight: tuple[tuple[Pivot, Expr], ...]
    factors: tuple[Expr, ...]
    transition: tuple[tuple[Value, Expr], ...]
    droppable: bool = False

    @property
    def is_count(self) -> bool:
        """Tell if it counts elements (kept as an integer)."""
        return not self.weight and self.factors == (S.One,)

    @property
    def is_bounded(self) -> bool:
        """Tell if the first factor is a weight at its maximum, in [0, 1], so that 16 bits hold it."""
        return bool(self.weight) and self.factors[0] is S.One

    @property
    def term(self) -> Expr:
        """The summand, for people: exp(q·(u − c))·factors."""
        return Mul(*(exp(q * (pivot.base - pivot.value)) for pivot, q in self.weight), *self.factors)


@final
@dataclass(frozen=True)
class Assignment:
    """value := expr, one step of `finish`; `nonnegative` says that the definition is at least 0."""

    value: Value
    expr: Expr
    nonnegative: bool = False


@final
@dataclass(frozen=True)
class FormOutput:
    """An output of `finish`; `empty` holds where its denominator and all that it uses are exactly zero.

    One that `carries` a reduced axis is made in a second pass, from the data and the finished values. If lowering
    has one axis stand for several, `caller_axes` are those that the caller has, `places` the index along each of those
    (empty: the axes themselves), and `once` holds at one of the elements that share a place.
    """

    name: str
    expr: Expr
    axes: tuple[Axis, ...]
    empty: Boolean
    carries: bool = False
    caller_axes: tuple[Axis, ...] = ()
    places: tuple[Expr, ...] = ()
    once: Boolean = S.true

    @property
    def shape(self) -> tuple[Axis, ...]:
        """The axes of the array that a caller gets."""
        return self.caller_axes or self.axes


@final
@dataclass(frozen=True, repr=False)
class FusedForm(Displayed):
    """The slots of a state, and the expressions that make, merge and finish it (see the module).

    `unscaled` is the form without the magnitudes that generators are divided by, where it has any; `level`: a number
    without one is added to them under a root, as ε is; `gives_state`: the outputs are all slots.
    """

    cascade: Cascade
    extrema: tuple[Extremum, ...]
    pivots: tuple[Pivot, ...]
    accumulators: tuple[Accumulator, ...]
    assignments: tuple[Assignment, ...]
    outputs: tuple[FormOutput, ...]
    kind: str = "online"
    structures: tuple[Structure, ...] = ()
    unscaled: FusedForm | None = None
    level: bool = False
    gives_state: bool = False

    @property
    def summed_axes(self) -> tuple[Axis, ...]:
        """The axes over which outputs sum reduced values, in the order of their names."""
        return tuple(sorted({axis for one in self.outputs for axis in bound_axes(one.expr)}, key=str))

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The state, in order: extrema, structures, pivots, accumulators; axes in the order that outputs have."""
        order = list(dict.fromkeys(axis for one in self.outputs for axis in one.axes))

        def slot(kind: str, value: Value) -> Slot:
            return Slot(value.name, kind, tuple(sorted(value.indices, key=[*order, *value.indices].index)))

        slots = [slot("extremum", one.value) for one in self.extrema]
        slots += [slot("index" if part.integer else "component", value) for structure in self.structures
                  for value, part in zip(structure.values, structure.monoid.components, strict=True)]  # fmt: skip
        slots += [slot("pivot", one.value) for one in self.pivots if one.has_slot]
        return (*slots, *(slot("count" if one.is_count else "accumulator", one.value) for one in self.accumulators))

    @property
    def is_elementwise(self) -> bool:
        """Tell if nothing is reduced: there is no state, and no element needs another."""
        return not self.cascade.reductions and not self.cascade.producers

    @property
    def independent_values(self) -> tuple[Value, ...]:
        """The slots of reductions of x alone."""
        return (*(one.value for one in self.extrema), *(value for one in self.structures for value in one.values))

    @property
    def places(self) -> frozenset[Axis]:
        """The axes that number the elements which structures select."""
        return frozenset(one.place for one in self.structures if one.place is not None)

    @property
    def is_ordered(self) -> bool:
        """Tell if pieces must be merged in the order of the streamed axis."""
        return not all(one.monoid.commutative for one in self.structures)

    @property
    def slot_pivots(self) -> tuple[Pivot, ...]:
        """The pivots that are found from the data of each block, and so are merged by re-centring."""
        return tuple(one for one in self.pivots if one.has_slot)

    @property
    def scaling(self) -> frozenset[Value]:
        """The pivots by which exponentials are scaled, as weights or within a generator that is shifted."""
        weights = {pivot.value for one in self.accumulators for pivot, _ in one.weight}
        within = {m.value for pivot in self.pivots if pivot.magnitude is None for m, _ in pivot.scales}
        return frozenset(weights | within)

    @property
    def is_tilted(self) -> bool:
        """Tell if a slope is found from the data of each block."""
        return any(one.is_found for one in self.slot_pivots if one.policy is PivotPolicy.SLOPE)

    @property
    def links(self) -> int:
        """The number of slopes that the longest chain has beyond its first."""
        return max((len(one.slopes) for one in self.pivots if one.policy is PivotPolicy.SLOPE), default=0)

    @property
    def centres_are_means(self) -> bool:
        """Tell if every pivot that a block finds is the plain mean of its generator, with which the block starts.

        The sums about it correct what the mean lost in rounding: it need not be found a second time.
        """
        sums = {one.value: one for one in self.accumulators}

        def is_mean(pivot: Pivot) -> bool:
            above, below = (sums.get(part) for part in fraction(pivot.source))
            plain = above is not None and not above.weight and above.factors == (pivot.base - pivot.value,)
            return plain and below is not None and below.is_count and not pivot.scales and not pivot.slopes

        return all(is_mean(one) for one in self.slot_pivots if one.is_found)

    @property
    def shares_slopes(self) -> bool:
        """Tell if lanes may share every slope: none is between generators that each lane scales in its own way."""
        return not any(one.scales or one.onto for one in self.slot_pivots if one.policy is PivotPolicy.SLOPE)

    @property
    def is_lanewise(self) -> bool:
        """Tell if lanes keep states of their own pivots: not with a slope, nor a scaled shift that no sum finds."""
        scaled = (one for one in self.slot_pivots if one.scales)
        return not self.is_tilted and all(one.policy is PivotPolicy.TILE_LOCAL for one in scaled)

    @property
    def is_serial(self) -> bool:
        """Tell if a state may take one element after another: it finds every pivot from the state and the element."""
        return self.is_lanewise and all(one.policy is PivotPolicy.TILE_LOCAL for one in self.slot_pivots)

    @property
    def parameters(self) -> tuple[Producer, ...]:
        """The producers that `finish` computes, from tensors that a state does not hold."""
        exprs = [one.expr for one in self.assignments] + [one.expr for one in self.outputs]
        used = {value for expr in exprs for value in values_of(expr)}
        return tuple(one for one in self.cascade.parameters if one.value in used)

    def __str__(self) -> str:
        where = [] if self.cascade.domain is S.true else [f"  where {self.cascade.domain}"]
        lines = [f"{self.kind} form over {', '.join(map(str, self.cascade.reduced_axes))}", *where]
        lines += [f"  {one.value} = {one.monoid} {one.term}" for one in self.extrema]
        lines += [f"  {', '.join(map(str, one.values))} = {one.monoid} {one.term}" for one in self.structures]
        lines += [f"  {one.value} := {one.policy.value} pivot of {one.base}: {one.source}" for one in self.pivots]
        for total in self.accumulators:
            moves = " + ".join(f"({c})*{value}" for value, c in total.transition)
            rescale = "".join(f" * exp({q}*({pivot.value}_old - {pivot.value}))" for pivot, q in total.weight)
            lines.append(f"  {total.value} = sum {total.term}" + (" (droppable)" if total.droppable else ""))
            lines.append(f"    moves as {total.value}' = ({moves}){rescale}")
        lines += [f"  finish {one.value} = {one.expr}" for one in self.assignments]
        lines += [f"  -> {one.name}[{', '.join(map(str, one.axes))}] = {one.expr}" for one in self.outputs]
        return "\n".join(lines)

    def verify(self) -> None:
        """Check the grammar: every symbol is made before it is used, and every transition stays in the state."""
        known = {*self.independent_values} | {one.value for one in self.pivots}
        for structure in self.structures:
            if values_of(structure.term) & {*self.independent_values, *self.cascade.values}:
                raise AssertionError(f"the structure {structure.values} uses values, which no block holds")
        sums = {one.value for one in self.accumulators}
        for pivot in self.pivots:
            unknown = values_of(pivot.source) - {*self.independent_values}
            if pivot.has_slot:
                unknown -= sums | {one.value for one in self.pivots}
            if unknown:
                raise AssertionError(f"the pivot {pivot.value} is found from {unknown}, which no block holds")
        for accumulator in self.accumulators:
            if not {value for value, _ in accumulator.transition} <= sums:
                raise AssertionError(f"the transition of {accumulator.value} leaves the state")
        known |= sums | {one.value for one in self.cascade.parameters}
        produced = {one.value for one in self.cascade.producers}
        for assignment in self.assignments:
            unknown = values_of(assignment.expr) - known
            if unknown:
                raise AssertionError(f"finish uses {unknown} before they are made, in {assignment.value}")
            known.add(assignment.value)
        for output in self.outputs:
            if unknown := values_of(output.expr) - known - (produced if output.carries else set()):
                raise AssertionError(f"output {output.name} uses {unknown}, never made")
