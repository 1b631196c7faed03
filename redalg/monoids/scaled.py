"""Monoids that carry what plain floating point loses: range in a product, digits in a sum.

    scaled_product     (m, e) ⊕ (n, f)  =  (m·n, e + f), with 1/2 ≤ |m| < 1: no partial product leaves the range
    compensated_sum    (s, c) ⊕ (t, d)  =  (s + t, c + d + what s + t lost)      0 in exact arithmetic (Knuth's TwoSum)
    logsumexp          (m, l) ⊕ (n, k)  =  (max, l·e^(m − max) + k·e^(n − max))

Σ log in place of a product loses digits (the relative error grows with the logarithm of the result); (m, e) loses none.
"""

from __future__ import annotations

from sympy import Abs, Eq, Expr, Max, Rational, S, exp, log

from redalg.monoids.functions import Exponent, Lost, Mantissa, Scaled, is_least, pick
from redalg.monoids.monoid import Component, Monoid, Parts

HALF = Rational(1, 2)


def mantissa_and_exponent(x: Expr, _n: Expr) -> Parts:
    """x ↦ (m, e) with x = m·2^e."""
    return Mantissa(x), Exponent(x)


def combine_products(a: Parts, b: Parts) -> Parts:
    """a ⊕ b: the mantissas' product is at least 1/4, so that one doubling normalises it."""
    m, e = a[0] * b[0], a[1] + b[1]
    small, zero = Abs(m) < HALF, Eq(m, 0)
    return pick(small, 2 * m, m), pick(zero, S.Zero, pick(small, e - 1, e))


def scaled_value(m: Expr, e: Expr) -> Parts:
    """(m, e) ↦ m·2^e."""
    return (Scaled(m, e),)


def with_no_loss(x: Expr, _n: Expr) -> Parts:
    """x ↦ (x, 0)."""
    return x, S.Zero


def combine_compensated(a: Parts, b: Parts) -> Parts:
    """a ⊕ b, which takes up what rounding loses of the sums."""
    return a[0] + b[0], a[1] + b[1] + Lost(a[0], b[0])


def corrected_sum(s: Expr, c: Expr) -> Parts:
    """(s, c) ↦ s + c."""
    return (s + c,)


def one_exponential(x: Expr, _n: Expr) -> Parts:
    """x ↦ (x, 1): e^x = 1·e^x; and −∞ is the identity."""
    return x, pick(is_least(x), S.Zero, S.One)


def combine_logsumexp(a: Parts, b: Parts) -> Parts:
    """a ⊕ b of logsumexp."""
    m = Max(a[0], b[0])
    parts = [pick(is_least(one[0]), S.Zero, one[1] * exp(one[0] - m)) for one in (a, b)]
    return m, parts[0] + parts[1]


def logsumexp_value(m: Expr, l: Expr) -> Parts:
    """(m, l) ↦ m + log l: −∞ over no element."""
    return (pick(is_least(m), S.NegativeInfinity, m + log(l)),)


SCALED_PRODUCT = Monoid(
    "scaled_product", "·", (Component("mantissa", HALF), Component("exponent", S.One, integer=True)), combine_products,
    lift=mantissa_and_exponent, lower=scaled_value,
)  # fmt: skip
COMPENSATED_SUM = Monoid(
    "compensated_sum", "+", (Component("sum", S.Zero), Component("lost", S.Zero)), combine_compensated,
    lift=with_no_loss, lower=corrected_sum,
)  # fmt: skip
LOGSUMEXP = Monoid(
    "logsumexp", "⊕", (Component("max", S.NegativeInfinity), Component("sum", S.Zero)), combine_logsumexp,
    ("logarithm",), lift=one_exponential, lower=logsumexp_value,
)  # fmt: skip
