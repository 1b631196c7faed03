"""The terms of an exponent that may be −∞: exp of a sum in which one is −∞ is 0, whatever the rest."""

from __future__ import annotations

from functools import cache

from sympy import Add, Expr, Mul

from redalg.expression.nodes import Where
from redalg.expression.tensor import Element, Value


@cache
def infinite_terms(exponent: Expr) -> tuple[Expr, ...]:
    """The terms of an exponent that may be −∞: those that hold data."""
    return tuple(one for one in Add.make_args(_distribute(exponent)) if _may_be_infinite(one))


def _distribute(exponent: Expr) -> Expr:
    """k·(u + v) → k·u + k·v where both u and v may be infinite; (2 − p)·u is one term, whose sign 2 − p decides."""
    if exponent.is_Add:
        return Add(*map(_distribute, exponent.args))
    sums = [one for one in Mul.make_args(exponent) if one.is_Add and sum(map(_may_be_infinite, one.args)) > 1]
    if not sums:
        return exponent
    rest = Mul(*(one for one in Mul.make_args(exponent) if one is not sums[0]))
    return Add(*(_distribute(rest * term) for term in sums[0].args))


def _may_be_infinite(term: Expr) -> bool:
    return term.is_finite is None and term.has(Element, Where, Value)
