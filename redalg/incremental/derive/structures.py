"""Slots of a reduction by a monoid of several components, and its results as expressions of them.

Results of one reduction share its slots: the values and the indices of a selection are one structure. A result that is
a component itself, and is the reduction's value, gives that component its name.
"""

from __future__ import annotations

from sympy import Expr, S

from redalg.decompose.cascade import Reduction
from redalg.decompose.parse.foreign import adopt
from redalg.decompose.verdict.verdict import Decomposition, Separation
from redalg.expression import Label, Value
from redalg.expression.contents import axes_by_name, free_axes
from redalg.incremental.form import Structure
from redalg.monoids import state_monoid


def structure_of(separation: Separation, decomposition: Decomposition) -> tuple[Structure, tuple[Expr, ...]]:
    """The structure of a reduction, and every result of its monoid as an expression of the slots."""
    reduction, [term] = separation.reduction, separation.g
    sharing = [other for other in decomposition.separations if _key(other) == _key(separation)]
    axes = free_axes(term) - set(decomposition.cascade.reduced_axes) | ({reduction.place} if reduction.place else set())
    monoid, name = state_monoid(reduction.monoid), sharing[0].reduction.name
    symbols = tuple(Value(Label(f"{name}_{part.name}"), *axes_by_name(axes)) for part in monoid.components)
    results = tuple(adopt(result) for result in monoid.lower(*symbols))
    names: dict[Expr, Value] = {}
    for other in sharing:
        result = results[other.reduction.monoid.result(other.reduction.result)[0]]
        if result in symbols and _is_plain(other) and result not in names:
            names[result] = other.reduction.value
    values = tuple(names.get(symbol, symbol) for symbol in symbols)
    return Structure(values, monoid, term, reduction.place), tuple(result.xreplace(names) for result in results)


def _key(separation: Separation) -> tuple[object, ...]:
    reduction: Reduction = separation.reduction
    return reduction.monoid.name, separation.g, reduction.place


def _is_plain(separation: Separation) -> bool:
    if separation.times == "∘":  # what is selected is made of both slots
        return False
    return separation.h[0] in (S.Zero, S.One) and separation.shift is S.Zero
