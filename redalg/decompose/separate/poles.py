"""Poles that stay: a test, without writing anything out, that a division of polynomials does not cancel a base.

All but sums, products and powers is a generator, and each generator is a random line a·t + b modulo a prime. A term is
then N/D, two polynomials in t. If a base cancelled in the term, a factor of it would divide N as a polynomial in the
generators, and so on the line. If the base and N have no common factor on the line, nothing of the base cancels.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import reduce
from typing import TypeAlias, final

from sympy import Abs, Add, Expr, Mul, Pow, Rational, Tuple, exp, sign
from sympy.core.basic import Basic
from sympy.polys.domains import ZZ
from sympy.polys.galoistools import gf_add, gf_gcd, gf_mul, gf_pow

from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.theorems import D, NotSeparable, X
from redalg.expression.contents import of_kind, sympy_text

PRIME = ZZ(2**61 - 1)
HIGHEST = 8
"""The highest power that is computed."""
NOT_FREE = (Pow, exp, Abs, sign)
"""Kinds of which products are written otherwise: eᵘ·eᵛ, |u|·|u|."""
Fraction: TypeAlias = tuple[list[int], list[int]]
"""The coefficients of N and of D, those of the highest powers first."""


def keeps_pole(term: Expr, separator: Separator) -> bool:
    """Tell if a term in lowest terms is seen to divide by what is no product g(x)·h(d), as it does as it stands."""

    def mixes(node: Expr) -> bool:
        return separator.side(node) == X | D

    powers = [one for one in of_kind(Pow, term) if one.exp.is_Integer and one.exp.is_negative and mixes(one.base)]
    left = [one for one in sorted(powers, key=sympy_text) if stays(one, term, mixes)]
    return not all(_is_product(one.base, separator) for one in left)


def _is_product(base: Expr, separator: Separator) -> bool:
    try:
        separator.rank_one(base, base, "")
    except NotSeparable:
        return False
    return True


def stays(pole: Pow, term: Expr, mixes: Callable[[Expr], bool]) -> bool:
    """Tell if a power with a negative exponent is seen to divide the term in lowest terms, with its whole base.

    Nothing is said where generators mix x and d: (√u − 1)·(√u + 1) = u − 1.

    Args:
        pole, term: the power, and the term that holds it.
        mixes: tells if an expression holds both x and d.

    >>> from sympy import symbols
    >>> x, d = symbols("x d")
    >>> [stays(1 / (x - d), one / (x - d), {x - d}.__contains__) for one in (x, x**2 - d**2)]
    [True, False]
    """
    line = _Line(mixes)
    whole, base = line.at(term), line.known.get(pole.base)
    if whole is None or base is None or pole not in line.known:
        return False
    return bool(base[0] and whole[0]) and len(gf_gcd(base[0], whole[0], PRIME, ZZ)) == 1


@final
class _Line:
    """Terms on a random line, each node once."""

    def __init__(self, mixes: Callable[[Expr], bool]) -> None:
        self.mixes, self.random = mixes, random.Random(0)
        self.known: dict[Basic, Fraction | None] = {}

    def at(self, node: Basic) -> Fraction | None:
        """A node as N/D; None if it is of no kind of which the test speaks."""
        if node not in self.known:
            self.known[node] = self._fraction(node)
        return self.known[node]

    def _fraction(self, node: Basic) -> Fraction | None:
        if isinstance(node, Rational):
            return [ZZ(node.p) % PRIME] if node.p else [], [ZZ(node.q)]
        if isinstance(node, Add | Mul):
            parts = [self.at(arg) for arg in node.args]
            known = [one for one in parts if one is not None]
            return reduce(_sum if node.is_Add else _product, known) if len(known) == len(parts) else None
        if isinstance(node, Pow) and isinstance(node.exp, Rational) and abs(node.exp.p) <= HIGHEST:
            root = node.base if node.exp.q == 1 else Tuple(node.base, node.exp.q)
            part = self.at(root)
            return None if part is None else _power(part, int(node.exp.p))
        if isinstance(node, Tuple):  # a root: a generator of its own beside a sum, and no other
            generates = node.args[0].is_Add and not self.mixes(node.args[0])
        else:
            generates = not isinstance(node, NOT_FREE) and not self.mixes(node)
        line = [self.random.randrange(1, PRIME), self.random.randrange(PRIME)]
        return (line, [ZZ(1)]) if generates else None


def _sum(a: Fraction, b: Fraction) -> Fraction:
    if a[1] == b[1]:
        return gf_add(a[0], b[0], PRIME, ZZ), a[1]
    above = gf_add(_times(a[0], b[1]), _times(b[0], a[1]), PRIME, ZZ)
    return above, _times(a[1], b[1])


def _product(a: Fraction, b: Fraction) -> Fraction:
    return _times(a[0], b[0]), _times(a[1], b[1])


def _power(part: Fraction, exponent: int) -> Fraction:
    above, below = part if exponent > 0 else part[::-1]
    return gf_pow(above, abs(exponent), PRIME, ZZ), gf_pow(below, abs(exponent), PRIME, ZZ)


def _times(a: list[int], b: list[int]) -> list[int]:
    product: list[int] = gf_mul(a, b, PRIME, ZZ)
    return product
