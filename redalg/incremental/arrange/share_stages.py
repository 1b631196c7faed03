"""Stages that make the same numbers are one stage, whatever their axes are called.

    s[n, t] = Σ_c f(c, n, t), then s'[m, t] = Σ_u f(u, m, t)   →   s[n, t], and s[m, t] for s'[m, t]     |n| = |m|

Exact: both are one function of their indices. It is more than a saving: where a number is compared with the largest of
its like, two kernels could round it differently, and nothing would be equal to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple, final

from sympy import Expr
from sympy.core.basic import Basic

from redalg.expression import Axis, Element, Label
from redalg.expression.contents import elements_of, nodes_of, of_kind
from redalg.incremental.arrange.replace_symbols import replace_in_form
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import Stages

Place = tuple[str, tuple[int, ...]]
"""The name of a tensor, and which index of another one stands at each of its places."""


@final
class StageTensor(NamedTuple):
    """A tensor that a stage makes: name, axes in order, and its definition for the elements of a domain."""

    name: str
    axes: tuple[Axis, ...]
    domain: Basic
    definition: Expr

    @property
    def all_axes(self) -> list[Axis]:
        """Its axes in order, then the others that its definition has."""
        inner = of_kind(Axis, self.domain, self.definition) - {*self.axes}
        return [*self.axes, *sorted(inner, key=str)]

    @property
    def contents(self) -> Counter[object]:
        """The kinds of its nodes and the tensors that it reads, which no names of axes change."""
        nodes = (nodes_of(self.definition), nodes_of(self.domain))
        return Counter(one.name if isinstance(one, Element) else type(one) for part in nodes for one in part)


def share_stages(stages: Stages, sizes: Mapping[str, int]) -> Stages:
    """The stages without those whose tensors earlier ones make, under the names of other axes of the same sizes.

    A stage reads a tensor of another one in the place of a producer that would make its numbers again.
    """
    returned = {output.name for output in stages.outputs}
    known, forms, loop = list[StageTensor](), list[FusedForm](), stages.loop
    renamed = dict[str, Place]()
    for number, form in enumerate(stages.forms):
        own = _with_tensors(form, renamed)
        loop = own if number == stages.place else loop
        tensors = [] if number == stages.place or returned & {output.name for output in own.outputs} else _tensors(own)
        found = {each.name: next(_alike(each, known, sizes), None) for each in tensors}
        others = {name: place for name, place in found.items() if place is not None}
        if tensors and len(others) == len(tensors):
            renamed |= others
            continue
        known += tensors
        forms.append(own)
    place, number = forms.index(loop), 0
    while number < len(forms):
        again = _producer_again(forms, number, known, sizes)
        if again is None:
            number += 1
            continue
        at, form = again
        forms[number] = form
        if at > number:  # it waits for none of those between
            forms.insert(number, forms.pop(at))
            place += number <= place < at
    return stages if tuple(forms) == stages.forms else replace(stages, forms=tuple(forms), place=place)


def _producer_again(
    forms: Sequence[FusedForm], number: int, known: Sequence[StageTensor], sizes: Mapping[str, int]
) -> tuple[int, FusedForm] | None:
    """The number of a stage that holds what a producer of another makes again, and that other one as it reads it."""
    for producer in forms[number].cascade.producers:
        own = StageTensor(producer.name, producer.axes, producer.cascade.domain, producer.definition)
        name, order = next(_alike(own, known, sizes), ("", ()))
        at = next((place for place, form in enumerate(forms) if name in {each.name for each in form.outputs}), number)
        between = {output.name for form in forms[number:at] for output in form.outputs}
        if at != number and not between & {*forms[at].cascade.inputs()}:
            element = Element(Label(name), *(producer.axes[place] for place in order))
            return at, replace_in_form(forms[number], {producer.value: element})
    return None


def _tensors(form: FusedForm) -> list[StageTensor]:
    """The tensors of a stage by their definitions; none if it hands on values that no output defines."""
    defined = {output.name: output.expr for output in form.cascade.outputs}
    if {output.name for output in form.outputs} != {*defined}:
        return []
    values: dict[Expr, Expr] = {producer.value: producer.definition for producer in form.cascade.producers}
    for reduction in form.cascade.reductions:
        values[reduction.value] = reduction.to_reduce(reduction.term.xreplace(values), form.cascade.reduced_axes)
    domain = form.cascade.domain.xreplace(values)
    return [
        StageTensor(output.name, output.axes, domain, defined[output.name].xreplace(values)) for output in form.outputs
    ]


def _alike(tensor: StageTensor, known: Sequence[StageTensor], sizes: Mapping[str, int]) -> Iterator[Place]:
    """Yield the tensors that hold the numbers of another."""
    for other in known:
        if len(other.axes) != len(tensor.axes) or other.contents != tensor.contents:
            continue
        for order in permutations(range(len(tensor.axes))):
            free = [tensor.axes[place] for place in order]
            names = ([*free, *inner] for inner in permutations(tensor.all_axes[len(free) :]))
            if any(_is_equal(other, axes, tensor, sizes) for axes in names):
                yield other.name, order


def _is_equal(other: StageTensor, axes: Sequence[Axis], tensor: StageTensor, sizes: Mapping[str, int]) -> bool:
    """Tell if a tensor's definition with other names for all of its axes is that of another tensor."""
    own = other.all_axes
    if len(own) != len(axes) or any(not _is_as_long(a, b, sizes) for a, b in zip(own, axes, strict=True)):
        return False
    pairs = [*zip(own, axes, strict=True)]
    names: dict[Basic, Basic] = dict([*pairs, *((a.extent, b.extent) for a, b in pairs)])
    return bool((other.definition.xreplace(names), other.domain.xreplace(names)) == (tensor.definition, tensor.domain))


def _is_as_long(axis: Axis, other: Axis, sizes: Mapping[str, int]) -> bool:
    """Tell if two axes are one, or have one size that is known."""
    length = sizes.get(axis.name, axis.size)
    return axis == other or (length is not None and length == sizes.get(other.name, other.size))


def _with_tensors(form: FusedForm, renamed: Mapping[str, Place]) -> FusedForm:
    """A form that reads other tensors in the place of some."""
    others = dict[Expr, Expr]()
    exprs = [*form.cascade.expressions(), form.cascade.domain, *(output.expr for output in form.outputs)]
    for element in {element for expr in exprs for element in elements_of(expr)}:
        if element.name in renamed:
            name, order = renamed[element.name]
            others[element] = Element(Label(name), *(element.indices[place] for place in order))
    return replace_in_form(form, others) if others else form
