"""A form whose tensors are a piece of the whole: the places of the piece's first elements are inputs.

So one kernel makes the states of all pieces of a size. The notation is that of parts of an axis (`expression.parts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from redalg.expression import Axis
from redalg.expression.parts import Places, in_part
from redalg.incremental.form import FusedForm
from redalg.incremental.mapped import map_form
from redalg.incremental.names_apart import names_apart


@final
@dataclass(frozen=True)
class MovedForm:
    """A form that numbers elements along some axes from where the piece starts.

    Attributes:
        form: the form, with the inputs that `places` names: integer tensors of one element, and scalars.
        places: of each axis.
    """

    form: FusedForm
    places: tuple[Places, ...]

    def firsts(self, start: Mapping[Axis, int]) -> dict[str, int]:
        """The integer tensors that the form reads, by name, for a piece that starts there."""
        read = set(self.form.cascade.inputs())
        return {one.first: start.get(one.axis, 0) for one in self.places if one.first in read}

    def scalars(self, start: Mapping[Axis, int], totals: Mapping[str, int]) -> dict[str, float]:
        """The scalars that the form reads; `totals` are the lengths of whole axes."""
        read = {str(one.name) for one in self.form.cascade.scalars()}
        numbers = {one.start: start.get(one.axis, 0) for one in self.places}
        numbers |= {one.length: totals.get(one.axis.name, 0) for one in self.places}
        return {name: float(number) for name, number in numbers.items() if name in read}


def with_moved_places(form: FusedForm, axes: Iterable[Axis]) -> MovedForm:
    """The form that numbers elements along these axes from where a piece starts."""
    name_apart = names_apart(form)
    places = tuple(Places.of(axis, name_apart) for axis in sorted(axes, key=str))
    return MovedForm(map_form(form, lambda expr: in_part(expr, places)), places)
