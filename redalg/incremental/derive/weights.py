"""Factors that have a pivot in one sum, and are weights in another, which needs no pivot of them.

    Σ t·(x − c)·f + c·Σ t·f  →  Σ z·f, z = t·x        f of other generators; c the pivot of x in other sums

Exact, as z stands for t·x. It is done if every term that is weighed by t, of all sums, has x as a factor once, and no
sum of these terms has a centre for x. No value then holds Σ t·f, so that nothing would cancel c. About c, the sum needs
twice the slots, and loses digits if c is far from the x that t weighs.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import final

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Atom, Atoms, Monomial, Polynomial
from redalg.incremental.derive.centre import Centred


def join_weights(centred: Mapping[str, Centred], atoms: Atoms) -> dict[str, Centred]:
    """The sums of a form with factors joined to their weights."""
    shifted = frozenset(atom for one in centred.values() for atom in _centred_atoms(one))
    factors: dict[Monomial, AbstractSet[int]] = {}
    for centred_sum in centred.values():
        for x, _ in centred_sum.polynomial:
            t = _split_weight(x, shifted)[0]
            plain = {atom for atom, q in x if q == 1} & shifted - _centred_atoms(centred_sum)
            factors[t] = factors.get(t, plain) & plain
    joining = Joining(atoms, shifted, factors)
    return {name: joining.rewrite_sum(centred_sum) for name, centred_sum in centred.items()}


def _centred_atoms(centred: Centred) -> AbstractSet[int]:
    """The generators that a sum centres, and those on whose lines it centres them."""
    return {atom for one in centred.centres for atom in (one, *centred.slopes(one))}


def _split_weight(x: Monomial, shifted: AbstractSet[int]) -> tuple[Monomial, Monomial]:
    """The weight t of a monomial, of generators without a centre, and the rest."""
    return laurent.split_monomial(x, lambda atom: atom not in shifted)


@final
@dataclass(frozen=True)
class Joining:
    """The factors that are joined to each weight; `shifted` are generators with a centre in some sum."""

    atoms: Atoms
    shifted: AbstractSet[int]
    factors: Mapping[Monomial, AbstractSet[int]]

    def rewrite_sum(self, centred: Centred) -> Centred:
        """A sum with t·x as one generator, in all of its parts."""
        guarded = tuple((some, self._rewrite(part)) for some, part in centred.guarded)
        return replace(centred, polynomial=self._rewrite(centred.polynomial), guarded=guarded)

    def _rewrite(self, polynomial: Polynomial) -> Polynomial:
        """A polynomial with t·x as one generator; exponentials in t stay apart, as they have pivots of their own."""
        result: Polynomial = {}
        for (x, d), c in polynomial.items():
            laurent.accumulate(result, (self._join(x), d), c)
        return result

    def _join(self, x: Monomial) -> Monomial:
        t, rest = _split_weight(x, self.shifted)
        exponentials, plain = laurent.split_monomial(t, lambda atom: self.atoms.list[atom].exponential)
        joined, rest = laurent.split_monomial(rest, lambda atom: atom in self.factors.get(t, ()))
        if not plain or not joined:
            return x
        z = Atom(self.atoms.expr(laurent.multiply_monomials(plain, joined)), on_x=True, exponential=False)
        return laurent.multiply_monomials(laurent.multiply_monomials(exponentials, rest), self.atoms.monomial(z))
