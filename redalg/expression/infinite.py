"""The terms of an exponent that may be −∞: exp of a sum in which one is −∞ is 0, whatever the rest.

An exponent masks an element where a user writes −∞ or gives it as a datum, or where a logarithm is of 0. A square does
not, nor a function with bounds: −(x − y)² is −∞ of data alone that are infinite themselves, or too large to be squared.
Nor does a division by 0: (x − y)/0 is one infinity or NaN, though −y/0 alone is −∞.
"""

from __future__ import annotations

from functools import cache

from sympy import Add, Expr, Mul, Pow, atan, cos, erf, sin, tanh

from redalg.expression.nodes import Let, Where
from redalg.expression.reduce import Reduce
from redalg.expression.tensor import Element, Value

BOUNDED = (tanh, sin, cos, atan, erf)
"""Functions that no argument makes infinite."""


@cache
def infinite_terms(exponent: Expr) -> tuple[Expr, ...]:
    """The terms of an exponent that may be −∞: those that hold data."""
    return tuple(one for one in Add.make_args(_distribute(exponent)) if _may_be_infinite(one))


@cache
def divisors_that_may_be_zero(term: Expr) -> tuple[Expr, ...]:
    """The computed numbers that a term is divided by: where one is 0 the term is infinite, and masks nothing.

    >>> from redalg.expression import axes, tensor
    >>> divisors_that_may_be_zero(tensor("x[i]") / tensor("t[j]") / axes("i").extent)
    (t[j],)
    """
    powers = [one for one in Mul.make_args(term) if isinstance(one, Pow) and one.exp.could_extract_minus_sign()]
    return tuple(one.base for one in powers if one.base.is_zero is not False and one.base.has(Element, Reduce, Value))


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


@cache
def may_mask(exponent: Expr) -> bool:
    """Tell if an exponent may be −∞ where its data are to exclude an element, and are no larger than they should be.

    >>> from redalg.expression import tensor, axes
    >>> i, j = axes("i j")
    >>> may_mask(-((tensor("x[i]") - tensor("y[j]")) ** 2)), may_mask(tensor("s[i,j]") / 8)
    (False, True)
    """
    if isinstance(exponent, Reduce) and exponent.kind in {"sum", "max", "min"}:
        return may_mask(exponent.expr)
    if isinstance(exponent, Let):
        return may_mask(exponent.expr)
    if exponent.is_Add:
        return any(map(may_mask, exponent.args))
    if exponent.is_Mul:
        return any(may_mask(one) for one in exponent.args if not one.is_Number)
    if isinstance(exponent, Pow) and exponent.exp.is_Integer and exponent.exp.is_even and exponent.exp.is_positive:
        return not _is_polynomial(exponent.base)
    return not isinstance(exponent, BOUNDED) and not exponent.is_finite


def _is_polynomial(expr: Expr) -> bool:
    """Tell if an expression is made of numbers, axes and data by sums, products and powers."""
    if expr.is_Add or expr.is_Mul:
        return all(map(_is_polynomial, expr.args))
    if isinstance(expr, Pow) and expr.exp.is_Integer and expr.exp.is_positive:
        return _is_polynomial(expr.base)
    return isinstance(expr, Element) or bool(expr.is_finite)
