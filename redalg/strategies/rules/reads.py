"""The inputs that a loop reads, beside its products: masks, biases, pages, parts; and terms that outputs read again.

Tiles depend on them.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from math import gcd, prod

from sympy import And, Mod, exp, floor

from redalg.expression import Axis, Element
from redalg.expression.contents import elements_of, free_axes, quotient_of
from redalg.expression.dtypes import DTYPES, is_float
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding, product_sides
from redalg.strategies.device import LOAD_BYTES
from redalg.strategies.plan import Problem
from redalg.strategies.rules.loop_tiles import LARGE_TILE

MOST_ELEMENTS = 2**31 - 1
"""Elements of a tensor that an index of 32 bits counts."""
LEAST_PART = 32
"""Shortest equal part of the streamed axis (a page) that a tile is cut to; elements of shorter parts are gathered."""


def has_products(form: FusedForm, binding: Binding) -> bool:
    """Tell if all producers multiply rows by streamed elements."""
    parts = (part for producer in form.cascade.producers for part in producer.cascade.reductions)
    return all(product_sides(part.term, binding) for part in parts)


def reads_in_outputs(form: FusedForm, binding: Binding) -> bool:
    """Tell if an output reads a tensor, by row and column, beside the products."""
    read = [one for output in form.outputs for one in elements_of(output.expr)]
    return any(binding.column in free_axes(one) and binding.rows & free_axes(one) for one in read)


def writes_weights(form: FusedForm) -> bool:
    """Tell if an output has an exponential of every element, as the terms of a weighed sum are."""
    weighed = any(one.weight for one in form.accumulators)
    return weighed and any(one.carries and one.expr.has(exp) for one in form.outputs)


def reads_weights_apart(form: FusedForm, problem: Problem, binding: Binding) -> bool:
    """Tell if an output reads weights that all rows share, and rows begin anywhere: threads load these one by one."""
    read = [one for output in form.outputs for one in elements_of(output.expr)]
    shared = any(free_axes(one) == {binding.streamed} for one in read)
    return shared and not has_aligned_rows(form, problem)


def reads_along(form: FusedForm, axis: Axis) -> bool:
    """Tell if a term of the loop reads a tensor along an axis beside the products."""
    terms = [*(one.term for one in form.accumulators), *(one.term for one in form.extrema)]
    return any(axis in free_axes(one) for term in terms for one in elements_of(term))


def has_bias(form: FusedForm, binding: Binding) -> bool:
    """Tell if an input is indexed by both the row and the streamed axis, and not by their parts alone."""
    axes_read = [free_axes(one) for one in form.cascade.elements() if not has_parts(one, binding)]
    return any(binding.streamed in axes and binding.rows & axes for axes in axes_read if not by_group(axes, binding))


def has_parts(element: Element, binding: Binding) -> bool:
    """Tell if an element is one for whole tiles of the rows and of the streamed axis, as that of a block mask."""
    mine = [one for one in element.indices if free_axes(one) & {*binding.rows, binding.streamed}]
    return all(any(quotient_of(one, axis) >= LARGE_TILE[0] for axis in free_axes(one)) for one in mine)


def reads_parts(form: FusedForm, binding: Binding) -> bool:
    """Tell if an input is indexed by a quotient of the row or the streamed axis."""
    indices = [index for element in form.cascade.elements() for index in element.indices]
    axes = {*binding.rows, binding.streamed}
    return any(quotient_of(index, axis) > 1 for index in indices for axis in free_axes(index) & axes)


def compares_data(form: FusedForm, binding: Binding) -> bool:
    """Tell if a mask compares an input along the rows with one along the streamed axis."""
    for condition in And.make_args(form.cascade.domain):
        axes = [free_axes(one) for one in elements_of(condition)]
        by_row = any(binding.rows & one and binding.streamed not in one for one in axes)
        if by_row and any(binding.streamed in one and not binding.rows & one for one in axes):
            return True
    return False


def by_group(axes: AbstractSet[Axis], binding: Binding) -> bool:
    """Tell if the only row axis among `axes` is the grouped one, whose groups the grid numbers."""
    return binding.packing is not None and binding.rows & axes == {binding.packing.grouped}


def reads_pages(form: FusedForm) -> bool:
    """Tell if a place within a part is an index: where the part lies is read ahead, in few registers of a loader."""
    return any(one.args[0] == form.cascade.axis for element in form.cascade.elements() for one in element.atoms(Mod))


def equal_part(form: FusedForm) -> int:
    """The length that tiles of the streamed axis must divide to lie within one part of it; 0 if any will do."""
    axis, lengths = form.cascade.axis, list[int]()
    for element in form.cascade.elements():
        for part in element.atoms(floor, Mod):
            above, below = part.args[0].as_numer_denom() if isinstance(part, floor) else part.args
            if above == axis and below.is_Integer:
                lengths.append(int(below))
    return gcd(*lengths)


def has_aligned_rows(form: FusedForm, problem: Problem) -> bool:
    """Tell if the rows of every streamed floating-point input begin where a thread may load 16 bytes."""
    for element in form.cascade.elements():
        if form.cascade.axis in free_axes(element) and is_float(problem.dtypes[element.name]) and element.indices:
            last = element.indices[-1]
            size = problem.sizes[last.name] if isinstance(last, Axis) else 1
            if size * DTYPES[problem.dtypes[element.name]].bytes % LOAD_BYTES:
                return False
    return True


def loads_by_vectors(form: FusedForm, problem: Problem) -> bool:
    """Tell if threads load rows by vectors: rows begin at such ones, or are taken so, with their ends apart.

    Rows of fixed length whose elements 32 bits count are taken so (`lower_tile.passes.aligned_rows`).
    """
    sizes = (prod(problem.sizes[axis.name] for axis in free_axes(one)) for one in form.cascade.elements())
    return has_aligned_rows(form, problem) or (not problem.varying and all(size <= MOST_ELEMENTS for size in sizes))
