"""Outputs that reduce nothing: stages of their own where a loop would write them again, and one axis for several.

    out[b] = Σ_n d, out'[c] = g        →   out, then out'            where g reads no value, and a loop of out is no
                                                                     loop of out'
    out[b, e] = f(Σ_n d[b, n], y[e])   →   Σ_n d, then out           where e is long, and no reduction has it
    out[b, n] = f(x[b, n], y[b, n])    →   out[p] = f(x[p], y[p])    where all have b and n side by side, and nothing
                                                                     else reads either

Exact: an element of such an output needs no other. A loop would write what lacks one of its axes at every place along
it, and would reduce again at every place along an axis that such an output alone has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from sympy import Dummy, Expr

from redalg.decompose.parse.parse import parse
from redalg.decompose.verdict.verdict import decompose
from redalg.expression import Axis, Extent
from redalg.expression.contents import elements_of, free_axes, of_kind, reductions_of, values_of
from redalg.incremental.arrange.coalesce import LIMIT
from redalg.incremental.arrange.stages import REPEATED, Division
from redalg.incremental.derive.derive import online_form
from redalg.incremental.form import FormOutput, FusedForm
from redalg.incremental.stages import Stages


def separate_epilogues(form: FusedForm, sizes: Mapping[str, int]) -> Stages:
    """The form of the reduced values, with outputs after it that would each reduce them again along axes of their own.

    Raises:
        PlanError: a stage has no form of one pass.
    """
    own = {axis for reduction in form.cascade.reductions for axis in reduction.axes} | {*form.cascade.reduced_axes}
    repeated = {one.name: prod(sizes[axis.name] for axis in {*one.axes} - own) for one in form.outputs}
    later = {one.name for one in form.outputs if repeated[one.name] > REPEATED and values_of(one.expr)}
    division = Division(form, sizes)
    if later:
        division.hoist(*form.cascade.parameters)
    return division.result([one for one in division.form.outputs if one.name in later])


def separate_elementwise(form: FusedForm) -> Stages:
    """The form with its outputs that reduce nothing after it, if they have axes of their own, by their axes."""
    widest = max((output for output in form.outputs), key=lambda one: len(one.axes))
    rows = {axis for reduction in form.cascade.reductions for axis in reduction.axes}
    loops = (rows, rows | {*form.cascade.reduced_axes}) if form.cascade.reductions else ({*widest.axes},)
    groups = dict[frozenset[Axis], list[FormOutput]]()
    for output in form.outputs:
        if is_alone(output.expr) and {*output.axes} not in loops:
            groups.setdefault(frozenset(output.axes), []).append(output)
    later = [output.name for group in groups.values() for output in group]
    if len(later) in (0, len(form.outputs)) or form.cascade.producers:
        return Stages((form,), 0, form)
    defined = tuple(one for one in form.cascade.outputs if one.name not in later)
    rest = tuple(one for one in form.outputs if one.name not in later)
    loop = replace(form, cascade=replace(form.cascade, outputs=defined), outputs=rest)
    parsed = (parse({one.name: (one.expr, one.axes) for one in group}) for group in groups.values())
    return Stages((loop, *(online_form(decompose(cascade)) for cascade in parsed)), 0, form)


def is_alone(expr: Expr) -> bool:
    """Tell if an output reads no reduced value."""
    return not values_of(expr) and not reductions_of(expr)


def join_neighbours(form: FusedForm, sizes: Mapping[str, int]) -> FusedForm:
    """A form that reduces nothing, with the axes that all of its tensors have side by side as one stream."""
    if not form.is_elementwise:
        return form
    order = max((output.axes for output in form.outputs), key=len)
    runs = (order[first:] for first in range(len(order) - 1))
    fits = (run for run in runs if prod(sizes[axis.name] for axis in run) < LIMIT and are_neighbours(form, run))
    run = next(fits, None)
    return form if run is None else replace(form, cascade=replace(form.cascade, axis=run[0], inner=run[1:]))


def are_neighbours(form: FusedForm, run: Sequence[Axis]) -> bool:
    """Tell if outputs and tensors have some axes side by side in order, and expressions read none by itself."""
    return all(_holds(output.axes, run) for output in form.outputs) and all(_reads(form, run))


def _reads(form: FusedForm, run: Sequence[Axis]) -> Iterator[bool]:
    """Tell of every tensor if it has all or none of some axes, and of every expression if it has none apart."""
    for output in form.outputs:
        elements = elements_of(output.expr)
        yield from (_holds(one.indices, run) or not free_axes(one) & {*run} for one in elements)
        rest = output.expr.xreplace({one: Dummy("element") for one in elements})
        names = {one.name for one in (*of_kind(Axis, rest), *of_kind(Extent, rest))}
        yield not names & {axis.name for axis in run}


def _holds(indices: Sequence[Expr], run: Sequence[Axis]) -> bool:
    """Tell if indices hold some axes once, side by side in order."""
    places = [place for place, index in enumerate(indices) if free_axes(index) & {*run}]
    return len(places) == len(run) and tuple(indices[places[0] : places[-1] + 1]) == tuple(run)
