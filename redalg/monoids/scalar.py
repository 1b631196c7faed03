"""Monoids whose elements are one number, which array libraries reduce by themselves, and those of semirings alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from sympy import Add, Expr, Max, Min, Mod, Mul, S, gcd

from redalg.monoids.monoid import Component, Monoid, Parts


@final
class Joined:
    """(a, b) -> (f(a, b),): a function of two numbers as a join of elements."""

    def __init__(self, function: Callable[..., Expr]) -> None:
        self.function = function

    def __call__(self, a: Parts, b: Parts) -> Parts:
        return (self.function(a[0], b[0]),)


def scalar_monoid(name: str, sign: str, identity: Expr, function: Callable[..., Expr], **more: Any) -> Monoid:
    """A monoid of numbers."""
    return Monoid(name, sign, (Component("value", identity),), Joined(function), **more)


def modulo_two(a: Expr, b: Expr) -> Expr:
    """Exclusive or of truth values 0 and 1."""
    return Mod(a + b, 2)


SUM = scalar_monoid("sum", "+", S.Zero, Add, reduction="sum")
PROD = scalar_monoid("prod", "·", S.One, Mul, reduction="prod", state_kind="scaled_product")
MAX = scalar_monoid(
    "max", "max", S.NegativeInfinity, Max, domains=("extended",), idempotent=True, exact=True, reduction="max"
)
MIN = scalar_monoid("min", "min", S.Infinity, Min, domains=("extended",), idempotent=True, exact=True, reduction="min")
ANY = scalar_monoid("any", "∨", S.Zero, Max, domains=("truth",), idempotent=True, exact=True, reduction="max")
ALL = scalar_monoid("all", "∧", S.One, Min, domains=("truth",), idempotent=True, exact=True, reduction="min")
XOR = scalar_monoid("xor", "⊻", S.Zero, modulo_two, domains=("truth",), exact=True)
GCD = scalar_monoid("gcd", "gcd", S.Zero, gcd, domains=("natural",), idempotent=True, exact=True)
"""Of natural numbers; over the reals there is none, so that no reduction is of this kind."""
