"""Merge states, one for each row or lane: the stores that bring two states to one pivot and add them.

    δ = safe(c') − ρ·c, 0 from an empty state, of a scale c/c'      w, ρ = Π exp(q·(c − safe(c')))
    a' = w · Σ coefficient(δ)·a                                     w·a where w is 0

Within one `Parallel` the accumulators are stored in an order in which each reads only values that are not yet
overwritten. Such an order exists: a transition is triangular, since differentiation lowers the degree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from sympy import Add, And, Eq, Expr, Mul, Or, S
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Let, Value, Where
from redalg.expression.contents import of_kind, values_of
from redalg.incremental.form import Accumulator, FusedForm, Pivot, PivotPolicy, magnitude_of
from redalg.lower_tile.ir.program import Statement
from redalg.lower_tile.ir.scalars import Is, IsFinite, Load, ScaledExp, Wide
from redalg.lower_tile.place.assembly import Assembly, Sweep
from redalg.lower_tile.place.centres import is_local, moving_pivots, staying_pivots
from redalg.lower_tile.place.space import Space


@final
@dataclass(frozen=True)
class Side:
    """One of the two states: value -> the expression that reads it.

    `moves` is False if its running pivots are the merged ones already (a tile that was computed at the new maximum).
    """

    values: Mapping[Value, Expr]
    moves: bool = True


def safe(c: Expr, *, scales: bool = True) -> Expr:
    """c, or 0 if c is an empty state's: −∞, or ±∞ for a pivot that only shifts (its centre may be a minimum)."""
    return Where(empty_condition(c, scales=scales), S.Zero, c)


def empty_condition(c: Expr, *, scales: bool = True) -> Boolean:
    """The condition that a pivot is an empty state's: −∞, or ±∞ if it only shifts."""
    empty = Is(c, S.NegativeInfinity)
    return empty if scales else Or(empty, Is(c, S.Infinity))


def usable(c: Expr) -> Boolean:
    """The condition that c is a scale: elements were met, not all of them are 0, and all of them are finite."""
    return And(IsFinite(c), c > 0)


def numeric_factor(expr: Expr) -> tuple[Expr, Expr]:
    """Split an expression into number · rest (the number may be irrational: 1/√128)."""
    numbers = [factor for factor in Mul.make_args(expr) if factor.is_number]
    return Mul(*numbers), Mul(*(factor for factor in Mul.make_args(expr) if not factor.is_number))


def scaled_exp(u: Expr, c: Expr, q: Expr) -> Expr:
    """exp(q·(u − c)). A positive number that u and c share becomes part of q, which saves one multiplication."""
    (number, u_rest), (other, c_rest) = numeric_factor(u), numeric_factor(c)
    return ScaledExp(u_rest, c_rest, q * number) if number == other and number.is_positive else ScaledExp(u, c, q)


