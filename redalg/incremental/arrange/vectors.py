"""Vectors of few components, written out: terms that pair rows with streamed elements.

    Σ_j f(Σ_d g(x[i, d], y[j, d]))     →   Σ_j f(g(x[i, 0], y[j, 0]) + g(x[i, 1], y[j, 1]) + …)
    out[i, e] = Σ_j f(x[i, e], y[j])   →   out[i, 0] = Σ_j f(x[i, 0], y[j]), out[i, 1] = …

Exact but for the order of adding. A product of matrices would pad three components to sixteen, and give a block to
every row where a term is no product. Written out, a thread takes a pair as scalars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from sympy import Expr, Mul, Tuple

from redalg.decompose.cascade import Producer
from redalg.expression import Axis, Element, Let
from redalg.expression.contents import free_axes
from redalg.expression.dtypes import DTYPES
from redalg.incremental.arrange.replace_symbols import replace_in_form
from redalg.incremental.arrange.unroll import WRITTEN, components_of, unroll_axis
from redalg.incremental.form import Accumulator, FusedForm

COMPONENTS, TERMS = 4, 16
"""Components of the longest vector that is written out, and most components of all axes together."""
ROWS = 128
"""Rows below which a block's threads would be idle."""


def write_out_vectors(form: FusedForm, sizes: Mapping[str, int], dtypes: Mapping[str, str]) -> FusedForm:
    """The form with its short axes written out, if its terms then pair rows with streamed elements.

    Products of 16 bits stay: matrix instructions take them, padded as they are.
    """
    if is_product_of_halves(form, dtypes):
        return form
    inner, free = inner_axes(form), short_axes(form, sizes)
    components = [sizes[axis.name] for axis in (*inner, *free)]
    if not components or max(components) > COMPONENTS or prod(components) > TERMS or not has_rows_apart(form, sizes):
        return form
    if not form.is_serial or any(
        axis in value.indices for structure in form.structures for value in structure.values for axis in free
    ):
        return form
    result = form
    while result.cascade.producers:
        first, *_ = result.cascade.producers
        expr = sum_of_components(first, sizes)
        if expr is None:
            return form
        result = replace_in_form(result, {first.value: expr})
    for axis in free:
        result = unroll_axis(result, axis, sizes[axis.name])
    return replace(result, accumulators=tuple(map(in_one_factor, result.accumulators)))


def inner_axes(form: FusedForm) -> frozenset[Axis]:
    """The axes that producers reduce over."""
    return frozenset(axis for producer in form.cascade.producers for axis in producer.cascade.reduced_axes)


def short_axes(form: FusedForm, sizes: Mapping[str, int]) -> tuple[Axis, ...]:
    """The axes of few components that outputs have, by their names: every tensor has them as its last dimension."""
    axes = {axis for output in form.outputs for axis in output.axes if sizes[axis.name] <= COMPONENTS}
    inner = {axis for one in form.cascade.elements() for axis in free_axes(Tuple(*one.indices[:-1]))}
    return tuple(sorted(axes - inner, key=str))


def is_product_of_halves(form: FusedForm, dtypes: Mapping[str, str]) -> bool:
    """Tell if a producer is a sum of products of two tensors, both of 16 bits or fewer."""
    for producer in form.cascade.producers:
        term = producer.cascade.sum_alone
        factors = Mul.make_args(term) if term is not None else ()
        narrow = [one for one in factors if isinstance(one, Element) and DTYPES[dtypes[one.name]].bytes < 4]
        if len(narrow) == len(factors) == 2:
            return True
    return False


def has_rows_apart(form: FusedForm, sizes: Mapping[str, int]) -> bool:
    """Tell if tensors of many rows have no streamed axis, and those of the streamed axis no such rows."""
    if form.summed_axes or any(output.carries or output.places for output in form.outputs):
        return False
    streamed = form.cascade.axis
    axes = [free_axes(element) for element in form.cascade.elements()]
    beside = frozenset[Axis]().union(*(one for one in axes if streamed in one))
    others = frozenset[Axis]().union(*(one for one in axes if streamed not in one))
    return streamed in beside and any(sizes[axis.name] >= ROWS for axis in others - beside)


def sum_of_components(producer: Producer, sizes: Mapping[str, int]) -> Expr | None:
    """A producer's value with its reductions written out; None if an operation between components has no expression.

    Each stays one term: exp of a sum is 0 where a term is −∞, and the components are no terms of the user's.
    """
    cascade = producer.cascade
    if cascade.producers or cascade.inner:
        return None
    values = dict[Expr, Expr]()
    for reduction in cascade.reductions:
        if not reduction.is_scalar or reduction.monoid.reduction not in WRITTEN:
            return None
        term = reduction.term.xreplace(values)
        parts = components_of(term, cascade.axis, sizes[cascade.axis.name])
        values[reduction.value] = Let(reduction.name, WRITTEN[reduction.monoid.reduction](*parts))
    expr: Expr = cascade.outputs[0].expr.xreplace(values)
    return expr


def in_one_factor(accumulator: Accumulator) -> Accumulator:
    """An accumulator that is no product of matrices: its factors are one."""
    return replace(accumulator, factors=(Mul(*accumulator.factors),))
