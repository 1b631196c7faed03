"""Choose the operand that gives a matrix product its rows: the one whose axes come first in the outputs.

Σ f(n,k)·g(m,k)   →   Σ g(m,k)·f(n,k)      exact: products commute; but where a weight stands beside the first
"""

from __future__ import annotations

from dataclasses import replace

from redalg.expression import Axis, RunningCast
from redalg.expression.contents import free_axes
from redalg.incremental.form import Accumulator, FusedForm


def orient_products(form: FusedForm) -> FusedForm:
    """Choose the first factor of every product by the order of the output's axes, if the choice is free."""
    order = {axis: place for one in form.outputs for place, axis in enumerate(one.axes)}
    return replace(form, accumulators=tuple(_orient(one, order) for one in form.accumulators))


def _orient(accumulator: Accumulator, order: dict[Axis, int]) -> Accumulator:
    if (
        len(accumulator.factors) != 2
        or accumulator.weight
        or any(factor.has(RunningCast) for factor in accumulator.factors)
    ):
        return accumulator
    first, second = (free_axes(factor) & set(order) for factor in accumulator.factors)
    own, other = ([order[axis] for axis in axes] for axes in (first - second, second - first))
    turn = bool(own and other) and min(own) > min(other)
    return replace(accumulator, factors=accumulator.factors[::-1]) if turn else accumulator
