"""How an expression varies with one generator U, whatever the values d are: which end of U's range gives its extremum.

    direction   +1 increasing, −1 decreasing, 0 constant, None unknown or both
    shape       of {convex, concave, quasiconvex, quasiconcave}, those that are known to hold

A quasiconvex function attains its maximum over any set at the ends of the set's range, a quasiconcave one its minimum;
monotone functions are both. Rules (Boyd and Vandenberghe, Convex Optimization, sections 3.2 and 3.4):

    a + b             convex where both are; a direction that they share
    k·a, k ≥ 0        as a;   k ≤ 0 swaps;   k of unknown sign: quasi-both where a is monotone or affine
    f(a), f rising    keeps quasi; f convex keeps convex, f concave keeps concave
    max(a, b)         convex and quasiconvex where both are; min the same for concave
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from sympy import Abs, Expr, Max, Min, Mul, acosh, asinh, atan, ceiling, erf, exp, floor, log, sign, sinh, tanh

from redalg.expression import Cast

CONVEX, CONCAVE, QUASICONVEX, QUASICONCAVE = "convex", "concave", "quasiconvex", "quasiconcave"
OPPOSITE = {CONVEX: CONCAVE, CONCAVE: CONVEX, QUASICONVEX: QUASICONCAVE, QUASICONCAVE: QUASICONVEX}
QUASI = frozenset({QUASICONVEX, QUASICONCAVE})
AFFINE = frozenset(OPPOSITE)

RISING: tuple[tuple[Any, str | None], ...] = (
    (exp, CONVEX), (log, CONCAVE), (acosh, CONCAVE), (tanh, None), (atan, None), (erf, None), (sinh, None),
    (asinh, None), (floor, None), (ceiling, None), (sign, None), (Cast, None),
)  # fmt: skip
"""Functions that never fall, and whether they are convex or concave."""
STRICT = (exp, log, tanh, atan, erf, sinh, asinh)
"""Those of them that keep different arguments different."""


@final
@dataclass(frozen=True)
class Curvature:
    """What is known of an expression as a function of U; `strict` where different U give different values."""

    direction: int | None
    shape: frozenset[str]
    strict: bool = False

    def flipped(self) -> Curvature:
        """Of −f."""
        direction = None if self.direction is None else -self.direction
        return Curvature(direction, frozenset(OPPOSITE[one] for one in self.shape), self.strict)

    def within(self, rising: str | None, strict: bool) -> Curvature:
        """Of g(f) for a function g that never falls, convex or concave where `rising` says so."""
        kept = (self.shape & QUASI) | (self.shape & {rising} if rising else frozenset())
        return Curvature(self.direction, kept, self.strict and strict)


CONSTANT = Curvature(0, AFFINE)
UNKNOWN = Curvature(None, frozenset())


def curvature(node: Expr, variable: Expr) -> Curvature:
    """How `node` varies with `variable`; everything else in it is a constant, of the sign that SymPy knows."""
    if not node.has(variable):
        return CONSTANT
    if node == variable:
        return Curvature(1, AFFINE, strict=True)
    if node.is_Add:
        return _sum([curvature(arg, variable) for arg in node.args])
    if node.is_Mul:
        return _product(node, variable)
    if isinstance(node, Abs):
        return _even(curvature(node.args[0], variable))
    if node.is_Pow and not node.exp.has(variable):
        return _power(node, curvature(node.base, variable))
    if isinstance(node, Max | Min):
        return _extremum([curvature(arg, variable) for arg in node.args], CONVEX if isinstance(node, Max) else CONCAVE)
    for kind, rising in RISING:
        if node.func == kind:
            return curvature(node.args[0], variable).within(rising, isinstance(node, STRICT))
    return UNKNOWN


def _sum(parts: list[Curvature]) -> Curvature:
    moving = [one for one in parts if one.direction != 0]
    if len(moving) == 1:
        return moving[0]
    directions = {one.direction for one in moving}
    direction = directions.pop() if len(directions) == 1 else None
    shape = frozenset.intersection(*(one.shape for one in moving)) & {CONVEX, CONCAVE}
    shape |= QUASI if direction is not None else {"quasi" + one for one in shape}
    return Curvature(direction, shape, direction is not None and any(one.strict for one in moving))


def _product(node: Mul, variable: Expr) -> Curvature:
    moving = [arg for arg in node.args if arg.has(variable)]
    factor = Mul(*(arg for arg in node.args if not arg.has(variable)))
    if len(moving) > 1:
        return UNKNOWN
    inner = curvature(moving[0], variable)
    if nonnegative(factor):
        return Curvature(inner.direction, inner.shape, inner.strict and nonzero(factor))
    if nonnegative(-factor):
        return Curvature(inner.direction, inner.shape, inner.strict and nonzero(-factor)).flipped()
    monotone = inner.direction is not None or inner.shape >= AFFINE
    return Curvature(None, (AFFINE if inner.shape >= AFFINE else QUASI) if monotone else frozenset())


def nonnegative(factor: Expr) -> bool:
    """Whether a factor is not negative; a reciprocal of what is not is not either, where it is finite."""
    if factor.is_extended_nonnegative:
        return True
    return all(one.is_extended_nonnegative or (one.is_Pow and one.base.is_extended_nonnegative and one.exp.is_real)
               for one in Mul.make_args(factor))  # fmt: skip


def nonzero(factor: Expr) -> bool:
    """Whether a factor that is not negative is not 0 either; a reciprocal is not, where it is finite."""
    return all(
        one.is_extended_positive or (one.is_Pow and one.exp.is_extended_negative) for one in Mul.make_args(factor)
    )


def _even(inner: Curvature) -> Curvature:
    """|f| and f^2k: convex where f is affine, falling and then rising where f is monotone."""
    if inner.shape >= AFFINE:
        return Curvature(None, frozenset({CONVEX, QUASICONVEX}))
    return Curvature(None, frozenset({QUASICONVEX}) if inner.direction is not None else frozenset())


def _power(node: Expr, inner: Curvature) -> Curvature:
    exponent = node.exp
    if exponent.is_Integer and exponent > 0:
        if exponent % 2 and not node.base.is_extended_nonnegative:
            return inner.within(None, strict=True)
        return inner.within(CONVEX, strict=True) if node.base.is_extended_nonnegative else _even(inner)
    if exponent.is_extended_positive:
        return inner.within(CONCAVE if (1 - exponent).is_nonnegative else CONVEX, strict=True)
    if exponent.is_extended_negative and node.base.is_extended_positive:  # falling: rising after a change of sign
        return inner.flipped().within(CONVEX, strict=True)
    return UNKNOWN


def _extremum(parts: list[Curvature], kept: str) -> Curvature:
    shape = frozenset.intersection(*(one.shape for one in parts)) & {kept, "quasi" + kept}
    directions = {one.direction for one in parts} - {0}
    direction = directions.pop() if len(directions) == 1 else None
    return Curvature(direction, shape | QUASI if direction is not None else shape)
