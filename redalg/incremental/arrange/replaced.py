"""Every part of a form with some of its symbols replaced, and its definition likewise.

The stages of one call (`stages`) read from memory what an earlier one made: its value is an element there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sympy import Expr

from redalg.decompose.cascade import Cascade, Producer
from redalg.incremental.form import Accumulator, FusedForm, Pivot


def replaced(form: FusedForm, found: Mapping[Expr, Expr]) -> FusedForm:
    """The form with symbols replaced; producers whose values are among them are gone."""

    def of(node: Any) -> Any:
        return node.xreplace(found)

    def pivot(one: Pivot) -> Pivot:
        slopes = tuple((beta, of(c)) for beta, c in one.slopes)
        scales, onto = (tuple((pivot(m), of(q)) for m, q in pairs) for pairs in (one.scales, one.onto))
        return replace(one, base=of(one.base), source=of(one.source), slopes=slopes, scales=scales, rest=of(one.rest),
                       onto=onto)  # fmt: skip

    def accumulator(one: Accumulator) -> Accumulator:
        weight = tuple((pivot(c), of(q)) for c, q in one.weight)
        transition = tuple((value, of(c)) for value, c in one.transition)
        return replace(one, weight=weight, factors=tuple(map(of, one.factors)), transition=transition)

    return replace(
        form,
        cascade=substituted(form.cascade, found),
        extrema=tuple(replace(one, term=of(one.term)) for one in form.extrema),
        structures=tuple(replace(one, term=of(one.term)) for one in form.structures),
        pivots=tuple(map(pivot, form.pivots)),
        accumulators=tuple(map(accumulator, form.accumulators)),
        assignments=tuple(replace(one, expr=of(one.expr)) for one in form.assignments),
        outputs=tuple(replace(one, expr=of(one.expr), empty=of(one.empty)) for one in form.outputs),
    )


def substituted(cascade: Cascade, found: Mapping[Expr, Expr]) -> Cascade:
    """The definition with symbols replaced, in its producers too."""
    return replace(
        cascade,
        producers=tuple(within(one, found) for one in cascade.producers if one.value not in found),
        reductions=tuple(replace(one, term=one.term.xreplace(found)) for one in cascade.reductions),
        outputs=tuple(replace(one, expr=one.expr.xreplace(found)) for one in cascade.outputs),
        domain=cascade.domain.xreplace(found),
    )


def within(producer: Producer, found: Mapping[Expr, Expr]) -> Producer:
    """A producer with symbols replaced."""
    return replace(producer, cascade=substituted(producer.cascade, found))