@final
class Merge:
    """Merge the second side into the first, for every state; the slots of the first are buffers that it overwrites."""

    def __init__(
        self, form: FusedForm, assembly: Assembly, space: Space, sides: tuple[Side, Side], sweep: Sweep | None = None
    ) -> None:
        self.form, self.assembly, self.space, self.sides = form, assembly, space, sides
        self.sweep = sweep or assembly.rows
        self.scales = form.scaling
        self.body: list[Statement] = []
        self.merged: dict[Value, Expr] = {}
        self.tile_pivots: dict[Value, Load] = {}
        self.weights: dict[tuple[int, Basic], Expr] = {}
        self.deltas: dict[tuple[int, Value], Expr] = {}
        self.ratios: dict[tuple[int, Basic], Expr] = {}
        self.still: set[Value] = set()

    def keep(self, pivot: Pivot, c: Load) -> None:
        """Take c as the merged pivot: both sides are at c already."""
        self.merged[pivot.value] = self.tile_pivots[pivot.value] = c
        self.still.add(pivot.value)

    def moves(self, accumulator: Accumulator) -> bool:
        """Tell if the value of an accumulator depends on others when pivots move."""
        still = {pivot.displacement: S.Zero for pivot in self.form.pivots if pivot.value in self.still}
        return sum(c.xreplace(still) is not S.Zero for _, c in accumulator.transition) > 1

    def held(self, name: str, expr: Expr) -> Load:
        """The read of a new buffer that holds an expression for every state."""
        made = self.assembly.over(self.sweep, name)
        self.store((made, expr))
        return Load(made, *self.sweep.place)

    def store(self, *stores: tuple[str, Expr]) -> None:
        """Append the stores buffers := expressions, for every state."""
        self.body.append(self.sweep.stores(*stores))

    def read(self, expr: Expr, values: Mapping[Value, Expr]) -> Expr:
        """The expression with reads at the state's place for its values and parameters."""
        return self.space.with_values(values).read(expr)

    def pivot(self, pivot: Pivot, values: Mapping[Value, Expr]) -> Expr:
        """A pivot as an expression of a state's reads."""
        return values[pivot.value] if pivot.has_slot else self.read(pivot.source, values)

    def pivots(self, extrema: Mapping[Value, Expr]) -> dict[Value, Expr]:
        """The merged pivots, safe to subtract, computed from the merged extrema."""
        for pivot in (one for one in self.form.pivots if not one.has_slot):
            source = self.read(pivot.source, extrema)
            if pivot.policy is PivotPolicy.SCALE:
                scale = self.held(f"{pivot.value.name}_safe", source)
                self.store((scale.name, Where(usable(scale), scale, S.One)))
                self.merged[pivot.value] = scale
            else:
                number, rest = numeric_factor(source)
                number, rest = (number, rest) if number.is_positive else (S.One, source)
                held = safe(rest, scales=pivot.value in self.scales)
                self.merged[pivot.value] = number * self.held(f"{pivot.value.name}_safe", held)
        return self.merged

    def shift(self) -> None:
        """Choose the merged pivots: the natural place of both states together, or the pivot of the first state."""
        for pivot in staying_pivots(self.form):
            if pivot.value not in self.still:
                self.merged[pivot.value] = self.held(f"{pivot.value.name}_new", self._chosen(pivot))
        shifted = moving_pivots(self.form)
        if not shifted:
            return
        for pivot in shifted:
            held = self.held(f"{pivot.value.name}_new", self._chosen(pivot))
            if is_local(pivot):
                self.store((held.name, safe(held)))
            self.merged[pivot.value] = held
        wanted = {value for pivot in shifted for value in values_of(pivot.source)}
        at = {**self.merged, **self._sums(wanted, "trial")}
        moved, stores = list[tuple[str, Expr]](), list[tuple[str, Expr]]()
        for pivot in shifted:
            c, name = self.merged[pivot.value], self.assembly.over(self.sweep, f"{pivot.value.name}_moved")
            read = Load(name, *self.sweep.place)
            moved.append((name, c + self.read(pivot.source, at)))
            stores.append((buffer_of(c), Where(IsFinite(read), read, c)))
        for store in concatenate_stores(steps(self.form, moved, stores)):
            self.store(store)
        self.deltas.clear()

    def _chosen(self, pivot: Pivot) -> Expr:
        """The pivot of the first side that is not empty, for u scaled by the merged pivots."""
        return first_nonempty_pivot(*(self.rescaled(side, pivot) for side in range(2)))

    def rescaled(self, side: int, pivot: Pivot) -> Expr:
        """ρ·c of one side; 0 for a slope between generators that are scaled, −∞ for an empty state."""
        c = self.sides[side].values[pivot.value]
        if pivot.policy is PivotPolicy.SLOPE and (pivot.scales or pivot.onto):
            return Where(empty_condition(c), c, S.Zero)
        ratio = self._ratio(side, pivot)
        return c if ratio is S.One else Where(empty_condition(c), c, ratio * c)

    def _sums(self, wanted: set[Value], name: str) -> dict[Value, Expr]:
        out: dict[Value, Expr] = {}
        for accumulator in self.form.accumulators:
            if accumulator.value in wanted:
                out[accumulator.value] = self.held(
                    f"{accumulator.value.name}_{name}", Add(self.moved(0, accumulator), self.moved(1, accumulator))
                )
        return out

    def moved(self, side: int, accumulator: Accumulator) -> Expr:
        """An accumulator of one side at the merged pivots."""
        values = self.sides[side].values
        total = Add(*(Mul(self._coefficient(side, c), values[value]) for value, c in accumulator.transition))
        weight = self.weight(side, accumulator)
        if weight is not S.One and len(accumulator.transition) > 1:  # at weight 0 a far move may overflow; a NaN stays
            total = Where(Eq(weight, 0), values[accumulator.value], total)
        return total if weight is S.One else weight * total

    def weight(self, side: int, accumulator: Accumulator) -> Expr:
        """Π exp(q·(c − c')) of one side, in a row buffer; 1 if its pivots are the merged ones."""
        if not accumulator.weight or not self.sides[side].moves:
            return S.One
        key = (side, Mul(*(ScaledExp(pivot.base, pivot.value, q) for pivot, q in accumulator.weight)))
        if key not in self.weights:
            values = self.sides[side].values
            expr = Mul(*(scaled_exp(self.pivot(pivot, values), self.merged[pivot.value], self.space.read(q))
                         for pivot, q in accumulator.weight))  # fmt: skip
            self.weights[key] = self.held("rescale", expr)
        return self.weights[key]

    def _coefficient(self, side: int, coefficient: Expr) -> Expr:
        found = {}
        for pivot in self.form.pivots:
            if coefficient.has(pivot.displacement):
                found[pivot.displacement] = self._delta(side, pivot)
            if coefficient.has(pivot.departure):
                here = self.merged[pivot.value]
                found |= {pivot.departure: self.sides[side].values.get(pivot.value, here), pivot.arrival: here}
            if pivot.scales and coefficient.has(pivot.ratio):
                found[pivot.ratio] = self._ratio(side, pivot)
        made = coefficient.xreplace(found)
        return made.xreplace({one: self._named(side, one) for one in of_kind(Let, made)})

    def _named(self, side: int, let: Let) -> Expr:
        """The row buffer of an expression that a coefficient names."""
        if (side, let) not in self.ratios:
            self.ratios[side, let] = self.held(let.name, let.expr)
        return self.ratios[side, let]

    def _ratio(self, side: int, pivot: Pivot) -> Expr:
        """ρ = Π exp(q·(m − m')), or m/m', of one side, in a row buffer; 1 if its pivots m are the merged ones."""
        return self._scaled(side, pivot.scales, f"rho_{pivot.value.name}")

    def _scaled(self, side: int, scales: tuple[tuple[Pivot, Expr], ...], name: str) -> Expr:
        if not scales or not self.sides[side].moves:
            return S.One
        key = (side, Mul(*(ScaledExp(m.base, m.value, q) for m, q in scales)))
        if key not in self.ratios:
            values = self.sides[side].values
            magnitude = magnitude_of(scales)
            expr = self._moved_scale(side, magnitude) if magnitude is not None else \
                Mul(*(scaled_exp(self.pivot(m, values), self.merged[m.value], self.space.read(q))
                      for m, q in scales))  # fmt: skip
            self.ratios[key] = self.held(name, expr)
        return self.ratios[key]

    def _delta(self, side: int, pivot: Pivot) -> Expr:
        if pivot.value in self.still:
            return S.Zero
        if not pivot.has_slot and not self.sides[side].moves:
            return S.One if pivot.policy is PivotPolicy.SCALE else S.Zero
        if (side, pivot.value) not in self.deltas and pivot.policy is PivotPolicy.SCALE:
            self.deltas[side, pivot.value] = self.held(f"delta_{pivot.value.name}", self._moved_scale(side, pivot))
        if (side, pivot.value) not in self.deltas:
            old = self.pivot(pivot, self.sides[side].values)
            here = self._ratio(side, pivot) * old
            there = self._scaled(side, pivot.onto, f"onto_{pivot.value.name}") * self.merged[pivot.value]
            moved = self._along(side, pivot, there - here)
            self.deltas[side, pivot.value] = self.held(
                f"delta_{pivot.value.name}",
                Where(empty_condition(old, scales=pivot.value in self.scales), S.Zero, moved),
            )
        return self.deltas[side, pivot.value]

    def _moved_scale(self, side: int, pivot: Pivot) -> Expr:
        """m/m' of a scale; 1 if the state met zeros alone."""
        old = self.held(f"{pivot.value.name}_old", self.pivot(pivot, self.sides[side].values))
        return Where(usable(old), old / self.merged[pivot.value], S.One)

    def _along(self, side: int, pivot: Pivot, moved: Expr) -> Expr:
        """c' − c − Σ β'·(the move of u'), rounded once: on a steep line two large numbers cancel."""
        values, tilted = self.sides[side].values, S.Zero
        ratios = {one.value: self._ratio(side, one) for one in self.form.pivots if one.scales and pivot.slopes}
        tilted_too = {one.value: one for one in self.form.pivots if one.slopes}
        for slope, centre in pivot.slopes:
            if centre in tilted_too:
                tilted += self.merged[slope] * self._delta(side, tilted_too[centre])
            elif isinstance(centre, Value) and centre not in self.still:
                old = ratios.get(centre, S.One) * values[centre]
                tilted += self.merged[slope] * Where(empty_condition(values[centre]), S.Zero, self.merged[centre] - old)
        return moved if tilted is S.Zero else Wide(moved - tilted)

    def accumulate(self, rows: list[Accumulator]) -> None:
        """Store the merged accumulators and pivots into the buffers of the first side."""
        stores = [(self._name(one.value), Add(self.moved(0, one), self.moved(1, one))) for one in triangular(rows)]
        stores += [(self._name(pivot.value), self.merged[pivot.value])
                   for pivot in self.form.shifted if pivot.value not in self.still]  # fmt: skip
        if stores:
            self.store(*stores)

    def _name(self, value: Value) -> str:
        return buffer_of(self.sides[0].values[value])


