"""Values of `finish`: the axes that they have, and those of some elements alone.

Σ over elements that have an indicator  →  that, or 0 where no element has it
"""

from __future__ import annotations

from sympy import Expr, S
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis, Where
from redalg.expression.contents import free_axes, values_of


def axes_of(expr: Expr) -> set[Axis]:
    """The axes of an expression and of the values that it holds."""
    return {axis for value in values_of(expr) for axis in value.indices} | set(free_axes(expr))


def guarded_by(some: Boolean, value: Expr) -> Expr:
    """A value of some elements, 0 of none."""
    return value if some is S.true else Where(some, value, S.Zero)
