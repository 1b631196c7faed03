"""Masks of bands, which keep TileLang from placing a barrier where a branch around them asks for the tile as a whole.

if a ≥ b: x[i, j] = where(a + i ≤ b + j ∧ a + i > b + j − w, x[i, j], z)
    →   if a ≥ b: x[i, j] = where(i − j ≤ b − a ∧ i − j > b − a − w, x[i, j], z)

Exact: places are integers. Of the branch and the two bounds together TileLang finds that some threads alone take part,
and then has no barrier for what follows the loop, if warps are specialised.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import Add, And, Expr, Ge, Gt, Le, Lt, S
from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.expression import Where
from redalg.lower_tile.ir.program import Kernel, Parallel, Statement, innermost
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.plan import Plan

BOUNDS = (Le, Lt, Ge, Gt)
OF_BAND = 2
"""Bounds of a band."""


def bands_by_difference(kernel: Kernel, plan: Plan) -> Kernel:
    """The kernel whose branches compare differences of a tile's places where two bounds and more mask them."""
    if not plan.warp_specialized:
        return kernel
    return replace(kernel, body=tuple(innermost(one, _in_branch) for one in kernel.body))


def _in_branch(statement: Statement) -> Statement:
    """A loop over a tile in a branch, with its masks by differences."""
    if not isinstance(statement, Parallel) or statement.guard == S.true:
        return statement
    tile = {name for name, _ in statement.indices}
    stores = (
        replace(store, expr=Where(_by_difference(store.expr.condition, tile), *store.expr.args[1:]))
        if isinstance(store.expr, Where)
        else store
        for store in statement.body
    )
    return replace(statement, body=tuple(stores))


def _by_difference(condition: Basic, tile: set[Basic]) -> Basic:
    """A condition of several bounds on places, each with the places in the tile on its left."""
    bounds = [one for one in And.make_args(condition) if isinstance(one, BOUNDS) and _is_of_places(one)]
    if len(bounds) < OF_BAND:
        return condition
    return And(*(_apart(one, tile) if one in bounds else one for one in And.make_args(condition)))


def _is_of_places(bound: Relational) -> bool:
    """Tell if a bound compares places alone, and no data."""
    return not bound.has(Load) and all(one.is_integer for one in bound.args)


def _apart(bound: Relational, tile: set[Basic]) -> Relational:
    """A bound with the terms that move in the tile on its left, and the others on its right."""
    terms = Add.make_args((bound.lhs - bound.rhs).expand())
    own: list[Expr] = [one for one in terms if one.free_symbols & tile]
    return bound.func(Add(*own), -Add(*(one for one in terms if one not in own)))
