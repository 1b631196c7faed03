"""Scaled generators about a centre that does not cancel their scale, in a unit that neither of them exceeds.

Σ (E − d)² = Σ (e^m·(z − δ))²        z = E/e^m − c,  δ = d/e^m − c, which overflows where d ≫ e^m
           = Σ (e^M·(w·z − ω))²      w = e^(m − M),  ω = d/e^M − c·w,  M the largest of m and of d's exponents
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from sympy import Add, Expr, exp

from redalg.incremental.derive.exponents import largest_of, with_exponents
from redalg.incremental.form import Pivot


@final
@dataclass(frozen=True)
class Unit:
    """The unit in which a reduction measures a generator.

    Attributes:
        exponent: M.
        share: w, of the unit that the scale is.
        displacement: ω.
    """

    exponent: Expr
    share: Expr
    displacement: Expr


def unit_of(pivot: Pivot, centre: Sequence[tuple[Expr, Expr]], named: Callable[[str, Expr], Expr]) -> Unit:
    """The unit of a scaled pivot about a centre Σ exp(λ)·v of pairs (λ, v); `named` gives an expression a name."""
    scale = Add(*(m.source * q for m, q in pivot.scales))
    pairs = [with_exponents(*pair) for pair in centre]
    largest = named("unit", largest_of([scale, *(exponent for exponent, _ in pairs)]))
    share = named("share", exp(scale - largest))
    away = Add(*(v * exp(exponent - largest) for exponent, v in pairs))
    return Unit(largest, share, named("offset", away - pivot.value * share))
