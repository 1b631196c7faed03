"""Rows on lanes, and the elements of a tile one after another: every thread keeps the states of its own rows.

    for t: load the tile; for j in the tile: state[i] = combine(state[i], element(i, j))

Sums that are rescaled with a running maximum take several elements at a time, so that they are rescaled once for all:

    for four elements of the tile: m'[i] = max(m'[i], u(i, j));  state[i] about m'[i];  for each: state[i] += term(i, j)

So do sums about means over a count, whose centres move once for all elements of a group (`lagged`):

    for eight elements of the tile: t = 0; for each: t += term(i, j) about c[i];  state[i] += t;  c[i] moves to the mean

Their terms are added up on their own first, so that a state of n elements is rounded n/8 times.

Two axes of rows, e and i, have a state for each pair: what is read of x[e, j] serves all i, and y[j, i] all e.
Producers s(i, j) = ⊕_u f(x[i, u], y[j, u]) are computed for a group of elements first:

    for eight elements of the tile: s_0[i], …, s_7[i] by one loop over u;  then these, one by one or as a group

A sum of many elements is added up in runs of a tile, so that it is rounded less (`runs`).

Nothing is merged, and all threads read one element of the tile at a time, which is a broadcast from shared memory. So
a term over rows and streamed elements, of tensors of which none has both axes, costs its arithmetic alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from sympy import Abs, Eq, Expr, Function, Integer, Mod, Or, S, ceiling, exp, floor, sign

from redalg.errors import PlanError
from redalg.expression import Value, Where
from redalg.incremental.combine.let import Program
from redalg.incremental.combine.programs import (
    add_program,
    first_program,
    lane_program,
    move_program,
    programs,
)
from redalg.incremental.combine.sources import FIRST, SECOND, tag_slots
from redalg.incremental.form import FusedForm
from redalg.lower_tile.ir.program import Fill, Loop, Statement, index
from redalg.lower_tile.ir.scalars import IsFinite, Kept, Load
from redalg.lower_tile.passes.loops import over_tiles
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.frames import TILE, Frame, Span
from redalg.lower_tile.place.invariants import stage_factors, stage_invariants
from redalg.lower_tile.place.lagged import first_nonempty, may_lag, move_centres
from redalg.lower_tile.place.lines import Placer
from redalg.lower_tile.place.producers import stage_sides
from redalg.lower_tile.place.runs import begin_run, end_run, share_sums, with_guard
from redalg.lower_tile.place.slots import Slots, allocate
from redalg.lower_tile.place.space import J, Space, U
from redalg.lower_tile.place.step import Step, element_terms
from redalg.strategies.plan import Plan
from redalg.strategies.rules.runs import run_length

RUN_NUMBER = index("run")
PRODUCED = 8
"""Elements of a tile whose producers' values a thread computes together: what it reads of its rows serves all."""
TOGETHER, UNROLLED, LONG = 8, 16, 4
"""Elements of a tile whose terms are computed side by side, with sums that are rescaled once for all of them, without,
and of terms of long functions: a thread waits for none of them alone. (H100: sixteen sines take 1.26 of the time of
four.) Of rows of several columns, as many as are rescaled: what it reads of these is one load for four."""
INLINE = (exp, Abs, sign, floor, ceiling)
"""Functions of a few instructions."""


def stream_serially(form: FusedForm, assembly: Assembly, place: Frame) -> tuple[Slots, list[Statement]]:
    """The empty states, the rows' own inputs in registers, and the loop over tiles."""
    slots, body = allocate(form, assembly, place.space.problem)
    before, whole = list[Statement](), place.span
    space = place.space
    if assembly.plan.binding.contracted:
        space = stage_invariants(element_terms(form), space, assembly, before)
    step = Step(form, assembly, space, before)
    known = dict.fromkeys(space.known, S.Zero)
    step.stage(form.cascade.domain, *(term.xreplace(known) for term in element_terms(form)), least=1)
    step.space = stage_sides(form, step.space, step.operands, step.body)
    if assembly.plan.binding.contracted:
        step.space = stage_factors(form, step.space, assembly, step.body)
    loads, step.body = step.body, []
    elements = tile_statements(step, slots, whole)
    loop = over_tiles(TILE, (whole.start, whole.stop), assembly.plan.stages, (*loads, *elements))
    return slots, [*whole.bound, *before, *body, loop]


