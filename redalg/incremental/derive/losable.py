"""Pivots that some sum of values might lose: a cheap condition, necessary for an auxiliary pivot to be of use.

A pivot c of u cancels only in a sum of which two terms bring it. It is brought by the sums whose terms hold u, by the
extrema of u, and by expressions of any of these. A centred generator makes two terms of one: Σ (x − m)·u is
Z_xu + δ·Z_u, and each brings c. So does Q/S beside another term, as S is its divisor. If no sum has two such terms, no
form need be derived to see that the pivot stays.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from collections.abc import Set as AbstractSet
from typing import final

from sympy import Dummy, Expr
from sympy.core.basic import Basic

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Monomial, Polynomial
from redalg.decompose.verdict.verdict import Decomposition, Separation
from redalg.expression.contents import of_kind, values_of
from redalg.incremental.derive.auxiliary import carried_sums, expressions_after_loop, fraction_parts, summands
from redalg.incremental.derive.centre import Centred


@final
class Losable:
    """Finds the generators whose pivots may cancel."""

    def __init__(self, decomposition: Decomposition, centred: dict[str, Centred]) -> None:
        self.separations, self.atoms = decomposition.separations, decomposition.separator.atoms
        self.centred = centred
        self.sloped = any(one.slopes(atom) for one in centred.values() for atom in one.centres)
        self.beside = set(carried_sums(decomposition))
        others = (h for one in self.separations if one.reduction.monoid.name != "sum" for h in one.h)
        exprs = (*expressions_after_loop(decomposition), *others)
        self.sums = [[_symbols(part) for term in terms for part in fraction_parts(term)] for terms in summands(*exprs)]

    def among(self, atoms: Iterable[int]) -> frozenset[int]:
        """The generators whose pivots may cancel."""
        return frozenset(atom for atom in atoms if self._is_losable(atom))

    def _is_losable(self, atom: int) -> bool:
        if self.sloped or self.atoms.list[atom].base in self.beside:
            return True
        symbols = self._pivot_symbols(atom)
        return any(sum(not symbols.isdisjoint(term) for term in terms) > 1 for terms in self.sums) or any(
            self._terms(poly, atom, symbols, form.centres) > 1
            for form in self.centred.values() for poly in (form.polynomial, *form.centres.values()))  # fmt: skip

    def _pivot_symbols(self, atom: int) -> AbstractSet[Basic]:
        """The values, and the symbols of slots, that bring the pivot."""
        symbols = set[Basic]()
        for separation in self.separations:
            slots = separation.extremal.slots if separation.extremal else ()
            symbols |= {slot.symbol for slot in slots if slot.term == self.atoms.list[atom].base}
            if self._brings(separation, atom, symbols):
                symbols.add(separation.reduction.value)
        return symbols

    def _brings(self, separation: Separation, atom: int, symbols: AbstractSet[Basic]) -> bool:
        if separation.reduction.name in self.centred:
            return self._terms(self.centred[separation.reduction.name].polynomial, atom, symbols, ()) > 0
        parts = [*separation.h, *([separation.extremal.final] if separation.extremal else [])]
        return self.atoms.list[atom].base in separation.g or any(
            not symbols.isdisjoint(_symbols(part)) for part in parts
        )

    def _terms(self, poly: Polynomial, atom: int, symbols: AbstractSet[Basic], centres: Container[int]) -> int:
        """The number of terms of a polynomial, by columns, that bring the pivot."""
        count = 0
        for d, column in laurent.columns(poly).items():
            numbers = {number for x in column for number, _ in x}
            if atom in numbers or self._of_d(d, symbols):
                count += 2 if any(number in centres for number in numbers) else 1
        return count

    def _of_d(self, d: Monomial, symbols: AbstractSet[Basic]) -> bool:
        return any(not symbols.isdisjoint(values_of(self.atoms.list[number].base)) for number, _ in d)


def _symbols(expr: Expr) -> AbstractSet[Basic]:
    return values_of(expr) | of_kind(Dummy, expr)
