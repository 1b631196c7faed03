"""A form whose outputs are its state, for kernels that make states.

outputs o = f(s)   →   outputs s        s the slots: extrema, structures, pivots and sums
"""

from __future__ import annotations

from dataclasses import replace

from sympy import S

from redalg.expression import Cast, Value
from redalg.incremental.form import FormOutput, FusedForm
from redalg.incremental.remembered import Remembered

INTEGERS = ("count", "index")
"""Kinds of slots that are integers."""


def with_state_for_outputs(form: FusedForm, dtype: str) -> FusedForm:
    """The form that gives every slot as an output of its name: counts and places as int64, all else in a dtype."""
    values = values_of_slots(form)
    outputs = tuple(FormOutput(slot.name, Cast(values[slot.name], "int64" if slot.kind in INTEGERS else dtype),
                               slot.axes, S.false) for slot in form.slots)  # fmt: skip
    return replace(form, outputs=outputs, assignments=(), unscaled=None, gives_state=True)


def _values_of_slots(form: FusedForm) -> dict[str, Value]:
    values = [*(one.value for one in form.extrema), *(one.value for one in form.pivots)]
    values += [one.value for one in form.accumulators]
    values += [value for one in form.structures for value in one.values]
    return {value.name: value for value in values}


values_of_slots: Remembered[dict[str, Value]] = Remembered(_values_of_slots)
"""Form -> the value of every slot, by name."""
