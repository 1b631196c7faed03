"""Powers as a kernel computes them: by squares, products, square roots and their reciprocals.

x^(2n)       →  xⁿ·xⁿ              n < 9; fewer roundings than x·x·…·x, and none else for a square
x^(2n + 1)   →  x^(2n)·x           exact of a cube: (x·x)·x is x·x·x from the left
x^(n + 1/2)  →  xⁿ·√x              to a rounding of each operation; out of range only where the power is
x^(-1/2)     →  rsqrt(x)           1/√x on the C target; to 2 units of float32's last digit on CUDA, 1 of float64's
x^(-3/2)     →  rsqrt(x)³          to 6 units; a division takes as long as ten products, and a force has one for a pair
x^(-n - 1/2) →  rsqrt(x) / xⁿ      to a rounding of each operation; out of range in fewer places than 1/x^(n + 1/2)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sympy import Expr, Pow, S

MOST = 16
"""The largest whole power that is multiplied out."""


def factors_of_power(node: Expr) -> tuple[Expr, ...]:
    """The two factors of a power that is multiplied out; none of any other expression.

    >>> from sympy import Rational
    >>> from sympy.abc import x
    >>> factors_of_power(x**2), factors_of_power(x**7), factors_of_power(x**Rational(5, 2)), factors_of_power(1 / x)
    ((x, x), (x**6, x), (x**2, sqrt(x)), ())
    """
    if not (node.is_Pow and node.exp.is_Rational and 1 < node.exp <= MOST and node.exp.q <= 2):
        return ()
    base, whole = node.base, int(node.exp)
    if not node.exp.is_Integer:
        return _power(base, whole), _power(base, S.Half)
    return (_power(base, whole - 1), base) if whole % 2 else (_power(base, whole // 2),) * 2


def above_and_below(factors: Iterable[Expr]) -> tuple[list[Expr], list[Expr]]:
    """The factors of a product above the line of a division, and those below it."""
    above, below = list[Expr](), list[Expr]()
    for factor in factors:
        if not is_negative_power(factor) or is_rsqrt(factor):
            above.append(factor)
        elif factor.exp == -3 * S.Half:
            above += [_power(factor.base, -S.Half)] * 3
        elif factor.exp.q == 2:
            above.append(_power(factor.base, -S.Half))
            below.append(_power(factor.base, -factor.exp - S.Half))
        else:
            below.append(_power(factor.base, -factor.exp))
    return above, below


def _power(base: Expr, exponent: Any) -> Expr:
    """A power as it is written: SymPy would write (a·b)² as a²·b², which may leave the range."""
    return base if exponent == 1 else Pow(base, exponent, evaluate=False)


def is_negative_power(node: Expr) -> bool:
    """Tell if an expression is a negative power."""
    return bool(node.is_Pow and node.exp.is_Rational and node.exp.is_negative)


def is_rsqrt(node: Expr) -> bool:
    """Tell if an expression is the reciprocal of a square root."""
    return bool(node.is_Pow and node.exp == -S.Half)
