"""One map over every expression of a form.

Slots keep their names unless `name` gives others. A rewrite that changes expressions alone is a call of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sympy import S

from redalg.decompose.mapped import Change, map_cascade
from redalg.expression import Value
from redalg.incremental.form import Accumulator, FormOutput, FusedForm, Pivot

Name = Callable[[Value], Value]
"""A slot → the slot that takes its place."""


def keep_slot(value: Value) -> Value:
    """Keep a slot."""
    return value


def map_form(form: FusedForm, change: Change) -> FusedForm:
    """The form with every expression changed, those of its definition too."""
    return replace(
        form,
        cascade=map_cascade(form.cascade, change),
        extrema=tuple(replace(extremum, term=change(extremum.term)) for extremum in form.extrema),
        structures=tuple(replace(structure, term=change(structure.term)) for structure in form.structures),
        pivots=tuple(mapped_pivot(pivot, change) for pivot in form.pivots),
        accumulators=tuple(mapped_accumulator(accumulator, change) for accumulator in form.accumulators),
        assignments=tuple(replace(assignment, expr=change(assignment.expr)) for assignment in form.assignments),
        outputs=tuple(mapped_output(output, change) for output in form.outputs),
    )


def mapped_pivot(pivot: Pivot, change: Change, name: Name = keep_slot) -> Pivot:
    """The pivot with every expression changed, those of its scales too."""
    scales, onto = (
        tuple((mapped_pivot(scale, change, name), change(power)) for scale, power in pairs)
        for pairs in (pivot.scales, pivot.onto)
    )
    return replace(
        pivot,
        value=name(pivot.value),
        base=change(pivot.base),
        source=change(pivot.source),
        slopes=tuple((name(slope), change(S(centre))) for slope, centre in pivot.slopes),
        scales=scales,
        rest=change(pivot.rest),
        onto=onto,
    )


def mapped_accumulator(accumulator: Accumulator, change: Change, name: Name = keep_slot) -> Accumulator:
    """The accumulator with every expression changed, those of its weight too."""
    return replace(
        accumulator,
        value=name(accumulator.value),
        weight=tuple((mapped_pivot(pivot, change, name), change(power)) for pivot, power in accumulator.weight),
        factors=tuple(map(change, accumulator.factors)),
        transition=tuple((name(value), change(coefficient)) for value, coefficient in accumulator.transition),
    )


def mapped_output(output: FormOutput, change: Change) -> FormOutput:
    """The output with its expression, and the condition under which it is empty, changed."""
    return replace(output, expr=change(output.expr), empty=change(output.empty))
