"""States at the deepest level of the tree: every lane of the tile keeps one, and they are merged once, after the loop.

    step       state[j] = combine(state[j], element j)          the lane's own element, which nothing is reduced over
    lagged     the pivots stay, and every GROUP tiles each lane moves to its own natural centre
    shared     c of the row's first tile, in every lane, of pivots that are no means: they stay
    collapse   state = combine(states along j)

To reduce each tile to one number costs a barrier a tile. Here no barrier comes before the end of the row (RedFuser,
section 5.3: fusion at the level of a thread). A lane's centre may lag (`lagged`).

A lane without elements has −∞ for its pivots. A step need not ask for it if the lanes' first elements start them: a
lane whose first element lies beyond the end of the axis never takes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from sympy import Expr, Min, S, sympify

from redalg.incremental.combine.programs import (
    collapse_program,
    first_program,
    lane_program,
    programs,
    tile_program,
)
from redalg.incremental.combine.sources import FIRST, LANE, tag_slots
from redalg.incremental.form import FusedForm
from redalg.lower_tile.ir.program import Fill, Loop, Statement, index
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.carried import Carried, carries, carries_after
from redalg.lower_tile.place.frames import TILE, Within
from redalg.lower_tile.place.lagged import first_nonempty, is_local, may_lag, move_centres
from redalg.lower_tile.place.lines import Placer
from redalg.lower_tile.place.slots import Slots, allocate
from redalg.lower_tile.place.space import I, J, Space
from redalg.lower_tile.place.step import Step, element_terms
from redalg.lower_tile.place.whole_rows import stage_rows
from redalg.strategies.rules.trips import trips_together
from redalg.strategies.varying import tiles_of

GROUP = 8
"""Tiles between two moves of a lagged centre."""
GROUP_NUMBER = index("group")


def lane_order_space(space: Space, step: Expr, first: Expr) -> Space:
    """The space of a join in order: each lane takes neighbouring elements, one a step, from a first tile on."""
    streamed = space.plan.binding.streamed
    start = {axis: span for axis, span in space.start.items() if axis != streamed}
    place = first * space.plan.block_streamed + J * space.tiles + step
    return replace(space, at={**space.at, streamed: place}, start=start)


@final
class Lanes:
    """The loop with a state in every lane, and the merge of the lanes into row buffers.

    `tiles`: the number of the block's first tile, then the loop's start and stop, counted from that tile. `within`: the
    forms of rows that a tile makes.
    """

    def __init__(
        self, form: FusedForm, assembly: Assembly, space: Space, tiles: tuple[Expr, ...],
        within: Sequence[Within] = (),
    ) -> None:  # fmt: skip
        self.form, self.assembly, (first, *self.span) = form, assembly, tiles
        self.within = within
        self.first = first
        self.local = [pivot for pivot in form.slot_pivots if is_local(pivot)]
        self.shared = [pivot for pivot in form.slot_pivots if not is_local(pivot)]
        self.late = form.cascade.domain is not S.true and any(one.is_found for one in self.shared)
        self.lagged = may_lag(form)
        few = sympify(space.tiles)
        self.grouped = self.lagged and not (few.is_Integer and few <= GROUP)
        step = GROUP_NUMBER * GROUP + TILE if self.grouped else TILE
        self.space = lane_order_space(space, step, first) if form.is_ordered else space.at_tile(step, first)
        self.full = form.cascade.domain is S.true and not form.is_ordered and is_full(self.space)
        self.slots, self.empty = allocate(form, assembly, space.problem, lanes=True)
        self.starts = Slots()
        self.before: list[Statement] = []

    def build(self) -> tuple[Slots, list[Statement]]:
        """The slots of rows, and the statements: empty lanes, the loop, the merge of the lanes."""
        head = self.empty + self._start_shared() + self._first_pivots()
        body = tuple(self._step())
        loop = self._groups(body) if self.grouped else self._loop(body)
        slots, tail = self._collapse()
        return slots, [*self.before, *head, loop, *tail]

    def _loop(self, body: tuple[Statement, ...]) -> Loop:
        start, stop = self.span
        return self._trips(body, stop, start)

    def _trips(self, body: tuple[Statement, ...], stop: Expr, start: Expr = S.Zero) -> Loop:
        """The loop over tiles: pipelined, or some trips at a time."""
        plan = self.space.plan
        unrolled = 1 if self.within else trips_together(self.form, plan, self.space.problem)
        return Loop(TILE, stop, plan.stages, body, pipelined=unrolled == 1, start=start, unrolled=unrolled)

    def _groups(self, body: tuple[Statement, ...]) -> Loop:
        tiles = self.space.tiles
        left = Min(GROUP, tiles - GROUP_NUMBER * GROUP, evaluate=False)
        left = sympify(GROUP) if sympify(tiles % GROUP) == 0 else left
        inner = self._trips(body, left)
        return Loop(GROUP_NUMBER, sympify(tiles_of(tiles, GROUP)), 0, (inner, *self._recentre()), pipelined=False)

    # ---- the lanes' states -------------------------------------------------------------------------------------------

    def _first_pivots(self) -> list[Statement]:
        """Store the first element of every lane as its centre, if no step asks for it."""
        if not self.local or not (self.lagged or self.full):
            return []
        step = self._tile_at(self.space.at_tile(S.Zero, self.first))
        program = programs(self.form).of(first_program, ends=step.ends)
        wanted = {pivot.value: self.slots.read(pivot.value) for pivot in self.local}
        step.run(program.only(wanted), self.slots, {}, wanted)
        self.assembly.tiles.clear()
        return step.body

    def _tile_at(self, space: Space) -> Step:
        """A tile whose producers and rows' numbers are known."""
        step = Step(self.form, self.assembly, space, self.before)
        step.produce()
        if self.within:
            step.space = stage_rows(self.within, self.form, step.space, step.operands, step.body)
        return step

    def _start_shared(self) -> list[Statement]:
        """Start the pivots that a row's lanes share: from its first tile, as a block does; −∞ if nothing is live."""
        body = list[Statement]()
        for pivot in self.shared:
            start = self.starts.loads[pivot.value] = self.assembly.new(f"{pivot.value.name}_start", I)
            body.append(Fill(start.name, S.NegativeInfinity))
        if self.shared and not self.late:
            body += self._offer_pivots(self.space.at_tile(self.span[0], self.first))
            self.assembly.tiles.clear()
        return body

    def _offer_pivots(self, space: Space) -> list[Statement]:
        """Offer a tile's own pivots to the rows that have none yet, and the rows' pivots to the lanes."""
        step, rows, lanes = self._tile_at(space), self.starts.loads, self.slots.loads
        program = programs(self.form).of(tile_program, ends=step.ends)
        tile = step.make(program.only(self.starts.numbers), Slots())
        for value in self.starts.numbers:
            step.body.append(self.assembly.stores((rows[value], first_nonempty(rows[value], tile[value]))))
        pivots = [(lanes[value], first_nonempty(lanes[value], rows[value])) for value in self.starts.numbers]
        return [*step.body, self.assembly.stores(*pivots)]

    # ---- one tile ----------------------------------------------------------------------------------------------------

    def _step(self) -> list[Statement]:
        """Take one element into the state of every lane."""
        offered = self._offer_pivots(self.space) if self.late else []
        self.assembly.tiles.clear()
        step = self._tile_at(self.space)
        self._load(step)
        step.scale(self.slots)
        steps = 0 if self.lagged or not self.local else 1
        still = frozenset(pivot.value for pivot in self.shared)
        how = {"ends": step.ends, "full": self.lagged or self.full, "steps": steps, "still": still}
        state = self.slots.reads()
        program = programs(self.form).of(lane_program, **how).only(state)
        step.run(program, self.slots, tag_slots(state, FIRST), state)
        return [*offered, *step.body, *self._write(step.space)]

    def _write(self, space: Space) -> list[Statement]:
        """Write the outputs of a tile's elements, if these need no finished state."""
        if not carries(self.form) or carries_after(self.form, space.plan):
            return []
        carried = Carried(self.form, self.assembly, space)
        body = carried.in_tile()
        self.before += carried.before
        return body

    def _load(self, step: Step) -> None:
        """Stage every input tile first, so that the elementwise loops are neighbours."""
        step.stage(self.form.cascade.domain, *element_terms(self.form))

    def _recentre(self) -> list[Statement]:
        still = frozenset(pivot.value for pivot in self.shared)
        return move_centres(self.form, self.assembly, self.space, self.slots, still)

    # ---- N states to one ---------------------------------------------------------------------------------------------

    def _collapse(self) -> tuple[Slots, list[Statement]]:
        """Merge the lanes into the row's state."""
        rows, _ = allocate(self.form, self.assembly, self.space.problem)
        rows.scale.update(self.slots.scale)
        body = list[Statement]()
        body += [self.assembly.reduce("sum", met, rows.nan[value]) for value, met in self.slots.nan.items()]
        # lanes of no elements or of no weight may have their centres far from the row's
        steps = None if self.full and self.lagged else self.form.links + 2
        body += merge_of_lanes(self.form, self.space, self.assembly, self.slots, rows, steps=steps, full=self.full)
        return rows, body


def merge_of_lanes(
    form: FusedForm, space: Space, assembly: Assembly, lanes: Slots, rows: Slots, *, steps: int | None,
    full: bool = False,
) -> list[Statement]:  # fmt: skip
    """Merge the states of lanes into those of rows."""
    reads = tag_slots(lanes.reads(), LANE, (form.cascade.axis,))
    program = programs(form).of(collapse_program, steps=steps, full=full)
    wanted = {value: rows.read(value) for value in lanes.numbers}
    return Placer(program.only(wanted), assembly, space, reads).build(wanted)


def is_full(space: Space) -> bool:
    """Tell if the first tile of every block lies within the streamed axis."""
    plan = space.plan
    length, tiles = sympify(space.problem.sizes[plan.binding.streamed.name]), sympify(space.tiles)
    first_of_last = (plan.segments - 1) * tiles
    known = length.is_Integer and tiles.is_Integer
    return bool(known and length >= (first_of_last + 1) * plan.block_streamed)
