"""One map over every expression of a cascade.

Names, axes and monoids stay. A rewrite that changes expressions alone is a call of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from redalg.decompose.cascade import Cascade, Producer

Change = Callable[[Any], Any]
"""An expression → the expression that takes its place."""


def map_cascade(cascade: Cascade, change: Change) -> Cascade:
    """The cascade with its terms, outputs and domain changed, and those of its producers.

    >>> from sympy import Symbol
    >>> from redalg import axes, fuse, sum, tensor
    >>> n, x, y = axes("n"), tensor("x[n]"), tensor("y[n]")
    >>> cascade = fuse(sum(x**2, n)).cascade
    >>> map_cascade(cascade, lambda expr: expr.xreplace({x: y})).reductions[0].term
    y[n]**2
    """
    return replace(
        cascade,
        producers=tuple(mapped_producer(producer, change) for producer in cascade.producers),
        reductions=tuple(replace(reduction, term=change(reduction.term)) for reduction in cascade.reductions),
        outputs=tuple(replace(output, expr=change(output.expr)) for output in cascade.outputs),
        domain=change(cascade.domain),
        names=tuple((name, change(expr)) for name, expr in cascade.names),
    )


def mapped_producer(producer: Producer, change: Change) -> Producer:
    """The producer with the expressions of its cascade changed."""
    return replace(producer, cascade=map_cascade(producer.cascade, change))
