"""Programs on arrays by group: every fold over the streamed axis is one for each key.

    a line of elements     is evaluated for each element; what it reads of its group is gathered by the element's key
    a fold                 is scattered: each element is joined to the result of its group
    a line of groups       is evaluated for each group

What a fold gives lies along the dimension of the streamed axis, in the elements' place: it has a place for each
group. Order within a group is that of the axis, whatever the order of the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

from sympy import S

from redalg.expression import Axis, Value
from redalg.expression.contents import values_of
from redalg.incremental.arrays.arrays import ArrayOps
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.arrays.folds import spread_along
from redalg.incremental.arrays.interpret import Slots, lifted_parts, run_let
from redalg.incremental.arrays.structured import NATIVE, Element, Layout, empty, joiner, structure_layout
from redalg.incremental.combine.let import Fold, Folding, Gather, Let, Program
from redalg.incremental.remembered import Remembered


@final
@dataclass(frozen=True)
class Groups:
    """The groups of elements along an axis.

    Attributes:
        axis: the axis.
        keys: the number of every element's group (64-bit integers), over the scope's range of the axis.
        number: of groups.
        ops: the array library.
    """

    axis: Axis
    keys: Any
    number: int
    ops: ArrayOps

    @cached_property
    def counts(self) -> Any:
        """The number of elements of every group."""
        return self.ops.count_groups(self.keys, self.number)

    @cached_property
    def order(self) -> Any:
        """The elements by group, those of a group in their order."""
        return self.ops.order(self.keys, 0, descending=False)


def lay_along(array: Any, dims: int, place: int) -> Any:
    """An array of one dimension along a dimension of several."""
    return array.reshape([-1 if dim == place else 1 for dim in range(dims)])


@final
class OfElements(dict[Value, Any]):
    """Values of elements; those of groups are gathered by key when an element reads them."""

    def __init__(self, of_groups: Mapping[Value, Any], groups: Groups, place: int) -> None:
        super().__init__()
        self.of_groups, self.groups, self.place = of_groups, groups, place

    def __missing__(self, value: Value) -> Any:
        array = self.of_groups[value]
        if array.shape[self.place] != 1:
            array = self.groups.ops.pick(array, self.groups.keys, self.place)
        self[value] = array
        return array


def run_by_groups(
    program: Program, scope: Scope, values: Mapping[Value, Any], groups: Groups, *, of_each: bool = False
) -> Slots:  # fmt: skip
    """The results of a program over the scope's ranges, from values of groups (`of_each`: of every element)."""
    of_groups = dict(values)
    of_elements = OfElements(of_groups, groups, scope.place(groups.axis))
    plain = replace(scope, values=of_groups, memo={}, live=None)
    each = replace(scope, values=of_elements, memo={}, live=None)
    live, holds, masks = each, None, program.domain is not S.true
    for let, dead in zip(program.lets, last_reads(program), strict=True):
        if masks and values_of(program.domain) <= of_elements.keys() | of_groups.keys():
            holds, masks = each.evaluate(program.domain), False
            live = each.under(holds)
        live.memo.update({} if holds is None else {program.domain: holds})
        if groups.axis in let.over:
            of_groups.update(zip(let.values, fold_by_groups(let, live, groups), strict=True))
        elif any(groups.axis in value.indices for value in let.values):
            run_let(let, each if isinstance(let, Gather) else live)
        else:
            run_let(let, plain)
        live.memo.clear()
        each.memo.clear()
        for value in dead:
            of_elements.pop(value, None)
    return {slot: (of_elements if of_each else of_groups)[value] for slot, value in program.results.items()}


def _last_reads(program: Program) -> tuple[tuple[Value, ...], ...]:
    kept = {*program.results.values(), *values_of(program.domain)}
    last = {value: number for number, let in enumerate(program.lets) for value in let.reads - kept}
    return tuple(tuple(value for value, at in last.items() if at == number) for number in range(len(program.lets)))


last_reads = Remembered(_last_reads)
"""Program -> for each line the values that no later line reads."""


def fold_by_groups(let: Let, scope: Scope, groups: Groups) -> tuple[Any, ...]:
    """The values of a line that folds over the axis of groups, for each group."""
    if isinstance(let, Gather):
        return fold_elements_by_groups(let, scope, groups)
    if not isinstance(let, Fold) or let.over != (groups.axis,):
        raise AssertionError(f"`{let}` folds over more than {groups.axis}")
    return (fold_numbers(let.folding, scope, groups),)


