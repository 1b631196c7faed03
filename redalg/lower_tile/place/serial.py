"""Rows on lanes, and the elements of a tile one after another: every thread keeps the states of its own rows.

    for t: load the tile; for j in the tile: state[i] = combine(state[i], element(i, j))

Nothing is merged, and all threads read one element of the tile at a time, which is a broadcast from shared memory. So
a term over rows and streamed elements, of tensors of which none has both axes, costs its arithmetic alone.
"""

from __future__ import annotations

from redalg.errors import PlanError
from redalg.incremental.combine.programs import lane_program, programs
from redalg.incremental.combine.sources import FIRST, tag_slots
from redalg.incremental.form import FusedForm
from redalg.lower_tile.ir.program import Loop, Statement
from redalg.lower_tile.passes.loops import over_tiles
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.frames import TILE, Frame
from redalg.lower_tile.place.slots import Slots, allocate
from redalg.lower_tile.place.space import J
from redalg.lower_tile.place.step import Step, element_terms
from redalg.strategies.plan import Plan

TOGETHER = 4
"""Elements of a tile whose terms are computed side by side: a thread waits for none of them alone."""


def stream_serially(form: FusedForm, assembly: Assembly, place: Frame) -> tuple[Slots, list[Statement]]:
    """The empty states, the rows' own inputs in registers, and the loop over tiles."""
    slots, body = allocate(form, assembly, place.space.problem)
    before, whole = list[Statement](), place.span
    step = Step(form, assembly, place.space, before)
    step.stage(form.cascade.domain, *element_terms(form), least=1)
    loads, step.body = step.body, []
    step.scale(slots)
    state = slots.reads()
    program = programs(form).of(lane_program, ends=False, full=False, steps=1).only(state)
    step.run(program, slots, tag_slots(state, FIRST), state)
    inner = Loop(J, step.space.rest_of_tile(), 0, tuple(step.body), pipelined=False, unrolled=TOGETHER)
    loop = over_tiles(TILE, (whole.start, whole.stop), assembly.plan.stages, (*loads, inner))
    return slots, [*whole.bound, *before, *body, loop]


def check_serial(form: FusedForm, plan: Plan) -> None:
    """Refuse a form that no thread can take an element at a time into the states of its rows."""
    if not plan.is_serial:
        return
    for why, is_so in (
        ("has products over other axes", bool(form.cascade.producers)),
        ("ranks the elements that it selects", bool(form.places)),
        ("has a pivot that an element does not find", not form.is_serial),
    ):
        if is_so:
            raise PlanError(
                f"schedule `{plan}` takes a row's elements one after another in a thread, and the form {why}. Put "
                f"Lanes along {plan.binding.streamed}."
            )
