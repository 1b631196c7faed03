"""Scale pivots: which generators are divided by c, a magnitude near their largest, so that no power leaves the range.

    Σ (u/max|u|)^p → c^p/max|u|^p · Σ (u/c)^p        c = max|u|, p ≥ 2, where every term that holds u divides it so
    f(Σ u^p) → f(c^p · Σ (u/c)^p)                    c = 2^k ≤ max|u|, p ≥ 2

Exact: c is a pivot. The second pays where the result is in range though Σ u^p is not (nrm2: Blue, 1978), that is where
f takes roots or ratios, so that c leaves it to no power beyond the first: √(Σ u²) = c·√(Σ (u/c)²), and in a cosine
similarity the scales of all three sums cancel; log (c^p·a) = p·log c + log a. It is tried where a sum of one u^p stands
under a root, a division or a logarithm, and kept where nothing needs the sum itself: of √(Σ u²/n + ε) and of a mean of
squares the plain sum is what is asked for.
What is weighed, w·u², keeps to plain powers: where u is largest its weight may vanish. A product u·v of two generators
that have scales is scaled where both have the same axes (else it is a contraction, of plain operands).
"""

from __future__ import annotations

from collections.abc import Iterator

from sympy import Abs, Expr, Pow, S, floor, log

from redalg.decompose.centre import Centred
from redalg.decompose.laurent import Atom, Ratio
from redalg.decompose.verdict import Decomposition
from redalg.expression import Element, Value
from redalg.expression.contents import values_of
from redalg.incremental.auxiliary import finished
from redalg.incremental.form import FusedForm, PivotPolicy

Powers = dict[int, set[tuple[Ratio, Ratio]]]


def divided_atoms(decomposition: Decomposition, centred: dict[str, Centred]) -> frozenset[int]:
    """Generators u that stand as (u/max|u|)^p, p ≥ 2, in every term that holds them: taken apart, u^p overflows."""
    atoms = decomposition.separator.atoms
    largest = {slot.term.args[0]: one.reduction.value for one in decomposition.separations if one.extremal
               for slot in one.extremal.slots if slot.kind == "max" and isinstance(slot.term, Abs)
               and one.extremal.final == slot.symbol}  # fmt: skip
    powers: Powers = {}
    for one in centred.values():
        for x, d in one.polynomial:
            by_d = {atoms.list[number].base: q for number, q in d}
            for number, q in x:
                divisor = by_d.get(largest.get(atoms.list[number].base, S.Zero), 0)
                powers.setdefault(number, set()).add((q, divisor))
    centres = {atom for one in centred.values() for atom in one.centres}
    return frozenset(number for number, found in powers.items() if number not in centres
                     and all(q >= 2 and divisor == -q for q, divisor in found))  # fmt: skip


def rooted_atoms(decomposition: Decomposition, centred: dict[str, Centred]) -> frozenset[int]:
    """Generators u of a sum Σ u^p, p ≥ 2, whose value stands under a root, a division or a logarithm."""
    under = set[Value]()
    for expr in finished(decomposition):
        for node in expr.atoms(Pow, log):
            if isinstance(node, log) or is_root(node.exp):
                under |= values_of(node.args[0])
    atoms = decomposition.separator.atoms.list
    for one in decomposition.separations:
        under |= {atoms[number].base for _, d in one.polynomial for number, q in d if q < 0 or q.denominator > 1}
    if not under:
        return frozenset()
    centres = {atom for one in centred.values() for atom in one.centres}
    sums = (centred[one.reduction.name] for one in decomposition.separations
            if one.reduction.value in under and one.reduction.name in centred)  # fmt: skip
    found = {atom for one in sums for atom in _alone(one, atoms)}
    return frozenset(atom for atom in found - centres if _scalable(atoms[atom].base) and not atoms[atom].exponential)


def is_root(exponent: Expr) -> bool:
    """Whether a power divides, or takes a root."""
    return bool(exponent.is_negative or (exponent.is_Rational and not exponent.is_Integer))


def _alone(centred: Centred, atoms: list[Atom]) -> Iterator[int]:
    """The generators of a polynomial c·u^p, |u| taken for u (SymPy writes |u|³ as u²·|u|)."""
    if len(centred.polynomial) == 1:
        [(x, _)] = centred.polynomial
        if sum(q for _, q in x) >= 2 and len({Abs(atoms[atom].base) for atom, _ in x}) == 1:
            yield from (atom for atom, _ in x)


def _scalable(base: Expr) -> bool:
    """Whether u is data, and holds no logarithm, of which 0·log 0 counts for nothing."""
    return base.has(Element, Value) and not base.has(log)


def scale_of(largest: Value) -> Expr:
    """2^k in (max/4, max]: a division by it rounds nothing. Of no element, or of zeros alone, it is no number or 0."""
    return S(2) ** (floor(log(largest) / log(2)) - 1)


def pays(form: FusedForm) -> bool:
    """Whether no scale is left to a power beyond the first: not where a scaled sum is needed itself."""
    scales = {one.value for one in form.pivots if one.policy is PivotPolicy.SCALE}
    exprs = [one.expr for one in form.assignments] + [one.expr for one in form.outputs]
    return all(abs(power.exp) <= 1 for expr in exprs for power in expr.atoms(Pow) if power.base in scales)