def fold_numbers(folding: Folding, scope: Scope, groups: Groups) -> Any:
    """⊕ over the elements of every group."""
    place, ops = scope.place(groups.axis), scope.ops
    if folding.kind in ("count", "any"):
        condition = scope.evaluate(folding.factors[0])
        if condition.shape[place] == 1:
            number = lay_along(groups.counts, len(scope.axes), place) * ops.integer(condition)
        else:
            number = ops.fold_groups("sum", ops.integer(condition), groups.keys, place, groups=groups.number)
        return number if folding.kind == "count" else number > 0
    first, *others = (scope.at(factor, folding.precision) for factor in folding.factors)
    for factor in others:
        first = first * factor
    array = spread_along(first, scope, (place,))
    identity = float(folding.identity)
    return ops.fold_groups(folding.kind, array, groups.keys, place, groups=groups.number, identity=identity)


# ---- elements of several components ----------------------------------------------------------------------------------


def fold_elements_by_groups(let: Gather, scope: Scope, groups: Groups) -> Element:
    """⊕ over the elements of every group, in their order."""
    arrays, lies = lifted_parts(let, scope), structure_layout(let.structure, groups.axis, scope)
    sizes = [[one.shape[dim] for one in arrays] for dim in range(len(scope.axes))]
    shape = [0 if 0 in size else max(size) for size in sizes]
    shape[lies.dim] = scope.length(groups.axis)
    element = tuple(scope.ops.expand(one, shape) for one in arrays)
    nothing = empty(let.structure.monoid, lies, shape)
    native = NATIVE.get(let.structure.monoid.name)
    if native is not None and native.ranks:
        return best_by_groups(element, lies, groups, nothing)
    element = tuple(scope.ops.pick(one, groups.order, lies.dim) for one in element)
    join = joiner(let.structure, lies, scope)
    owner = scope.ops.pick(groups.keys, groups.order, 0)
    return fold_sorted(join, element, Owners(owner, groups.counts, scope.ops, lies.dim), nothing)


Joined = tuple[Any, ...]


@final
@dataclass(frozen=True)
class Owners:
    """The groups of slices of arrays along a dimension, sorted by group.

    Attributes:
        numbers: the group of every slice.
        counts: the number of slices of every group.
        ops, dim: the array library, and the dimension.
    """

    numbers: Any
    counts: Any
    ops: ArrayOps
    dim: int


def fold_sorted(join: Callable[[Joined, Joined], Joined], arrays: Joined, owners: Owners, nothing: Joined) -> Joined:
    """Join neighbours of a group until each group has one slice; a group that has none gets `nothing`.

    Every step is one join of arrays: there are as many as the largest group has binary digits.
    """
    ops, owner, counts, dim = owners.ops, owners.numbers, owners.counts, owners.dim
    while int(counts.max()) > 1:
        rank = ops.arange(0, owner.shape[0]) - ops.pick(counts.cumsum(0) - counts, owner, 0)
        left = ops.arange(0, owner.shape[0])[rank % 2 == 0]
        owner, rank = ops.pick(owner, left, 0), ops.pick(rank, left, 0)
        paired = rank + 1 < ops.pick(counts, owner, 0)
        first, second = (
            tuple(ops.pick(array, at, dim) for array in arrays) for at in (left, left + ops.integer(paired))
        )
        arrays = choose(paired, join(first, second), first, owners)
        counts = (counts + 1) // 2
    places = (counts.cumsum(0) - counts).clip(0, owner.shape[0] - 1)
    return choose(counts > 0, tuple(ops.pick(array, places, dim) for array in arrays), nothing, owners)


def choose(condition: Any, first: Joined, second: Joined, owners: Owners) -> Joined:
    """Of every slice the first arrays' where a condition holds, else the second ones'."""
    pairs = zip(first, second, strict=True)
    return tuple(owners.ops.where(lay_along(condition, a.ndim, owners.dim), a, b) for a, b in pairs)


def best_by_groups(element: Element, lies: Layout, groups: Groups, nothing: Element) -> Element:
    """The k best of every group: all elements sorted by value, then stably by group, of which each gives its first."""
    ops, dim, dims = lies.ops, lies.dim, element[0].ndim
    by_value = ops.order(element[0], dim, descending=True)
    keys = ops.expand(lay_along(groups.keys, dims, dim), element[0].shape)
    by_group = ops.order(ops.take(keys, by_value, dim), dim, descending=False)
    order = ops.take(by_value, by_group, dim)
    starts = groups.counts.cumsum(0) - groups.counts
    owners, best = Owners(groups.keys, groups.counts, ops, dim), []
    for place in range(lies.k):
        at = ops.pick(order, (starts + place).clip(0, order.shape[dim] - 1), dim)
        found = tuple(ops.take(array, at, dim) for array in element)
        best.append(choose(groups.counts > place, found, nothing_at(nothing, lies), owners))
    return tuple(ops.concat(parts, lies.place_dim) if lies.k > 1 else parts[0] for parts in zip(*best, strict=True))


def nothing_at(nothing: Element, lies: Layout) -> Element:
    """The identity, of which an element has one place."""
    return nothing if lies.k == 1 else tuple(lies.ops.cut(one, lies.place_dim, 0, 1) for one in nothing)
