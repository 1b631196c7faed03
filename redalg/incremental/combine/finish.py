"""The end of a reduction: the values that a state gives, and the outputs that are made of them.

values     the pivots of the state, those of an empty one set to 0, then the form's assignments in order
outputs    the form's outputs from these; one that carries a reduced axis is made over a range of it
"""

from __future__ import annotations

from sympy import Expr, S

from redalg.expression import Label, Value, Where
from redalg.expression.contents import values_of
from redalg.incremental.combine.define import add_producers
from redalg.incremental.combine.let import Precision, Program
from redalg.incremental.combine.lines import Lines
from redalg.incremental.combine.sources import finite_pivot, slots_of
from redalg.incremental.form import FormOutput, FusedForm


def finish_program(form: FusedForm) -> Program:
    """The pivots, as they are subtracted, and every value that is assigned: symbol -> value."""
    lines, state = Lines(), {value: value for value in slots_of(form)}
    lines.add_inputs(state)
    at: dict[Expr, Expr] = add_producers(form.parameters, lines, {})
    extrema = {extremum.value for extremum in form.extrema}
    for pivot in form.pivots:
        if pivot.value in extrema:  # it is −∞ of nothing, as the definition says
            continue
        c = state.get(pivot.value) or lines.assign(f"{pivot.value}_free", pivot.source, Precision.EXACT_PLACES)
        at[pivot.value] = lines.assign(f"{pivot.value}_safe", finite_pivot(pivot, c, form), Precision.EXACT_PLACES)
    whole = {one.value for one in form.cascade.reductions if one.dtype == "int64"}
    for assignment in form.assignments:
        precision = Precision.OWN if assignment.value in whole else Precision.COMPUTE
        at[assignment.value] = lines.assign(assignment.value.name, assignment.expr.xreplace(at), precision)
    results = {symbol: value for symbol, value in at.items() if isinstance(symbol, Value) and isinstance(value, Value)}
    return Program("finish", tuple(state), tuple(lines.lets), {**state, **results})


def output_program(form: FusedForm, *, carries: bool, empty: str, scaled: bool = True) -> Program:
    """The outputs that carry a reduced axis, or those that do not, from the values of `finish`.

    `empty`: `zero` gives 0 where an output is a ratio of zeros; `nan` leaves it as it is. `scaled`: the producers'
    products are kept as mantissa and exponent.
    """
    asked = [output for output in form.outputs if output.carries is carries]
    used = {value for output in asked for value in (*values_of(output.expr), *values_of(output.empty))}
    known = {*slots_of(form), *(pivot.value for pivot in form.pivots), *(one.value for one in form.assignments)}
    known |= {parameter.value for parameter in form.parameters}
    lines = Lines(value.name for value in known)
    read = tuple(one for one in form.cascade.producers if one.value in used and one.value not in known)
    at = add_producers(read, lines, {}, scaled=scaled)
    results = {value_of_output(output): _output(output, at, empty, lines) for output in asked}
    return Program("outputs", tuple(sorted(used & known, key=str)), tuple(lines.lets), results)


def value_of_output(output: FormOutput) -> Value:
    """The value of an output in the program of outputs; one that is stored at constant places has them in its name."""
    places = (f"_{place}" for place in output.places if place.is_Integer)
    return Value(Label("".join((output.name, *places))))


def _output(output: FormOutput, at: dict[Expr, Expr], empty: str, lines: Lines) -> Value:
    expr = output.expr.xreplace(at)
    if empty == "zero" and output.empty != S.false:
        return lines.assign(output.name, Where(output.empty.xreplace(at), S.Zero, lines.assign(output.name, expr)))
    return lines.assign(output.name, expr, Precision.OWN)
