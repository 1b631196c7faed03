"""The floating-point operations of a form on all elements, whatever plan runs it: what a rate is measured against.

    a + b, a·b, a comparison, a choice, a root, an exponential          one each
    a sum, an extremum or another ⊕                                     one for each element beside
    a product of factors over different axes, summed                    two for every point of all axes

A part that stands in several terms is counted once for every point of its own axes. Elements that a mask excludes are
counted too, and nothing of what a plan adds: states that are merged, sums that are rescaled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod

from sympy import Add, Basic, Expr, Mul, Pow
from sympy.core.operations import LatticeOp

from redalg.expression import Axis
from redalg.expression.contents import free_axes
from redalg.incremental.form import FusedForm
from redalg.strategies.model.instructions import cost_of_node, names, nodes_outside_indices, scaled_factors

PointCounts = Counter[frozenset[str]]
"""The names of axes -> operations for every point of them."""


def form_operations(form: FusedForm, sizes: Mapping[str, int]) -> int:
    """The operations of a call of one pass.

    Args:
        form: of the pass.
        sizes: of every axis that has none of its own, by name.

    >>> import redalg as ra
    >>> n, e = ra.axes("n e")
    >>> x, w = ra.tensors("x[b,n] w[n,e]")
    >>> form_operations(ra.fuse(ra.sum(x * w, n), axes="b e").form, {"b": 2, "n": 8, "e": 4})  # 2·b·n·e
    128
    """
    own = {axis.name: axis.size for axis in form.cascade.axes() if axis.size is not None}
    known = {**own, **sizes}
    return sum(count * prod(known[name] for name in axes) for axes, count in point_counts(form).items())


def point_counts(form: FusedForm) -> PointCounts:
    """The operations of a form, by the axes along which each is done anew."""
    cascade = form.cascade
    reduced, terms, found = set(cascade.reduced_axes), list[Expr](), PointCounts()
    for accumulator in form.accumulators:
        factors = scaled_factors(accumulator)
        terms += factors
        found[names(*factors)] += len(factors)  # the ⊕, and the product before it
    for term in (*(one.term for one in form.extrema), *(part for one in form.structures for part in one.operands)):
        terms.append(term)
        found[names(term)] += 1
    terms += [one.expr for one in form.outputs if one.carries]
    found += counts_of_nodes((*terms, cascade.domain), reduced)
    for producer in cascade.producers:
        inner = [one.term for one in producer.cascade.reductions]
        outer = names(*producer.axes)
        own = counts_of_nodes(inner, set(producer.cascade.reduced_axes))
        own += PointCounts(names(term) for term in inner)
        for axes, count in own.items():
            found[axes | outer] += count
    streamed = names(*reduced)
    return PointCounts({axes: count for axes, count in found.items() if axes & streamed or not streamed})


def counts_of_nodes(terms: Iterable[Basic], axes: set[Axis]) -> PointCounts:
    """The operations of the nodes that vary along some axes, equal ones once; of all nodes if there are no axes."""
    found = PointCounts()
    for node in nodes_outside_indices(terms):
        if free_axes(node) & axes or not axes:
            found[names(node)] += operations_of_node(node)
    return found


def operations_of_node(node: Basic) -> int:
    """The operations of a node, without its parts'.

    >>> from sympy import Symbol, exp, sin
    >>> x, y = Symbol("x"), Symbol("y")
    >>> [operations_of_node(one) for one in (x - y, -x * y / 2, x**2, exp(x), sin(x), x)]
    [1, 2, 1, 1, 1, 0]
    """
    own = sum(cost_of_node(node))
    return own if isinstance(node, Add | Mul | Pow | LatticeOp) else min(own, 1)
