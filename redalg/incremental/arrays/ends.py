"""Both ends of a move, for transitions that are no polynomials in δ = c' − c."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from redalg.expression import Value
from redalg.incremental.form import Pivot


def ends(
    pivots: Iterable[Pivot], departure: Callable[[Value], Any], arrival: Callable[[Value], Any]
) -> dict[Value, Any]:
    """Map the symbols of transitions to values: where every pivot moves from, and where it moves to."""
    made = {one.departure: departure(one.value) for one in pivots}
    return made | {one.arrival: arrival(one.value) for one in pivots}
