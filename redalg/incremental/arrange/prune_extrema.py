"""Extrema that no kernel needs are left out of it.

    m = max u, (v, n) = argmax u   →   v for m, −v for a minimum       exact: v is the best u; NaN is above all in both
    extrema (m, …), m in no pivot, assignment or output   →   extrema (…)       exact: m never meets the others

A state keeps them, since its slots are the user's; a kernel that finishes what it starts need not.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import Expr

from redalg.expression import Value
from redalg.expression.contents import values_of
from redalg.incremental.form import FusedForm

PLACE_OF = {"max": ("argmax", 1), "min": ("argmin", -1)}
"""An extremum -> the monoid that finds its place, and the sign of what that keeps."""


def take_values_of_places(form: FusedForm) -> FusedForm:
    """The form that gives out the value at a place for the extremum whose place it is."""
    values = {(one.monoid.name, one.term): one.values[0] for one in form.structures if one.place is None}
    known: dict[Value, Expr] = {}
    for extremum in form.extrema:
        name, sign = PLACE_OF.get(extremum.monoid.name, ("", 1))
        if (name, extremum.term) in values:
            known[extremum.value] = sign * values[name, extremum.term]
    if not known or form.gives_state:
        return form
    outputs = tuple(replace(part, expr=part.expr.xreplace(known), empty=part.empty.xreplace(known))
                    for part in form.outputs)  # fmt: skip
    assignments = tuple(replace(one, expr=one.expr.xreplace(known)) for one in form.assignments)
    return replace(form, outputs=outputs, assignments=assignments)


def prune_extrema(form: FusedForm) -> FusedForm:
    """The form without the extrema that nothing reads."""
    read = {value for pivot in form.pivots for value in values_of(pivot.source) | {pivot.value}}
    read |= {value for one in form.assignments for value in values_of(one.expr)}
    read |= {value for one in form.outputs for node in (one.expr, one.empty) for value in values_of(node)}
    read |= {value for one in form.accumulators for factor in one.factors for value in values_of(factor)}
    extrema = tuple(one for one in form.extrema if one.value in read)
    return form if extrema == form.extrema else replace(form, extrema=extrema)
