"""Two passes: the exact form where one pass only approximates.

    d_i = ⊕ F_i(x; d_1 … d_{i-1})   →   first pass: the d's that a rounding needs;  second pass: the rest, given them

Exact: in the second pass those d's are tensors like any other, and a rounding of x and parameters is of x alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sympy import Expr

from redalg.decompose import Cascade, Output
from redalg.decompose.domain import with_domain
from redalg.expression import Element, Label, Value
from redalg.expression.contents import values_of


def split(cascade: Cascade, needed: Iterable[Value]) -> tuple[Cascade, Cascade]:
    """The cascade of the needed values, and the cascade in which they are tensors of the same names."""
    values = [one for one in cascade.values if one in set(needed)]
    outputs = tuple(Output(one.name, one, one.indices) for one in values)
    first = pruned(replace(cascade, outputs=outputs))
    given: dict[Expr, Expr] = {one: Element(Label(one.name), *one.indices) for one in values}
    return first, pruned(substituted(cascade, given))


def substituted(cascade: Cascade, given: Mapping[Expr, Expr]) -> Cascade:
    """The cascade with values replaced by tensors, their reductions gone."""
    return with_domain(replace(
        cascade,
        reductions=tuple(replace(one, term=one.term.xreplace(given)) for one in cascade.reductions
                         if one.value not in given),
        outputs=tuple(replace(one, expr=one.expr.xreplace(given)) for one in cascade.outputs),
    ))  # fmt: skip


def pruned(cascade: Cascade) -> Cascade:
    """The cascade without the reductions and producers that no output needs."""
    used = {value for one in cascade.outputs for value in values_of(one.expr)} | values_of(cascade.domain)
    kept = []
    for one in reversed(cascade.reductions):
        if one.value in used:
            kept.append(one)
            used |= values_of(one.term)
    producers = tuple(one for one in cascade.producers if one.value in used or _feeds(one.value, cascade, used))
    return replace(cascade, reductions=tuple(reversed(kept)), producers=producers)


def _feeds(value: Value, cascade: Cascade, used: set[Value]) -> bool:
    """Whether a producer stands in another that is used."""
    return any(value in values_of(expr) for one in cascade.producers if one.value in used
               for expr in one.cascade.expressions())  # fmt: skip
