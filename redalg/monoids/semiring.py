"""The pairs of ⊕ and a ⊗ that distributes over it: by them a factor of d moves out of a reduction.

(a ⊕ b) ⊗ c = (a ⊗ c) ⊕ (b ⊗ c)          (RedFuser, Eq. 5)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from sympy import Add, Expr, Max, Min, Mul, Pow


@final
@dataclass(frozen=True)
class Semiring:
    """⊗ distributes over ⊕, for every `c` in the stated domain.

    Attributes:
        plus: name of ⊕.
        times: name of ⊗.
        sign: its infix sign.
        apply: a, c -> a ⊗ c, as a SymPy expression.
        domain: the `c` for which it holds (a key of `redalg.monoids.laws.DOMAINS`).
        elements: the `a` and `b` for which it holds.
    """

    plus: str
    times: str
    sign: str
    apply: Callable[..., Expr]
    domain: str
    elements: str = "finite"


SEMIRINGS = (
    Semiring("sum", "mul", "×", Mul, "any"),
    Semiring("max", "add", "+", Add, "any", "extended"),
    Semiring("max", "mul", "×", Mul, "nonnegative"),
    Semiring("min", "add", "+", Add, "any", "extended"),
    Semiring("min", "mul", "×", Mul, "nonnegative"),
    Semiring("prod", "pow", "^", Pow, "count"),
    Semiring("logsumexp", "add", "+", Add, "any", "logarithm"),
    Semiring("max", "min", "min", Min, "extended", "extended"),
    Semiring("min", "max", "max", Max, "extended", "extended"),
    Semiring("any", "and", "∧", Min, "truth", "truth"),
    Semiring("xor", "and", "∧", Mul, "truth", "truth"),
    Semiring("gcd", "mul", "×", Mul, "natural", "natural"),
)


def semirings(plus: str) -> tuple[Semiring, ...]:
    """The pairs that have this ⊕.

    >>> [one.times for one in semirings("max")]
    ['add', 'mul', 'min']
    """
    return tuple(one for one in SEMIRINGS if one.plus == plus)
