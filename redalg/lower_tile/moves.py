"""Merging states row by row: the stores that bring two states to one pivot and add them.

    δ = safe(c') − safe(c), of a scale c/c'        w = Π exp(q·(c − safe(c')))        a' = w · Σ coefficient(δ)·a

Within one `Parallel` the accumulators are stored in an order in which each reads only what is not yet overwritten: a
transition is triangular, since differentiation lowers the degree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from sympy import Add, And, Eq, Expr, Mul, Or, S
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Value, Where
from redalg.expression.contents import values_of
from redalg.incremental.form import Accumulator, FusedForm, Pivot, PivotPolicy
from redalg.lower_tile.assembly import Assembly
from redalg.lower_tile.program import IsFinite, Load, ScaledExp, Statement
from redalg.lower_tile.space import I, Space


@final
@dataclass(frozen=True)
class Side:
    """One of the two states: value -> the row expression that reads it; `moves` is False where its running pivots are
    the merged ones already (a tile that was computed at the new maximum)."""

    values: Mapping[Value, Expr]
    moves: bool = True


def safe(c: Expr, *, scales: bool = True) -> Expr:
    """c, or 0 where c is an empty state's: −∞, and for a mere shift (whose centre may be a minimum) ±∞."""
    empty = Eq(c, S.NegativeInfinity)
    return Where(empty if scales else Or(empty, Eq(c, S.Infinity)), S.Zero, c)


def usable(c: Expr) -> Boolean:
    """Where c is a scale: not of no element, nor of zeros alone, nor of what is not finite."""
    return And(IsFinite(c), c > 0)


def numeric_factor(expr: Expr) -> tuple[Expr, Expr]:
    """An expression as number · rest (the number may be irrational: 1/√128)."""
    numbers = [factor for factor in Mul.make_args(expr) if factor.is_number]
    return Mul(*numbers), Mul(*(factor for factor in Mul.make_args(expr) if not factor.is_number))


def scaled_exp(u: Expr, c: Expr, q: Expr) -> Expr:
    """exp(q·(u − c)), with a positive number that u and c share drawn into q: one multiplication less."""
    (number, u_rest), (other, c_rest) = numeric_factor(u), numeric_factor(c)
    return ScaledExp(u_rest, c_rest, q * number) if number == other and number.is_positive else ScaledExp(u, c, q)