def first_nonempty_pivot(a: Expr, b: Expr) -> Expr:
    """The pivot of the first of two states, or of the second if the first is empty."""
    return Where(Is(a, S.NegativeInfinity), b, a)


Stores = list[tuple[str, Expr]]


def steps(form: FusedForm, moved: Stores, stores: Stores) -> list[Stores]:
    """Group the stores that move pivots into steps: a step for each, or one for all if a pivot depends on another."""
    pivots = {one.value for one in form.shifted}
    if any(values_of(one.source) & pivots for one in form.shifted):
        return [[*moved, *stores]]
    return [list(pair) for pair in zip(moved, stores, strict=True)]


def concatenate_stores(made: list[Stores]) -> Stores:
    """The stores of all steps, in order."""
    return [store for one in made for store in one]


def buffer_of(read: Expr) -> str:
    """The name of the buffer of a plain read."""
    if not isinstance(read, Load):
        raise AssertionError(f"{read} is not a plain read of a buffer")
    return read.name


def triangular(accumulators: list[Accumulator]) -> list[Accumulator]:
    """Order accumulators so that each transition reads only its own accumulator and later ones."""
    left, order = list(accumulators), list[Accumulator]()
    while left:
        read = {value for one in left for value, _ in one.transition if value != one.value}
        first = [one for one in left if one.value not in read]
        if not first:
            raise AssertionError("the transition is not triangular")
        order += first
        left = [one for one in left if one not in first]
    return order
