"""A commutative monoid (S, ⊕, identity) as data.

    associative    (a ⊕ b) ⊕ c = a ⊕ (b ⊕ c)
    commutative    a ⊕ b = b ⊕ a
    identity       a ⊕ e = a
    idempotent     a ⊕ a = a          where declared
    exact          no rounding in floating point, so every order of merging gives the same bits

A law test checks each declaration on every dtype with generated data, and refutes what is not declared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from sympy import Add, Expr, Max, Min, Mul, S

from redalg.errors import ExpressionError


@final
@dataclass(frozen=True)
class Monoid:
    """One reduction operator.

    Attributes:
        name: the word used in expressions, in kernels and by array libraries (`sum`, `prod`, `max`, `min`).
        sign: the infix sign that derivations print.
        identity: value over an empty axis.
        combine: a, b -> a ⊕ b, as a SymPy expression.
        idempotent: a ⊕ a = a.
        exact: combining rounds nothing.
    """

    name: str
    sign: str
    identity: Expr
    combine: Callable[..., Expr]
    idempotent: bool
    exact: bool

    def __str__(self) -> str:
        return self.name


MONOIDS = {
    one.name: one
    for one in (
        Monoid("sum", "+", S.Zero, Add, idempotent=False, exact=False),
        Monoid("prod", "·", S.One, Mul, idempotent=False, exact=False),
        Monoid("max", "max", S.NegativeInfinity, Max, idempotent=True, exact=True),
        Monoid("min", "min", S.Infinity, Min, idempotent=True, exact=True),
    )
}


def monoid(name: str) -> Monoid:
    """The monoid of that name.

    >>> monoid("max").identity
    -oo
    """
    if name not in MONOIDS:
        raise ExpressionError(f"no monoid is named {name!r}. redalg knows {', '.join(MONOIDS)}.")
    return MONOIDS[name]
