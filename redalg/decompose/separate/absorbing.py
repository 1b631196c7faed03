"""NaN absorbs what it is multiplied by: the terms of roots and logarithms where they are not real, in products.

    √(g·h) → √|g|·√|h| + N(x)·J(d)      N is NaN or 0, where g < 0 or not; J is 1 or 0, where h > 0 or not
    N·J·(…) → N·J                       in a square or a product, and once; what may hide it stays: exponentials, masks

Else such a product would be summed, centred and scaled like any other, and a centre that is NaN makes all sums NaN.
"""

from __future__ import annotations

from sympy import S

from redalg.decompose.separate.laurent import Atom, Atoms, Monomial, Polynomial
from redalg.expression import UNDEFINED, Where
from redalg.expression.contents import is_indicator


def absorb_factors(polynomial: Polynomial, atoms: Atoms) -> Polynomial:
    """The polynomial with each NaN once, without the factors that it absorbs."""
    made = Polynomial()
    for (x, d), coefficient in polynomial.items():
        unreal = next((number for number, _ in x if is_unreal(atoms.list[number])), None)
        if unreal is None:
            made[x, d] = coefficient
        else:
            made[hiding_factors(x, atoms, unreal), hiding_factors(d, atoms)] = 1
    return made


def is_unreal(atom: Atom) -> bool:
    """Tell if a generator is NaN where a root or a logarithm is not real, and 0 elsewhere."""
    return isinstance(atom.base, Where) and atom.base.args[1] is UNDEFINED and atom.base.args[2] is S.Zero


def hiding_factors(monomial: Monomial, atoms: Atoms, kept: int | None = None) -> Monomial:
    """The factors that may be 0 and hide others, and the one that is kept; a power of an indicator is one."""
    whole = ((atoms.list[number], number, power) for number, power in monomial)
    return tuple(
        (number, power if atom.exponential else 1)
        for atom, number, power in whole
        if number == kept or atom.exponential or is_indicator(atom.base)
    )