@final
class Merge:
    """Merges side `b` into side `a`, whose slots are row buffers that are overwritten."""

    def __init__(self, form: FusedForm, assembly: Assembly, space: Space, a: Side, b: Side) -> None:
        self.form, self.assembly, self.space, self.sides = form, assembly, space, (a, b)
        self.scales = {pivot.value for one in form.accumulators for pivot, _ in one.weight}
        self.body: list[Statement] = []
        self.merged: dict[Value, Expr] = {}
        self.tile_pivots: dict[Value, Load] = {}
        self.weights: dict[tuple[int, Basic], Expr] = {}
        self.deltas: dict[tuple[int, Value], Expr] = {}

    def row(self, name: str, expr: Expr) -> Load:
        """A row buffer that holds an expression."""
        made = self.assembly.row(name)
        self.body.append(self.assembly.over_rows((made, expr)))
        return Load(made, I)

    def read(self, expr: Expr, values: Mapping[Value, Expr]) -> Expr:
        """An expression of values and parameters as reads at row i."""
        return self.space.with_values(values).read(expr)

    def pivot(self, pivot: Pivot, values: Mapping[Value, Expr]) -> Expr:
        """A pivot in terms of a state's reads."""
        return values[pivot.value] if pivot.has_slot else self.read(pivot.source, values)

    def pivots(self, extrema: Mapping[Value, Expr]) -> dict[Value, Expr]:
        """The merged pivots, safe to subtract, given the merged extrema."""
        for pivot in self.form.pivots:
            source = self.read(pivot.source, extrema)
            if pivot.policy is PivotPolicy.SCALE:
                scale = self.row(f"{pivot.value.name}_safe", source)
                self.body.append(self.assembly.over_rows((scale.name, Where(usable(scale), scale, S.One))))
                self.merged[pivot.value] = scale
            elif not pivot.has_slot:
                number, rest = numeric_factor(source)
                number, rest = (number, rest) if number.is_positive else (S.One, source)
                held = safe(rest, scales=pivot.value in self.scales)
                self.merged[pivot.value] = number * self.row(f"{pivot.value.name}_safe", held)
        return self.merged

    def shift(self) -> None:
        """Choose the merged tile-local pivots: the natural centre of both states together."""
        shifted = [one for one in self.form.shifted if one.policy is PivotPolicy.TILE_LOCAL]
        if not shifted:
            return
        a, b = self.sides
        for pivot in shifted:
            old, new = a.values[pivot.value], b.values[pivot.value]
            held = self.row(f"{pivot.value.name}_new", Where(Eq(old, S.NegativeInfinity), new, old))
            self.body.append(self.assembly.over_rows((held.name, safe(held))))
            self.merged[pivot.value] = held
        wanted = {value for pivot in shifted for value in values_of(pivot.source)}
        sums = self._sums(wanted, "trial")
        for pivot in shifted:
            c = self.merged[pivot.value]
            moved = self.row(f"{pivot.value.name}_moved", c + self.read(pivot.source, sums))
            self.body.append(self.assembly.over_rows((buffer_of(c), Where(IsFinite(moved), moved, c))))
        self.deltas.clear()

    def _sums(self, wanted: set[Value], name: str) -> dict[Value, Expr]:
        out: dict[Value, Expr] = {}
        for one in self.form.accumulators:
            if one.value in wanted:
                out[one.value] = self.row(f"{one.value.name}_{name}", Add(self.moved(0, one), self.moved(1, one)))
        return out

    def moved(self, side: int, one: Accumulator) -> Expr:
        """An accumulator of one side at the merged pivots."""
        values = self.sides[side].values
        total = Add(*(Mul(self._coefficient(side, c), values[value]) for value, c in one.transition))
        weight = self.weight(side, one)
        return total if weight is S.One else weight * total

    def weight(self, side: int, one: Accumulator) -> Expr:
        """Π exp(q·(c − c')) of one side, in a row buffer; 1 where its pivots are the merged ones."""
        if not one.weight or not self.sides[side].moves:
            return S.One
        key = (side, Mul(*(ScaledExp(pivot.base, pivot.value, q) for pivot, q in one.weight)))
        if key not in self.weights:
            values = self.sides[side].values
            expr = Mul(*(scaled_exp(self.pivot(pivot, values), self.merged[pivot.value], self.space.read(q))
                         for pivot, q in one.weight))  # fmt: skip
            self.weights[key] = self.row("rescale", expr)
        return self.weights[key]

    def _coefficient(self, side: int, coefficient: Expr) -> Expr:
        found = {}
        for pivot in self.form.pivots:
            symbol = pivot.displacement
            if coefficient.has(symbol):
                found[symbol] = self._delta(side, pivot)
        return coefficient.xreplace(found)

    def _delta(self, side: int, pivot: Pivot) -> Expr:
        if not pivot.has_slot and not self.sides[side].moves:
            return S.One if pivot.policy is PivotPolicy.SCALE else S.Zero
        if (side, pivot.value) not in self.deltas and pivot.policy is PivotPolicy.SCALE:
            old = self.row(f"{pivot.value.name}_old", self.pivot(pivot, self.sides[side].values))
            moved = Where(usable(old), old / self.merged[pivot.value], S.One)
            self.deltas[side, pivot.value] = self.row(f"delta_{pivot.value.name}", moved)
        if (side, pivot.value) not in self.deltas:
            old = safe(self.pivot(pivot, self.sides[side].values), scales=pivot.value in self.scales)
            self.deltas[side, pivot.value] = self.row(f"delta_{pivot.value.name}", self.merged[pivot.value] - old)
        return self.deltas[side, pivot.value]

    def accumulate(self, rows: list[Accumulator]) -> None:
        """Store the merged accumulators and pivots over side a's buffers."""
        stores = [(self._name(one.value), Add(self.moved(0, one), self.moved(1, one))) for one in triangular(rows)]
        stores += [(self._name(pivot.value), self.merged[pivot.value]) for pivot in self.form.shifted]
        if stores:
            self.body.append(self.assembly.over_rows(*stores))

    def _name(self, value: Value) -> str:
        return buffer_of(self.sides[0].values[value])


def buffer_of(read: Expr) -> str:
    """The buffer that a plain read reads."""
    if not isinstance(read, Load):
        raise AssertionError(f"{read} is not a plain read of a buffer")
    return read.name


def triangular(accumulators: list[Accumulator]) -> list[Accumulator]:
    """Accumulators in an order in which each transition reads only itself and later ones."""
    left, order = list(accumulators), list[Accumulator]()
    while left:
        read = {value for one in left for value, _ in one.transition if value != one.value}
        first = [one for one in left if one.value not in read]
        if not first:
            raise AssertionError("the transition is not triangular")
        order += first
        left = [one for one in left if one not in first]
    return order
