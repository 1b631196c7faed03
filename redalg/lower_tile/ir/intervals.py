"""Conditions of a tile: under which condition of the block another one holds for each of the tile's elements.

    t + j ≤ 8 + i for all i, j < 4    where t + 3 ≤ 8
    x[i] = y[j] for no i, j           where max x < min y or min x > max y

A comparison of sides that are linear in a tile's indices, and in reads of data whose least and largest are known, holds
for all elements if it holds between the largest of its lower side and the least of its upper one. The sides are
integers: of floats both `a ≤ b` and `a > b` may fail.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import And, Expr, Integer, Not, Or, Symbol, to_nnf
from sympy.core.relational import Eq, Ge, Gt, Le, Lt, Ne
from sympy.logic.boolalg import Boolean

from redalg.lower_tile.ir.scalars import Load, Within

Ranges = Mapping[Expr, tuple[Expr, Expr]]
"""The least and the largest value of indices of a tile and of reads of its data."""


def index_ranges(extents: Mapping[Symbol, int]) -> Ranges:
    """The ranges of indices below their extents."""
    return {symbol: (Integer(0), Integer(extent - 1)) for symbol, extent in extents.items()}


def opposite(whole: Boolean) -> Boolean:
    """The opposite of a condition of integers, as comparisons."""
    return to_nnf(Not(whole), simplify=False)


def holds_for_all(condition: Boolean, ranges: Ranges, integers: set[str]) -> Boolean | None:
    """A condition under which another one holds wherever its parts lie in their ranges; None if none is known.

    `integers` names the buffers and parameters that hold integers.

    >>> i, j, t = map(Symbol, "ijt")
    >>> holds_for_all(t + j <= 8 + i, index_ranges({i: 4, j: 4}), set())
    t + 3 <= 8
    """
    if isinstance(condition, Within):
        return condition.args[1]
    if isinstance(condition, And | Or):
        parts = [holds_for_all(one, ranges, integers) for one in condition.args]
        found = [one for one in parts if one is not None]
        enough = found if isinstance(condition, Or) or len(found) == len(parts) else []
        return condition.func(*enough) if enough else None
    if any(one.name not in integers for one in condition.atoms(Load)):
        return None
    if not any(condition.has(one) for one in ranges):
        return condition
    if isinstance(condition, Eq | Ne):
        low, high = condition.args
        both = And(low <= high, high <= low, evaluate=False), Or(low < high, high < low, evaluate=False)
        return holds_for_all(both[isinstance(condition, Ne)], ranges, integers)
    if not isinstance(condition, Le | Lt | Ge | Gt):
        return None
    low, high = end_of_side(condition.lts, ranges, largest=True), end_of_side(condition.gts, ranges, largest=False)
    if low is None or high is None:
        return None
    return low <= high if isinstance(condition, Le | Ge) else low < high


def end_of_side(side: Expr, ranges: Ranges, *, largest: bool) -> Expr | None:
    """The largest or least value of what is linear in parts within their ranges; None of anything else."""
    for part in sorted((one for one in ranges if side.has(one)), key=lambda one: isinstance(one, Symbol)):
        tilt = side.expand().coeff(part)
        if not isinstance(tilt, Integer) or (side - tilt * part).expand().has(part):
            return None
        side = side.xreplace({part: ranges[part][(tilt > 0) == largest]})
    return side
