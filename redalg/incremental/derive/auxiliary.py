"""Auxiliary pivots: the generators that are shifted although no term was written about a centre.

A raw moment Σ x² is large beside the variance that is made of it. Shifting x by any c is exact, and pays if a sum of
values loses c again (`cancel`), as in Q/n − (S/n)². The candidates are tried, and kept only if that happened.

    first     generators to a natural power of 2 or more, those whose extremum is held beside their sum, and those
              that an output carries beside values
    then      generators in products with each other (Σ x·y, of which a covariance is made), and with exponentials

c is the weighted mean of the block, Σ w·z / Σ w, if the basis holds w·z and a weight w of known sign; else the block's
plain mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import final

from sympy import Add, Dummy, Expr, S, log
from sympy.core.basic import Basic

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Monomial
from redalg.decompose.separate.theorems import D, X
from redalg.decompose.verdict.verdict import Decomposition
from redalg.expression import UNDEFINED, Axis, Value, Where
from redalg.expression.contents import free_axes, of_kind, values_of
from redalg.incremental.derive.basis import Pool
from redalg.incremental.derive.centre import Centred


@final
class Candidates:
    """Atoms that might be pivoted, in the order in which they are tried."""

    def __init__(self, decomposition: Decomposition, centred: dict[str, Centred]) -> None:
        self.atoms = decomposition.separator.atoms
        slot_terms = {slot.term for one in decomposition.separations if one.extremal for slot in one.extremal.slots}
        beside = set(carried_sums(decomposition))
        monomials = [(x, set(one.centres)) for one in centred.values() for x, _ in one.polynomial]
        excluded = {atom for one in centred.values() for atom in one.centres}
        excluded |= {atom for x, _ in monomials for atom, q in x if q < 0 or q.denominator != 1}
        excluded |= {atom for x, _ in monomials if len(x) > 1 and any(self._may_be_infinite(other) for other, _ in x)
                     for atom, _ in x}  # fmt: skip
        powers, products = set[int](), set[int]()
        for x, own in monomials:
            shiftable = [(atom, q) for atom, q in x if self._shiftable(atom)]
            weights = [atom for atom, _ in x if self.atoms.list[atom].exponential]
            powers |= {atom for atom, q in shiftable if q >= 2 or self.atoms.list[atom].base in slot_terms | beside}
            products |= set(self._partners([atom for atom, _ in shiftable], own))
            products |= {atom for atom, _ in shiftable if any(self._alike(atom, other) for other in weights)}
            squared = {atom for atom, q in shiftable if q >= 2}
            excluded |= {atom for atom, _ in shiftable if squared - {atom}}  # the weight of a square stays as it is
        powers, products = powers - excluded, products - excluded
        mixes = bool(beside) or any(differences(expr) for expr in expressions_after_loop(decomposition))
        mixes |= any(len(laurent.columns(one.polynomial)) > 1 or one.centres for one in centred.values())
        self.powers = frozenset(powers) if mixes else frozenset()
        self.products = frozenset(products - powers) if mixes else frozenset()

    def _partners(self, atoms: list[int], centred: set[int]) -> Iterator[int]:
        """The generators of a product that it may pay to shift: beside a centred one, only those with its axes."""
        for atom in atoms:
            others = [other for other in atoms if other != atom]
            axes = free_axes(self.atoms.list[atom].base)
            if any(other not in centred or free_axes(self.atoms.list[other].base) == axes for other in others):
                yield atom

    def _alike(self, atom: int, other: int) -> bool:
        """Tell if two generators vary along the same axes, so that their product is no contraction."""
        return free_axes(self.atoms.list[atom].base) == free_axes(self.atoms.list[other].base)

    def _may_be_infinite(self, atom: int) -> bool:
        """Tell if a generator holds a logarithm: 0·log 0 counts for nothing, (0 − c)·log 0 would."""
        return bool(self.atoms.list[atom].base.has(log))

    def _shiftable(self, atom: int) -> bool:
        generator = self.atoms.list[atom]
        base = generator.base  # NaN or 0 less a centre, which may be NaN, would be NaN for all
        mask = isinstance(base, Where) and set(base.args[1:]) <= {S.Zero, S.One, UNDEFINED}
        return not generator.exponential and not mask


def expressions_after_loop(decomposition: Decomposition) -> Iterator[Expr]:
    """The expressions of values after the loop: outputs, extrema, and the factors of d."""
    yield from (one.expr for one in decomposition.cascade.outputs)
    atoms = decomposition.separator.atoms.list
    for separation in decomposition.separations:
        if separation.extremal is not None:
            yield separation.extremal.final
        yield from {atoms[number].base for _, d in separation.polynomial for number, _ in d}


def carried_sums(decomposition: Decomposition) -> Iterator[Expr]:
    """u of every sum q·u(x) + v(d) in an output that carries a reduced axis."""
    separator = decomposition.separator
    for output in decomposition.cascade.outputs:
        for node in of_kind(Add, output.expr) if output.carries else ():
            of_x = [term for term in node.args if separator.side(term) == X]
            if of_x and any(separator.side(term) == D for term in node.args):
                yield Add(*of_x).as_coeff_Mul()[1]


def differences(expr: Basic) -> bool:
    """Tell if some sum in the expression has two terms, or a term and its divisor, that hold values or slots."""

    return any(sum(bool(part.atoms(Value, Dummy)) for term in terms for part in fraction_parts(term)) > 1
               for terms in summands(expr))  # fmt: skip


def summands(*exprs: Basic) -> Iterator[tuple[Expr, ...]]:
    """The terms of every sum, and the product in every logarithm: log(Q/S) is that of 1 + (Q − S)/S."""
    yield from (one.args for one in of_kind(Add, *exprs))
    yield from (one.args for one in of_kind(log, *exprs) if one.args[0].is_Mul)


def fraction_parts(term: Expr) -> tuple[Expr, ...]:
    """A term of a sum, or its numerator and denominator if the latter holds values: over S, Q/S − 1 is Q − S."""
    above, below = term.as_numer_denom() if term.is_Mul or term.is_Pow else (term, S.One)
    return (above, below) if values_of(below) else (term,)


def natural_move(atom: int, pool: Pool, names: list[Value], axes: AbstractSet[Axis]) -> Expr | None:
    """Σ w·z / Σ w of slots along `axes`: the displacement from the pivot of z to the block's weighted mean."""
    for number, partner in mean_of(atom, pool):
        if {axis for one in (number, partner) for axis in names[one].indices} <= axes:
            return names[number] / names[partner]
    return None


def mean_of(atom: int, pool: Pool) -> list[tuple[int, int]]:
    """The pairs of basis functions w·z and w, for weights w of known sign, plainest first."""
    pairs = []
    for number, weight, rest in _moments(atom, pool):
        partner = pool.find(weight, rest)
        if partner is not None and _of_one_sign(pool, rest):
            pairs.append((len(rest), number, partner))
    return [(number, partner) for _, number, partner in sorted(pairs)]


def _moments(atom: int, pool: Pool) -> Iterable[tuple[int, Monomial, Monomial]]:
    """Basis functions w·z, z the generator: the number, the grade and the factor w of each."""
    for number, function in enumerate(pool.functions):
        if len(function.vector) == 1:
            [(monomial, c)] = function.vector.items()
            if dict(monomial).get(atom) == 1 and c == 1:
                yield number, function.grade, laurent.without_atom(monomial, atom)


def _of_one_sign(pool: Pool, monomial: Monomial) -> bool:
    return not any(atom in pool.pivoted for atom, _ in monomial) and bool(
        pool.atoms.expr(monomial).is_extended_nonnegative
    )
