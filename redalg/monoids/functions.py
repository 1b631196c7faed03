"""Functions that an element of a monoid is made with: the parts of a floating-point number, and a choice.

x = Mantissa(x)·2^Exponent(x), with 1/2 ≤ |Mantissa(x)| < 1          exact; 0 = 0·2^0, and what is not finite keeps
                                                                     itself as its mantissa, with exponent 0
Scaled(m, e) = m·2^e                                                 rounded once
Powered(m, e, h, n) = m·2^e·h^n, n an integer                         as accurate as |n| multiplications
Lost(a, b) = a + b − fl(a + b)                                       exact (Knuth's TwoSum) where fl(a + b) is finite,
                                                                     else 0; 0 of numbers, whose sums are exact
"""

from __future__ import annotations

from typing import Any, final

from sympy import Eq, Expr, Function, Integer, Pow, Rational, S
from sympy import Piecewise as _Piecewise
from sympy.logic.boolalg import Boolean


@final
class Mantissa(Function):
    """m of x = m·2^e."""

    is_extended_real = True

    @classmethod
    def eval(cls, x: Expr) -> Expr | None:
        if x.is_Rational:
            return x / Pow(2, binary_exponent(x))
        return x if x in (S.Infinity, S.NegativeInfinity, S.NaN) else None


@final
class Exponent(Function):
    """e of x = m·2^e, an integer."""

    is_integer = True

    @classmethod
    def eval(cls, x: Expr) -> Expr | None:
        if x.is_Rational:
            return Integer(binary_exponent(x))
        return S.Zero if x in (S.Infinity, S.NegativeInfinity, S.NaN) else None


@final
class Scaled(Function):
    """m·2^e, which is finite if the product is, even if 2^e alone is not."""

    is_extended_real = True

    @classmethod
    def eval(cls, m: Expr, e: Expr) -> Expr | None:
        return m * Pow(2, e) if m.is_number and e.is_Integer else None


@final
class Powered(Function):
    """m·2^e·h^n, which is finite if the product is, even if a factor is not."""

    is_extended_real = True


@final
class Lost(Function):
    """The part of a + b that rounding loses, itself a number of the arithmetic."""

    is_extended_real = True

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        return S.Zero if a.is_number and b.is_number else None


@final
class IsNaN(Function):
    """1 where the argument is NaN, else 0 (SymPy itself takes `Ne(x, x)` for false)."""

    is_integer = True

    @classmethod
    def eval(cls, x: Expr) -> Expr | None:
        return S.One if x is S.NaN else S.Zero if x.is_number else None


@final
class Infinite(Function):
    """1 where the argument is ∞, −1 where it is −∞, else 0 (SymPy itself takes −|x| = −∞ for true)."""

    is_integer = True

    @classmethod
    def eval(cls, x: Expr) -> Expr | None:
        known = {S.Infinity: S.One, S.NegativeInfinity: S.NegativeOne}
        return known.get(x, S.Zero) if x.is_number or x.is_finite else None


def is_least(x: Expr) -> Boolean:
    """The condition that x is −∞."""
    return Eq(Infinite(x), S.NegativeOne)


def is_greatest(x: Expr) -> Boolean:
    """The condition that x is ∞."""
    return Eq(Infinite(x), S.One)


def binary_exponent(x: Rational) -> int:
    """e with 1/2 ≤ |x|/2^e < 1; 0 for 0."""
    if x == 0:
        return 0
    e = abs(int(x.p)).bit_length() - int(x.q).bit_length()
    return e + int(bool(abs(x) >= Pow(2, e)))


def pick(condition: Boolean, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`, as written: SymPy folds nothing."""
    if condition in (S.true, S.false):
        return a if condition == S.true else b
    return _Piecewise((a, condition), (b, S.true), evaluate=False)
