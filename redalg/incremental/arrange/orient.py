"""Which operand of a matrix product is its rows: the one whose axes come first in the outputs.

Σ f(n,k)·g(m,k)   →   Σ g(m,k)·f(n,k)      exact: products commute; but where a weight stands beside the first
"""

from __future__ import annotations

from dataclasses import replace

from redalg.expression import Axis, RunningCast
from redalg.expression.contents import free_axes
from redalg.incremental.form import Accumulator, FusedForm


def oriented(form: FusedForm) -> FusedForm:
    """The form with every free choice of a first factor made by the order of the output's axes."""
    order = {axis: place for one in form.outputs for place, axis in enumerate(one.axes)}
    return replace(form, accumulators=tuple(_turned(one, order) for one in form.accumulators))


def _turned(one: Accumulator, order: dict[Axis, int]) -> Accumulator:
    if len(one.factors) != 2 or one.weight or any(factor.has(RunningCast) for factor in one.factors):
        return one
    first, second = (free_axes(factor) & set(order) for factor in one.factors)
    own, other = ([order[axis] for axis in axes] for axes in (first - second, second - first))
    turn = bool(own and other) and min(own) > min(other)
    return replace(one, factors=one.factors[::-1]) if turn else one
