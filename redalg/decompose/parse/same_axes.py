"""Names of bound axes: one for each dimension of a tensor that is reduced.

Rewrites, each exact:

    α-renaming       Σ_i f(X[i]) → Σ_n f(X[n])              n not free in f; both index the same tensor dimension, in
                                                            one output or in two
    first name       Σ_j f(X[j]) → Σ_i f(X[i])              i not in f; where others reduce over i and j at once, both
                                                            of which index this dimension of X, and none
                                                            would be left to stream
    length           |i| → |n|                              where no tensor has the axis i any more, and n is in its
                                                            place
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from sympy import Expr, Tuple
from sympy.core.basic import Basic

from redalg.decompose.parse.axes import Axes, indexing_order, outermost_reductions, parts_of_all
from redalg.expression import Axis, Extent, Reduce
from redalg.expression.contents import axes_by_name, elements_of, free_axes, of_kind, reductions_of
from redalg.expression.rebuild import with_args

Place = tuple[str, int]
"""A tensor's name, and one of its dimensions."""


def same_names(expr: Expr) -> Expr:
    """α-rename inner bound axes to the outer ones that index the same tensor dimensions, and order them by name."""
    if len({node.bound for node in reductions_of(expr)}) < 2 and all(
        len(node.bound) == 1 for node in outermost_reductions(expr)
    ):
        return expr

    def visit(node: Basic, outer: Mapping[Place, Axis], above: Axes, known: dict[Basic, Basic]) -> Basic:
        """Rename a node under the axes outside it; `known` holds the nodes that were visited under these.

        `above` are those that are bound outside, `outer` the innermost for every dimension.
        """
        if node not in known:
            here, below = node, known
            if isinstance(node, Reduce):
                here, below = _rename_bound(node, outer, above), {}
                outer = {**outer, **{place: axis for axis in here.bound for place in _places(here.expr, axis)}}
                above = above | {*here.bound}
            made = with_args(here, [visit(arg, outer, above, below) for arg in here.args])
            changed = isinstance(made, Reduce) and made != node
            lengths = same_extents([node], [made], made.bound) if changed else {}
            known[node] = made.rebuilt(made.expr.xreplace(lengths), made.bound) if lengths else made
        return known[node]

    whole = visit(expr, {}, frozenset(), {})
    return expr if whole == expr else whole.xreplace(same_extents([expr], [whole]))


def _rename_bound(node: Reduce, outer: Mapping[Place, Axis], above: Axes) -> Reduce:
    """A reduction over the axes outside it that index its dimensions: names are exchanged, as some within may be new.

    Σ_k Σ_j f(X[k], X[j])            →  Σ_j Σ_k f(X[j], X[k])
    Σ_i Σ_j (… Σ_i f(X[i], X[j]))    →  Σ_i Σ_j (… Σ_i₁ f(X[i₁], X[j]))         j has the dimension there, and not i
    """
    used, renaming = {*node.bound, *free_axes(node.expr)}, dict[Basic, Basic]()
    for axis in node.bound:
        others = [outer[place] for place in _places(node.expr, axis) if place in outer]
        other = next((one for one in others if one not in used), None)
        if other is not None:
            renaming |= {axis: other, other: axis}
            used.add(other)
        elif axis in above and others and axis not in others:
            node = node.rename_bound({axis}, {*above, *renaming})
    bound = axes_by_name(renaming.get(axis, axis) for axis in node.bound)
    return node if not renaming and bound == node.bound else node.rebuilt(node.expr.xreplace(renaming), bound)


def names_across_outputs(exprs: Iterable[Expr]) -> dict[Basic, Basic]:
    """Reduction → the same over the axes of another output's, where all index the same tensor dimensions (α-renaming).

    A name stays if an output has an axis of that name.
    """
    exprs = list(exprs)
    tops = list(dict.fromkeys(node for expr in exprs for node in outermost_reductions(expr)))
    if len({node.bound for node in tops}) < 2:
        return {}
    carried = free_axes(Tuple(*exprs))
    first = sorted(tops, key=lambda node: carried.isdisjoint(node.bound))  # stable: those with carried names are first
    renamed = dict[Basic, Basic]()

    def rename(node: Reduce, beside: Iterable[Reduce]) -> None:
        found = (_bound_as(node, renamed.get(other, other), carried) for other in beside)
        new = next((one for one in found if one is not None), None)
        renamed.update({} if new is None else {node: new})

    for place, node in enumerate(first):
        rename(node, first[:place])
    for node in (node for node in first if node not in renamed):  # by those after it, if none before it does
        rename(node, first)
    return renamed


