"""Forward mode on an expression: its tangent, linear in those of the elements that it reads.

    p of v, pointwise    ṗ = Σ_v v̇·∂p/∂v
    d = ⊕_B u            ḋ = Σ_B u̇·∂d/∂u           of each place, of several
    d = max_B u          ḋ = Σ_{u = d} u̇ / Σ_{u = d} 1          by the reduction that finds d; min by −u
    d = ⊕_B u, w         ḋ by the elements that ⊕ joins, such as those at max u (`attained`)
    d = first_B u        ḋ = first_B u̇, 0 of none                  last, compensated_sum alike: they are linear
    h = affine_B a, b    ḣ by one recurrence of a, b, ȧ and ḃ
    X[i]                 Ẋ[i]                      an index reads the tangent at the same index

The derivatives are those of reverse mode (`reverse`, `rules`): what a node hands on to an argument, if its adjoint is
the argument's tangent. Exact by the chain rule. A tangent varies over the axes of its node: it is a cascade over the
streamed axis of what was written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sympy import Add, Expr, Max, S, Tuple

from redalg.expression import Axis, Element, Label, Reduce, Where, sum_at_max
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.expression.contents import elements_of, free_axes
from redalg.gradient.attained import CHOSEN, tangent_of_weight
from redalg.gradient.reverse import arguments_of, sum_of
from redalg.gradient.rows import place_of

AT_EXTREMUM = ("max", "min")
ALIKE = ("first", "last", "compensated_sum")


def tangent_of(expr: Expr, names: Mapping[str, str], fixed: Collection[Reduce]) -> Expr:
    """The tangent of an expression.

    Args:
        names: tensor -> the name of its tangent; other tensors are constant.
        fixed: extrema that have no tangent.

    Raises:
        GradientError: something in it has no derivative that redalg knows.
    """
    known: dict[Expr, Expr] = dict.fromkeys(fixed, S.Zero)

    def tangent(node: Expr) -> Expr:
        if node not in known:
            known[node] = of_arguments(node) if any(one.name in names for one in elements_of(node)) else S.Zero
        return known[node]

    def of_arguments(node: Expr) -> Expr:
        if isinstance(node, Element):
            return Element(Label(names[node.name]), *node.indices) if node.name in names else S.Zero
        if isinstance(node, Reduce) and node.kind in AT_EXTREMUM:
            return _at_extremum(node, tangent(node.expr))
        if isinstance(node, Reduce) and node.kind in CHOSEN:
            own = tangent(node.operands[1])
            return S.Zero if own is S.Zero else tangent_of_weight(node, own)
        if isinstance(node, Reduce) and node.kind in ALIKE:
            return _alike(node, tangent(node.operands[0]))
        if isinstance(node, Reduce) and node.kind == "affine":
            return _of_recurrence(node, [tangent(one) for one in node.operands])
        parts = list[Expr]()
        for argument in dict.fromkeys(one for one, _ in arguments_of(node, S.One)):
            own = tangent(argument)
            if own is not S.Zero:
                parts += [part for one, part in arguments_of(node, own) if one == argument]
        return _over_its_axes(node, Add(*parts))

    return tangent(expr)


def _alike(node: Reduce, own: Expr) -> Expr:
    """The tangent of a reduction that is linear in its first operand: that reduction, of the operand's tangent."""
    if own is S.Zero:
        return S.Zero
    place = place_of(node)
    made = node.rebuilt(own if place is None else Tuple(own, *node.operands[1:]), node.bound)
    return made if place is None else Where(place >= 0, made, S.Zero)


def _of_recurrence(node: Reduce, own: Sequence[Expr]) -> Expr:
    """The tangent of a linear recurrence, by that of its maps and their tangents together."""
    if all(one is S.Zero for one in own):
        return S.Zero
    return Reduce("affine_tangent", Tuple(*node.operands, *own), node.args[2], f"{node.result}_tangent")


def _at_extremum(node: Reduce, own: Expr) -> Expr:
    """The tangent of an extremum, by that of its terms where it is attained.

    One reduction finds the extremum and those terms: if they were computed apart, roundings would decide where it is.
    """
    if own is S.Zero:
        return S.Zero
    key = -node.expr if node.kind == "min" else node.expr
    return _sum_where_largest(key, own, node.bound) / Max(_sum_where_largest(key, S.One, node.bound), 1)


def _sum_where_largest(key: Expr, weight: Expr, axes: Sequence[Axis]) -> Expr:
    """Σ of a weight where the key is the largest, axis after axis: of each row's own sum where the row's largest is."""
    [*others, axis] = axes
    own = sum_at_max(key, weight, axis)
    return _sum_where_largest(max_over(key, axis), own, others) if others else own


def _over_its_axes(node: Expr, total: Expr) -> Expr:
    """The tangent of a node, of what its arguments give: the sum over its axes, if it reduces.

    A sum stays one sum: the engine knows a covariance by its terms together, and centres it.
    """
    if not isinstance(node, Reduce):
        return total
    whole = set(node.bound) <= free_axes(total)
    return sum_over(total, *node.bound) if whole else sum_of(total, node.bound)
