"""How many tiles a block needs: those that the domain rules out for every row of the block are never read.

    k ≤ f(row)  for every live element   →   tiles up to ⌈(max over the block's rows of f + 1) / block⌉

Read off the domain's conjuncts that are linear in the streamed axis and in the row; others trim nothing.
"""

from __future__ import annotations

from sympy import And, Expr, Integer, Max, Min, S, floor
from sympy.core.relational import Ge, Gt, Le, Lt, Relational
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis, Element, Scalar
from redalg.lower_tile.program import index
from redalg.lower_tile.space import Space


def needed_tiles(domain: Boolean, space: Space) -> Expr:
    """The loop's bound."""
    bound: Expr = Integer(space.tiles)
    for conjunct in And.make_args(domain):
        last = last_live(conjunct, space)
        if last is not None:
            needed = floor((last + space.plan.block_streamed) / space.plan.block_streamed)
            bound = Max(S.Zero, Min(bound, needed, evaluate=False), evaluate=False)
    return bound


def last_live(conjunct: Boolean, space: Space) -> Expr | None:
    """The last streamed index that a conjunct allows for any row of the block; None where it does not say."""
    streamed, row = space.plan.binding.streamed, space.plan.binding.row
    if not isinstance(conjunct, Le | Lt | Ge | Gt) or conjunct.atoms(Element, Scalar):
        return None
    difference = _difference(conjunct)  # conjunct: difference <= 0
    slope = difference.coeff(streamed)
    rest = (difference - slope * streamed).expand()
    if slope != 1 or rest.has(streamed):
        return None
    limit = -rest
    if row is None or not limit.has(row):
        return _placed(limit, space, {})
    tilt = limit.coeff(row)
    if (limit - tilt * row).has(row) or not tilt.is_Integer:
        return None
    first, length = space.start[row]
    return _placed(limit, space, {row: first + (length - 1 if tilt > 0 else 0)})


def _difference(conjunct: Relational) -> Expr:
    """lhs − rhs, turned so that the conjunct says it is ≤ 0 (integers: a < b is a + 1 ≤ b)."""
    strict = 1 if isinstance(conjunct, Lt | Gt) else 0
    low, high = (conjunct.lhs, conjunct.rhs) if isinstance(conjunct, Le | Lt) else (conjunct.rhs, conjunct.lhs)
    return (low - high + strict).expand()


def _placed(limit: Expr, space: Space, rows: dict[Axis, Expr]) -> Expr:
    read = space.read(limit.xreplace({axis: index(f"row_{axis.name}") for axis in rows}))
    return read.xreplace({index(f"row_{axis.name}"): place for axis, place in rows.items()})
