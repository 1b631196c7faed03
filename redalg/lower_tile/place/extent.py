"""The tiles that a block needs. A tile that the domain rules out for every row of the block is never read.

    k ≤ f for every live element   →   tiles up to ⌊(max over the block of f) / block⌋ + 1
    k ≥ g for every live element   →   tiles from ⌊(min over the block of g) / block⌋

A domain c ∧ (a ∨ b) needs the tiles of c ∧ a and those of c ∧ b: of two ranges, as of a window and the first tokens.

Each limit is divided on its own. If a minimum were divided, TileLang would take the number of tiles to be constant and
read too many (seen: ⌊min(99, 64·q + 63) / 64⌋ for q < 2).

The limits come from the domain's conjuncts that are linear in the streamed axis, with only integers beside it: other
axes, extents, and elements of integer tensors that are the same for the whole block (a row's length). A scalar of the
call (a window's length) is rounded (`among_places`), or its floor or the next integer stand for it, whichever leaves
more tiles. Other conjuncts trim nothing. Exact, since the tiles left out hold no live element.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from sympy import Add, And, Expr, Integer, Max, Min, Mul, Or, S, floor, sympify
from sympy.core.relational import Eq, Ge, Gt, Le, Lt
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis, Element, Extent, Scalar
from redalg.expression.contents import elements_of, free_axes
from redalg.lower_tile.ir.program import index
from redalg.lower_tile.ir.scalars import Places
from redalg.lower_tile.place.expressions import among_places
from redalg.lower_tile.place.space import Space

RANGES = 2
"""Ranges of tiles that a block may need."""


@final
@dataclass(frozen=True)
class Tiles:
    """The tiles first … stop − 1 of the streamed axis, which hold all live elements (stop ≤ first: there are none)."""

    first: Expr
    stop: Expr


def needed_tiles(domain: Boolean, space: Space) -> tuple[Tiles, ...]:
    """The ranges of tiles that a block needs, one or two; none if the domain rules out no tile beforehand."""
    conjuncts = And.make_args(domain)
    common = Limits.of(conjuncts, space)
    for conjunct in conjuncts if space.plan.level != "thread" else ():
        if branches := ranges_of(conjunct, space):
            return tuple((common + branch).tiles(space) for branch in branches)
    return (common.tiles(space),) if common else ()


def is_limit(conjunct: Boolean, space: Space) -> bool:
    """Tell if a conjunct of the domain gives limits that are known beforehand."""
    return bool(Limits.of([conjunct], space) or ranges_of(conjunct, space))


def ranges_of(conjunct: Boolean, space: Space) -> list[Limits]:
    """The limits of the branches of a choice, if it has as many as a block has ranges and each has limits."""
    branches = [Limits.of(And.make_args(one), space) for one in conjunct.args] if isinstance(conjunct, Or) else []
    return branches if len(branches) == RANGES and all(branches) else []


@final
@dataclass(frozen=True)
class Limits:
    """The last elements that may count, and the first ones, as kernels compute them."""

    lasts: tuple[Expr, ...] = ()
    firsts: tuple[Expr, ...] = ()

    @classmethod
    def of(cls, conjuncts: Iterable[Boolean], space: Space) -> Limits:
        """The limits that some conjuncts set."""
        lasts, firsts = list[Expr](), list[Expr]()
        for slope, limit in edges(conjuncts, space):
            placed = extreme(limit, space, largest=slope > 0)
            if placed is not None:
                (lasts if slope > 0 else firsts).append(placed)
        return cls(tuple(lasts), tuple(firsts))

    def __bool__(self) -> bool:
        return bool(self.lasts or self.firsts)

    def __add__(self, other: Limits) -> Limits:
        return Limits(self.lasts + other.lasts, self.firsts + other.firsts)

    def tiles(self, space: Space) -> Tiles:
        """The tiles within all limits."""
        block, size = space.plan.block_streamed, space.problem.sizes[space.plan.binding.streamed.name]
        first = Max(S.Zero, *(floor(one / block) for one in self.firsts))
        stop = Min(floor((sympify(size) + block - 1) / block), *(floor(one / block) + 1 for one in self.lasts))
        return Tiles(first, stop)


def edges(conjuncts: Iterable[Boolean], space: Space) -> list[tuple[int, Expr]]:
    """The pairs (1, f) for every conjunct k ≤ f, and (−1, g) for every conjunct k ≥ g."""
    streamed, limits = space.plan.binding.streamed, list[tuple[int, Expr]]()
    for conjunct in conjuncts:
        exact = among_places(conjunct) if isinstance(conjunct, Ge | Gt | Le | Lt) else None
        for difference in _differences(conjunct if exact is None else exact):
            slope = difference.coeff(streamed)
            rest = (difference - slope * streamed).expand()
            if slope not in (1, -1) or streamed in free_axes(rest):
                continue
            limit = _with_places(-rest if slope == 1 else rest, upwards=slope == 1)
            if is_integer_valued(limit, space):
                limits.append((int(slope), limit))
    return limits


def _differences(conjunct: Boolean) -> list[Expr]:
    """The expressions that a conjunct says are ≤ 0; if both sides are integers, a < b is a − b + 1 ≤ 0."""
    if isinstance(conjunct, Eq):
        return [(conjunct.lhs - conjunct.rhs).expand(), (conjunct.rhs - conjunct.lhs).expand()]
    if not isinstance(conjunct, Le | Lt | Ge | Gt):
        return []
    strict = 1 if isinstance(conjunct, Lt | Gt) and (conjunct.atoms(Places) or not conjunct.atoms(Scalar)) else 0
    low, high = (conjunct.lhs, conjunct.rhs) if isinstance(conjunct, Le | Lt) else (conjunct.rhs, conjunct.lhs)
    return [(low - high + strict).expand()]


def _with_places(limit: Expr, *, upwards: bool) -> Expr:
    """A limit with an integer for every scalar; it leaves at least as many elements as the limit does."""
    places: dict[Expr, Expr] = {}
    for scalar in limit.atoms(Scalar):
        factor = limit.coeff(scalar)
        if not factor.is_Integer or (limit - factor * scalar).has(scalar):
            return limit
        places[scalar] = Places(scalar, S.Zero) + 1 if (factor > 0) == upwards else Places(scalar, S.Zero)
    return limit.xreplace(places)


def is_place(expr: Expr, space: Space) -> bool:
    """Tell if an expression is an integer that a kernel computes of places, and of no tensor."""
    return bool(expr.atoms(Axis)) and not elements_of(expr) and is_integer_valued(expr, space)


def is_integer_valued(expr: Expr, space: Space) -> bool:
    """True if an expression is an integer that a kernel computes as an integer."""
    if isinstance(expr, Element):
        return "int" in space.problem.dtypes[expr.name] and all(is_integer_valued(one, space) for one in expr.indices)
    if isinstance(expr, Add | Mul | Max | Min):
        return all(is_integer_valued(one, space) for one in expr.args)
    if isinstance(expr, floor):
        return all(is_integer_valued(one, space) for one in expr.args[0].as_numer_denom())
    return isinstance(expr, Axis | Extent | Integer | Places)


def extreme(limit: Expr, space: Space, *, largest: bool) -> Expr | None:
    """The largest or smallest value that a limit takes within the block; None if that is not known beforehand."""
    ends: dict[Axis, Expr] = {}
    for axis in sorted(space.axes_within(limit), key=str):
        tilt = limit.coeff(axis)
        if not tilt.is_Integer or axis in free_axes(limit - tilt * axis):
            return None
        first, length = space.spans[axis]
        ends[axis] = first + length - 1 if (tilt > 0) == largest else first
    if any(space.axes_within(one) for one in elements_of(limit)):
        return None
    places = {axis: index(f"end_{axis.name}") for axis in ends}
    read: Expr = space.read(limit.xreplace(places))
    return read.xreplace({places[axis]: end for axis, end in ends.items()})
