"""The scales of a state's sums, as polynomials on the side of d, where it cancels.

exp(q·c)      of a weight E[u]^q, c the pivot of u            c^p    of (s/c)^p
exp(k·q·m)    of degree k in a whole generator E[u]^q·f, which m scales before it is shifted
m^k           of degree k in a generator that is divided by a magnitude m before it is shifted
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sympy import Expr, S, expand_mul, log

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Atom, Monomial, Polynomial, Ratio, fraction
from redalg.incremental.derive.basis import Pool
from redalg.incremental.derive.maxima import derived_maxima
from redalg.incremental.derive.placement import Placement
from redalg.incremental.form import Pivot


@final
class Grades:
    """The factors that the slots of a placement leave out."""

    def __init__(self, placement: Placement, pool: Pool) -> None:
        self.placement, self.pool = placement, pool
        pivots, reduced = [*placement.pivots.values()], set(placement.decomposition.cascade.reduced_axes)
        self.maxima = dict(derived_maxima(placement.extrema, pivots, reduced))

    def of(self, grade: Monomial) -> Polynomial:
        """exp(Σ q·c) and Π c^p of the functions' own pivots, as atoms that cancel against those on the side of d."""
        out = laurent.ONE
        for atom, q in grade:
            if atom in self.pool.rooted:  # kept apart as an exponent is, until a root or a ratio meets it
                number = self._number(log(self.placement.pivots[atom].value), exponential=True)
                out = laurent.multiply(out, {((), ((number, q),)): 1})
                continue
            if atom in self.pool.scaled:
                source = self._number(self.placement.pivots[atom].source)
                out = laurent.multiply(out, {((), ((source, q),)): 1})
                continue
            exponent = self.placement.pivots[atom].source * self.placement.rates[atom] * fraction(q)
            out = laurent.multiply(out, self.exp(exponent))
        return out

    def scales(self, degrees: Mapping[int, Ratio]) -> Polynomial:
        """exp(Σ k·q·m) of generators that are scaled before they are shifted, to the powers k."""
        return laurent.multiply_all(self.scale(self.placement.pivots[atom], k) for atom, k in degrees.items())

    def scale(self, pivot: Pivot, k: Ratio) -> Polynomial:
        """The k-th power of what a generator is scaled by before it is shifted."""
        if pivot.magnitude is not None:
            return {((), ((self._number(log(pivot.magnitude.value), exponential=True), k),)): 1}
        return laurent.multiply_all(self.exp(m.source * q * fraction(k)) for m, q in pivot.scales)

    def exp(self, argument: Expr) -> Polynomial:
        """exp of what is made of values."""
        return self.placement.decomposition.separator.exponential(argument) if argument is not S.Zero else laurent.ONE

    def derived_maxima(self) -> dict[int, Polynomial]:
        """The maxima that follow from pivots, and their exponentials, by their atoms' numbers."""
        pure = self.placement.decomposition.separator.pure
        return {self._number(value): pure(expr) for value, expr in self.maxima.items()} | {
            self._number(value, exponential=True): self.exp(expr) for value, expr in self.maxima.items()}  # fmt: skip

    def of_maxima(self, source: Expr) -> Expr:
        """A pivot's source, by the maxima that others follow from."""
        return expand_mul(source.xreplace(self.maxima)) if self.maxima else source

    def _number(self, value: Expr, *, exponential: bool = False) -> int:
        return self.placement.decomposition.separator.atoms.number(Atom(value, on_x=False, exponential=exponential))
