"""Products of factors Σ a_i(d)·g_i(x) + v(d) that no centre makes short: kept as factors, about means of blocks.

    Π (Σ a_i·g_i + v)^k·w  →  Π (Σ a_i·z_i + V)^k·w        z_i = g_i − c_i, V = v + Σ a_i·c_i

Exact for all c_i. Written out, such a product has terms far larger than itself where a factor is a small difference;
V and the z_i are as small as the factor is. V is an offset, which `finish` assigns first. An exponential is scaled
already and has no c_i.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import final

from sympy import Pow

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Atom, Monomial, Polynomial
from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.theorems import D, NotSeparable, X
from redalg.decompose.verdict.verdict import Decomposition, Separation
from redalg.expression import Label, Value
from redalg.expression.contents import axes_by_name, free_axes
from redalg.incremental.derive.centre import Centred, Offset

TERMS_LIMIT = 24
"""Terms beyond which a product is not kept as factors."""


def about_offsets(
    decomposition: Decomposition, centred: dict[str, Centred], paying: frozenset[int], fixed: AbstractSet[int]
) -> dict[str, Centred] | None:
    """The centred sums with products kept as factors where their generators have no pivot yet; None if none has.

    `fixed` are generators that no shift leaves exact, as some sum holds other powers of them than natural ones.
    """
    result = dict(centred)
    for separation in decomposition.separations:
        own = centred.get(separation.reduction.name)
        if own is None or len(own.polynomial) == 1 or separation.guarded:
            continue
        try:
            factors = tuple(_factors(separation, decomposition.separator))
        except NotSeparable:
            continue
        product = Product(separation, decomposition, factors)
        if product.is_fit(paying) and not product.generators & fixed:
            result[separation.reduction.name] = product.about_offsets()
    return None if result == centred else result


@final
@dataclass(frozen=True)
class Factor:
    """A factor of a sum's term: its polynomial to a power, and whether it is of x and d."""

    polynomial: Polynomial
    power: int
    is_sum: bool

    @property
    def at_rest(self) -> Polynomial:
        """The part of d alone."""
        return {key: c for key, c in self.polynomial.items() if not key[0]}

    @property
    def of_x(self) -> Polynomial:
        """The terms that hold generators."""
        return {key: c for key, c in self.polynomial.items() if key[0]}


@final
@dataclass(frozen=True)
class Product:
    """The term of a sum as a product of factors."""

    separation: Separation
    decomposition: Decomposition
    factors: tuple[Factor, ...]

    @cached_property
    def generators(self) -> AbstractSet[int]:
        """The generators that have a pivot."""
        return {x[0][0] for one in self.factors if one.is_sum for x, _ in one.of_x if not self._is_exponential(x)}

    def is_fit(self, paying: AbstractSet[int]) -> bool:
        """Tell if it is short, a difference may cancel in it, and not all of its generators have a pivot already."""
        sums = [one for one in self.factors if one.is_sum]
        degree = sum(one.power for one in sums)
        others = {atom for factor in self.factors for atom in self._atoms_at_rest(factor)}
        terms = comb(len(self.generators | others) + degree, degree)
        mixed = any(len({x for x, _ in one.of_x}) + len(one.at_rest) > 2 for one in sums if one.at_rest)
        return (
            degree > 1 and mixed and terms <= TERMS_LIMIT
            and not self.generators & others and not (self.generators and self.generators <= paying)
        )  # fmt: skip

    def about_offsets(self) -> Centred:
        """The product with an offset for each factor of x and d."""
        atoms, reduction = self.decomposition.separator.atoms, self.separation.reduction
        axes = axes_by_name(free_axes(reduction.term) - set(self.decomposition.cascade.reduced_axes))
        result, offsets = laurent.ONE, list[Offset]()
        for factor in self.factors:
            base = factor.polynomial
            if factor.is_sum:
                value = Value(Label(f"{reduction.name}_offset{len(offsets)}"), *axes)
                at_pivots = {key: c for key, c in base.items() if not key[0] or not self._is_exponential(key[0])}
                offsets.append(Offset(value, at_pivots))
                base = laurent.add(factor.of_x, atoms.value_polynomial(value))
            result = laurent.multiply(result, laurent.raise_to(base, factor.power))
        return Centred(result, {atom: {} for atom in sorted(self.generators)}, offsets=tuple(offsets))

    def _atoms_at_rest(self, factor: Factor) -> Iterator[int]:
        """Yield the atoms of x that have no pivot: of a weight all, of a sum those of its exponentials."""
        for x in (x for x, _ in factor.polynomial if not factor.is_sum or self._is_exponential(x)):
            yield from (atom for atom, _ in x)

    def _is_exponential(self, x: Monomial) -> bool:
        return any(self.decomposition.separator.atoms.list[atom].exponential for atom, _ in x)


def _factors(separation: Separation, separator: Separator) -> Iterator[Factor]:
    """The factors of a sum's term; in a factor of x and d every monomial of x is one generator."""
    term = separation.reduction.term
    for factor in term.args if term.is_Mul else (term,):
        natural = isinstance(factor, Pow) and factor.exp.is_Integer and factor.exp > 0
        base, k = factor.args if natural else (factor, 1)
        if separator.side(base) == X | D:
            poly = separator.separate(base)
            parts = ({(_generator(x, separator), d): c} for (x, d), c in poly.items())
            yield Factor(laurent.add(*parts), int(k), is_sum=True)
        else:
            yield Factor(separator.pure(factor), 1, is_sum=False)


def _generator(x: Monomial, separator: Separator) -> Monomial:
    """A monomial of x as one atom, but for those that hold an exponential."""
    alone = not x or (len(x) == 1 and x[0][1] == 1)
    if alone or any(separator.atoms.list[atom].exponential for atom, _ in x):
        return x
    return separator.atoms.monomial(Atom(separator.atoms.expr(x), on_x=True, exponential=False))
