"""One tile of the streamed axis: its producers, then the program that takes it into the state.

a loop over tiles       state = combine(state, tile)
a single tile           state = combine(tile)
slopes from data        state = merge(state, combine(tile)): β·(u − c) is rounded in proportion to the distance from
                        u to c, so that every tile takes a c of its own
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import final

from sympy import Expr, S
from sympy.core.basic import Basic

from redalg.decompose.domain import live_term
from redalg.expression import Value
from redalg.incremental.combine.let import Program
from redalg.incremental.combine.programs import (
    merge_program,
    programs,
    step_program,
    tile_producers_program,
    tile_program,
)
from redalg.incremental.combine.sources import FIRST, SECOND, tag_slots
from redalg.incremental.form import FusedForm
from redalg.lower_tile.ir.program import Statement
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.data import Data
from redalg.lower_tile.place.expressions import positive_factor
from redalg.lower_tile.place.lines import Placer
from redalg.lower_tile.place.operands import Operands
from redalg.lower_tile.place.producers import addable_producers
from redalg.lower_tile.place.slots import Slots
from redalg.lower_tile.place.space import Space
from redalg.lower_tile.place.sums import Sums, add_parts


@final
class Step:
    """Places what happens to a tile; `before` takes what is loaded once, ahead of the loop."""

    def __init__(
        self, form: FusedForm, assembly: Assembly, space: Space, before: list[Statement],
        sums: Mapping[Value, Sums] | None = None, *, by_totals: frozenset[Value] = frozenset(),
    ) -> None:  # fmt: skip
        self.form, self.assembly, self.space, self.sums = form, assembly, space, sums or {}
        self.by_totals = by_totals
        self.operands = Operands(assembly, before)
        self.body: list[Statement] = []

    @property
    def ends(self) -> bool:
        """Tell if the streamed axis may end within the tile."""
        return self.space.inside() is not S.true

    @property
    def is_alone(self) -> bool:
        """Tell if no other tile is taken into the state."""
        return self.space.plan.level == "row" or bool(self.space.tiles == 1)

    def produce(self) -> None:
        """Compute the producers' values."""
        given = add_parts(self.sums, self.space, self.assembly, self.body)
        program = programs(self.form).of(tile_producers_program)
        data = Data(self.form, self.operands, onto=addable_producers(self.form, self.space))
        named = program.results.values()
        placer = Placer(program.with_inputs(given), self.assembly, self.space, given, data=data, named_lines=named)
        self.body += placer.build({})
        self.space = self.space.with_values({value: placer.result(value) for value in program.results})

    def scale(self, slots: Slots) -> None:
        """Tell the slots of maxima the positive number that stands outside of them."""
        for extremum in self.form.extrema:
            if extremum.monoid.name == "max":
                read = self.space.read(live_term(extremum.term, self.form.cascade.domain))
                slots.scale[extremum.value], _ = positive_factor(read)

    def run(self, program: Program, slots: Slots, values: Mapping[Value, Expr], wanted: Mapping[Value, Expr]) -> None:
        """Place a program that reads the tile, and store what is wanted of it."""
        placer = self._placer(program, slots, values)
        self.body += placer.build(wanted)
        self.space = self.space.with_staged(placer.space.staged)

    def make(self, program: Program, slots: Slots) -> dict[Value, Expr]:
        """Place a program that reads the tile alone; returns where its results lie."""
        placer = self._placer(program, slots, {})
        placer.build({})
        results = placer.keep("tile")
        self.body += placer.body
        self.space = self.space.with_staged(placer.space.staged)
        return results

    def _placer(self, program: Program, slots: Slots, values: Mapping[Value, Expr]) -> Placer:
        data = Data(self.form, self.operands, slots.nan, slots.columns)
        produced = {one.value: self.space.values[one.value] for one in self.form.cascade.producers}
        return Placer(program, self.assembly, self.space, {**produced, **values}, data=data)

    def build(self, slots: Slots) -> list[Statement]:
        """The statements of one step of a loop over tiles, or of the only tile."""
        if self.form.cascade.producers and self.space.plan.multiplies:
            self.space = self.operands.stage_lines(self.space, self.form.cascade.domain, self.body)
            if self.space.plan.tensor_cores:
                self.space = self.operands.stage_columns(self.space, element_terms(self.form), self.body)
        self.produce()
        self.scale(slots)
        state, written = slots.reads(), programs(self.form)
        if self.is_alone:
            program = written.of(tile_program, ends=self.ends, by_totals=self.by_totals)
            self.run(program.only(state), slots, {}, state)
        elif self.form.is_tilted:
            tile = self.make(written.of(tile_program, ends=self.ends).only(state), slots)
            self.body += merge_states(self.form, self.assembly, self.space, state, tile)
        else:
            self.run(written.of(step_program, ends=self.ends).only(state), slots, tag_slots(state, FIRST), state)
        return self.body

    def stage(self, *exprs: Basic, least: int = 2) -> None:
        """Load the tiles of at least so many axes that expressions read, if no producer fills shared memory."""
        for expr in exprs if not self.form.cascade.producers or self.space.plan.is_serial else ():
            self.space = self.operands.stage(self.space, expr, self.body, least)


def merge_states(
    form: FusedForm, assembly: Assembly, space: Space, state: Mapping[Value, Expr], other: Mapping[Value, Expr], *,
    alone: Collection[Value] = (),
) -> list[Statement]:  # fmt: skip
    """Merge another state into a state, the read of a buffer for every slot (`alone`: as of `Placer`)."""
    reads = tag_slots(state, FIRST) | tag_slots(other, SECOND)
    return Placer(programs(form).of(merge_program).only(state), assembly, space, reads, alone=alone).build(state)


def element_terms(form: FusedForm) -> list[Expr]:
    """The expressions that an element's term reads."""
    exprs = [extremum.term for extremum in form.extrema] + [pivot.base for pivot in form.pivots]
    exprs += [factor for accumulator in form.accumulators for factor in accumulator.factors]
    exprs += [operand for structure in form.structures for operand in structure.operands]
    return [live_term(expr, form.cascade.domain) for expr in exprs]
