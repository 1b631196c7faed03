"""Generators that are kept whole: taken apart, a difference of them would lose its digits.

Taken apart, a monomial has generators of its own for its factors, and none of them is the z of E[z²] − E[z]²; the whole
is one that a pivot shifts. It is proposed if the sums of a cascade hold

    t, t·z, t·z²                 a variance of z, raw or about a centre, weighed by t
    t, t·z, t·z', t·z·z'         a covariance of two that are not plain
    t·z², t·z·z', t·z'²          a square of two, about the line of one on the other

and kept if its pivot then cancels. A root r of a generator g is proposed only if g ≥ 0 is known, or if every output
holds a sum of r and no condition hides it: for g < 0 a sum of g is a number and that of r is NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice
from typing import final

from sympy import Expr, Max, Min, S

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Atom, Monomial
from redalg.decompose.separate.signs import is_nonnegative
from redalg.decompose.separate.whole import Whole, canonical, monomial_product, monomial_quotient, rewrite_whole
from redalg.decompose.verdict.verdict import Decomposition, Separation
from redalg.expression import Axis, Where
from redalg.expression.contents import free_axes, is_indicator, of_kind, values_of
from redalg.incremental.derive.centre import Centred

ROOTS = (2, 3, 4)
"""Powers k of a generator that may be g^k of another: g is then the one to keep whole."""
LIMIT = 6
"""Candidates that are tried."""
PAIRED = 12
"""Monomials of a sum of which pairs are tried."""


@final
@dataclass(frozen=True)
class Candidate:
    """Monomials to keep whole, alone or two together; t stands beside the squares of two in the sum `name`."""

    monomials: tuple[Monomial, ...]
    t: Monomial = ()
    name: str = ""


def whole_candidates(decomposition: Decomposition) -> list[Candidate]:
    """The monomials that it may pay to keep whole, plainest first."""
    support = Support(decomposition)
    monomials = sorted(filter(support.is_candidate, support.quotients), key=lambda one: (len(one), str(one)))
    alone = [Candidate((one,)) for one in monomials if not support.has_root(one, monomials)][:LIMIT]
    return [*alone, *islice(support.pairs(), LIMIT)]


def keep_wholes(decomposition: Decomposition, candidate: Candidate) -> tuple[Decomposition, frozenset[int]]:
    """The decomposition with a candidate's monomials kept whole, and the numbers of their atoms."""
    support, numbers = Support(decomposition), set[int]()
    for monomial in candidate.monomials:
        beside = support.beside(monomial)
        if candidate.name:  # in z² and in z·z', the other of which may be one atom by now
            others = (one for one in candidate.monomials if one != monomial)
            beside = [candidate.t, *(laurent.multiply_monomials(candidate.t, one) for one in others)]
            beside += [laurent.multiply_monomials(candidate.t, ((number, 1),)) for number in numbers]
        if support.is_plain(monomial):
            continue
        decomposition, whole = _with_whole(decomposition, monomial, frozenset(beside), candidate.name)
        numbers.add(whole.atom)
    return decomposition, frozenset(numbers)


def _with_whole(
    decomposition: Decomposition, monomial: Monomial, beside: frozenset[Monomial], name: str
) -> tuple[Decomposition, Whole]:
    """The decomposition with one more generator kept whole, in every sum or in that of a name."""
    support, separator = Support(decomposition), decomposition.separator
    atoms = separator.atoms
    masks, factors = laurent.split_monomial(monomial, support.is_mask)
    [((x, _), _)] = separator.pure(atoms.expr(factors)).items()
    exponentials, rest = laurent.split_monomial(x, lambda number: atoms.list[number].exponential)
    number = atoms.number(Atom(support.mask(masks, atoms.expr(x)), on_x=True, exponential=False))
    whole = Whole(number, monomial, beside, exponentials, support.mask(masks, atoms.expr(rest)))

    def of(separation: Separation) -> Separation:
        guarded = tuple((some, rewrite_whole(part, whole, atoms)) for some, part in separation.guarded)
        result = replace(separation, polynomial=rewrite_whole(separation.polynomial, whole, atoms), guarded=guarded,
                         wholes=(*separation.wholes, whole))  # fmt: skip
        return (
            result
            if separation.reduction.monoid.name == "sum" and name in ("", separation.reduction.name)
            else separation
        )

    return replace(decomposition, separations=tuple(map(of, decomposition.separations))), whole


