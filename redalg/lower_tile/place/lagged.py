"""Centres that may lag behind the elements that a state takes.

A centre that is a mean over a count may: the loss is bounded (THEORY.md, section 3), since for a state of one element
and g more about its old centre, amplification ≤ 1 + g. Weighted centres move with every element. So do the centres of
tangents: log x may lie any distance from its tangent at an element far below x.
"""

from __future__ import annotations

from sympy import Expr, S, fraction

from redalg.expression import Value, Where
from redalg.incremental.combine.programs import programs, recentre_program
from redalg.incremental.combine.sources import FIRST, tag_slots
from redalg.incremental.form import FusedForm, Pivot, PivotPolicy
from redalg.lower_tile.ir.program import Statement
from redalg.lower_tile.ir.scalars import Is
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.lines import Placer
from redalg.lower_tile.place.slots import Slots
from redalg.lower_tile.place.space import Space


def may_lag(form: FusedForm) -> bool:
    """Tell if a form has centres of its own, and all may lag; scaled ones are in units that no element before tells."""
    local = [pivot for pivot in form.slot_pivots if is_local(pivot)]
    scaled = any(one.scales for one in local)
    return bool(local) and is_counted(form) and not scaled and not is_curved(form)


def is_local(pivot: Pivot) -> bool:
    """Tell if a pivot is a mean of the block's elements, weighted by the divisor of its displacement."""
    return pivot.policy is PivotPolicy.TILE_LOCAL


def is_counted(form: FusedForm) -> bool:
    """Tell if every centre is a mean over a count of elements, and no mask hides any of them."""
    counts = {one.value for one in form.accumulators if one.is_count}
    weights = (fraction(pivot.source.together())[1] for pivot in form.slot_pivots if is_local(pivot))
    return form.cascade.domain is S.true and all(weight in counts for weight in weights)


def is_curved(form: FusedForm) -> bool:
    """Tell if any sum moves by more than powers of a pivot's displacement, as a sum about a tangent does."""
    moves = [c for one in form.accumulators for _, c in one.transition]
    return any(c.has(pivot.departure) for c in moves for pivot in form.slot_pivots)


def move_centres(
    form: FusedForm, assembly: Assembly, space: Space, slots: Slots, still: frozenset[Value] = frozenset()
) -> list[Statement]:
    """Move every state to its own natural centre, but pivots that stay `still`; its extrema stay."""
    program = programs(form).of(recentre_program, still=still)
    moving = [one.value for one in form.accumulators if len(one.transition) > 1]
    own = [pivot.value for pivot in form.slot_pivots if is_local(pivot)]
    wanted = {value: slots.read(value) for value in (*moving, *own)}
    return Placer(program.only(wanted), assembly, space, tag_slots(slots.reads(), FIRST)).build(wanted)


def first_nonempty(a: Expr, b: Expr) -> Expr:
    """The pivot of the first of two states, or of the second if the first is empty."""
    return Where(Is(a, S.NegativeInfinity), b, a)
