"""Flatten tensors whose innermost dimensions are read at constant places: rows become one contiguous dimension.

    r[b, n, k]  →  r[b, 3·n + k]        exact: the same memory, of a tensor of shape (…, n, 3) passed as (…, 3·n)

A tile of it is then one contiguous copy, which the neighbours k = 0, 1, 2 share.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from sympy import Expr, Integer

from redalg.expression import Axis, Element
from redalg.incremental.arrange.replace_symbols import replace_in_form
from redalg.incremental.form import FusedForm
from redalg.strategies.plan import Problem, shape_of

MOST = 16
"""Largest number of elements that may lie between two neighbours along the streamed axis."""


def flatten_tensors(form: FusedForm, problem: Problem) -> tuple[FusedForm, Problem]:
    """The form and the problem with such tensors flattened."""
    shapes, replacements = dict(problem.shapes), dict[Expr, Expr]()
    for name in form.cascade.inputs():
        elements = [one for one in form.cascade.elements() if one.name == name]
        place = streamed_place(elements, form.cascade.axis)
        if place is None or len(elements) < 2:
            continue
        shape = shapes.get(name) or shape_of(name, elements, problem)
        if not 1 < prod(shape[place + 1 :]) <= MOST:
            continue
        shapes[name] = (*shape[:place], prod(shape[place:]))
        replacements |= {one: flat_element(one, place, shape) for one in elements}
    if not replacements or form.cascade.producers:
        return form, problem
    return replace_in_form(form, replacements), replace(problem, shapes=shapes)


def streamed_place(elements: list[Element], streamed: Axis) -> int | None:
    """The dimension of the streamed axis, if only constants follow it, in every element."""
    places = set()
    for element in elements:
        place = element.indices.index(streamed) if streamed in element.indices else -1
        plain = place >= 0 and all(index.is_Integer for index in element.indices[place + 1 :])
        places.add(place if plain and streamed not in element.indices[:place] else None)
    return places.pop() if len(places) == 1 else None


def flat_element(element: Element, place: int, shape: tuple[int, ...]) -> Element:
    """An element of the flattened tensor."""
    index: Expr = element.indices[place]
    for number, length in zip(element.indices[place + 1 :], shape[place + 1 :], strict=True):
        index = index * Integer(length) + number
    return Element(element.args[0], *element.indices[:place], index.expand())
