"""The axes that are reduced together, the streamed one of them, and sums that make this plain.

Rewrites, each exact:

    joining          Σ_i A·Σ_j f → A·Σ_{i,j} f              A free of i and j; where others reduce over i and j at once
    splitting        Σ_{i,j} f → Σ_i Σ_j f                  where others reduce over j alone and over i alone
    total            |i|·|j| → |i j|                        the number of elements over all the reduced axes i, j; where
                                                            one extent alone is unknown it follows from the total
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import count
from math import prod
from typing import Any

from sympy import Expr, Mul, Pow, S, Tuple
from sympy.core.basic import Basic

from redalg.decompose.cascade import Output, Producer
from redalg.errors import ExpressionError
from redalg.expression import Axis, Element, Extent, Reduce, Scalar
from redalg.expression.contents import axes_by_name, elements_of, free_axes, nodes_of, of_kind, reductions_of
from redalg.expression.rebuild import with_args

Axes = frozenset[Axis]
SPLIT = ("sum", "prod", "max", "min")
"""The reductions over several axes that are reductions of reductions."""
SHOWN = 50
"""Nodes of an expression that an error shows."""


def outermost_reductions(expr: Basic) -> Iterator[Reduce]:
    """The reductions that stand in no other reduction."""
    if isinstance(expr, Reduce):
        yield expr
    else:
        for arg in expr.args:
            yield from outermost_reductions(arg)


# ---- which axes ------------------------------------------------------------------------------------------------------


def reduced_axes(exprs: list[Expr]) -> tuple[Axis, ...]:
    """The axes over which the outputs are reduced, the streamed one first (`streams` treats epilogues).

    A reduction over other axes that carries one of these is data for a second pass. There are none if nothing is
    reduced.
    """
    tops = [node for expr in exprs for node in outermost_reductions(expr)]
    if not tops:
        return ()
    together = _together(tops, exprs)
    if together is None:
        groups = dict.fromkeys(streams(node) for node in tops)
        names = ", ".join(axis_list(indexing_order(one, exprs)) for one in groups)
        raise ExpressionError(
            f"the outputs are reduced over unrelated axes {names}: {'; '.join(map(_in_words, tops))}. One pass "
            "streams one axis: fuse them one by one."
        )
    return _order_axes(together, exprs)


def _in_words(node: Reduce) -> str:
    """A reduction as it is written; one of many nodes by its kind and axes, which a reader can take in."""
    return str(node) if len(nodes_of(node)) <= SHOWN else f"a {node.kind} over {axis_list(node.bound)}"


def _together(tops: Sequence[Reduce], exprs: Sequence[Expr]) -> Axes | None:
    """The axes that all outermost reductions reduce over at once, or carry; or None."""
    over = {node: streams(node) for node in tops}
    wider = [axes for node, axes in over.items() if axes != frozenset(node.bound)]
    over = {node: next((one for one in wider if sums_rows_of(node, one)), axes) for node, axes in over.items()}
    together = _over_which(over) or _beside_parameters(over, exprs)
    together = together or _over_which({node: frozenset(node.bound) for node in tops})
    return together or _over_which({node: _of_a_list(node) or axes for node, axes in over.items()})


def innermost_axis(exprs: Mapping[str, Expr], orders: Mapping[str, Sequence[Axis]]) -> Axis:
    """The axis that is streamed where nothing is reduced: the last of the output of most axes.

    Outputs without axes are numbers, which an axis of one element makes.
    """
    order = max(orders.values(), key=len)
    return order[-1] if order else Axis(unused_name("once", exprs.values()), size=1)


def unused_name(stem: str, exprs: Iterable[Expr]) -> str:
    """A name that no tensor and no scalar of some expressions bears."""
    names = {one.name for one in of_kind(Element, *exprs) | of_kind(Scalar, *exprs)}
    return next(name for number in count() if (name := stem + "_" * number) not in names)


def _over_which(over: Mapping[Reduce, Axes]) -> Axes | None:
    """The widest of the streamed sets of axes that every reduction reduces over or carries; or None."""
    fits = [axes for axes in dict.fromkeys(over.values())
            if all(other <= axes or free_axes(node) & axes for node, other in over.items())]  # fmt: skip
    return max(fits, key=len, default=None)


def _beside_parameters(over: Mapping[Reduce, Axes], exprs: Iterable[Expr]) -> Axes | None:
    """The streamed set of the most reductions such that every output has one, and the others are parameters; or None.

    A parameter reduces nothing that carries a streamed axis: it is made apart, as lse − Σ_d x·y has Σ_d x·y.
    """
    tops = [set(outermost_reductions(expr)) for expr in exprs]

    def serves(axes: Axes) -> bool:
        streamed = {node for node, other in over.items() if other <= axes or free_axes(node) & axes}
        others = over.keys() - streamed
        apart = all(not axes & set(one.bound) for node in others for one in (node, *reductions_of(node.expr)))
        return apart and all(streamed & nodes for nodes in tops)

    fits = [axes for axes in dict.fromkeys(over.values()) if serves(axes)]
    return max(fits, key=lambda axes: (sum(other == axes for other in over.values()), axis_list(sorted(axes, key=str))),
               default=None)  # fmt: skip


def _order_axes(together: Axes, exprs: list[Expr]) -> tuple[Axis, ...]:
    """The reduced axes, the streamed one first: the first in order over which no reduction over a part of them goes."""
    if len(together) == 1:
        return tuple(together)
    order, parts = indexing_order(together, exprs), _parts(together, exprs)
    free = [axis for axis in order if not any(axis in node.bound for node in parts)]
    if not free:
        names = "; ".join(sorted(f"`{node}`" for node in parts))
        raise ExpressionError(
            f"{names}: each reduces over a part of the axes {axis_list(order)}, which are reduced together, so that "
            "none of these is left to stream. Compute one of them first, and pass it as a tensor."
        )
    return (free[0], *(axis for axis in order if axis != free[0]))


def parts_of_all(exprs: Iterable[Expr]) -> list[Reduce]:
    """The reductions over a part of the axes that are reduced together, if they leave none to stream; else none."""
    listed = list(exprs)
    if all(len(node.bound) == 1 for node in _reductions(listed)):
        return []
    together = _together([node for expr in listed for node in outermost_reductions(expr)], listed)
    parts = _parts(together, listed) if together else []
    return parts if {*(together or ())} == {axis for node in parts for axis in node.bound} else []


def _parts(together: Axes, exprs: Iterable[Expr]) -> list[Reduce]:
    """The reductions over a part of some axes."""
    return [node for node in _reductions(exprs) if set(node.bound) < together]


def _reductions(exprs: Iterable[Expr]) -> set[Reduce]:
    return {node for expr in exprs for node in reductions_of(expr)}


def axis_list(axes: Iterable[Axis]) -> str:
    """Axes in prose, `i and j`."""
    return " and ".join(map(str, axes))


def indexing_order(axes: Iterable[Axis], exprs: Iterable[Expr]) -> tuple[Axis, ...]:
    """Axes in the order in which tensors are indexed by them: by the first dimension of each, then by name."""
    first: dict[Axis, int] = {}
    for element in {one for expr in exprs for one in elements_of(expr)}:
        for place, index in enumerate(element.indices):
            if isinstance(index, Axis):
                first[index] = min(place, first.get(index, place))
    return tuple(sorted(axes, key=lambda one: (first.get(one, len(first)), str(one.name))))


def streams(node: Reduce) -> Axes:
    """The axes that a reduction streams: its own, or those of the reduced values if it sums nothing else.

    A reduction over a part of its values' axes is an epilogue too, as in the marginals of a joint weight; and so is a
    sum over rows of what their cascades make, which may read numbers of the rows, as a mean of losses does.
    """
    wider = [frozenset(one.bound) for one in reductions_of(node.expr) if set(one.bound) > set(node.bound)]
    if wider:
        return max(wider, key=len)
    inner = list(outermost_reductions(node.expr))
    if any(one.bound == node.bound for one in inner):
        return frozenset(node.bound)
    numbered = [one for one in inner if one.place in node.bound]
    if numbered:
        return streams(numbered[0])
    cascades = [one for one in inner if _cascades(one)]
    if node.kind == "sum" and cascades and _bare_axes(node.expr) <= free_axes(cascades[0]):
        return streams(cascades[0])
    return frozenset(node.bound)


def _of_a_list(node: Reduce) -> Axes | None:
    """The axes of the list (`topk`) over whose places a reduction goes, and over no data: an output makes it."""
    lists = [one for one in reductions_of(node.expr) if one.place in node.bound]
    return streams(lists[0]) if lists and _bare_axes(node.expr).isdisjoint(node.bound) else None


def sums_rows_of(node: Reduce, axes: Axes) -> bool:
    """Tell if a reduction sums numbers of rows, each reduced over these axes: an epilogue of what streams them."""
    inner = list(outermost_reductions(node.expr))
    rows = bool(inner) and all(frozenset(one.bound) == axes for one in inner)
    return node.kind == "sum" and rows and _bare_axes(node.expr) <= free_axes(inner[0])


def _bare_axes(expr: Basic) -> Axes:
    """The axes of the elements that stand in no reduction."""
    if isinstance(expr, Reduce):
        return frozenset()
    return free_axes(expr) if isinstance(expr, Element) else frozenset().union(*map(_bare_axes, expr.args))


def _cascades(node: Reduce) -> bool:
    return any(set(one.bound) == set(node.bound) for one in reductions_of(node.expr))


def refuse_parts(reduced: Sequence[Axis], producers: Iterable[Producer], outputs: Iterable[Output]) -> None:
    """Raise an error if a producer reduces over an axis that is reduced with others, and that an output has too."""
    for producer in producers:
        bound = {*reduced} & {*producer.cascade.reduced_axes}
        along = next((one for one in outputs if bound & {*one.axes}), None)
        if along is not None:
            raise ExpressionError(
                f"`{producer.definition}` reduces over {axis_list(axes_by_name(bound))} alone, other reductions over "
                f"{axis_list(reduced)}, and output `{along.name}` has an element for each: one pass makes two of the "
                "three. Fuse the outputs that reduce over fewer axes on their own."
            )


# ---- sums of sums ----------------------------------------------------------------------------------------------------


def join_nested_sums(exprs: dict[str, Expr]) -> dict[str, Expr]:
    """Write nested sums as one sum if other reductions reduce over their axes at once (joining, in the module)."""
    reductions = _reductions(exprs.values())
    several = {frozenset(node.bound) for node in reductions if len(node.bound) > 1}
    nests = {node: nest[0] for node in reductions if (nest := _nest(node)) is not None}
    several |= {axes for node, axes in nests.items() if any(nests.get(one) == axes for one in reductions_of(node.expr))}
    return {name: _join(expr, several) for name, expr in exprs.items()} if several else exprs


def _nest(node: Reduce) -> tuple[Axes, Expr, Expr] | None:
    """Σ_i A·Σ_j f as (the axes i and j, A, f), where A is free of both."""
    inner = [one for one in Mul.make_args(node.expr) if isinstance(one, Reduce) and one.kind == node.kind]
    if len(inner) != 1 or set(inner[0].bound) & set(node.bound):
        return None
    axes = frozenset((*node.bound, *inner[0].bound))
    factor = Mul(*(one for one in Mul.make_args(node.expr) if one is not inner[0]))
    if free_axes(factor) & axes or (factor is not S.One and node.kind != "sum"):
        return None
    return axes, factor, inner[0].expr


def _join(node: Any, several: set[Axes]) -> Any:
    args = [_join(arg, several) for arg in node.args]
    node = with_args(node, args)
    nest = _nest(node) if isinstance(node, Reduce) else None
    if nest is None or nest[0] not in several:
        return node
    axes, factor, term = nest
    return factor * Reduce(node.kind, term, axes_by_name(axes))


def split_sums(exprs: dict[str, Expr]) -> dict[str, Expr]:
    """Write sums over several axes as sums of sums, if others leave none of these to stream (splitting, in the module).

    The inner sums go over the axes of the others that hold no further ones, if these are the same for all.
    """
    parts = parts_of_all(exprs.values())
    together = {axis for node in parts for axis in node.bound}
    holds = {node: {axis for one in reductions_of(node.expr) for axis in one.bound} for node in parts}
    innermost = {frozenset(node.bound) for node in parts if not together & holds[node]}
    return exprs if len(innermost) != 1 else {name: _split(expr, *innermost) for name, expr in exprs.items()}


def _split(node: Any, inner: Axes) -> Any:
    node = with_args(node, [_split(arg, inner) for arg in node.args])
    if not (isinstance(node, Reduce) and node.kind in SPLIT and inner < {*node.bound}):
        return node
    return node.rebuilt(node.rebuilt(node.expr, axes_by_name(inner)), axes_by_name({*node.bound} - inner))


# ---- how many elements -----------------------------------------------------------------------------------------------


def total_extent(reduced: Iterable[Axis]) -> Extent:
    """The symbol of the number of elements over all the reduced axes: the axis' own extent where there is one."""
    return Extent(" ".join(str(axis.name) for axis in reduced))


