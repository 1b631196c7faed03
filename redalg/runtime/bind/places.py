"""The places that a state holds: boxes of the reduced axes, in global numbering.

    places matter    where an index of the streamed data is compared, computed with or returned, or order counts
    box              (start, stop) of every reduced axis
    merge            boxes of two states, which must share no place; those that adjoin become one

A state of a form in which places do not matter holds one box, or does not know its places (None).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from sympy import Expr
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Cascade, Producer
from redalg.expression import Axis, Element, Reduce, Value
from redalg.expression.contents import REMEMBERED, elements_of, values_of
from redalg.incremental.form import FusedForm
from redalg.incremental.remembered import Remembered

Box = tuple[tuple[int, int], ...]
"""(start, stop) of every reduced axis."""
Boxes = tuple[Box, ...]


@lru_cache(REMEMBERED)
def placed_axes(node: Basic) -> frozenset[Axis]:
    """The axes whose places an expression holds: those that stand anywhere but as the index of a tensor.

    >>> from redalg import axes, tensor, where
    >>> q, k = axes("q k")
    >>> placed_axes(where(k <= 3, tensor("s[q,k]"), 0))
    frozenset({k})
    """
    if isinstance(node, Axis):
        return frozenset((node,))
    if isinstance(node, Value):
        return frozenset()
    if isinstance(node, Element):
        return frozenset().union(*(placed_axes(one) for one in node.indices if not isinstance(one, Axis)))
    if isinstance(node, Reduce):
        return placed_axes(node.expr) - frozenset(node.bound)
    return frozenset().union(*map(placed_axes, node.args))


@lru_cache(REMEMBERED)
def computed_axes(node: Basic) -> frozenset[Axis]:
    """The axes whose places stand in arithmetic: anywhere but in conditions and as indices.

    >>> from redalg import axes, tensor, where
    >>> n = axes("n")
    >>> computed_axes(where(n <= 3, tensor("x[n]"), 0)), computed_axes(n * tensor("x[n]"))
    (frozenset(), frozenset({n}))
    """
    if isinstance(node, Axis):
        return frozenset((node,))
    if isinstance(node, Value | Element | Boolean):
        return frozenset()
    return frozenset().union(*map(computed_axes, node.args))


def leaf_exprs(form: FusedForm) -> Iterator[Basic]:
    """The expressions that a leaf evaluates."""
    yield form.cascade.domain
    yield from (one.term for one in form.extrema)
    yield from (one.term for one in form.structures)
    yield from (one.base for one in form.pivots)
    yield from (factor for one in form.accumulators for factor in one.factors)
    yield from produced_exprs(form.cascade)


def finished_exprs(form: FusedForm) -> list[Expr]:
    """The expressions that `finish` evaluates: outputs, assignments, and the producers that stand in them."""
    of_producers = (expr for one in finished_producers(form) for expr in one.cascade.expressions())
    return [*assigned_exprs(form), *of_producers]


def finished_producers(form: FusedForm) -> list[Producer]:
    """The producers that stand in outputs and assignments."""
    values = {value for expr in assigned_exprs(form) for value in values_of(expr)}
    return [one for one in form.cascade.producers if one.value in values]


def assigned_exprs(form: FusedForm) -> list[Expr]:
    """The expressions of outputs and of assignments."""
    return [one.expr for one in form.outputs] + [one.expr for one in form.assignments]


def produced_exprs(cascade: Cascade) -> Iterator[Basic]:
    """The expressions of a cascade's producers."""
    for producer in cascade.producers:
        yield from producer.cascade.expressions()


def _axes_by_place(form: FusedForm) -> frozenset[Axis]:
    return frozenset().union(*map(placed_axes, leaf_exprs(form)))


axes_by_place: Remembered[frozenset[Axis]] = Remembered(_axes_by_place)
"""Form -> the axes whose places stand in the expressions that a leaf evaluates."""
axes_in_arithmetic = Remembered(lambda form: frozenset[Axis]().union(*map(computed_axes, leaf_exprs(form))))
"""Form -> the axes whose places a leaf computes with."""


