"""The buffers that hold the state of a block's rows, or of its lanes, and the statements that make it empty."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from sympy import Expr, Mul, S, Symbol

from redalg.expression import Let, RunningCast, Value, Where
from redalg.expression.contents import free_axes, is_indicator, of_kind, values_of
from redalg.incremental.form import Accumulator, Extremum, FusedForm, Structure
from redalg.lower_tile.ir.program import Fill, Statement
from redalg.lower_tile.ir.scalars import NO_ELEMENT, Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.invariants import is_centre
from redalg.lower_tile.place.joins import identities, integer_dtype
from redalg.lower_tile.place.selection import Best, best_buffers, is_set, ranked_structures, row_width
from redalg.lower_tile.place.space import E_, PLACE, I
from redalg.strategies.plan import Problem


@final
@dataclass(frozen=True)
class Slots:
    """The buffers that hold the state: slot -> the read of its buffer, whose indices say what it holds.

    `scale` is a positive factor that an extremum leaves out. `nan` counts the NaN that an extremum met: a maximum of
    numbers ignores them (on both targets), but an output that is the extremum itself must not. `ranked` are the
    structures whose elements are integers that order as they do: their first components' buffers hold these.
    """

    loads: dict[Value, Load] = field(default_factory=dict)
    scale: dict[Value, Expr] = field(default_factory=dict)
    nan: dict[Value, Load] = field(default_factory=dict)
    ranked: tuple[Structure, ...] = ()

    @property
    def numbers(self) -> tuple[Value, ...]:
        """The slots that hold numbers, not ranks."""
        ranks = {value for structure in self.ranked for value in structure.values}
        return tuple(value for value in self.loads if value not in ranks)

    @property
    def best(self) -> dict[Structure, Best]:
        """The buffers of ranked elements."""
        return {structure: tuple(self.loads[value].name for value in structure.values if value in self.loads)
                for structure in self.ranked}  # fmt: skip

    @property
    def columns(self) -> frozenset[Value]:
        """The slots of a number for every row and column."""
        return frozenset(value for value in self.numbers if self.loads[value].indices == (I, E_))

    def read(self, value: Value) -> Expr:
        """A slot's read at tile indices."""
        return self.scale.get(value, S.One) * self.loads[value]

    def final(self, value: Value) -> Expr:
        """A slot's read after the loop: NaN if it is an extremum that met one."""
        return self.mark_nan(value, self.read(value))

    def mark_nan(self, value: Value, read: Expr) -> Expr:
        """A read, or NaN if the extremum met one."""
        return Where(self.nan[value] > 0, S.NaN, read) if value in self.nan else read

    def reads(self) -> dict[Value, Expr]:
        """The reads of all slots."""
        return {value: self.read(value) for value in self.loads}


