"""Laurent polynomials over ℚ in interned atoms, each monomial split into an x-part and a d-part.

    polynomial := { (x-monomial, d-monomial): coefficient }        F(x, d) = Σ coefficient · x-monomial · d-monomial
    monomial   := ((atom, exponent), …)  sorted by atom number, exponents non-zero rationals
    atom       := a SymPy expression u, either as a power base u^q or as an exponential E[u]^q = exp(q·u)

Everything is exact; equal polynomials are equal dictionaries. Numbers are int where they are whole, as most are: it is
much faster than Fraction, and equal to it, in hashes too. They are divided by `ratio` alone, as int/int is a float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import comb, prod
from typing import TypeAlias, TypeVar, final

from sympy import Add, Expr, Integer, Mul, Rational, S, exp

K = TypeVar("K")
Ratio: TypeAlias = int | Fraction
Monomial = tuple[tuple[int, Ratio], ...]
Polynomial = dict[tuple[Monomial, Monomial], Ratio]
Vector = dict[Monomial, Ratio]

ONE: Polynomial = {((), ()): 1}
TERMS_LIMIT = 2000
"""Terms beyond which a product is not written out where it need not be."""


@final
class TooLongError(Exception):
    """A product has more terms than it is worth."""


def fraction(value: Ratio) -> Expr:
    """An exact number as SymPy writes it."""
    return Integer(value) if isinstance(value, int) else Rational(value.numerator, value.denominator)


def ratio(numerator: Ratio, denominator: Ratio) -> Ratio:
    """An exact quotient."""
    if isinstance(numerator, int) and isinstance(denominator, int) and numerator % denominator == 0:
        return numerator // denominator
    quotient = Fraction(numerator) / denominator
    return quotient.numerator if quotient.denominator == 1 else quotient


def as_ratio(number: Expr) -> Ratio:
    """A rational number of SymPy as an exact one."""
    return ratio(int(number.p), int(number.q))


def rational(number: Expr) -> Ratio | None:
    """A SymPy number as an exact one (a float is taken at the decimal value that it prints)."""
    if number.is_Integer:
        return int(number)
    if number.is_Rational:
        return as_ratio(number)
    return Fraction(str(number)) if number.is_Float and number.is_finite else None


@final
@dataclass(frozen=True)
class Atom:
    """A generator: `base`^q, or exp(q·`base`) when `exponential`; on the x side or on the d side."""

    base: Expr
    on_x: bool
    exponential: bool

    def power(self, exponent: Ratio) -> Expr:
        """The atom to a power, as SymPy writes it."""
        if exponent == 1:
            return exp(self.base) if self.exponential else self.base
        return exp(self.base * fraction(exponent)) if self.exponential else self.base ** fraction(exponent)


@final
class Atoms:
    """The atoms of one cascade, numbered as they are met (one pool serves all its reductions)."""

    def __init__(self) -> None:
        self.numbers: dict[Atom, int] = {}
        self.list: list[Atom] = []
        self._exprs: dict[Monomial, Expr] = {}

    def number(self, atom: Atom) -> int:
        """The number of an atom, new or known."""
        if atom not in self.numbers:
            self.numbers[atom] = len(self.list)
            self.list.append(atom)
        return self.numbers[atom]

    def monomial(self, atom: Atom, exponent: Ratio = 1) -> Monomial:
        """atom^exponent as a monomial."""
        return ((self.number(atom), exponent),) if exponent else ()

    def polynomial(self, atom: Atom, exponent: Ratio = 1) -> Polynomial:
        """atom^exponent as a polynomial."""
        mono = self.monomial(atom, exponent)
        return {(mono, ()) if atom.on_x else ((), mono): 1}

    def value_polynomial(self, value: Expr) -> Polynomial:
        """A value, or an expression of values alone, as one atom of d."""
        return self.polynomial(Atom(value, on_x=False, exponential=False))

    def expr(self, monomial: Monomial) -> Expr:
        """A monomial as a SymPy expression."""
        if monomial not in self._exprs:
            self._exprs[monomial] = Mul(*(self.list[atom].power(exponent) for atom, exponent in monomial))
        return self._exprs[monomial]

    def vector_expr(self, vector: Vector) -> Expr:
        """Σ coefficient · monomial as a SymPy expression."""
        return Add(*(fraction(c) * self.expr(monomial) for monomial, c in vector.items()))

    def polynomial_expr(self, poly: Polynomial) -> Expr:
        """A polynomial as a SymPy expression."""
        total: Expr = S.Zero
        for (x, d), c in poly.items():
            total += fraction(c) * self.expr(x) * self.expr(d)
        return total


def constant_polynomial(value: Ratio) -> Polynomial:
    """A number as a polynomial."""
    return {((), ()): value} if value else {}


def multiply_monomials(a: Monomial, b: Monomial) -> Monomial:
    """Product of monomials: exponents add."""
    if not a or not b:
        return a or b
    exponents = dict(a)
    for atom, exponent in b:
        exponents[atom] = exponents.get(atom, 0) + exponent
    return tuple(sorted((atom, exponent) for atom, exponent in exponents.items() if exponent))


def power_monomial(a: Monomial, exponent: Ratio) -> Monomial:
    """Power of a monomial."""
    return tuple((atom, q * exponent) for atom, q in a) if exponent else ()


def accumulate(target: dict[K, Ratio], key: K, value: Ratio) -> None:
    """target[key] += value, keeping no zero."""
    total = target.get(key, 0) + value
    if total:
        target[key] = total
    else:
        target.pop(key, None)


def add(*polys: Polynomial) -> Polynomial:
    """Sum of polynomials."""
    out: Polynomial = {}
    for poly in polys:
        for key, c in poly.items():
            accumulate(out, key, c)
    return out


def scale(poly: Polynomial, factor: Ratio) -> Polynomial:
    """A polynomial times a number."""
    return {key: c * factor for key, c in poly.items()} if factor else {}


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    """Product of polynomials."""
    if ONE in (a, b):
        return a if b == ONE else b
    out: Polynomial = {}
    for (x1, d1), c1 in a.items():
        for (x2, d2), c2 in b.items():
            accumulate(out, (multiply_monomials(x1, x2), multiply_monomials(d1, d2)), c1 * c2)
    return out


def multiply_all(polys: Iterable[Polynomial]) -> Polynomial:
    """Product of any number of polynomials."""
    return reduce(multiply, polys, ONE)


def raise_to(poly: Polynomial, exponent: int) -> Polynomial:
    """Natural power of a polynomial."""
    out = poly if exponent else ONE
    for _ in range(exponent - 1):
        out = multiply(out, poly)
    return out


def are_short(monomials: Iterable[Monomial], values: Mapping[int, Polynomial]) -> bool:
    """Tell if monomials in natural powers have few terms, with a polynomial for each atom."""
    return all(prod(comb(len(values[atom]) + int(n) - 1, int(n)) for atom, n in monomial) <= TERMS_LIMIT
               for monomial in monomials)  # fmt: skip


def short_product(a: Polynomial, b: Polynomial) -> Polynomial:
    """Product of polynomials; raises `TooLongError` if it may have many terms."""
    if len(a) * len(b) > TERMS_LIMIT:
        raise TooLongError
    return multiply(a, b)


def substitute(poly: Polynomial, atom: int, value: Polynomial) -> Polynomial | None:
    """Replace an atom by a polynomial; None if the atom stands to a power that is not natural."""
    powers = [ONE]
    out: Polynomial = {}
    for (x, d), c in poly.items():
        exponent = dict(x + d).get(atom, 0)
        if exponent < 0 or exponent.denominator != 1:
            return None
        while len(powers) <= exponent:
            powers.append(multiply(powers[-1], value))
        rest = {(without_atom(x, atom), without_atom(d, atom)): c}
        out = add(out, multiply(rest, powers[int(exponent)]))
    return out


def whole_power(number: Ratio, exponent: int) -> Ratio:
    """A number to a whole power, which may be negative."""
    return number**exponent if exponent >= 0 else ratio(1, number**-exponent)


def without_atom(monomial: Monomial, atom: int) -> Monomial:
    """The monomial with the atom's factor removed."""
    return tuple(pair for pair in monomial if pair[0] != atom)


def split_monomial(monomial: Monomial, keep: Callable[[int], bool]) -> tuple[Monomial, Monomial]:
    """The factors whose atom satisfies `keep`, and the others."""
    return tuple(p for p in monomial if keep(p[0])), tuple(p for p in monomial if not keep(p[0]))


def columns(poly: Polynomial) -> dict[Monomial, Vector]:
    """F as Σ over d-monomials: d-monomial -> its x-polynomial."""
    out: dict[Monomial, Vector] = {}
    for (x, d), c in poly.items():
        out.setdefault(d, {})[x] = c
    return out


def atoms_of(poly: Polynomial) -> Iterator[int]:
    """Atoms on the x side, in order of number."""
    yield from sorted({atom for x, _ in poly for atom, _ in x})