def _finished_axes_by_place(form: FusedForm) -> frozenset[Axis]:
    return frozenset().union(*map(placed_axes, finished_exprs(form)))


finished_axes_by_place: Remembered[frozenset[Axis]] = Remembered(_finished_axes_by_place)
"""Form -> the axes whose places stand in the expressions that `finish` evaluates."""


def row_axes_by_place(form: FusedForm) -> frozenset[Axis]:
    """The axes that are not reduced and whose places stand in any expression."""
    return (axes_by_place(form) | finished_axes_by_place(form)) - {*form.cascade.reduced_axes}


def _is_of_places(form: FusedForm) -> bool:
    if axes_by_place(form) & set(form.cascade.reduced_axes):
        return True
    finished = [one.expr for one in form.assignments] + [one.expr for one in form.outputs]
    used = frozenset().union(*map(values_of, finished))
    return any(one.has_place_component and used & set(one.integers) for one in form.structures)


is_of_places: Remembered[bool] = Remembered(_is_of_places)
"""Form -> whether a state has other numbers if its elements have other places."""


def places_matter(form: FusedForm) -> bool:
    """Tell if a state is right only if the places of its elements are right: their numbers, or their order."""
    return form.is_ordered or is_of_places(form)


def under_two_indices(exprs: Iterable[Basic], reduced: tuple[Axis, ...]) -> Iterator[tuple[Element, Element]]:
    """Yield two elements of one tensor, of which its piece along a reduced axis serves the first, not the second."""
    found: dict[tuple[str, int], Element] = {}
    elements = sorted({one for expr in exprs for one in elements_of(expr)}, key=str)
    for element in elements:
        found |= {(element.name, place): element for place, index in enumerate(element.indices) if index in reduced}
    for element in elements:
        for place, index in enumerate(element.indices):
            other = found.get((element.name, place))
            if other is not None and index_at(other, place) != index:
                yield (other, element) if index not in reduced or str(other) > str(element) else (element, other)


def index_at(element: Element, place: int) -> Expr:
    """An index of an element."""
    return element.indices[place]


# ---- boxes -----------------------------------------------------------------------------------------------------------


def is_nothing(box: Box) -> bool:
    """Tell if a box holds no place."""
    return any(start >= stop for start, stop in box)


def shared_box(a: Boxes, b: Boxes) -> Box | None:
    """A box of places that both hold; None if there is none."""
    for box in a:
        for other in b:
            both = tuple((max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(box, other, strict=True))
            if not is_nothing(both):
                return both
    return None


def join_boxes(*parts: Boxes) -> Boxes:
    """The boxes of all; boxes that adjoin become one.

    >>> join_boxes((((0, 3),), ((7, 9),)), (((3, 7),),))
    (((0, 9),),)
    """
    boxes = [box for part in parts for box in part]
    if boxes and len(boxes[0]) == 1:
        return join_spans(boxes)
    for axis in range(len(boxes[0]) if boxes else 0):
        boxes.sort(key=lambda box: (box[:axis], box[axis + 1 :], box[axis]))
        joined: list[Box] = []
        for box in boxes:
            last = joined[-1] if joined else None
            if last is not None and _rest(last, axis) == _rest(box, axis) and last[axis][1] == box[axis][0]:
                joined[-1] = (*box[:axis], (last[axis][0], box[axis][1]), *box[axis + 1 :])
            else:
                joined.append(box)
        boxes = joined
    return tuple(sorted(boxes))


def join_spans(boxes: list[Box]) -> Boxes:
    """The boxes of one axis, those that adjoin as one."""
    joined = list[tuple[int, int]]()
    for ((start, stop),) in sorted(boxes):
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], stop
        else:
            joined.append((start, stop))
    return tuple((edge,) for edge in joined)


def _rest(box: Box, axis: int) -> Any:
    return box[:axis], box[axis + 1 :]
