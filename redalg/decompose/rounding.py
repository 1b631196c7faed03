"""Roundings that mix x and d: why one pass only approximates them, and by how much at most.

The definition rounds g(x)·h(d) with the final d; one pass meets x while d is still running, and has

    cast(g·h')/h' · h          h' = h of the d so far                  instead of          cast(g·h)

With u the dtype's unit roundoff and η half its smallest step (float: of the subnormals; integers: 1/2, and u = 0) the
two differ by at most 2u·|g·h| + η·(1 + |h/h'|), where neither saturates (Higham 2002, section 2.1). h' a power of 2
commutes with the rounding of floats but for η. What is rounded otherwise than as g·h' is left unrounded: u·|…| + η.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sympy import Abs, Dummy, Expr, Integer, Rational, ceiling, exp, floor, log

from redalg.expression import Cast

ROUNDOFF = {
    "float64": Rational(1, 2**53), "float32": Rational(1, 2**24), "float16": Rational(1, 2**11),
    "bfloat16": Rational(1, 2**8), "float8_e4m3fn": Rational(1, 2**4), "float8_e5m2": Rational(1, 2**3),
}  # fmt: skip
"""Unit roundoff of floating-point dtypes; integers have none."""
STEP = {
    "float64": Rational(1, 2**1075), "float32": Rational(1, 2**150), "float16": Rational(1, 2**25),
    "bfloat16": Rational(1, 2**134), "float8_e4m3fn": Rational(1, 2**10), "float8_e5m2": Rational(1, 2**17),
}  # fmt: skip
"""Half of the smallest step (between subnormals); of integers 1/2."""


@final
@dataclass(frozen=True)
class Rounding:
    """A cast of what mixes x and d.

    Attributes:
        cast: the node as written.
        scale: h(d), by whose running value the pass rounds; None where it leaves the rounding out.
    """

    cast: Cast
    scale: Expr | None

    @property
    def by_power_of_two(self) -> bool:
        """Whether the scale is a power of 2, by which a float is rounded alike before and after."""
        return self.scale is not None and is_power_of_two(self.scale)

    @property
    def bound(self) -> Expr:
        """Most by which one rounded element may differ from the definition's."""
        relative = ROUNDOFF.get(self.cast.dtype, Integer(0))
        step = STEP.get(self.cast.dtype, Rational(1, 2))
        if self.scale is None:
            return relative * Abs(self.cast.args[0]) + step
        relative = Integer(0) if self.by_power_of_two and relative else 2 * relative
        return relative * Abs(self.cast.args[0]) + 2 * step if relative else 2 * step


def is_power_of_two(scale: Expr) -> bool:
    """Whether an expression is 2^k with k rounded to an integer, however SymPy spells it: 2**k or exp(k·log 2)."""
    if isinstance(scale, exp):
        times, rounded = (scale.args[0] / log(2)).as_coeff_Mul()
        return bool(times.is_Integer) and isinstance(rounded, floor | ceiling)
    if scale.is_Pow and scale.exp.is_Integer:
        return is_power_of_two(scale.base)
    return bool(scale.is_Pow and scale.base == Integer(2) and isinstance(scale.exp.as_coeff_Mul()[1], floor | ceiling))


EXACT_FORMS = (
    "The definition takes two passes: `ra.fuse(…, exact=True)`. Or round the scale to a power of 2, as in "
    "`2**floor(log(448/m, 2))`: a float is then rounded alike whatever the scale, but for underflow."
)


def said(one: Rounding) -> str:
    """What happens to a rounding in one pass."""
    if one.scale is None:
        return f"`{one.cast}` rounds what mixes x and d otherwise than as g(x)·h(d): one pass leaves the rounding out."
    if one.by_power_of_two:
        return f"`{one.cast}` is rounded at the running scale `{one.scale}`, a power of 2: alike but for underflow."
    return (
        f"`{one.cast}` rounds what mixes x and d, and rounding does not commute with a later rescaling: one pass "
        f"rounds at the running scale `{one.scale}`."
    )


def bound_within(term: Expr, one: Rounding) -> Expr:
    """Most by which the term moves with the rounding, to first order in the roundoff."""
    hole = Dummy("hole")
    slope = term.xreplace({one.cast: hole}).diff(hole).xreplace({hole: one.cast.args[0]})
    return Abs(slope) * one.bound
