"""Maxima that follow from one another: max_l(u/k + v) = (max_l u)/k + v for k > 0 and v that does not vary along l.

A state may hold the maximum of u for an exponential, beside one that was written of u/k + v. As two values they cancel
in floating point only as far as their roundings agree. Roundings of values near the largest number do not agree at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from sympy import Add, Expr, Rational, S, expand_mul

from redalg.expression import Axis, Value
from redalg.expression.contents import free_axes
from redalg.incremental.form import Extremum, Pivot, PivotPolicy


def follows(term: Expr, base: Expr, reduced: AbstractSet[Axis]) -> tuple[Rational, Expr] | None:
    """k and v of term = base/k + v, k > 0 a rational number and v without the reduced axes; None if it is no such sum.

    >>> from redalg import axes, tensors
    >>> s, w, t = tensors("s[n] w[n] t")
    >>> follows((s + w) / 8 - t, s + w, {axes("n")})
    (8, -t[])
    """
    terms = Add.make_args(expand_mul(term))
    of_x = [one for one in terms if reduced & free_axes(one)]
    if not of_x:
        return None
    number, rest = of_x[0].as_coeff_Mul()
    numbers = {other: factor for factor, other in (one.as_coeff_Mul() for one in Add.make_args(expand_mul(base)))}
    k = numbers.get(rest, S.Zero) / number
    if not (k.is_Rational and k.is_positive) or expand_mul(k * Add(*of_x)) != expand_mul(base):
        return None
    return k, Add(*(one for one in terms if one not in of_x))


def at_maximum(pivot: Pivot, centre: Expr, extrema: list[Extremum], reduced: AbstractSet[Axis]) -> bool:
    """Tell if a centre k·max(u/k + v) is the running pivot max u but for k·v.

    The pivot stays within the range of u. A mean may overflow: its sum is larger by the number of elements.
    """
    maxima = (one for one in extrema if one.monoid.name == "max" and centre.as_coeff_Mul()[1] == one.value)
    if pivot.policy is not PivotPolicy.RUNNING or (extremum := next(maxima, None)) is None:
        return False
    form = follows(extremum.term, pivot.base, reduced)
    return form is not None and form[0] * extremum.value == centre


def derived_maxima(
    extrema: list[Extremum], pivots: list[Pivot], reduced: AbstractSet[Axis]
) -> Iterator[tuple[Value, Expr]]:
    """The maxima that follow from another that is the pivot of an exponential, each with its expression."""
    running = {one.value: one.base for one in pivots if one.policy is PivotPolicy.RUNNING and one.value == one.source}
    maxima = [one for one in extrema if one.monoid.name == "max"]
    for extremum in maxima:
        for pivot, base in running.items():
            if (
                pivot != extremum.value
                and extremum.value not in running
                and (form := follows(extremum.term, base, reduced))
            ):
                yield extremum.value, pivot / form[0] + form[1]
                break
