"""A cascade as it is written, reduction by reduction: the producers of a form, and the unfused definition."""

from __future__ import annotations

from sympy import Expr

from redalg.decompose.cascade import Cascade, Producer, Reduction
from redalg.decompose.parse.foreign import adopt
from redalg.expression import Axis, Label, Value
from redalg.incremental.combine.let import Precision, Program
from redalg.incremental.combine.lines import Lines
from redalg.incremental.combine.structures import component_symbols, lift_place
from redalg.incremental.factors import group_factors
from redalg.incremental.form import Structure
from redalg.monoids import state_monoid

Values = dict[Expr, Expr]
"""A symbol of an expression -> the value of a program that stands for it."""


def definition_program(cascade: Cascade) -> Program:
    """The outputs as they are written: result by the name of each output."""
    lines = Lines()
    values = add_reductions(cascade, lines, {})
    results = {
        Value(Label(output.name)): lines.assign(output.name, output.expr.xreplace(values), Precision.OWN)
        for output in cascade.outputs
    }
    return Program("definition", (), tuple(lines.lets), results).prune()


def producer_program(cascade: Cascade, *, scaled: bool = True) -> Program:
    """The producers of a cascade: symbol -> value (`scaled`: products are kept as mantissa and exponent)."""
    lines = Lines()
    values = add_producers(cascade.producers, lines, {}, scaled=scaled)
    results = {producer.value: values[producer.value] for producer in cascade.producers}
    return Program("producers", (), tuple(lines.lets), results)


def add_reductions(cascade: Cascade, lines: Lines, values: Values, *, scaled: bool = True) -> Values:
    """Add lines for a cascade's producers and reductions; returns what they stand for, with those before."""
    values = add_producers(cascade.producers, lines, values, scaled=scaled)
    for reduction in cascade.reductions:
        value = _add_reduction(reduction, cascade.reduced_axes, lines, values, scaled=scaled)
        values = {**values, reduction.value: value}
    return values


def add_producers(producers: tuple[Producer, ...], lines: Lines, values: Values, *, scaled: bool = True) -> Values:
    """Add lines for producers, in order."""
    for producer in producers:
        inner = add_reductions(producer.cascade, lines, values, scaled=scaled)
        expr = producer.cascade.outputs[0].expr.xreplace(inner)
        value = lines.assign(producer.name, expr, named=lines.fresh(producer.value))
        values = {**values, producer.value: value}
    return values


def _add_reduction(
    reduction: Reduction, over: tuple[Axis, ...], lines: Lines, values: Values, *, scaled: bool
) -> Value:
    name, monoid = reduction.name, reduction.monoid
    if not reduction.is_scalar or (monoid.state_kind and scaled):
        return _add_selection(reduction, over, lines, values)
    if monoid.name == "sum":
        factors = group_factors(reduction.term, ()) if reduction.term.is_Mul else (reduction.term,)
        return lines.sum(name, [factor.xreplace(values) for factor in factors], over)
    return lines.reduce(name, monoid, reduction.term.xreplace(values), over)


def _add_selection(reduction: Reduction, over: tuple[Axis, ...], lines: Lines, values: Values) -> Value:
    """A result of a monoid of several components."""
    monoid = state_monoid(reduction.monoid)
    structure = Structure(
        component_symbols(monoid, reduction.name, reduction.axes), monoid, reduction.term, reduction.place
    )
    parts = lift_place(monoid, tuple(operand.xreplace(values) for operand in structure.operands), over[0])
    symbols = lines.gather(structure, parts, over)
    number, result = reduction.monoid.result(reduction.result)
    precision = Precision.OWN if result.dtype else Precision.COMPUTE
    return lines.assign(reduction.name, adopt(monoid.lower(*symbols)[number]), precision)
