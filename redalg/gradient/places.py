"""The gradient of a tensor at its places, from those by its elements.

X̄[j] = Σ_a [j = i(a)] g(a)        an element X[i(a)] with the adjoint g(a)
  i is a                           g(j)
  i is floor(a/c), c a number      Σ_{r<c} [c·j + r < |a|] g(c·j + r): the c rows that share an element, and no others
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Add, And, Eq, Expr, Integer, Lt, S, Tuple, floor

from redalg.expression import Axis, Element, Where
from redalg.expression.contents import axes_by_name, free_axes, of_kind, quotient_of, reductions_of
from redalg.expression.rebuild import replace_nodes
from redalg.gradient.reverse import sum_of
from redalg.gradient.spelling import with_masked_weights
from redalg.gradient.stage import dimension, second_axis
from redalg.lower_tile.ir.names import Names

WRITTEN = 16
"""Rows that share an element up to which their sum is written out, if they reduce nothing: each is read in 16 bytes."""


def dimensions_beside(tensor: str, parts: Mapping[Element, Expr]) -> tuple[Axis, ...]:
    """The axes of a gradient's dimensions, which differ from all axes of its parts (in a second derivative, say)."""
    [element, *_] = parts
    taken = of_kind(Axis, Tuple(*parts, *parts.values()))
    found = [dimension(tensor, place) for place in range(len(element.indices))]
    while taken.intersection(found):
        found = [second_axis(axis) if axis in taken else axis for axis in found]
    return tuple(found)


def with_axes(expr: Expr, others: Mapping[Axis, Expr]) -> Expr:
    """An expression at other places: one axis after another, as a sum that binds one of them is left as it is."""
    for axis, place in others.items():
        expr = expr.subs(axis, place)
    return expr


def at_place(element: Element, g: Expr, order: tuple[Axis, ...], names: Names) -> Expr:
    """Σ_a [j = i(a)] g(a) of an element X[i(a)], at the place j of the tensor; `names` are those of axes."""
    if element.indices == order:
        return g
    own, places = dict[Axis, Expr](), [*zip(order, element.indices, strict=True)]
    for j, index in places:
        if isinstance(index, Axis):
            own.setdefault(index, j)
    others = [(j, index) for j, index in places if own.get(index) != j]
    pairs = ((j, index, axis) for j, index in others for axis in free_axes(index) - own.keys())
    shared = next((one for one in pairs if quotient_of(one[1], one[2]) > 1), None)
    if shared is None:
        return _where_met(g, others, own)
    j, index, axis = shared
    count, rest = quotient_of(index, axis), [one for one in others if one[0] != j]

    def at(number: Expr) -> Expr:
        place = count * j + number
        return Where(Lt(place, axis.extent), with_masked_weights(_where_met(g, rest, {**own, axis: place})), S.Zero)

    if count <= WRITTEN and not reductions_of(g):
        return Add(*(at(Integer(number)) for number in range(count)))
    among = Axis(names.fresh(axis.name), count)
    return sum_of(replace_nodes(at(among), {floor(among / count): S.Zero}), (among,))


def _where_met(g: Expr, others: list[tuple[Axis, Expr]], own: Mapping[Axis, Expr]) -> Expr:
    """g at the places of its axes that are known, summed over the axes of other indices where they are the tensor's."""
    at_own = with_axes(g, own)
    if not others:
        return at_own
    met = And(*(Eq(j, with_axes(index, own)) for j, index in others))
    within = {axis for _, index in others for axis in free_axes(index)} - own.keys()
    return sum_of(Where(met, with_masked_weights(at_own), S.Zero), axes_by_name(within))
