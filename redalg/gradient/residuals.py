"""Sums that are 0 but for what a mean lost in rounding.

    Σ_n α·(x[n] − R/|n|)   →   0        R = Σ_n x[n] is saved, x has 8 bits at most and its gradient 16

Of exact numbers both are the same. In floating point the left side is how far R/|n| lies from the mean of x, some
2⁻¹⁹·|n| of its largest element at most. Elements of 8 bits that differ lie 2⁻⁹ of the largest from their mean or more,
so that the sum is 2⁻¹⁰ of what the elements add to the gradient: less than bfloat16 rounds it by. Numbers of more bits
keep the sum, which gives back the digits of their mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce as fold

from sympy import Expr, Mul, S, cancel, expand

from redalg.expression import Element, Reduce
from redalg.expression.contents import axes_by_name, elements_of, free_axes, of_kind
from redalg.expression.dtypes import DTYPES
from redalg.expression.rebuild import replace_nodes

MOST_BITS = 8


def without_residuals(expr: Expr, totals: Mapping[Reduce, Element], dtypes: Mapping[str, str]) -> Expr:
    """An expression with 0 for the sums of differences from a mean.

    Args:
        expr: what reads the tensors of saved sums.
        totals: the saved reductions, and what reads the tensor of each.
        dtypes: of the floating-point tensors that have 16 bits or fewer.
    """
    saved = ((one, element) for one, element in totals.items() if one.kind == "sum")
    few = {total.expr: (total.bound, element) for total, element in saved if _has_few_bits(total.expr, dtypes)}
    if not few:
        return expr
    sums = (one for one in of_kind(Reduce, expr) if one.kind == "sum")
    return replace_nodes(expr, {one: S.Zero for one in sums if _is_residual(one, few)})


def _has_few_bits(term: Expr, dtypes: Mapping[str, str]) -> bool:
    return isinstance(term, Element) and DTYPES[dtypes.get(term.name, "float64")].digits <= MOST_BITS


def _is_residual(total: Reduce, few: Mapping[Expr, tuple[Iterable[Expr], Element]]) -> bool:
    """Tell if a sum is 0 with the saved sums of its elements in place of these, each times its factor."""
    term, bound = expand(total.expr), set(total.bound)
    summed = [one for one in elements_of(term) if free_axes(one) & bound]
    if not summed or any(one not in few or set(few[one][0]) != bound for one in summed):
        return False
    factors = [term.coeff(one) for one in summed]
    rest = expand(term - sum(factor * one for factor, one in zip(factors, summed, strict=True)))
    if any(free_axes(one) & bound for one in (rest, *factors)):
        return False
    size = fold(Mul, (axis.extent for axis in axes_by_name(bound)), S.One)
    whole = rest * size + sum(factor * few[one][1] for factor, one in zip(factors, summed, strict=True))
    count = Reduce("sum", S.One, total.bound)
    return bool(cancel(replace_nodes(whole, {count: size})) == 0)
