"""Runs of a tile's elements, whose sums are added up on their own and then taken into the state.

    for a run of the tile: m₀ = m; t = 0; for its elements: m' = max(m, u); t = t·exp(m − m') + term; …
                           s = s·exp(m₀ − m) + t

The sums of a run stand about the running extrema, which its elements move: so the state's own sums move once a run. Of
centres that elements find (a variance's mean), a run has its own, and the derived merge takes both to one centre.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from sympy import And, S
from sympy.logic.boolalg import Boolean

from redalg.expression import Value
from redalg.expression.contents import values_of
from redalg.expression.dtypes import DTYPES
from redalg.incremental.combine.programs import append_program, programs
from redalg.incremental.combine.sources import FIRST, SECOND, slot_of_tag, tag_slots
from redalg.incremental.form import FusedForm
from redalg.lower_tile.ir.program import Fill, Parallel, Statement
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.lines import Placer
from redalg.lower_tile.place.slots import Slots
from redalg.lower_tile.place.space import Space

MOST_SHARED = 16384
"""Bytes of a block's sums that lie in shared memory while runs are added up, at most. Those of a thread's many columns
stay in registers (H100: sums of distances take 1.29 of the time of no runs from shared memory, 1.07 from registers)."""


def share_sums(form: FusedForm, assembly: Assembly, slots: Slots) -> None:
    """Lay the state's sums in shared memory, each thread its own, where a run has sums in registers."""
    names = {slots.loads[value].name for value in own_slots(form)}
    numbers = sum(prod(assembly.shape(name)) for name in names)
    plan = assembly.plan
    few = not (plan.binding.contracted or plan.binding.column or form.cascade.producers)
    if few and plan.device.target != "c" and numbers * DTYPES[assembly.compute].bytes <= MOST_SHARED:
        for name in names:
            assembly.buffers[name] = replace(assembly.buffers[name], scope="shared")


def begin_run(
    form: FusedForm, assembly: Assembly, slots: Slots, guard: Boolean = S.true
) -> tuple[Slots, Slots, list[Statement]]:
    """The slots that a run's elements are taken into, the state's slots as they were ahead of it, and what begins it.

    The run has the state's extrema and structures, and sums and centres of its own.
    """
    starts = dict.fromkeys(own_slots(form), S.Zero) | {one.value: S.NegativeInfinity for one in form.slot_pivots}
    own = {value: assembly.new(f"{value.name}_run", *slots.loads[value].indices) for value in starts}
    read = programs(form).of(append_program).only(starts).inputs
    moved = (one.value for one in form.extrema if slot_of_tag(one.value, FIRST) in read)
    ahead = {value: assembly.new(f"{value.name}_before", *slots.loads[value].indices) for value in moved}
    begin = list[Statement](assembly.stores((copy, slots.loads[value])) for value, copy in ahead.items())
    if guard is S.true:
        begin += [Fill(own[value].name, start) for value, start in starts.items()]
    else:
        begin = with_guard((*begin, *(assembly.stores((own[value], start)) for value, start in starts.items())), guard)
    return replace(slots, loads={**slots.loads, **own}), replace(slots, loads={**slots.loads, **ahead}), begin


def with_guard(statements: Iterable[Statement], guard: Boolean) -> list[Statement]:
    """The stores of statements, if a guard holds that is the same for a whole block."""
    out = list[Statement]()
    for statement in statements:
        if not isinstance(statement, Parallel):
            raise TypeError(f"`{statement}` is no store, so that it can't have a guard.")
        out.append(replace(statement, guard=And(statement.guard, guard)))
    return out


def end_run(form: FusedForm, assembly: Assembly, space: Space, run: Slots, ahead: Slots) -> list[Statement]:
    """Take the sums and centres of a run into those of the state."""
    wanted = {value: ahead.read(value) for value in own_slots(form)}
    values = tag_slots(ahead.reads(), FIRST) | tag_slots(run.reads(), SECOND)
    return Placer(programs(form).of(append_program).only(wanted), assembly, space, values).build(wanted)


def own_slots(form: FusedForm) -> tuple[Value, ...]:
    """The slots that a run has of its own: sums and centres, but no count that no other of them needs.

    A count is exact.
    """
    needed = {value for one in form.accumulators for value, _ in one.transition if value != one.value}
    needed |= frozenset[Value]().union(*(values_of(one.source) for one in form.slot_pivots))
    sums = (one.value for one in form.accumulators if not one.is_count or one.value in needed)
    return (*(one.value for one in form.slot_pivots), *sums)
