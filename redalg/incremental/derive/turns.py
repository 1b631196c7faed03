"""Turns: written slopes less those of the pivots, with values written out so that pivots cancel.

N/D − β → (N − β·D)/D          N and β·D in terms of the slots: they cancel there, and not in floating point
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from sympy import Expr

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Polynomial
from redalg.incremental.derive.basis import Pool
from redalg.incremental.derive.cancel import Canceller
from redalg.incremental.derive.centre import divisor

WRITTEN_OUT = 2000
"""Terms beyond which a turn is left in terms of values: digits that they have lost stay lost."""


def over_divisor(poly: Polynomial, canceller: Canceller) -> Expr:
    """A polynomial of values over the divisor of its terms, both written out unless they are too long."""
    atoms, below, under = canceller.separator.atoms, divisor(poly), laurent.ONE
    above: Polynomial | None = laurent.multiply(poly, {((), below): 1})
    for number, q in below:
        meaning = canceller.polynomial(atoms.list[number].base)
        above = laurent.substitute(above, number, meaning) if above is not None else None
        under = laurent.multiply(under, laurent.raise_to(meaning, int(q)) if q.denominator == 1 else {})
    if above is None or not under or max(_length(one, canceller) for one in (above, under)) > WRITTEN_OUT:
        return atoms.polynomial_expr(poly)
    above, under = (canceller.substitute(one, canceller.meaning) for one in (above, under))
    return atoms.polynomial_expr(above) / atoms.polynomial_expr(under)


def _length(poly: Polynomial, canceller: Canceller) -> int:
    """The number of terms of a polynomial with its values written out, before any cancel."""
    lengths = ([len(canceller.meaning.get(number, laurent.ONE)) ** int(q) for number, q in d if q > 0] for _, d in poly)
    return sum(map(prod, lengths))


def slope_difference(slope: Polynomial, beta: Polynomial, canceller: Canceller) -> Expr:
    """N/D − β of one slope, which is a regression's."""
    meaning, under, atoms = canceller.meaning, laurent.ONE, canceller.separator.atoms.list
    below = tuple((number, q) for number, q in divisor(slope) if not atoms[number].exponential)  # they stay above
    above = canceller.substitute(laurent.multiply(slope, {((), below): 1}), meaning)
    for number, q in below:
        if q.denominator == 1:
            base = canceller.polynomial(atoms[number].base)
            under = laurent.multiply(under, laurent.raise_to(canceller.substitute(base, meaning), int(q)))
    rest = laurent.add(above, laurent.scale(laurent.multiply(under, beta), -1))
    to_expr = canceller.separator.atoms.polynomial_expr
    return to_expr(rest) / to_expr(under)


def whole_slope(
    key: int, turns: Mapping[int, Polynomial], pool: Pool, slope: Callable[[int], Polynomial]
) -> Polynomial:
    """b = β + τ, and along a chain + Σ b·τ of the slopes between."""
    between = (laurent.multiply(whole_slope(by, turns, pool, slope), turns[along]) for by, along in pool.links(key))
    return laurent.add(slope(key), turns[key], *between)