def _bound_as(node: Reduce, other: Basic, carried: Axes) -> Reduce | None:
    """A reduction over the axes of another that goes over the same dimensions; None if there is no need, or no way."""
    if not isinstance(other, Reduce) or {*node.bound} & ({*other.bound} | carried):
        return None
    used = free_axes(node.expr) | {axis for one in reductions_of(node.expr) for axis in one.bound}
    there = {new: {*_places(other.expr, new)} for new in other.bound if new not in used}
    pairs = {axis: [new for new, places in there.items() if not places.isdisjoint(_places(node.expr, axis))]
             for axis in node.bound}  # fmt: skip
    news = [found[0] for found in pairs.values() if len(found) == 1]
    if len({*news}) != len(pairs) or len(pairs) != len(other.bound):
        return None
    names = dict[Basic, Basic](zip(pairs, news, strict=True))
    own = {Extent(axis.name): new.extent for axis, new in zip(pairs, news, strict=True)}
    return node.rebuilt(node.expr.xreplace(names | own), axes_by_name(news))


def _places(expr: Expr, axis: Axis) -> list[Place]:
    return sorted({(element.name, place) for element in elements_of(expr) for place, index in enumerate(element.indices)
                   if index == axis})  # fmt: skip


def common_names(exprs: Iterable[Expr]) -> Callable[[Expr], Expr]:
    """The change of names that several outputs, and names within them, have in common."""
    before = list(exprs)
    across = names_across_outputs(before)
    made = [expr.xreplace(across) for expr in before]
    first = first_names(made) if parts_of_all(made) else {}
    made = [expr.xreplace(first) for expr in made]
    lengths = same_extents(before, made)

    def outside(node: Basic) -> Basic:
        """Change lengths beside reductions; in a term a length is a number that a call gives."""
        if isinstance(node, Reduce):
            return node
        return lengths.get(node, node) if not node.args else with_args(node, [outside(arg) for arg in node.args])

    return lambda expr: outside(expr.xreplace(across).xreplace(first))


def first_names(exprs: Iterable[Expr]) -> dict[Basic, Basic]:
    """Reduction over one of two axes of a tensor's dimension → over the first of both (first name, in the module)."""
    exprs = list(exprs)
    every = {node for expr in exprs for node in reductions_of(expr)}
    wide = [node for node in every if len(node.bound) > 1]
    axes = indexing_order({axis for node in wide for axis in node.bound}, exprs)
    indexed = [(place, axis) for axis in axes for place in {*chain(*(_places(node.expr, axis) for node in wide))}]
    first = dict(reversed(indexed))
    if len(first) == len(indexed):
        return {}
    known = dict[Basic, Basic]()

    def visit(node: Basic) -> Basic:
        if node not in known:
            made = with_args(node, [visit(arg) for arg in node.args])
            known[node] = _over_first(made, first) if isinstance(made, Reduce) and len(made.bound) == 1 else made
        return known[node]

    return {node: visit(node) for node in every if visit(node) != node}


def _over_first(node: Reduce, first: Mapping[Place, Axis]) -> Reduce:
    """A reduction over the first axis of its dimension, if its term reads no such axis."""
    [axis] = node.bound
    names = {first.get(place, axis) for place in _places(node.expr, axis)}
    captured = any(names & {*one.bound} and axis in free_axes(one) for one in reductions_of(node.expr))
    if len(names) != 1 or names & free_axes(node.expr) or captured:
        return node
    [name] = names
    return node.rebuilt(node.expr.xreplace({axis: name}), (name,))


def same_extents(before: Iterable[Expr], after: Iterable[Expr], own: Sequence[Axis] = ()) -> dict[Basic, Basic]:
    """Length of an axis that tensors had before → that of the axis in its place (length, in the module).

    Of several axes in its place it is one of a reduction's own.
    """
    now = sorted(_axes_of_dimensions(after), key=lambda one: (one[1] in own, str(one)))
    there, left = dict(now), {axis for _, axis in now}
    gone = sorted({(place, axis) for place, axis in _axes_of_dimensions(before) if axis not in left}, key=str)
    return {Extent(axis.name): there[place].extent for place, axis in gone if place in there}


def axis_aliases(before: Collection[Expr], after: Collection[Expr]) -> tuple[tuple[str, str], ...]:
    """Names of axes that rewrites took away, each with the name of the axis that stands in its place.

    Both index the same dimension of a tensor, before and after.
    """
    gone = {axis.name for axis in of_kind(Axis, *before)} - {axis.name for axis in of_kind(Axis, *after)}
    if not gone:
        return ()
    now = [*_axes_of_dimensions(after)]
    pairs = {(axis.name, new.name) for place, axis in _axes_of_dimensions(before) if axis.name in gone
             for other, new in now if other == place}  # fmt: skip
    return tuple(sorted(pairs))


def _axes_of_dimensions(exprs: Iterable[Expr]) -> Iterator[tuple[Place, Axis]]:
    for element in (element for expr in exprs for element in elements_of(expr)):
        for place, index in enumerate(element.indices):
            if isinstance(index, Axis):
                yield (element.name, place), index