def with_totals(node: Any, reduced: tuple[Axis, ...]) -> Any:
    """Write products of the reduced axes' extents as their total, except in reductions over other axes alone."""
    unknown = [Extent(axis.name) for axis in reduced if axis.size is None]
    if len(reduced) == 1 or not unknown:
        return node
    known = prod(axis.size for axis in reduced if axis.size is not None)
    if len(unknown) == 1:
        total = total_extent(reduced) / known if known else unknown[0]
        return _outside(node, reduced, lambda one: total if one == unknown[0] else None)
    return _outside(
        node, reduced, lambda one: _collect_powers(one, unknown, total_extent(reduced) / known if known else None)
    )


def _outside(node: Any, reduced: tuple[Axis, ...], rule: Any) -> Any:
    if isinstance(node, Reduce) and set(node.bound) != set(reduced) and not any(
            set(inner.bound) == set(reduced) for inner in reductions_of(node.expr)):  # fmt: skip
        return node
    if isinstance(node, Tuple | Element):
        return node
    args = [_outside(arg, reduced, rule) for arg in node.args]
    node = with_args(node, args)
    replacement = rule(node)
    return node if replacement is None else replacement


def _collect_powers(node: Any, unknown: list[Extent], total: Expr | None) -> Expr | None:
    """|i|^p·|j|^q·rest → total^p·|j|^(q − p)·rest, for the power nearest to 0 where all have one sign."""
    if not node.is_Mul or total is None:
        return None
    powers = node.as_powers_dict()
    exponents = [powers.get(one, S.Zero) for one in unknown]
    if not (all(p.is_positive for p in exponents) or all(p.is_negative for p in exponents)):
        return None
    least = min(exponents, key=abs)
    return Pow(total, least) * node * Mul(*(Pow(one, -least) for one in unknown))


