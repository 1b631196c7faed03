"""Products of factors Σ a_i(d)·g_i(x) + v(d) that no centre makes short: kept as factors, about means of blocks.

    Π (Σ a_i·g_i + v)^k·w  →  Π (Σ a_i·z_i + V)^k·w        z_i = g_i − c_i, V = v + Σ a_i·c_i

Exact for all c_i. Written out, such a product has terms far larger than itself where a factor is a small difference;
V and the z_i are as small as the factor is. V is an offset, which `finish` assigns first. An exponential is scaled
already and has no c_i. If d chooses between products, every branch is such a product beside its mask, and all branches
share the c_i. A branch that a mask of x guards is left as it is, since an element that does not count would move c_i.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import final

from sympy import Expr, Mul, Pow, S

from redalg.decompose.separate import laurent
from redalg.decompose.separate.guarded import parts_by_guard
from redalg.decompose.separate.laurent import Atom, Monomial, Polynomial
from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.theorems import D, NotSeparable, X
from redalg.decompose.verdict.verdict import Decomposition, Separation
from redalg.expression import Label, Value, Where
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
        if own is None or len(own.polynomial) == 1:
            continue
        with suppress(NotSeparable):
            parts = {some: Product(separation, decomposition, tuple(_factors(part, decomposition.separator)))
                     for some, part in _parts(separation, decomposition.separator).items()}  # fmt: skip
            if are_fit(parts.values(), paying) and not generators_of(parts.values()) & fixed:
                result[separation.reduction.name] = _about_offsets(parts, separation)
    return None if result == centred else result


def _parts(separation: Separation, separator: Separator) -> dict[Expr, Expr]:
    """The parts of a sum by their guards if these are free of x, so that all elements count or none; else no part."""
    if not separation.guarded:
        return {S.One: separation.reduction.term}
    parts = parts_by_guard(separation.reduction.term, separator)
    known = parts.keys() >= {some for some, _ in separation.guarded}
    return parts if known and not any(separator.side(some) & X for some in parts) else {}


def _about_offsets(parts: Mapping[Expr, Product], separation: Separation) -> Centred:
    """The parts as products about offsets, whose generators have the pivots that all parts share."""
    offsets, polynomials = list[Offset](), dict[Expr, Polynomial]()
    for some, product in parts.items():
        polynomials[some], further = product.about_offsets(len(offsets))
        offsets += further
    guards = {some for some, _ in separation.guarded}
    guarded = tuple((some, polynomial) for some, polynomial in polynomials.items() if some in guards)
    centres: dict[int, Polynomial] = {atom: {} for atom in sorted(generators_of(parts.values()))}
    return Centred(laurent.add(*polynomials.values()), centres, guarded, tuple(offsets))


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

    @cached_property
    def others(self) -> AbstractSet[int]:
        """The generators that have none."""
        return {atom for factor in self.factors for atom in self._atoms_at_rest(factor)}

    @cached_property
    def is_short(self) -> bool:
        """Tell if few terms are left of it."""
        return comb(len(self.generators | self.others) + self._degree, self._degree) <= TERMS_LIMIT

    @cached_property
    def may_cancel(self) -> bool:
        """Tell if a factor of it may be a small difference."""
        resting = [one for one in self.factors if one.is_sum and one.at_rest]
        terms = (len({x for x, _ in factor.of_x}) + len(factor.at_rest) for factor in resting)
        return self._degree > 1 and any(number > 2 for number in terms)

    @property
    def _degree(self) -> int:
        return sum(one.power for one in self.factors if one.is_sum)

    def about_offsets(self, number: int) -> tuple[Polynomial, list[Offset]]:
        """The product with an offset for each factor of x and d, and these, numbered from `number` on."""
        atoms, reduction = self.decomposition.separator.atoms, self.separation.reduction
        axes = axes_by_name(free_axes(reduction.term) - set(self.decomposition.cascade.reduced_axes))
        result, offsets = laurent.ONE, list[Offset]()
        for factor in self.factors:
            base = factor.polynomial
            if factor.is_sum:
                value = Value(Label(f"{reduction.name}_offset{number + len(offsets)}"), *axes)
                at_pivots = {key: c for key, c in base.items() if not key[0] or not self._is_exponential(key[0])}
                offsets.append(Offset(value, at_pivots))
                base = laurent.add(factor.of_x, atoms.value_polynomial(value))
            result = laurent.multiply(result, laurent.raise_to(base, factor.power))
        return result, offsets

    def _atoms_at_rest(self, factor: Factor) -> Iterator[int]:
        """Yield the atoms of x that have no pivot: of a weight all, of a sum those of its exponentials."""
        for x in (x for x, _ in factor.polynomial if not factor.is_sum or self._is_exponential(x)):
            yield from (atom for atom, _ in x)

    def _is_exponential(self, x: Monomial) -> bool:
        return any(self.decomposition.separator.atoms.list[atom].exponential for atom, _ in x)


def generators_of(products: Iterable[Product]) -> AbstractSet[int]:
    """The generators of products that have a pivot."""
    return {atom for one in products for atom in one.generators}


def are_fit(products: Collection[Product], paying: AbstractSet[int]) -> bool:
    """Tell if products are short, a difference may cancel in one, and not all generators have a pivot already."""
    generators, others = generators_of(products), {atom for one in products for atom in one.others}
    return (
        any(one.may_cancel for one in products) and all(one.is_short for one in products)
        and not generators & others and not (generators and generators <= paying)
    )  # fmt: skip


def _factors(term: Expr, separator: Separator) -> Iterator[Factor]:
    """The factors of a sum's term; in a factor of x and d every monomial of x is one generator."""
    for factor in Mul.make_args(term):
        natural = isinstance(factor, Pow) and factor.exp.is_Integer and factor.exp > 0
        base, k = factor.args if natural else (factor, 1)
        if separator.side(base) != X | D:
            yield Factor(separator.pure(factor), 1, is_sum=False)
        elif isinstance(base, Where) and not separator.side(base.condition) & X and S.Zero in base.args[1:]:
            yield from _masked_factors(base, separator)
        else:
            poly = separator.separate(base)
            parts = ({(_generator(x, separator), d): c} for (x, d), c in poly.items())
            yield Factor(laurent.add(*parts), int(k), is_sum=True)


def _masked_factors(node: Where, separator: Separator) -> Iterator[Factor]:
    """The mask of a choice between a product and 0, and the factors of the product."""
    condition, *branches = node.args
    mask = Where(condition, *(S.Zero if one is S.Zero else S.One for one in branches))
    yield Factor(separator.pure(mask), 1, is_sum=False)
    yield from _factors(next(one for one in branches if one is not S.Zero), separator)


def _generator(x: Monomial, separator: Separator) -> Monomial:
    """A monomial of x as one atom, but for those that hold an exponential."""
    alone = not x or (len(x) == 1 and x[0][1] == 1)
    if alone or any(separator.atoms.list[atom].exponential for atom, _ in x):
        return x
    return separator.atoms.monomial(Atom(separator.atoms.expr(x), on_x=True, exponential=False))