def allocate(
    form: FusedForm, assembly: Assembly, problem: Problem, *, of_data: bool = True, lanes: bool = False
) -> tuple[Slots, list[Statement]]:
    """The state's buffers, and the statements that make it empty: one for every row, or for every row and lane.

    A state of states (not `of_data`) counts no NaN.
    """
    slots, body = Slots(ranked=tuple(ranked_structures(form, assembly.plan))), list[Statement]()
    suffix, tail = ("_lanes", ", by lane") if lanes else ("", "")

    def own(value: Value) -> tuple[Symbol, ...]:
        plan, axes = assembly.plan, value.indices
        if lanes or plan.binding.column not in axes:
            return assembly.lane if lanes else (I,)
        alone = plan.is_serial and plan.binding.contracted and plan.binding.row not in axes
        return (E_,) if alone else assembly.row

    def add(load: Load, value: Value, empty: Expr) -> None:
        slots.loads[value] = load
        body.append(Fill(load.name, empty))

    for extremum in form.extrema:
        name, note = f"{extremum.value.name}{suffix}", f"{extremum.monoid} {extremum.term}{tail}"
        load = assembly.new(name, *own(extremum.value), note=note, slot=extremum.value.name)
        add(load, extremum.value, extremum.monoid.identity)
        if of_data and stands_alone(extremum, form):
            counter = f"{extremum.value.name}_nan"
            slots.nan[extremum.value] = assembly.new(
                counter, *own(extremum.value), note=f"NaN met{tail}", slot=extremum.value.name
            )
            body.append(Fill(slots.nan[extremum.value].name, S.Zero))
    for structure in slots.ranked:
        scope = "shared" if is_set(structure, assembly.plan, problem) else "fragment"
        for value, load in best_loads(structure, assembly, problem, scope=scope).items():
            add(load, value, NO_ELEMENT)
    for pivot in form.slot_pivots:
        name, note = f"{pivot.value.name}{suffix}", f"pivot of {pivot.base}{tail}"
        load = assembly.new(name, *own(pivot.value), note=note, slot=pivot.value.name)
        add(load, pivot.value, S.NegativeInfinity)
    for accumulator in form.accumulators:
        name, note = f"{accumulator.value.name}{suffix}", f"sum {with_named_centres(accumulator.term)}{tail}"
        by_lane = lanes or assembly.plan.is_serial
        indices = own(accumulator.value) if by_lane else indices_of(accumulator, assembly)
        load = assembly.new(name, *indices, note=note, slot=accumulator.value.name)
        add(load, accumulator.value, S.Zero)
    for structure in (one for one in form.structures if one not in slots.ranked):
        for value, identity in zip(structure.values, identities(structure), strict=True):
            dtype = integer_dtype(value, structure)
            load = assembly.new(f"{value.name}{suffix}", *own(value), dtype=dtype, slot=value.name)
            add(load, value, identity)
    return slots, body


def with_named_centres(term: Expr) -> Expr:
    """A term as its comment tells it: a centre that a buffer holds stands under its name."""
    centres = [one for one in of_kind(Let, term) if is_centre(one)]
    axes = [", ".join(sorted(map(str, free_axes(one)))) for one in centres]
    names = {centre: Symbol(f"{centre.name}[{along}]") for centre, along in zip(centres, axes, strict=True)}
    written: Expr = term.xreplace(names)
    return written


def best_loads(
    structure: Structure, assembly: Assembly, problem: Problem, wanted: str = "best", scope: str = "fragment"
) -> dict[Value, Load]:  # fmt: skip
    """The reads of new buffers for the best elements of every row, by the first components."""
    places = (PLACE,) if row_width(structure, problem) else ()
    names = best_buffers(structure, assembly, problem, wanted, scope)
    return {value: Load(name, I, *places) for value, name in zip(structure.values, names, strict=False)}


def indices_of(accumulator: Accumulator, assembly: Assembly) -> tuple[Symbol, ...]:
    """The indices of a sum's buffer: a product of two factors has columns, and a sum of columns no rows."""
    column = assembly.plan.binding.column
    if len(accumulator.factors) > 1 and column is not None:
        return (I, E_)
    return (E_,) if column in accumulator.value.indices else (I,)


def stands_alone(extremum: Extremum, form: FusedForm) -> bool:
    """Tell if an output holds the extremum without a sum that it scales; in such a sum a NaN would remain.

    In a state it remains so: who reads the extremum reads the sum.
    """
    if all(one.is_number or is_indicator(one) for one in Mul.make_args(extremum.term)):
        return False  # a truth is never NaN
    scaled = {a.value for a in form.accumulators if any(pivot.source.has(extremum.value) for pivot, _ in a.weight)
              or any(cast.has(extremum.value)
                     for factor in a.factors for cast in factor.atoms(RunningCast))}  # fmt: skip
    if form.gives_state and scaled:
        return False
    used = [output.expr for output in form.outputs] + [step.expr for step in form.assignments]
    return any(expr.has(extremum.value) and not values_of(expr) & scaled for expr in used)
