"""Elements of several components as symbols: what a place is lifted to, what two join to, what an empty list holds."""

from __future__ import annotations

from functools import cache

from sympy import Expr, Tuple

from redalg.decompose.parse.foreign import adopt
from redalg.expression import Axis, Label, Value
from redalg.monoids import Monoid

NOWHERE = {"value": float("-inf"), "index": -1}
"""Fill values for the places of a list that has too few elements."""


def lift_place(monoid: Monoid, operands: tuple[Expr, ...], axis: Axis) -> tuple[Expr, ...]:
    """Components of the element at one place of the axis, as redalg writes them; a list of one is its only member."""
    parts = monoid.lift(*operands, axis)
    return tuple(adopt(part.args[0] if isinstance(part, Tuple) else part) for part in parts)


def component_symbols(monoid: Monoid, name: str, axes: tuple[Axis, ...] = ()) -> tuple[Value, ...]:
    """A symbol for each component of an element."""
    return tuple(Value(Label(f"{name}_{component.name}"), *axes) for component in monoid.components)


@cache
def join_of(monoid: Monoid) -> tuple[Expr, ...]:
    """a ⊕ b on symbols, component by component."""
    return tuple(map(adopt, monoid.join(component_symbols(monoid, "a"), component_symbols(monoid, "b"))))
