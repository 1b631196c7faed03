"""Truths of any and all whose conditions hold d: comparisons of extrema.

    any_l (u > v)      → max u > v                     u of x and d (`extremal`), v of d; of ≥ where an element is
    all_l (u ≤ v)      → max u ≤ v, or no element      and with the order turned
    any_l (p ∨ q)      → any p ∨ any q                 all (p ∧ q) → all p ∧ all q
    any_l (c ∧ p)      → any p where c holds           c of x; of d c ∧ any p; all (c ∨ p) → all p where c fails
    any_l where(c, p, q) → any p where c, else any q   c of d; all alike
    all_l (u = v)      → all u ≤ v ∧ all u ≥ v         any (u ≠ v) is its contrary
    any_l (u = max u)  → any u ≥ max u                 of a minimum any u ≤ min u; all (u ≠ max u) is its contrary
    any_l (k·u = k·max u), any_l (u − max u = 0) → any_l (u = max u)      k a number; of the second where u is finite

Exact for NaN too: NaN fails every comparison but ≠, so the extrema of any skip it and those of all keep it.
"""

from __future__ import annotations

from typing import final

from sympy import And, Eq, Expr, Ge, Gt, Le, Lt, Ne, Not, Or, S
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from redalg.decompose.extrema.extremal import Extremal, Finder
from redalg.decompose.extrema.ties import EXTREMA, value_comparison
from redalg.decompose.separate.plain import is_finite, is_number
from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.theorems import D, NotSeparable, X
from redalg.expression import Where
from redalg.expression.contents import sympy_text, values_of

TURNED = {Gt: Lt, Lt: Gt, Ge: Le, Le: Ge}


def truth_extremum(kind: str, term: Expr, separator: Separator) -> Extremal:
    """The truth of `any` or `all` of a term that is 1 or 0, or `NotSeparable`."""
    finder = Finder(separator, numbers=kind == "any")
    truth = _Truth(kind, finder, separator).of_term(term)
    return Extremal(tuple(finder.slots.values()), Where(truth, S.One, S.Zero), tuple(finder.g), tuple(finder.functions))


def fails(condition: Boolean) -> Boolean:
    """The negation of a condition: it holds for a comparison with NaN, as it does for the opposite comparison."""
    return Eq(Where(condition, S.One, S.Zero), 0)


@final
class _Truth:
    """The truth of conditions under any or under all, over the elements where another condition, of x, holds."""

    def __init__(self, kind: str, finder: Finder, separator: Separator) -> None:
        self.some, self.finder, self.separator = kind == "any", finder, separator
        self.together, self.apart = (Or, And) if self.some else (And, Or)

    def of_term(self, term: Expr) -> Boolean:
        """The truth of a term that is 1 where a condition holds and 0 elsewhere, or of a choice of such terms by d."""
        if isinstance(term, Where) and term.args[1:] == (S.One, S.Zero):
            return self.of(term.condition, S.true)
        if isinstance(term, Where) and not self.separator.side(term.condition) & X:
            condition, a, b = term.args
            return Or(And(condition, self.of_term(a)), And(fails(condition), self.of_term(b)))
        if term in (S.One, S.Zero):
            return self._pure(S.true if term is S.One else S.false, S.true, 0)
        raise NotSeparable(term, "is no condition whose truth an extremum decides", certain=False)

    def of(self, condition: Boolean, where: Boolean) -> Boolean:
        side = self.separator.side(condition)
        if side != X | D:
            return self._pure(condition, where, side)
        if isinstance(condition, self.together):
            return self.together(*(self.of(part, where) for part in condition.args))
        if isinstance(condition, self.apart):
            return self._truth_under_guard(condition, where)
        if isinstance(condition, Not):
            return fails(
                _Truth("all" if self.some else "any", self.finder, self.separator).of(condition.args[0], where)
            )
        if isinstance(condition, Eq | Ne):
            return self._equal(condition, where)
        if isinstance(condition, Gt | Ge | Lt | Le):
            return self._truth_of_comparison(condition, where)
        raise NotSeparable(condition, "is no comparison whose truth an extremum decides", certain=False)

    def _pure(self, condition: Boolean, where: Boolean, side: int) -> Boolean:
        """The truth of a condition of x alone, or of d alone."""
        if not side & X:
            return And(condition, self._present(where)) if self.some else Or(condition, Not(self._present(where)))
        return self.finder.slot("max" if self.some else "min", Where(condition, S.One, S.Zero), where) > 0

    def _present(self, where: Boolean) -> Boolean:
        return self.finder.slot("max", S.Zero, where) >= 0

    def _truth_under_guard(self, condition: Boolean, where: Boolean) -> Boolean:
        """The truth of c ∧ p under any, or of c ∨ p under all: p decides over the elements where c does not."""
        by_side: dict[int, list[Boolean]] = {X: [], D: [], X | D: []}
        for part in condition.args:
            by_side[self.separator.side(part) or D].append(part)
        if len(by_side[X | D]) > 1:
            raise NotSeparable(condition, "joins comparisons with d that must hold of one and the same element",
                               certain=False)  # fmt: skip
        guards = by_side[X] if self.some else list(map(fails, by_side[X]))
        return self.apart(*by_side[D], self.of(by_side[X | D][0], And(where, *guards)))

    def _equal(self, condition: Boolean, where: Boolean) -> Boolean:
        if isinstance(condition, Eq) == self.some:
            if (attained := self._attainment_as_bound(condition)) is not None:
                some = _Truth("any", Finder(self.separator, numbers=True), self.separator)
                some.finder.slots = self.finder.slots
                truth = some._truth_of_comparison(attained[0], And(where, attained[1]))
                return truth if self.some else fails(truth)
            raise NotSeparable(condition, "asks whether an element equals d, which no extremum decides", certain=False)
        a, b = condition.args
        every = self if not self.some else _Truth("all", Finder(self.separator), self.separator)
        every.finder.slots = self.finder.slots
        same = And(every._truth_of_comparison(Le(a, b), where), every._truth_of_comparison(Ge(a, b), where))
        return fails(same) if self.some else same

    def _attainment_as_bound(self, condition: Eq | Ne) -> tuple[Relational, Boolean] | None:
        """u ≥ max u for u = max u, or u ≤ min u for u = min u, and the condition under which they agree; or None."""
        for value in sorted(values_of(condition) & self.separator.facts.keys(), key=sympy_text):
            kind, u = self.separator.facts[value]
            form = value_comparison(condition, u, value) if kind in EXTREMA else None
            if form is not None:
                return (Ge if kind == "max" else Le)(u, value), is_finite(u) if form[1] else S.true
        return None

    def _truth_of_comparison(self, condition: Boolean, where: Boolean) -> Boolean:
        u, v = condition.args
        relation = type(condition)
        if self.separator.side(v) & X and not self.separator.side(u) & X:
            u, v, relation = v, u, TURNED[relation]
        elif self.separator.side(v) & X:
            u, v = u - v, S.Zero
        kind = "max" if (relation in (Gt, Ge)) == self.some else "min"
        strict = relation in (Gt, Lt)
        if not self.some and not strict and self.separator.facts.get(v) == (kind, u) and where is S.true:
            return Or(is_number(v), Not(self._present(where)))  # all but a NaN
        truth: Relational = relation(self.finder.extremum(u, kind, where), v)
        if self.some:
            return truth if strict else And(truth, self._present(where))
        return Or(truth, Not(self._present(where)))
