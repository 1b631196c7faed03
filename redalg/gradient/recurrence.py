"""Derivatives of a linear recurrence h_n = a_n·h_(n−1) + b_n over the places n of an axis.

    h̄    →  b̄_n = h̄·A_n,  ā_n = h̄·A_n·h_(n−1)        A_n = Π_{m > n} a_m, the scale of what comes after n
    Ā    →  ā_n = Ā·Π_{m ≠ n} a_m                     of the product A of all scales
    ḣ    =  Σ_n A_n·(ȧ_n·h_(n−1) + ḃ_n)               as `affine_tangent` gives it in one pass, of which this is the sum

What an affine map is before n, or after it, is the recurrence of the elements there, by a mask over a second axis m.
No reduction gives it for all n at once: every n has its own, and the work grows with the square of the length.
"""

from __future__ import annotations

from collections.abc import Iterator

from sympy import Expr, Ne, S
from sympy.core.basic import Basic

from redalg.expression import Reduce, Where, affine
from redalg.expression import sum as sum_over
from redalg.expression.contents import reductions_of
from redalg.expression.rebuild import replace_nodes
from redalg.gradient.rules import times
from redalg.gradient.stage import second_axis


def operands_of_recurrence(node: Reduce, g: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Yield the scale and the shift of a recurrence, with its adjoint times the derivative at a place."""
    scale, shift = node.operands
    if node.result == "scale":
        yield scale, times(g, _other_scales(node))
    else:
        yield shift, times(g, _after(node))
        yield scale, times(g, _after(node) * _before(node))


def with_sums_of_tangents(expr: Expr) -> Expr:
    """An expression whose tangents of recurrences are sums over places, which have derivatives again."""
    tangents = (one for one in reductions_of(expr) if one.kind == "affine_tangent" and one.result in SUMS)
    sums = {one: SUMS[one.result](one) for one in tangents}
    return with_sums_of_tangents(replace_nodes(expr, sums)) if sums else expr


def _other_scales(node: Reduce) -> Expr:
    [n] = node.bound
    return _recurrence_where(node, Ne(second_axis(n), n))[0]


def _after(node: Reduce) -> Expr:
    """The scale of what comes after a place."""
    [n] = node.bound
    return _recurrence_where(node, second_axis(n) > n)[0]


def _before(node: Reduce) -> Expr:
    """The value before a place, of a start at 0."""
    [n] = node.bound
    return _recurrence_where(node, second_axis(n) < n)[1]


def _recurrence_where(node: Reduce, holds: Basic) -> tuple[Reduce, Reduce]:
    """The scale and the shift of a recurrence of those elements, over the axis beside its own, for which it holds."""
    [n] = node.bound
    scale, shift = (one.subs(n, second_axis(n)) for one in node.operands[:2])
    return affine(Where(holds, scale, S.One), Where(holds, shift, S.Zero), second_axis(n))


def _sum_of_scales(node: Reduce) -> Expr:
    """The tangent of the product of the scales, place by place."""
    return sum_over(node.operands[2] * _other_scales(node), *node.bound)


def _sum_of_shifts(node: Reduce) -> Expr:
    """The tangent of the value at the end, place by place."""
    *_, scale, shift = node.operands
    return sum_over(_after(node) * (scale * _before(node) + shift), *node.bound)


SUMS = {"scale_tangent": _sum_of_scales, "shift_tangent": _sum_of_shifts}
"""Result of `affine_tangent` -> the sum that it is."""
