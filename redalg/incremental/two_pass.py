"""Two passes: the exact form where one pass only approximates.

d_i = ⊕ F_i(x; d_1 … d_{i-1})   →   first pass: the d's that a rounding needs;  second pass: the rest, given them
Σ cast(g(x)·h(d))·f(x, e)       →   first pass: cast(g·h) too, once instead of for every e;  second pass: Σ of a product

Exact: in the second pass those d's are tensors like any other, and a rounding of x and parameters is of x alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sympy import Expr

from redalg.decompose import Cascade, Decomposition, Output, decompose
from redalg.decompose.domain import with_domain
from redalg.expression import Axis, Cast, Element, Label, Value
from redalg.expression.contents import elements_of, free_axes, values_of
from redalg.incremental.derive import derive
from redalg.incremental.form import FusedForm


def in_two_passes(decomposition: Decomposition) -> tuple[FusedForm, Decomposition]:
    """The form of the values that roundings need, and the decomposition of the rest, in which they are tensors."""
    cascade = decomposition.cascade
    reduced = set(cascade.values)
    needed = {value for _, one in decomposition.roundings for value in one.cast.atoms(Value) & reduced}
    first, second = split(cascade, needed, [one.cast for _, one in decomposition.roundings])
    return derive(decompose(first)), decompose(second)


def split(cascade: Cascade, needed: Iterable[Value], roundings: Iterable[Cast] = ()) -> tuple[Cascade, Cascade]:
    """The cascade of the needed values and roundings, and the cascade in which they are tensors of the same names."""
    values = [one for one in cascade.values if one in set(needed)]
    outputs = [Output(one.name, one, one.indices) for one in values]
    given: dict[Expr, Expr] = {one: Element(Label(one.name), *one.indices) for one in values}
    for number, one in enumerate(cast for cast in dict.fromkeys(roundings) if repeated(cast, cascade)):
        made = Element(Label(unused(f"rounded_{number}", cascade)), *layout(one, cascade))
        outputs.append(Output(made.name, one, made.indices, carries=True))
        given[one] = made
    second = pruned(substituted(cascade, given))
    used = tuple(one for one in outputs if one.name in second.inputs())
    return pruned(replace(cascade, outputs=used)), second


def repeated(cast: Cast, cascade: Cascade) -> bool:
    """Whether a sum would round the same number again for every element of an axis that the rounding lacks."""
    axes = free_axes(cast)
    sums = [one for one in cascade.reductions if one.term.has(cast)]
    return cascade.axis in axes and not cascade.inner and all(set(one.axes) - axes for one in sums)


def layout(cast: Cast, cascade: Cascade) -> tuple[Axis, ...]:
    """The axes of a rounding in the order in which a tensor of it has them, the reduced one last where none has all."""
    axes = free_axes(cast)
    for element in sorted(elements_of(cast), key=str):
        if element.is_plain and set(element.indices) == axes:
            return tuple(element.indices)
    return (*sorted(axes - {cascade.axis}, key=str), cascade.axis)


def unused(name: str, cascade: Cascade) -> str:
    """The name, or the name with underscores where something of the cascade bears it."""
    taken = {*cascade.inputs(), *(one.name for one in cascade.scalars()), *(one.name for one in cascade.values)}
    return name if name not in taken else unused(f"{name}_", cascade)


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
