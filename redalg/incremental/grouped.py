"""The form of states by group: every slot and every output has one more axis, the groups, before its own.

    d = ⊕_n F(x)   →   d[g] = ⊕_{n: key(n) = g} F(x)

Elements of one group have one pivot, so that states of groups merge and finish as the rows of any state do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from redalg.decompose.cascade import Cascade
from redalg.expression import Axis, Value
from redalg.expression.contents import values_of
from redalg.incremental.form import FormOutput, FusedForm, Structure
from redalg.incremental.mapped import mapped_accumulator, mapped_pivot
from redalg.incremental.remembered import Remembered

GROUPS = "groups"
"""The name of the axis, before a number where the expression has an axis of this name."""


def _group_axis(form: FusedForm) -> Axis:
    taken = {axis.name for axis in form.cascade.axes()}
    names = (GROUPS, *(f"{GROUPS}_{number}" for number in range(len(taken))))
    return Axis(next(name for name in names if name not in taken))


group_axis: Remembered[Axis] = Remembered(_group_axis)
"""Form -> the axis of its groups."""


def _grouped_form(form: FusedForm) -> FusedForm:
    axis, produced = group_axis(form), {one.value for one in form.cascade.producers}

    def name(value: Value) -> Value:
        return value if value in produced else Value(value.label, axis, *value.indices)

    def change(expr: Any) -> Any:
        return expr.xreplace({value: name(value) for value in values_of(expr)})

    return replace(
        form,
        cascade=_grouped_cascade(form.cascade, axis, change),
        extrema=tuple(replace(each, value=name(each.value), term=change(each.term)) for each in form.extrema),
        structures=tuple(_grouped_structure(each, name, change) for each in form.structures),
        pivots=tuple(mapped_pivot(pivot, change, name) for pivot in form.pivots),
        accumulators=tuple(mapped_accumulator(each, change, name) for each in form.accumulators),
        assignments=tuple(replace(each, value=name(each.value), expr=change(each.expr)) for each in form.assignments),
        outputs=tuple(_grouped_output(output, axis, change) for output in form.outputs if not output.carries),
        unscaled=None,
    )


grouped_form: Remembered[FusedForm] = Remembered(_grouped_form)
"""Form -> that of its states by group. It has the outputs that carry no reduced axis: the others need every key."""
Name = Callable[[Value], Value]
Change = Callable[[Any], Any]


def _grouped_cascade(cascade: Cascade, axis: Axis, change: Change) -> Cascade:
    """The producers and the domain are of elements, and stay."""
    reductions = tuple(replace(one, axes=(axis, *one.axes), term=change(one.term)) for one in cascade.reductions)
    outputs = tuple(replace(one, axes=(axis, *one.axes), expr=change(one.expr)) for one in cascade.outputs)
    return replace(cascade, reductions=reductions, outputs=outputs)


def _grouped_structure(structure: Structure, name: Name, change: Change) -> Structure:
    return replace(structure, values=tuple(map(name, structure.values)), term=change(structure.term))


def _grouped_output(output: FormOutput, axis: Axis, change: Change) -> FormOutput:
    places = (axis, *output.places) if output.places else ()
    callers = (axis, *output.caller_axes) if output.caller_axes else ()
    return replace(output, expr=change(output.expr), axes=(axis, *output.axes), empty=change(output.empty),
                   caller_axes=callers, places=places, once=change(output.once))  # fmt: skip