# ---- in which order --------------------------------------------------------------------------------------------------


def total_order(free: AbstractSet[Axis], expr: Expr) -> tuple[Axis, ...]:
    """The one order of `free` that the tensors' index orders fix, or an error that writes the call to make."""
    after: dict[Axis, set[Axis]] = {}
    for element in elements_of(expr):
        plain = [index for index in element.indices if isinstance(index, Axis)]
        for place, axis in enumerate(plain):
            after.setdefault(axis, set()).update(plain[place + 1 :])
    left, order = set(free), list[Axis]()
    while left:
        first = [one for one in axes_by_name(left) if not any(one in _reach(other, after) for other in left - {one})]
        if len(first) != 1:
            call = " ".join(map(str, [*order, *axes_by_name(left)]))
            raise ExpressionError(
                "the tensors' index orders do not fix one order of the output axes "
                f'{{{", ".join(map(str, axes_by_name(free)))}}}. Say it, for instance axes="{call}".'
            )
        order.append(first[0])
        left.remove(first[0])
    return tuple(order)


def _reach(axis: Axis, after: Mapping[Axis, set[Axis]]) -> set[Axis]:
    seen, todo = set[Axis](), [axis]
    while todo:
        for later in after.get(todo.pop(), ()):
            if later not in seen:
                seen.add(later)
                todo.append(later)
    return seen
