"""Whole generators: a product, a power or an exponential of x that is one atom of a polynomial.

    t·(E[u]^q·Π f^p)^k  →  t·z^k        z = E[u]^q·Π f^p one atom, k ≥ 1 natural, t a monomial of x

Exact, as z stands for what it was. An indicator is its own square, and |a|² is a².
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import final

from sympy import Abs, Add, Expr, S

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Atom, Atoms, Monomial, Polynomial, Ratio
from redalg.expression.contents import is_indicator

DEGREES = 8
"""Highest power of a whole generator."""


@final
@dataclass(frozen=True)
class Whole:
    """A generator z that is kept whole.

    Attributes:
        atom: its atom's number.
        monomial: the monomial that it stands for, in the form of `canonical`.
        beside: the monomials t that it is summed beside.
        exponentials: its factors E[u]^q, which are scaled before z is shifted.
        rest: the others.
    """

    atom: int
    monomial: Monomial
    beside: frozenset[Monomial]
    exponentials: Monomial
    rest: Expr


def rewrite_whole(polynomial: Polynomial, whole: Whole, atoms: Atoms) -> Polynomial:
    """t·(…)^k → t·z^k in every monomial."""
    result: Polynomial = {}
    for (x, d), c in polynomial.items():
        laurent.accumulate(result, (_with(x, whole, atoms), d), c)
    return result


def _with(x: Monomial, whole: Whole, atoms: Atoms) -> Monomial:
    best = x
    for k in range(1, DEGREES + 1):
        t = monomial_quotient(canonical(x, atoms), whole.monomial, k, atoms)
        best = laurent.multiply_monomials(t, ((whole.atom, k),)) if t in whole.beside else best
    return best


def monomial_quotient(x: Monomial, by: Monomial, k: int, atoms: Atoms) -> Monomial | None:
    """x/by^k; None if x lacks a factor of by^k."""
    powers = dict(x)
    for atom, q in monomial_product((), by, k, atoms):
        p = powers.pop(atom, 0)
        if p * q <= 0 or (p < q if q > 0 else p > q):
            return None
        if p != q:
            powers[atom] = p - q
    return tuple(sorted(powers.items()))


def monomial_product(t: Monomial, by: Monomial, k: int, atoms: Atoms) -> Monomial:
    """t·by^k."""
    return canonical(laurent.multiply_monomials(t, laurent.power_monomial(by, k)), atoms)


def canonical(x: Monomial, atoms: Atoms) -> Monomial:
    """A monomial with [c]^k → [c], |a|^2k → a^2k and E[u + v] → E[u]·E[v], so that equal ones are equal."""
    return reduce(laurent.multiply_monomials, (_factor(atom, q, atoms) for atom, q in x), ())


def _factor(atom: int, q: Ratio, atoms: Atoms) -> Monomial:
    generator = atoms.list[atom]
    if generator.exponential and isinstance(generator.base, Add):
        return reduce(laurent.multiply_monomials, (_exponential(term, q, atoms) for term in generator.base.args))
    if q > 0 and is_indicator(generator.base):
        return ((atom, 1),)
    if isinstance(generator.base, Abs) and q.denominator == 1 and q > 1:
        even = atoms.monomial(Atom(generator.base.args[0], on_x=True, exponential=False), q - q % 2)
        return laurent.multiply_monomials(even, ((atom, q % 2),) if q % 2 else ())
    return ((atom, q),)


def _exponential(term: Expr, q: Ratio, atoms: Atoms) -> Monomial:
    """E[k·v]^q as E[v]^kq, or as E[−v]^−kq, as the separator has them."""
    number, rest = term.as_coeff_Mul()
    if not number.is_Rational:
        number, rest = S.One, term
    factor = q * laurent.as_ratio(abs(number))
    return atoms.monomial(Atom(rest if number > 0 else -rest, on_x=True, exponential=True), factor)


def rewrite_wholes(polynomial: Polynomial, wholes: Iterable[Whole], atoms: Atoms) -> Polynomial:
    """Write every generator that is kept whole as one atom, one generator after the other."""
    return reduce(lambda poly, whole: rewrite_whole(poly, whole, atoms), wholes, polynomial)
