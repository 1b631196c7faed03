"""The buffers that hold the state of a block's rows, or of its lanes, and the statements that make it empty."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from sympy import Expr, Mul, S, Symbol

from redalg.expression import RunningCast, Value, Where
from redalg.expression.contents import is_indicator, values_of
from redalg.incremental.form import Accumulator, Extremum, FusedForm, Structure
from redalg.lower_tile.ir.program import Fill, Statement
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.selection import Best, best_buffers, empty_buffers, ranked_structures, row_width
from redalg.lower_tile.place.space import E_, PLACE, I
from redalg.strategies.plan import Problem

State = Value | tuple[Structure, int]
"""The content of a buffer of the state: a slot, or a numbered part of selected elements."""


@final
@dataclass(frozen=True)
class Slots:
    """The buffers that hold the state: slot -> the read of its buffer, whose indices say what it holds.

    `scale` is a positive factor that an extremum leaves out. `nan` counts the NaN that an extremum met: a maximum of
    numbers ignores them (on both targets), but an output that is the extremum itself must not.
    """

    loads: dict[State, Load] = field(default_factory=dict)
    scale: dict[Value, Expr] = field(default_factory=dict)
    nan: dict[Value, Load] = field(default_factory=dict)

    @property
    def numbers(self) -> tuple[Value, ...]:
        """The slots that hold numbers, not selected elements."""
        return tuple(value for value in self.loads if isinstance(value, Value))

    @property
    def best(self) -> dict[Structure, Best]:
        """The buffers of selected elements."""
        found = dict[Structure, Best]()
        for value, load in self.loads.items():
            if isinstance(value, tuple):
                found[value[0]] = (*found.get(value[0], ()), load.name)
        return found

    @property
    def columns(self) -> frozenset[Value]:
        """The slots of a number for every row and column."""
        return frozenset(value for value in self.numbers if self.loads[value].indices == (I, E_))

    def read(self, value: Value) -> Expr:
        """A slot's read at tile indices."""
        return self.scale.get(value, S.One) * self.loads[value]

    def final(self, value: Value) -> Expr:
        """A slot's read after the loop: NaN if it is an extremum that met one."""
        return self.marked(value, self.read(value))

    def marked(self, value: State, read: Expr) -> Expr:
        """A read, or NaN if the extremum met one."""
        return Where(self.nan[value] > 0, S.NaN, read) if value in self.nan else read

    def reads(self) -> dict[Value, Expr]:
        """The reads of all slots that hold numbers."""
        return {value: self.read(value) for value in self.numbers}


def allocate(
    form: FusedForm, assembly: Assembly, problem: Problem, *, of_data: bool = True, lanes: bool = False
) -> tuple[Slots, list[Statement]]:
    """The state's buffers, and the statements that make it empty: one for every row, or for every row and lane.

    A state of states (not `of_data`) counts no NaN. Structures of lanes are joined (`folds`).
    """
    slots, body = Slots(), list[Statement]()
    own, suffix, tail = (assembly.lane, "_lanes", ", by lane") if lanes else ((I,), "", "")

    def add(value: Value, empty: Expr, note: str, indices: tuple[Symbol, ...] = own) -> None:
        slots.loads[value] = assembly.new(f"{value.name}{suffix}", *indices, note=note + tail)
        body.append(Fill(slots.loads[value].name, empty))

    for extremum in form.extrema:
        add(extremum.value, extremum.monoid.identity, f"{extremum.monoid} {extremum.term}")
        if of_data and stands_alone(extremum, form):
            slots.nan[extremum.value] = assembly.new(f"{extremum.value.name}_nan", *own, note=f"NaN met{tail}")
            body.append(Fill(slots.nan[extremum.value].name, S.Zero))
    for structure in ranked_structures(form, assembly.plan) if not lanes else ():
        found = best_loads(structure, assembly, problem)
        slots.loads.update(found)
        body += empty_buffers([load.name for load in found.values()])
    for pivot in form.shifted:
        add(pivot.value, S.NegativeInfinity, f"pivot of {pivot.base}")
    for accumulator in form.accumulators:
        add(accumulator.value, S.Zero, f"sum {accumulator.term}", own if lanes else indices_of(accumulator, assembly))
    return slots, body


def best_loads(structure: Structure, assembly: Assembly, problem: Problem, wanted: str = "best") -> dict[State, Load]:
    """The reads of new buffers for the best elements of every row, by their number."""
    places = (PLACE,) if row_width(structure, problem) else ()
    names = best_buffers(structure, assembly, problem, wanted)
    return {(structure, number): Load(name, I, *places) for number, name in enumerate(names)}


def indices_of(accumulator: Accumulator, assembly: Assembly) -> tuple[Symbol, ...]:
    """The indices of a sum's buffer: a product of two factors has columns, and a sum of columns no rows."""
    column = assembly.plan.binding.column
    if len(accumulator.factors) > 1 and column is not None:
        return (I, E_)
    return (E_,) if column in accumulator.value.indices else (I,)


def stands_alone(extremum: Extremum, form: FusedForm) -> bool:
    """Tell if an output holds the extremum without a sum that it scales; in such a sum a NaN would remain."""
    if all(one.is_number or is_indicator(one) for one in Mul.make_args(extremum.term)):
        return False  # a truth is never NaN
    scaled = {a.value for a in form.accumulators if any(pivot.source.has(extremum.value) for pivot, _ in a.weight)
              or any(cast.has(extremum.value)
                     for factor in a.factors for cast in factor.atoms(RunningCast))}  # fmt: skip
    used = [output.expr for output in form.outputs] + [step.expr for step in form.assignments]
    return any(expr.has(extremum.value) and not values_of(expr) & scaled for expr in used)
