"""Curvature of an expression in one generator U, whatever the values d are: it tells the end of U's range that gives
the extremum.

    direction   +1 increasing, −1 decreasing, 0 constant, None unknown or both
    shape       of {convex, concave, quasiconvex, quasiconcave}, those that are known to hold

A quasiconvex function attains its maximum over any set at the ends of the set's range, a quasiconcave one its minimum;
monotone functions are both. Rules (Boyd and Vandenberghe, Convex Optimization, sections 3.2 and 3.4):

    a + b             convex where both are; a direction that they share
    k·a, k ≥ 0        as a;   k ≤ 0 swaps;   k of unknown sign: quasi-both where a is monotone or affine
    f(a), f rising    keeps quasi; f convex keeps convex, f concave keeps concave
    max(a, b)         convex and quasiconvex where both are; min the same for concave; as a where a ≥ b is known
    where(p > q, a, b)  p − q rising: rises where a and b do and a ≥ b where p > q; falls where they do and a ≤ b there
    |a|               as a where a ≥ 0, as −a where a ≤ 0

The sign of a constant comes from `signs`: SymPy would ask the same of each node at length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sympy import (
    Abs,
    Dummy,
    Expr,
    Ge,
    Gt,
    Le,
    Lt,
    Max,
    Min,
    Mul,
    Pow,
    S,
)

from redalg.decompose.separate.signs import UP, Facts, Sign, sign_of
from redalg.expression import Cast, Where
from redalg.expression.contents import of_kind, values_of
from redalg.expression.expanded import expansion
from redalg.expression.operators import operator_of

CONVEX, CONCAVE, QUASICONVEX, QUASICONCAVE = "convex", "concave", "quasiconvex", "quasiconcave"
OPPOSITE = {CONVEX: CONCAVE, CONCAVE: CONVEX, QUASICONVEX: QUASICONCAVE, QUASICONCAVE: QUASICONVEX}
QUASI = frozenset({QUASICONVEX, QUASICONCAVE})
AFFINE = frozenset(OPPOSITE)


@final
@dataclass(frozen=True)
class Curvature:
    """The known properties of an expression as a function of U; `strict` if different U give different values."""

    direction: int | None
    shape: frozenset[str]
    strict: bool = False

    def negate(self) -> Curvature:
        """Return the curvature of −f."""
        direction = None if self.direction is None else -self.direction
        return Curvature(direction, frozenset(OPPOSITE[one] for one in self.shape), self.strict)

    def within(self, rising: str, strict: bool) -> Curvature:
        """Return the curvature of g(f): g never falls, and is convex or concave if `rising` says so."""
        shape = (self.shape & QUASI) | (self.shape & {rising} if rising else frozenset())
        return Curvature(self.direction, shape, self.strict and strict)


CONSTANT = Curvature(0, AFFINE)
NONE: Facts = {}
UNKNOWN = Curvature(None, frozenset())


def curvature(node: Expr, variable: Expr, facts: Facts = NONE) -> Curvature:
    """Return the curvature of `node` in `variable`; all else in it is a constant, of the sign that is known of it.

    Args:
        node: an expression.
        variable: the symbol U.
        facts: the monoid and the term of each value in it, from which the signs follow.
    """
    if not node.has(variable):
        return CONSTANT
    if node == variable:
        return Curvature(1, AFFINE, strict=True)
    if node.is_Add:
        return _sum([curvature(arg, variable, facts) for arg in node.args])
    if node.is_Mul:
        return _product(node, variable, facts)
    if isinstance(node, Abs):
        return _absolute(curvature(node.args[0], variable, facts), constant_sign(node.args[0], facts))
    if node.is_Pow and not node.exp.has(variable):
        return _power(node, curvature(node.base, variable, facts), facts)
    if isinstance(node, Max | Min):
        parts = [curvature(arg, variable, facts) for arg in not_exceeded(node, facts)]
        return _extremum(parts, CONVEX if isinstance(node, Max) else CONCAVE) if len(parts) > 1 else parts[0]
    if isinstance(node, Cast):
        return curvature(node.args[0], variable, facts).within("", strict=False)
    operator = operator_of(node)
    if operator is not None and operator.rising:
        return curvature(node.args[0], variable, facts).within(operator.shape, operator.strict)
    return UNKNOWN


def trend_of(node: Where, variable: Expr, facts: Facts) -> int | None:
    """The direction of a choice by a comparison: 1 rising, −1 falling, None unknown."""
    condition, a, b = node.args
    if not isinstance(condition, Gt | Ge | Lt | Le):
        return None
    difference = (condition.lhs - condition.rhs) * (1 if isinstance(condition, Gt | Ge) else -1)
    way = curvature(difference, variable, facts).direction
    directions = {curvature(one, variable, facts).direction for one in (a, b)}
    above, below = (_exceeds(a, b, difference, facts), _exceeds(b, a, difference, facts))
    for direction in (1, -1):
        step = above if way == direction else below
        if way and directions <= {0, direction} and step:
            return direction
    return None


def _exceeds(a: Expr, b: Expr, difference: Expr, facts: Facts) -> bool:
    """Tell if a ≥ b is known on one side of the zero of a difference: a falls or rises with b from there on."""
    if b is S.NegativeInfinity or a is S.Infinity:
        return True
    if S.NegativeInfinity in (a, b) or S.Infinity in (a, b):
        return False
    ratio = ((a - b) / difference).cancel()
    if ratio.is_number:
        return True  # a − b is 0 where the difference is
    return any(sign_of(one, facts) in UP for one in (a - b, *(expansion(a - b + way * difference) for way in (1, -1))))


def _sum(parts: list[Curvature]) -> Curvature:
    moving = [one for one in parts if one.direction != 0]
    if len(moving) == 1:
        return moving[0]
    directions = {one.direction for one in moving}
    direction = directions.pop() if len(directions) == 1 else None
    shape = frozenset.intersection(*(one.shape for one in moving)) & {CONVEX, CONCAVE}
    shape |= QUASI if direction is not None else {"quasi" + one for one in shape}
    return Curvature(direction, shape, direction is not None and any(one.strict for one in moving))


def _product(node: Mul, variable: Expr, facts: Facts) -> Curvature:
    moving = [arg for arg in node.args if arg.has(variable)]
    factor = Mul(*(arg for arg in node.args if not arg.has(variable)))
    if len(moving) > 1:
        return UNKNOWN
    inner = curvature(moving[0], variable, facts)
    if (sign := constant_sign(factor, facts)) is not None:
        scaled = Curvature(inner.direction, inner.shape, inner.strict and nonzero(factor, facts))
        return scaled if sign in UP else scaled.negate()
    monotone = inner.direction is not None or inner.shape >= AFFINE
    return Curvature(None, (AFFINE if inner.shape >= AFFINE else QUASI) if monotone else frozenset())


def constant_sign(expr: Expr, facts: Facts) -> Sign | None:
    """The sign of a constant. If it divides by what may be 0, SymPy must also know that it is a real number."""
    sign = sign_of(expr, facts)
    if sign is None or all(sign_of(one.base, facts) for one in of_kind(Pow, expr) if one.exp.is_extended_negative):
        return sign
    symbols = {value: Dummy(value.name, **{f"extended_{known}": True}) for value in values_of(expr)
               if (known := sign_of(value, facts)) is not None}  # fmt: skip
    signed = expr.xreplace(symbols)
    return sign if signed.is_extended_nonnegative or signed.is_extended_nonpositive else None


def nonzero(factor: Expr, facts: Facts) -> bool:
    """Tell if a factor of known sign is not 0; a reciprocal is not 0, if it is finite."""
    return all(
        sign_of(part, facts) in ("positive", "negative") or (part.is_Pow and part.exp.is_extended_negative)
        for part in Mul.make_args(factor)
    )


def _absolute(inner: Curvature, sign: Sign | None) -> Curvature:
    if sign is None:
        return _even(inner)
    return inner if sign in UP else inner.negate()


def _even(inner: Curvature) -> Curvature:
    """|f| and f^2k: convex where f is affine, falling and then rising where f is monotone."""
    if inner.shape >= AFFINE:
        return Curvature(None, frozenset({CONVEX, QUASICONVEX}))
    return Curvature(None, frozenset({QUASICONVEX}) if inner.direction is not None else frozenset())


def _power(node: Expr, inner: Curvature, facts: Facts) -> Curvature:
    exponent = node.exp
    if exponent.is_Integer and exponent > 0:
        if constant_sign(node.base, facts) in UP:
            return inner.within(CONVEX, strict=True)
        return inner.within("", strict=True) if exponent % 2 else _even(inner)
    sign = sign_of(exponent, facts)
    if sign == "positive":
        return inner.within(CONCAVE if sign_of(1 - exponent, facts) in UP else CONVEX, strict=True)
    if sign == "negative" and constant_sign(node.base, facts) == "positive":  # falling: rising after a change of sign
        return inner.negate().within(CONVEX, strict=True)
    return UNKNOWN


def not_exceeded(node: Max | Min, facts: Facts) -> list[Expr]:
    """The arguments of a max without those that another is known to exceed (of a min: to be below)."""
    args = list(node.args)
    for arg in node.args:
        others = [other for other in args if other is not arg]
        differences = (other - arg if isinstance(node, Max) else arg - other for other in others)
        if any(constant_sign(difference, facts) in UP for difference in differences):
            args = others
    return args


def _extremum(parts: list[Curvature], bend: str) -> Curvature:
    shape = frozenset.intersection(*(one.shape for one in parts)) & {bend, "quasi" + bend}
    directions = {one.direction for one in parts} - {0}
    direction = directions.pop() if len(directions) == 1 else None
    return Curvature(direction, shape | QUASI if direction is not None else shape)
