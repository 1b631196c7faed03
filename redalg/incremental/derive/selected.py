"""The selection by φ_d(u), from the selection by u: φ_d rises strictly, but for some d of a call it may not.

    index  → the place                     a part of φ that is free of x is NaN: every φ is, and the first comes first
           → the place                     one is ±∞ or a factor of 0, and u is finite: every φ is alike
           → the index of u                else
    value  → φ_d(the value of u)           what fills it, at a place that no element fills

The place is 0 of argmax and argmin, and counts those of topk. Where a factor is infinite this is not the definition,
which asks for the signs of u; `explain` says so.
"""

from __future__ import annotations

from sympy import Add, And, Expr, Mul, Ne, Not, Or, S

from redalg.decompose.extrema.extremal import GENERATOR
from redalg.decompose.separate.plain import is_finite, is_number
from redalg.decompose.separate.signs import Facts
from redalg.decompose.verdict.conventions import free_parts
from redalg.decompose.verdict.verdict import Separation
from redalg.expression import Scalar, Where
from redalg.expression.contents import elements_of, of_kind, sympy_text, values_of


def selected_index(separation: Separation, index: Expr, value: Expr, facts: Facts) -> Expr:
    """The index of what is selected, given the index and the value of what u selects.

    Args:
        separation: of the selection: u and φ.
        index, value: what u selects.
        facts: the reductions before it. Of those of u alone it is asked only whether they are numbers: if u is finite
            so are they, or u is 0 everywhere.
    """
    [u], [phi] = separation.g, separation.h
    summands, factors = list(free_parts(phi, Add)), list(free_parts(phi, Mul))
    foreign = [one for one in (*summands, *factors) if not operands_of(one, facts) <= operands_of(u, facts)]
    own = {one for part in (*summands, *factors) if part not in foreign for one in values_of(part)}
    last = own - {one for other in own for one in values_of(facts[other][1])}
    number = And(*map(is_number, (*foreign, *sorted(last, key=sympy_text))))
    usual = And(*(is_finite(one) for one in summands if one in foreign),
                *(Ne(one, 0) for one in factors if one in foreign))  # fmt: skip
    first = separation.reduction.place or S.Zero
    return Where(Or(index < 0, And(number, Or(usual, Not(is_finite(value))))), index, first)


def operands_of(expr: Expr, facts: Facts) -> frozenset[Expr]:
    """The elements, scalars and other values of which an expression is made, through the reductions that it holds."""
    terms = [facts[value][1] for value in values_of(expr) if value in facts]
    other = (value for value in values_of(expr) if value not in facts)
    return frozenset().union(
        elements_of(expr), of_kind(Scalar, expr), other, *(operands_of(one, facts) for one in terms)
    )


def selected_value(separation: Separation, index: Expr, value: Expr) -> Expr:
    """The value of what is selected."""
    return Where(index < 0, value, separation.h[0].xreplace({GENERATOR: value}))
