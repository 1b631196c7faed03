"""The buffers that hold the state of a block's rows, and the statements that make it empty."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from sympy import Expr, Mul, S

from redalg.expression import RunningCast, Value, Where
from redalg.expression.contents import is_indicator, values_of
from redalg.incremental.form import Extremum, FusedForm, Structure
from redalg.lower_tile.ir.program import Fill, Statement
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.selection import Best, best_buffers, empty_buffers, ranked_structures
from redalg.lower_tile.place.space import E_, I, J
from redalg.strategies.plan import Problem

State = Value | tuple[Structure, int]
"""The content of a buffer of the state: a slot, or a numbered part of selected elements."""


@final
@dataclass(frozen=True)
class Slots:
    """The buffers that hold the state: value -> buffer.

    `best` holds the selected elements of structures. `scale` is a positive factor that an extremum leaves out. `nan`
    counts the NaN that an extremum met: a maximum of numbers ignores them (on both targets), but an output that is the
    extremum itself must not. `lanes` says that every lane of the tile holds a state of its own.
    """

    names: dict[Value, str] = field(default_factory=dict)
    columns: set[Value] = field(default_factory=set)
    heads: set[Value] = field(default_factory=set)
    scale: dict[Value, Expr] = field(default_factory=dict)
    best: dict[Structure, Best] = field(default_factory=dict)
    nan: dict[Value, str] = field(default_factory=dict)
    lanes: bool = False

    def buffers(self) -> dict[State, str]:
        """Every buffer of the state."""
        selected = {(one, number): name for one, names in self.best.items() for number, name in enumerate(names)}
        return {**dict[State, str](self.names), **selected}

    def read(self, value: Value) -> Expr:
        """A slot's read at tile indices."""
        name = self.names[value]
        if value in self.heads:
            return Load(name, E_)
        place = (I, E_) if value in self.columns else (I, J) if self.lanes else (I,)
        return self.scale.get(value, S.One) * Load(name, *place)

    def final(self, value: Value) -> Expr:
        """A slot's read after the loop: NaN if it is an extremum that met one."""
        return self.marked(value, self.read(value))

    def marked(self, value: Value, read: Expr) -> Expr:
        """A read, or NaN if the extremum met one."""
        return Where(Load(self.nan[value], I) > 0, S.NaN, read) if value in self.nan else read

    def reads(self) -> dict[Value, Expr]:
        """Every slot's read."""
        return {value: self.read(value) for value in self.names}


def allocate(
    form: FusedForm, assembly: Assembly, problem: Problem, *, of_data: bool = True
) -> tuple[Slots, list[Statement]]:
    """The state's buffers, and the statements that make it empty; a state of states (not `of_data`) counts no NaN."""
    column = assembly.plan.binding.column
    slots, body = Slots(), list[Statement]()
    for extremum in form.extrema:
        slots.names[extremum.value] = assembly.row(extremum.value.name, note=f"{extremum.monoid} {extremum.term}")
        body.append(Fill(slots.names[extremum.value], extremum.monoid.identity))
        if of_data and stands_alone(extremum, form):
            slots.nan[extremum.value] = assembly.row(f"{extremum.value.name}_nan", note="NaN met")
            body.append(Fill(slots.nan[extremum.value], S.Zero))
    for structure in ranked_structures(form, assembly.plan):  # others are joined (`folds`)
        slots.best[structure] = best_buffers(structure, assembly, problem)
        body += empty_buffers(slots.best[structure])
    for pivot in form.shifted:
        slots.names[pivot.value] = assembly.row(pivot.value.name, note=f"pivot of {pivot.base}")
        body.append(Fill(slots.names[pivot.value], S.NegativeInfinity))
    for accumulator in form.accumulators:
        wide = len(accumulator.factors) > 1 and column is not None
        head = not wide and column in accumulator.value.indices
        make = assembly.columns if wide else assembly.heads if head else assembly.row
        if head:
            slots.heads.add(accumulator.value)
        slots.names[accumulator.value] = make(accumulator.value.name, note=f"sum {accumulator.term}")
        if wide:
            slots.columns.add(accumulator.value)
        body.append(Fill(slots.names[accumulator.value], S.Zero))
    return slots, body


def stands_alone(extremum: Extremum, form: FusedForm) -> bool:
    """Tell if an output holds the extremum without a sum that it scales; in such a sum a NaN would remain."""
    if all(one.is_number or is_indicator(one) for one in Mul.make_args(extremum.term)):
        return False  # a truth is never NaN
    scaled = {a.value for a in form.accumulators if any(pivot.source.has(extremum.value) for pivot, _ in a.weight)
              or any(cast.has(extremum.value)
                     for factor in a.factors for cast in factor.atoms(RunningCast))}  # fmt: skip
    used = [output.expr for output in form.outputs] + [step.expr for step in form.assignments]
    return any(expr.has(extremum.value) and not values_of(expr) & scaled for expr in used)
