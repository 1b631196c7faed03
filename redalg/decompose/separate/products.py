"""Products of which masks of x tell what factor of d an element has. Each rewrite is exact:

    Π where(c, g·h, f)   → h^(Σ where(c, 1, 0))·Π where(c, g, f)       c, g and f of x alone, h of d alone
    Π where(c, g·h, f·k) → Π where(c, g·h, 1)·Π where(c, 1, f·k)       k of d alone too

The first is a separation, and the count of the elements with the factor a reduction of its own ahead of the product. Of
no such element it is h^0 = 1, whatever h is: nothing reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from sympy import Expr, Mul, S
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Cascade, Reduction
from redalg.decompose.domain import with_domain
from redalg.decompose.separate import laurent
from redalg.decompose.separate.finite import assume_condition
from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.theorems import D, NotSeparable, X
from redalg.expression import UNDEFINED, Axis, Value, Where
from redalg.expression.contents import axes_by_name, free_axes, of_kind, sympy_text, values_of
from redalg.monoids import monoid

CASES_LIMIT = 8
"""Cases of a term that are told apart at most."""


@final
@dataclass(frozen=True)
class Case:
    """A part of a term, g(x)·h(d), and the conditions of x under which it is the term, each with its truth."""

    conditions: tuple[tuple[Boolean, bool], ...]
    g: Expr
    h: Expr


def mask_cases(term: Expr, separator: Separator, path: tuple[tuple[Boolean, bool], ...] = ()) -> list[Case] | None:
    """A term by the masks of x in it, the outermost first; None where a part is no g(x)·h(d), or of too many parts."""
    if not separator.side(term) & D:
        return [Case(path, term, S.One)]
    masks = [one for one in of_kind(Where, term) if separator.side(one.condition) == X and UNDEFINED not in one.args]
    if not masks:
        factors = _factors(term, separator)
        return None if factors is None else [Case(path, *factors)]
    condition = max(masks, key=lambda one: (one.count_ops(), sympy_text(one))).condition
    cases = list[Case]()
    for truth in (True, False):
        inside = mask_cases(
            assume_condition(term, condition, separator, truth=truth), separator, (*path, (condition, truth))
        )
        if inside is None or len(cases) + len(inside) > CASES_LIMIT:
            return None
        cases += inside
    return cases


def _factors(part: Expr, separator: Separator) -> tuple[Expr, Expr] | None:
    """g(x) and h(d) of a product; or None."""
    try:
        columns = laurent.columns(separator.separate(part))
    except NotSeparable:
        return None
    if len(columns) != 1:
        return None
    [(d, column)] = columns.items()
    return separator.atoms.vector_expr(column), separator.atoms.expr(d)


def piecewise_expression(parts: Sequence[tuple[tuple[tuple[Boolean, bool], ...], Expr]], depth: int = 0) -> Expr:
    """The expression that is each part under its conditions."""
    if len({part for _, part in parts}) == 1:
        return parts[0][1]
    condition = parts[0][0][depth][0]
    sides = ([one for one in parts if one[0][depth][1] is truth] for truth in (True, False))
    return Where(condition, *(piecewise_expression(side, depth + 1) for side in sides))


def factor_indicator(cases: Sequence[Case], h: Expr) -> Expr:
    """1 of the elements with a factor of d, 0 of the others."""
    return piecewise_expression([(one.conditions, S.One if one.h == h else S.Zero) for one in cases])


def distinct_factors(cases: Sequence[Case]) -> list[Expr]:
    """The factors of d that are not 1, each once."""
    return [h for h in dict.fromkeys(one.h for one in cases) if h is not S.One]


def count_of(indicator: Expr, separator: Separator) -> Value | None:
    """The value of a sum of this that was reduced before; or None."""
    return next((value for value, fact in separator.facts.items() if fact == ("sum", indicator)), None)


def product_factors(term: Expr, separator: Separator) -> tuple[Expr, Expr, Value] | None:
    """g and h of Π term = h^count·Π g, and the count; None where the term is none of these, or the count is not known.

    Args:
        term: the factor, of x and d.
        separator: tells x from d, and knows what was reduced before.
    """
    cases = mask_cases(term, separator)
    if cases is None or len(distinct_factors(cases)) != 1:
        return None
    [h] = distinct_factors(cases)
    count = count_of(factor_indicator(cases, h), separator)
    return None if count is None else (piecewise_expression([(one.conditions, one.g) for one in cases]), h, count)


def with_counts(cascade: Cascade, reduction: Reduction, separator: Separator) -> Cascade | None:
    """The cascade with the rewrites of the module for a product of masks; None where it needs none.

    Args:
        cascade, reduction: the cascade, and which of its reductions.
        separator: tells x from d.
    """
    if reduction.monoid.name != "prod" or not separator.side(reduction.term) & D:
        return None
    cases = mask_cases(reduction.term, separator)
    if cases is None or len(cases) < 2 or not (of_d := distinct_factors(cases)):
        return None
    if len(of_d) > 1:
        return _apart(cascade, reduction, cases, of_d)
    number = factor_indicator(cases, of_d[0])
    if any(one.monoid.name == "sum" and one.term == number for one in cascade.reductions):
        return None
    count = Reduction(f"{reduction.name}_count", monoid("sum"), number, _axes(number, cascade))
    return _without_count(with_reductions(cascade, reduction, [count, reduction], reduction.value))


def _apart(cascade: Cascade, reduction: Reduction, cases: Sequence[Case], of_d: Sequence[Expr]) -> Cascade:
    """A product for each factor of d; what has none stands beside the first."""
    reductions = list[Reduction]()
    for number, h in enumerate(of_d):
        factors = (h, S.One) if number == 0 else (h,)
        term = piecewise_expression([(one.conditions, one.g * one.h if one.h in factors else S.One) for one in cases])
        name = f"{reduction.name}_{number}"
        reductions.append(replace(reduction, name=name, term=term, axes=_axes(term, cascade)))
    return with_reductions(cascade, reduction, reductions, Mul(*(one.value for one in reductions)))


def _axes(term: Expr, cascade: Cascade) -> tuple[Axis, ...]:
    return axes_by_name(free_axes(term) - set(cascade.reduced_axes))


def with_reductions(cascade: Cascade, reduction: Reduction, others: Sequence[Reduction], value: Expr) -> Cascade:
    """The cascade with other reductions in the place of one, and an expression of theirs for its value."""
    meaning = {reduction.value: value} if value != reduction.value else {}
    place = cascade.reductions.index(reduction)
    later = (replace(one, term=one.term.xreplace(meaning)) for one in cascade.reductions[place + 1 :])
    outputs = tuple(replace(one, expr=one.expr.xreplace(meaning)) for one in cascade.outputs)
    reductions = (*cascade.reductions[:place], *others, *later)
    return with_domain(replace(cascade, reductions=reductions, outputs=outputs, domain=S.true))


def _without_count(cascade: Cascade) -> Cascade:
    """The cascade without the count of all elements, where nothing reads it."""
    products = [one for one in cascade.reductions if one.monoid.name == "prod" and values_of(one.term)]
    used = {value for one in cascade.reductions for value in values_of(one.term)}
    used |= {value for one in cascade.outputs for value in values_of(one.expr)}
    if len(products) > 1:
        return cascade
    reductions = tuple(one for one in cascade.reductions if not one.is_count or one.value in used)
    return with_domain(replace(cascade, reductions=reductions, domain=S.true))