def is_needless(whole: Decomposition, plain: Decomposition, centred: Mapping[str, Centred]) -> bool:
    """Tell if wholes are in no sum but products of deviations, Π (X − v)^k, which lose nothing as they are."""
    pairs = zip(plain.separations, whole.separations, strict=True)
    changed = [before.reduction.name for before, after in pairs if before.polynomial != after.polynomial]
    return all(_is_of_deviations(centred[name]) for name in changed)


def _is_of_deviations(centred: Centred) -> bool:
    """Tell if every term has every generator as a factor, each about a centre that is of d alone."""
    used = set(laurent.atoms_of(centred.polynomial))
    about = {atom for atom in centred.centres if centred.shift(atom) and not centred.slopes(atom)}
    return not centred.guarded and used <= about and all(used <= dict(x).keys() for x, _ in centred.polynomial)


@final
class Support:
    """The monomials of x that a cascade sums."""

    def __init__(self, decomposition: Decomposition) -> None:
        self.atoms, self.decomposition = decomposition.separator.atoms, decomposition
        self.separations = [one for one in decomposition.separations if one.reduction.monoid.name == "sum"]
        self.monomials = {(): None} | {canonical(x, self.atoms): None
                                       for separation in self.separations
                                       for x, _ in separation.polynomial}  # fmt: skip

    def is_mask(self, number: int) -> bool:
        """Tell if an atom is an indicator."""
        return is_indicator(self.atoms.list[number].base)

    def mask(self, masks: Monomial, expr: Expr) -> Expr:
        """The expression where the masks hold, 0 elsewhere."""
        for number, _ in masks:
            condition, *branches = self.atoms.list[number].base.args
            expr = Where(condition, *(expr if one is S.One else S.Zero for one in branches))
        return expr

    def axes(self, monomial: Monomial) -> AbstractSet[Axis]:
        """The axes along which a monomial varies."""
        return {axis for atom, _ in monomial for axis in free_axes(self.atoms.list[atom].base)}

    @cached_property
    def quotients(self) -> tuple[Monomial, ...]:
        """The quotients x/t of two monomials: t·(x/t)² may be a third."""
        quotients = (monomial_quotient(x, t, 1, self.atoms) for x in self.monomials for t in self.monomials)
        return tuple(dict.fromkeys(filter(None, quotients)))

    def is_plain(self, q: Monomial) -> bool:
        """Tell if a pivot shifts a monomial as it is, or if it is a mask."""
        numbers = [atom for atom, _ in q if not self.is_mask(atom)]
        alone = len(q) == 1 and q[0][1] == 1 and not self.atoms.list[q[0][0]].exponential
        return not numbers or (alone and monomial_product((), q, 2, self.atoms) == laurent.power_monomial(q, 2))

    def beside(self, q: Monomial) -> list[Monomial]:
        """The t for which t and t·q are summed and t·q is no contraction: some factor has the axes of all."""
        masks, _ = laurent.split_monomial(q, self.is_mask)
        partners = (t for t in self.monomials if monomial_product(t, q, 1, self.atoms) in self.monomials)
        return [t for t in partners if not set(t) & set(masks) and self._is_elementwise((*t, *q))]

    def pairs(self) -> Iterator[Candidate]:
        """Yield z and z', not both plain, if a sum holds t·z², t·z·z' and t·z'²."""
        for separation in self.separations:
            own = {canonical(x, self.atoms): None for x, _ in separation.polynomial}
            for a, b in combinations(own, 2) if len(own) <= PAIRED else ():
                t = _common_factors(a, b)
                z, other = (_root(_without(x, t)) for x in (a, b))
                product = monomial_product(t, laurent.multiply_monomials(z, other), 1, self.atoms)
                if product in own and self._is_pair(t, z, other):
                    yield Candidate((z, other), t, separation.reduction.name)

    def _is_pair(self, t: Monomial, z: Monomial, other: Monomial) -> bool:
        """Tell if two monomials may be kept whole together."""
        both = bool(z and other) and not all(map(self.is_plain, (z, other)))  # of one alone x⁴, x², 1 are the squares
        bounded = not any(p < 0 and self.atoms.list[atom].exponential for atom, p in (*z, *other))
        masked = any(self.is_mask(atom) for atom, _ in (*z, *other))
        return both and bounded and not masked and self._is_elementwise((*t, *z, *other))

    def _apart(self, q: Monomial) -> list[Monomial]:
        """The t beside q that have no factor of q."""
        return [t for t in self.beside(q) if not dict(t).keys() & dict(q).keys()]

    def _is_elementwise(self, factors: Monomial) -> bool:
        return self.axes(factors) in [self.axes((one,)) for one in factors]

    def is_candidate(self, q: Monomial) -> bool:
        """Tell if it is no plain generator, and sums hold the parts of its variance or covariance."""
        if self.is_plain(q) or any(p < 0 and self.atoms.list[atom].exponential for atom, p in q):
            return False
        beside = self._apart(q)
        squared = any(monomial_product(t, q, 2, self.atoms) in self.monomials for t in beside)
        return (squared or self._is_paired(q, beside)) and self._is_defined(q)

    def _is_paired(self, q: Monomial, beside: list[Monomial]) -> bool:
        """Tell if t, t·q, t·p and t·p·q are summed, and p is no plain generator either."""
        return any(p != q and not self.is_plain(p) and monomial_product(t, p, 1, self.atoms) in beside
                   for t in beside for p in self.quotients)  # fmt: skip

    def has_root(self, q: Monomial, others: Sequence[Monomial]) -> bool:
        """Tell if it is a power of another candidate, or of a plain generator that has a variance."""
        for k in ROOTS:
            root = laurent.power_monomial(q, laurent.ratio(1, k))
            root = tuple((atom, 1 if self.is_mask(atom) else p) for atom, p in root)
            if any(p.denominator != 1 for _, p in root):
                continue
            moments = all(monomial_product(t, root, power, self.atoms) in self.monomials
                          for t in self._weights(q) for power in (1, 2))  # fmt: skip
            if root in others or (moments and self.is_plain(root)):
                return True
        return False

    def _weights(self, q: Monomial) -> list[Monomial]:
        """The t beside which q and its square are summed; 1 if there is none."""
        return [t for t in self._apart(q) if monomial_product(t, q, 2, self.atoms) in self.monomials] or [()]

    def _is_defined(self, q: Monomial) -> bool:
        """Tell if its powers equal the monomials that they are written for, for elements of any sign."""
        roots = [self.atoms.list[atom].base for atom, p in q if p.denominator != 1
                 and not self.atoms.list[atom].exponential]  # fmt: skip
        facts = self.decomposition.separator.facts
        return all(is_nonnegative(base, facts) for base in roots) or self._is_missed(q)

    def _is_missed(self, q: Monomial) -> bool:
        """Tell if every output is NaN where q is."""
        with_q = {monomial_product(t, q, 1, self.atoms) for t in self._apart(q)}
        sums = {separation.reduction.value for separation in self.separations
                if with_q & {canonical(x, self.atoms) for x, _ in separation.polynomial}}  # fmt: skip
        outputs = [one.expr for one in self.decomposition.cascade.outputs]
        return all(values_of(one) & sums and not of_kind(Where | Max | Min, one) for one in outputs)


def _common_factors(a: Monomial, b: Monomial) -> Monomial:
    """The factors that two monomials share."""
    other = dict(b)
    return tuple((atom, min(p, other[atom])) for atom, p in a if atom in other and p * other[atom] > 0)


def _without(x: Monomial, t: Monomial) -> Monomial:
    return laurent.multiply_monomials(x, laurent.power_monomial(t, -1))


def _root(x: Monomial) -> Monomial:
    return tuple((atom, laurent.ratio(p, 2)) for atom, p in x)