def tile_statements(step: Step, slots: Slots, span: Span) -> list[Statement]:
    """Take a tile's elements into the states: all in turn, run by run, or into a run of several tiles."""
    form, tile, whole = step.form, step.space, step.space.plan.block_streamed
    length = run_length(form, tile.plan, tile.problem)
    if length == 0:
        return [*group_loops(step, slots, S.Zero, whole)]
    share_sums(form, step.assembly, slots)
    if length > whole:
        tiles = length // whole
        place = Mod(TILE - span.start, tiles)
        run, ahead, begin = begin_run(form, step.assembly, slots, Eq(place, 0))
        loops, end = group_loops(step, run, S.Zero, whole), end_run(form, step.assembly, tile, run, ahead)
        return [*begin, *loops, *with_guard(end, Or(Eq(place, tiles - 1), Eq(TILE, span.stop - 1)))]
    run, ahead, begin = begin_run(form, step.assembly, slots)
    step.space, first = at_element(tile, length * RUN_NUMBER + J), length * RUN_NUMBER
    loops = group_loops(step, run, first, length)
    body = (*begin, *loops, *end_run(form, step.assembly, tile, run, ahead))
    return [Loop(RUN_NUMBER, Integer(whole // length), 0, body, pipelined=False)]


def group_loops(step: Step, slots: Slots, first: Expr, length: int) -> list[Loop]:
    """The loops over so many elements of a tile, from `first` on."""
    if step.form.cascade.producers:
        return [produced_groups(step, slots, length)]
    step.scale(slots)
    return element_loops(step, slots, first, length)


def element_loops(step: Step, slots: Slots, first: Expr, length: int) -> list[Loop]:
    """The loops over elements of a tile: over groups, if sums are rescaled, then over those that no group holds."""
    loops, start = list[Loop](), S.Zero
    alone = step.space.plan.binding.column is None
    unrolled = LONG if has_long_functions(step.form) else UNROLLED if alone else TOGETHER
    if in_groups := has_groups(step.form) or lags_in_groups(step.form, step.space.plan):
        number = step.space.rest_of_tile(TOGETHER, first=first, length=length)
        loops.append(groups(step, slots, number))
        start = TOGETHER * number
    if not (in_groups and divides_tiles(step.space)):
        stop, elements = step.space.rest_of_tile(first=first, length=length), one_by_one(step, slots)
        loops.append(Loop(J, stop, 0, elements, pipelined=False, start=start, unrolled=unrolled))
    return loops


def produced_groups(step: Step, slots: Slots, length: int) -> Loop:
    """The loop over groups of elements: the producers' values of all side by side, then their states."""
    single, number = step.space, Integer(length // PRODUCED)
    places = [at_element(single, PRODUCED * J + member) for member in range(PRODUCED)]
    produced = list[list[Statement]]()
    for member, place in enumerate(places):
        step.space, step.body = place, []
        step.produce()
        produced.append(step.body)
        places[member] = step.space
    step.scale(slots)
    ends = step.ends
    if has_groups(step.form):
        elements = take_group(step, slots, places, tuple, ends=ends)
    else:
        elements = tuple(line for step.space in places for line in one_by_one(step, slots, ends=ends))
    step.space = single
    return Loop(J, number, 0, (*side_by_side(produced), *elements), pipelined=False)


def side_by_side(bodies: Sequence[Sequence[Statement]]) -> Iterator[Statement]:
    """Yield the statements of several bodies that differ in what they store; loops of all are one."""
    for statements in zip(*bodies, strict=True):
        first = statements[0]
        if isinstance(first, Loop):
            inside = [one.body for one in statements if isinstance(one, Loop)]
            yield replace(first, body=tuple(side_by_side(inside)))
        else:
            yield from statements


def at_element(space: Space, place: Expr) -> Space:
    """The space with another of its streamed elements as element j, in the tiles that hold factors too."""
    at, known = ({key: read.xreplace({J: place}) for key, read in reads.items()} for reads in (space.at, space.known))
    return replace(space, at=at, known=known)


def one_by_one(step: Step, slots: Slots, *, ends: bool = False) -> tuple[Statement, ...]:
    """The statements that take one element into the states (`ends`: which may lie beyond the end of the axis)."""
    state, step.body = slots.reads(), []
    program = programs(step.form).of(lane_program, ends=ends, full=False, steps=1).only(state)
    step.run(program, slots, tag_slots(state, FIRST), state)
    return tuple(step.body)


def has_groups(form: FusedForm) -> bool:
    """Tell if a form's sums are rescaled with its extrema, which several elements then find together."""
    return any(one.weight for one in form.accumulators) and not form.structures and not form.slot_pivots


def lags_in_groups(form: FusedForm, plan: Plan) -> bool:
    """Tell if the sums of a row are about centres that move once for a group of elements."""
    alone = plan.binding.column is None and not plan.binding.contracted and not form.cascade.producers
    return alone and not form.structures and may_lag(form)


def has_long_functions(form: FusedForm) -> bool:
    """Tell if the terms of an element have functions that are no few instructions, such as sines and logarithms."""
    return any(not isinstance(one, INLINE) for term in element_terms(form) for one in term.atoms(Function))


def divides_tiles(space: Space) -> bool:
    """Tell if every tile holds whole groups of elements."""
    size = space.problem.sizes[space.plan.binding.streamed.name]
    return isinstance(size, int) and size % TOGETHER == space.plan.block_streamed % TOGETHER == 0


def groups(step: Step, slots: Slots, number: Expr) -> Loop:
    """The loop over groups of elements, of which a loop takes each."""
    single = step.space

    def repeat(body: Sequence[Statement]) -> tuple[Statement, ...]:
        return (Loop(U, Integer(TOGETHER), 0, tuple(body), pipelined=False, unrolled=TOGETHER),)

    body = take_group(step, slots, [at_element(single, TOGETHER * J + U)], repeat)
    step.space = single
    return Loop(J, number, 0, body, pipelined=False)


def take_group(
    step: Step, slots: Slots, places: Sequence[Space], repeat: Callable[[Sequence[Statement]], tuple[Statement, ...]],
    *, ends: bool = False,
) -> tuple[Statement, ...]:  # fmt: skip
    """Take a group's elements into the states: their extrema, the sums about these, and then every element's terms.

    Centres that lag start ahead of the group, and move behind it.

    `places` are those of the elements, or the one of a loop that `repeat` makes of what it does with each.
    """
    form, assembly, state, written = step.form, step.assembly, slots.reads(), programs(step.form)
    sums = {one.value: state[one.value] for one in form.accumulators}
    extrema = {one.value: slots.loads[one.value] for one in form.extrema}
    ahead = {value: assembly.new(f"{load.name}_ahead", *load.indices) for value, load in extrema.items()}
    reads = {value: slots.scale.get(value, S.One) * load for value, load in ahead.items()}
    lagged = bool(form.slot_pivots)
    begin = start_centres(step, slots, places[0]) if lagged else []
    grouped = [one.value for one in form.accumulators if lagged and not one.is_count]
    added = {value: assembly.new(f"{value.name}_group", *slots.loads[value].indices) for value in grouped}

    def of_each(program: Program, at: Mapping[Value, Expr], wanted: Mapping[Value, Expr]) -> tuple[Statement, ...]:
        step.body = []
        for step.space in places:
            step.run(program.only(wanted), slots, tag_slots(at, FIRST), wanted)
        return repeat(step.body)

    searches = of_each(written.of(lane_program, ends=ends, full=False, steps=1), reads, reads) if extrema else ()
    additions = of_each(written.of(add_program, ends=ends, full=lagged), state | added, sums | added)
    values = tag_slots(state, FIRST) | tag_slots(reads, SECOND)
    moved = {one.value: state[one.value] for one in form.accumulators if one.weight or not lagged}
    moves = Placer(written.of(move_program).only(moved), assembly, step.space, values).build(moved) if moved else []
    return (
        *begin,
        *stores_by_indices(assembly, [(ahead[value], load) for value, load in extrema.items()]),
        *searches,
        *moves,
        *stores_by_indices(assembly, [(load, ahead[value]) for value, load in extrema.items()]),
        *(Fill(load.name, S.Zero) for load in added.values()),
        *additions,
        *stores_by_indices(assembly, [(slots.loads[value], state[value] + load) for value, load in added.items()]),
        *(move_centres(form, assembly, step.space, slots) if lagged else ()),
    )


def stores_by_indices(assembly: Assembly, pairs: Sequence[tuple[Load, Expr]]) -> list[Statement]:
    """Store numbers in one loop for each kind of index: rows, columns, or both."""
    groups = dict[tuple[Expr, ...], list[tuple[Load, Expr]]]()
    for pair in pairs:
        groups.setdefault(pair[0].indices, []).append(pair)
    return [assembly.stores(*group) for group in groups.values()]


def start_centres(step: Step, slots: Slots, place: Space) -> list[Statement]:
    """The mean of a group's elements as the centre of states that have none yet; of one that is not finite, the first.

    From its first element alone a state of few would lose the square of what lies between that and the mean. The mean
    is the first, and what others add to it: equal elements have no variance.
    """
    assembly, pivots, step.body = step.assembly, step.form.slot_pivots, list[Statement]()
    first, mean = ({pivot.value: assembly.new(f"{pivot.value.name}_{name}", *slots.loads[pivot.value].indices)
                    for pivot in pivots} for name in ("first", "start"))  # fmt: skip
    step.space = at_element(step.space, TOGETHER * J)
    step.run(programs(step.form).of(first_program, ends=False).only(first), slots, {}, first)
    step.body.append(assembly.stores(*((load, first[value]) for value, load in mean.items())))
    away = {one.value: Kept(place.read(one.base) - first[one.value]) for one in pivots}
    more = assembly.stores(*((load, load + away[value] / TOGETHER) for value, load in mean.items()))
    step.body.append(Loop(U, Integer(TOGETHER), 0, (more,), pipelined=False, unrolled=TOGETHER))
    starts = {value: Where(IsFinite(load), load, first[value]) for value, load in mean.items()}
    found = ((slots.loads[value], first_nonempty(slots.loads[value], start)) for value, start in starts.items())
    return [*step.body, assembly.stores(*found)]


def has_both(form: FusedForm, plan: Plan) -> bool:
    """Tell if a form has producers and its tile two axes of rows."""
    return bool(form.cascade.producers) and plan.binding.column is not None


def has_no_groups(form: FusedForm, plan: Plan) -> bool:
    """Tell if a form has producers and the plan tiles that are no whole groups of elements."""
    return bool(form.cascade.producers) and plan.block_streamed % PRODUCED != 0


def check_serial(form: FusedForm, plan: Plan) -> None:
    """Refuse a form that no thread can take an element at a time into the states of its rows."""
    if not plan.is_serial:
        return
    for why, is_so in (
        ("has products over other axes beside rows of several columns", has_both(form, plan)),
        (f"has products over other axes, of {PRODUCED} elements at a time", has_no_groups(form, plan)),
        ("ranks the elements that it selects", bool(form.places)),
        ("has a pivot that an element does not find", not form.is_serial),
    ):
        if is_so:
            raise PlanError(
                f"schedule `{plan}` takes a row's elements one after another in a thread, and the form {why}. Put "
                f"Lanes along {plan.binding.streamed}."
            )
