"""Factors u that were written without their centre v, beside deviations from v: u = (u − v) + v.

    Σ (u − v)·u·w = Σ (z − δ)·(z − δ + v)·w  →  Σ (z − δ)·(z + c)·w         z = u − c, δ = v − c

If v lies far from all u, δ·v and δ² cancel; so v is written as δ + c if that leaves fewer terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sympy import Expr

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Monomial, Polynomial
from redalg.incremental.derive.centre import Centred
from redalg.incremental.form import Pivot

Crossing = tuple[Polynomial, Polynomial]
"""v, and δ + c."""


def crossings(
    centred: Centred, moves: Mapping[int, Polynomial], pivots: Mapping[int, Pivot], symbol: Callable[[Expr], Polynomial]
) -> list[Crossing]:
    """The centres of d alone whose displacement δ has a name, of generators that have no scale."""
    return [
        (v, laurent.add(moves[atom], symbol(pivots[atom].value)))
        for atom, v in centred.centres.items()
        if any(d for _, d in v)
        and not any(x for x, _ in v)
        and len(moves[atom]) == 1
        and pivots[atom].has_slot
        and not pivots[atom].scales
    ]


def without_centres(terms: list[Polynomial], replaced: Sequence[Crossing]) -> list[Polynomial]:
    """The terms of a finished sum, with v written as δ + c if that leaves fewer of them."""
    for centre, pivoted in replaced:
        total = laurent.add(*terms)
        lead, c = min((d, c) for (_, d), c in centre.items() if d)
        rest = {key: part for key, part in centre.items() if key != ((), lead)}
        meaning = laurent.scale(laurent.add(pivoted, laurent.scale(rest, -1)), laurent.ratio(1, c))
        other = laurent.add(*(laurent.scale(_replace_powers(d, lead, meaning), part) for (_, d), part in total.items()))
        terms = [other] if len(other) < len(total) else terms
    return terms


def _replace_powers(d: Monomial, lead: Monomial, meaning: Polynomial) -> Polynomial:
    """A monomial with its powers of `lead` replaced; a divisor in `lead` may have cancelled in it."""
    powers = dict(d)
    times = min((int(powers.get(number, 0) / q) for number, q in lead if q > 0), default=0)
    if times <= 0:
        return {((), d): 1}
    left = laurent.multiply_monomials(d, laurent.power_monomial(lead, -times))
    return laurent.multiply({((), left): 1}, laurent.raise_to(meaning, times))
