"""Terms that cancel in exponents and need not be finite: the sums may not show that it is not.

    exp(λ)/exp(λ)                → where(−∞ < λ < ∞, 1, NaN)
    Σ exp(t + s − max(t + s))    → where(−∞ < t < ∞, Σ exp(s − max s), 0), NaN of a NaN       t free of x

Exact. What the terms of the sums hold as well, in what is summed, shows in the sums, and is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable

from sympy import Add, And, Expr, S

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Atom, Monomial, Polynomial, fraction
from redalg.decompose.separate.plain import is_finite, is_number
from redalg.decompose.separate.signs import Facts
from redalg.decompose.separate.theorems import X
from redalg.expression import UNDEFINED, Where
from redalg.expression.contents import elements_of, sympy_text, values_of
from redalg.expression.expanded import expand_to_cancel
from redalg.incremental.derive.placement import Placement


def where_finite(scales: Iterable[Expr], left: Expr, placement: Placement) -> Expr:
    """1, or NaN where what cancels is not finite; `left` is the sum of the exponents."""
    cancelled = {term.as_coeff_Mul()[1] for scale in scales for term in Add.make_args(expand_to_cancel(scale))}
    cancelled -= {term.as_coeff_Mul()[1] for term in Add.make_args(expand_to_cancel(left))}
    doubtful = sorted((term for term in cancelled if _is_doubtful(term, placement)), key=sympy_text)
    return Where(And(*map(is_finite, doubtful)), S.One, UNDEFINED) if doubtful else S.One


def keep_rows(d: Monomial, term: Polynomial, placement: Placement) -> Polynomial:
    """A term of a monomial of d: 0 where data of a row that cancels in an exponent is infinite, and NaN where NaN."""
    atoms = placement.decomposition.separator.atoms

    def exponent(monomial: Monomial) -> Expr:
        factors = ((atoms.list[number], q) for number, q in monomial)
        return Add(*(atom.base * fraction(q) for atom, q in factors if atom.exponential))

    left = Add(*(exponent(monomial) for _, monomial in term))
    written = {one.as_coeff_Mul()[1] for one in Add.make_args(exponent(d)) if not values_of(one)}
    lost = sorted((one for one in written if not left.has(one) and _is_doubtful(one, placement)), key=sympy_text)
    if not lost:
        return term
    infinite = Where(And(*map(is_number, lost)), S.Zero, UNDEFINED)
    asked = Where(And(*map(is_finite, lost)), S.One, infinite)
    number = atoms.number(Atom(asked, on_x=False, exponential=False))
    return laurent.multiply(term, {((), ((number, 1),)): 1})


def _is_doubtful(term: Expr, placement: Placement) -> bool:
    """Tells whether it is free of x, and masked or made of elements of which no exponent's pivot is."""
    separator = placement.decomposition.separator
    elements = {one for pivot in placement.pivots.values() for one in elements_of(pivot.base)}
    unseen = bool(_read_by(term, separator.facts) - elements) or term.has(S.NegativeInfinity)
    return unseen and not separator.side(term) & X


def _read_by(term: Expr, facts: Facts) -> set[Expr]:
    """The elements that a term is made of, through the reductions that it holds."""
    read, todo = set[Expr](elements_of(term)), set(values_of(term))
    while todo:
        other = facts[value][1] if (value := todo.pop()) in facts else S.Zero
        read, todo = read | elements_of(other), todo | values_of(other)
    return read
