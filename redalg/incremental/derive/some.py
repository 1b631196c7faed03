"""Values of `finish`: their axes, and values of some elements alone.

Σ over elements that have an indicator  →  that, or 0 where no element has it
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import And, Expr, Mul, S
from sympy.logic.boolalg import Boolean

from redalg.decompose.domain import live_term
from redalg.decompose.extrema.truth import fails
from redalg.decompose.separate.theorems import X
from redalg.expression import Axis, Value, Where
from redalg.expression.contents import free_axes, values_of
from redalg.incremental.derive.basis import Pool
from redalg.incremental.derive.placement import Placement


def value_axes(*exprs: Expr) -> set[Axis]:
    """The axes of expressions and of the values that they hold."""
    indexed = {axis for expr in exprs for value in values_of(expr) for axis in value.indices}
    return indexed.union(*map(free_axes, exprs))


def guard(some: Boolean, value: Expr) -> Expr:
    """A value of the elements with `some`, 0 if there are none."""
    return value if some is S.true else Where(some, value, S.Zero)


def somewhere(indicator: Expr, placement: Placement, pool: Pool, accumulators: Sequence[Value]) -> Boolean:
    """Tell if an element has an indicator: by a count that the state holds, else by a maximum of its own."""
    separator = placement.decomposition.separator
    masks = [one for one in Mul.make_args(indicator) if one is not S.One]
    of_x = Mul(*(one for one in masks if separator.side(one) & X))
    free = [mask.condition if mask.args[1] is S.One else fails(mask.condition)
            for mask in masks if not separator.side(mask) & X]  # fmt: skip
    if of_x is S.One:
        return And(*free)
    within = separator.pure(live_term(of_x, separator.domain))
    if not within:
        return S.false  # masks that no element fulfils together
    [((x, _), _)] = within.items()
    moving = {*pool.pivoted, *(y for y, _ in pool.slopes)}  # of these the state holds no count, but a sum about a pivot
    number = None if moving & dict(x).keys() else pool.find((), x)
    return And(*free, (placement.maximum(of_x, "some") if number is None else accumulators[number]) > 0)
