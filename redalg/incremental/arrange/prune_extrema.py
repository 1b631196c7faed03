"""Extrema that nothing reads are left out of a kernel.

    extrema (m, …), m in no pivot, assignment or output   →   extrema (…)       exact: m never meets the others

A state keeps them, since its slots are the user's; a kernel that finishes what it starts need not.
"""

from __future__ import annotations

from dataclasses import replace

from redalg.expression.contents import values_of
from redalg.incremental.form import FusedForm


def prune_extrema(form: FusedForm) -> FusedForm:
    """The form without the extrema that nothing reads."""
    read = {value for pivot in form.pivots for value in values_of(pivot.source) | {pivot.value}}
    read |= {value for one in form.assignments for value in values_of(one.expr)}
    read |= {value for one in form.outputs for node in (one.expr, one.empty) for value in values_of(node)}
    read |= {value for one in form.accumulators for factor in one.factors for value in values_of(factor)}
    extrema = tuple(one for one in form.extrema if one.value in read)
    return form if extrema == form.extrema else replace(form, extrema=extrema)
