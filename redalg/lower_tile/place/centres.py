"""The starts of a block's pivots, in a row buffer, before the block's sums are known.

    mean     c = Σ u / n        over the live elements;  0 where that is not finite,  −∞ over no element
    member   c = max u, of the live u with |u − mean| the least;  the mean where there is none
    slope    c = 0;  −∞ over no element

The interpreter of forms starts them in the same way. A pivot that is found from sums then moves to its natural place.
Any other pivot stays where the first tile with a live element starts it, so that nothing moves because of it in the
loop over tiles. But if a slope is found, β·(u − c) is rounded in proportion to the distance of u from c. Every tile
then takes a c of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sympy import Abs, And, Eq, Expr, S
from sympy.logic.boolalg import Boolean

from redalg.expression import Where
from redalg.incremental.form import FusedForm, Pivot, PivotPolicy
from redalg.lower_tile.ir.program import Copy, ReduceTile, Statement
from redalg.lower_tile.ir.scalars import IsFinite, Load
from redalg.lower_tile.place.assembly import Assembly, mask_dead
from redalg.lower_tile.place.space import I


@final
@dataclass(frozen=True)
class Centred:
    """The data that a pivot starts from: `u` of every element of the tile, `live` for those that count, and
    `count`, the number of these."""

    u: Expr
    live: Boolean
    count: Expr


def moving_pivots(form: FusedForm) -> list[Pivot]:
    """The pivots that move to their natural place with every block."""
    return [one for one in form.shifted if one.is_found]


def staying_pivots(form: FusedForm) -> list[Pivot]:
    """The pivots that stay where the first live elements start them."""
    return [one for one in form.shifted if not one.is_found]


def local(form: FusedForm) -> list[Pivot]:
    """The pivots that are means."""
    return [one for one in form.shifted if is_local(one)]


def is_local(pivot: Pivot) -> bool:
    """Tell if a pivot is a mean of the block's elements, weighted by the divisor of its displacement."""
    return pivot.policy is PivotPolicy.TILE_LOCAL


def start(pivot: Pivot, of: Centred, assembly: Assembly, body: list[Statement]) -> Load:
    """The start of a pivot, in a row buffer."""
    if pivot.policy is PivotPolicy.SLOPE:
        held = Load(assembly.row(f"{pivot.value.name}_tile"), I)
        body.append(assembly.over_rows((held.name, Where(Eq(of.count, 0), S.NegativeInfinity, S.Zero))))
        return held
    total = in_operand_layout(
        Load(assembly.summed(f"{pivot.value.name}_total", mask_dead(of.live, of.u, S.Zero), body), I), assembly, body
    )
    held = Load(assembly.row(f"{pivot.value.name}_tile"), I)
    finite = Where(Eq(of.count, 0), S.NegativeInfinity, Where(IsFinite(held), held, S.Zero))
    body.append(assembly.over_rows((held.name, total / of.count), (held.name, finite)))
    if pivot.policy is PivotPolicy.MEMBER:
        _to_member(pivot, of, held, assembly, body)
    return held


def in_operand_layout(made: Load, assembly: Assembly, body: list[Statement]) -> Load:
    """The result of a tile's reduction, for rows in the layout of a product's operand: the tile has another layout."""
    if not assembly.plan.tensor_cores:
        return made
    there = assembly.buffer(f"{made.name}_shared", "shared", (assembly.plan.block_row,))
    body.append(Copy(made.name, there))  # a loop of its own: rows are stored in one
    return Load(there, I)


def _to_member(pivot: Pivot, of: Centred, mean: Load, assembly: Assembly, body: list[Statement]) -> None:
    """Move from the mean to the live element nearest to it; of two, to the larger."""
    far = assembly.tile(f"{pivot.value.name}_far", note=f"|{pivot.base} - mean|")
    least, nearest = (assembly.row(f"{pivot.value.name}_{word}") for word in ("least", "nearest"))
    body.append(assembly.over_tile(far, mask_dead(of.live, Abs(of.u - mean), S.Infinity)))
    body.append(ReduceTile("min", far, least, clear=True))
    here = And(of.live, Eq(Load(far, *assembly.lanes.place), Load(least, I)))
    member = assembly.tile(f"{pivot.value.name}_member")
    body.append(assembly.over_tile(member, Where(here, of.u, S.NegativeInfinity)))
    body.append(ReduceTile("max", member, nearest, clear=True))
    chosen = Load(nearest, I)
    body.append(assembly.over_rows((mean.name, Where(IsFinite(chosen), chosen, mean))))
