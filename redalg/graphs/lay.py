"""The tensors of a group as its kernel reads them: a dimension is split where indices run over its parts.

    x[16·a + b, c], b < 16                    →   x[a, b, c], x viewed as (n/16, 16, m)

A dimension is split at a stride s if every index of it is s·q + r with 0 ≤ r < s, wherever it is read. A condition
bounds axes in what it guards:

    where(b < 8, x[16·a + b + 8], y), b < 16  →   where(b < 8, x[a, b + 8], y)

Strides are the factors of axes in the indices, and these times the axes' lengths, the largest first. What no stride
splits stays as it is, and is read at computed places. So is a dimension past which an axis runs, under a condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import cast, final

from sympy import Add, And, Expr, Ge, Gt, Le, Lt, Max, Min, Mod, Not, S, cancel, expand, floor
from sympy.core.basic import Basic

from redalg.expression import Axis, Element, Reduce, Tensor
from redalg.expression.contents import REMEMBERED, elements_of, of_kind
from redalg.expression.nodes import Where
from redalg.expression.rebuild import replace_nodes, with_args
from redalg.graphs.compose import Composed
from redalg.graphs.indices import about_axes, multiple_of, quotient_by, remainder_of, split_factor
from redalg.graphs.program import Shape, TensorType

Range = tuple[Expr, Expr]
"""The first of an axis' places, and how many they are."""
Ranges = Mapping[Axis, Range]
Strides = Mapping[str, tuple[tuple[Expr, ...], ...]]
"""Tensor -> for every dimension the strides at which it is split, in descending order."""


@final
@dataclass(frozen=True)
class Laid:
    """Outputs of a group whose tensors are read along axes.

    Attributes:
        outputs: those that were given, with other indices.
        views: tensor that is split -> the shape as which it is viewed; of its elements, in order.
    """

    outputs: tuple[Composed, ...]
    views: Mapping[str, Shape]

    def __str__(self) -> str:
        views = (f"view {name} as [{', '.join(map(str, shape))}]" for name, shape in self.views.items())
        return "\n".join([*views, *map(str, self.outputs)])


def lay_outputs(outputs: Sequence[Composed], types: Mapping[str, TensorType]) -> Laid:
    """Outputs of a group, and the views of the tensors that they read."""
    reads = [read for output in outputs for read in reads_in(output.term, whole_ranges(output))]
    lengths = {axis: size for output in outputs for axis, size in output.sizes.items()}
    strides = dict[str, tuple[tuple[Expr, ...], ...]]()
    for name in sorted({element.name for element, _ in reads}):
        places = [(element.indices, ranges) for element, ranges in reads if element.name == name]
        strides[name] = tuple(strides_of(size, lengths, [(indices[dim], ranges) for indices, ranges in places])
                              for dim, size in enumerate(types[name].shape))  # fmt: skip
    views = {name: split_shape(types[name].shape, found) for name, found in strides.items() if any(found)}
    shapes = {name: views.get(name, types[name].shape) for name in strides}
    laid = (replace(one, term=with_strides(one.term, whole_ranges(one), strides)) for one in outputs)
    return Laid(tuple(replace(one, term=within_dimensions(one.term, one.sizes, shapes)) for one in laid), views)


def whole_ranges(output: Composed) -> Ranges:
    """The ranges of an output's axes where no condition bounds them."""
    return {axis: (S.Zero, size) for axis, size in output.sizes.items()}


def split_shape(shape: Shape, strides: Sequence[Sequence[Expr]]) -> Shape:
    """A shape whose dimensions are split at strides."""
    bounds = [(size, *found, S.One) for size, found in zip(shape, strides, strict=True)]
    return tuple(cancel(above / below) for one in bounds for above, below in pairwise(one))


# ---- strides ---------------------------------------------------------------------------------------------------------


def strides_of(
    size: Expr, lengths: Mapping[Axis, Expr], indices: Sequence[tuple[Expr, Ranges]]
) -> tuple[Expr, ...]:  # fmt: skip
    """The strides at which a dimension can be split for all of its indices, in descending order."""
    known = about_axes(lengths, *(index for index, _ in indices))
    return _strides_of(size, known, tuple((index, about_axes(ranges, index)) for index, ranges in indices))


@lru_cache(REMEMBERED)
def _strides_of(
    size: Expr, known: Sequence[tuple[Axis, Expr]], indices: Sequence[tuple[Expr, Sequence[tuple[Axis, Range]]]]
) -> tuple[Expr, ...]:
    """As `strides_of`, of lengths and ranges as pairs."""
    lengths, found, rest = dict(known), list[Expr](), [(index, dict(ranges)) for index, ranges in indices]
    for stride in candidate_strides([index for index, _ in indices], lengths):
        parts = [divided_index(index, stride, ranges) for index, ranges in rest]
        whole = multiple_of(found[-1] if found else size, stride)
        if whole is not None and whole != 1 and all(parts):
            found.append(stride)
            rest = [(part[1], ranges) for part, (_, ranges) in zip(parts, rest, strict=True) if part]
    return tuple(found)


def candidate_strides(indices: Sequence[Expr], lengths: Mapping[Axis, Expr]) -> list[Expr]:
    """The factors of axes in indices, and these times the axes' lengths: sizes that vary first, numbers descending."""
    factors = set[Expr]()
    for term in (term for index in indices for term in Add.make_args(expand(index))):
        factor, axis = split_factor(term, lengths) if term.is_Mul else (S.One, term)
        if isinstance(axis, Axis) and axis in lengths:
            factors |= {factor, factor * lengths[axis]}
    positive = (factor for factor in factors if factor.is_positive and factor != 1)
    return sorted(positive, key=lambda factor: (bool(factor.is_Integer), -factor if factor.is_Integer else str(factor)))


def divided_index(index: Expr, stride: Expr, ranges: Ranges) -> tuple[Expr, Expr] | None:
    """(q, r) of an index s·q + r with 0 ≤ r < s; None if it is not known to be one."""
    return _divided_index(index, stride, about_axes(ranges, index))


@lru_cache(REMEMBERED)
def _divided_index(
    index: Expr, stride: Expr, known: Sequence[tuple[Axis, Range]]
) -> tuple[Expr, Expr] | None:  # fmt: skip
    """As `divided_index`, of ranges as pairs."""
    ranges = dict(known)
    sizes = {axis: size for axis, (_, size) in ranges.items()}
    from_zero = {axis: axis + low for axis, (low, _) in ranges.items() if low != 0}
    back = {axis: axis - low for axis, (low, _) in ranges.items() if low != 0}
    moved = expand(index.xreplace(from_zero))
    parts = quotient_by(moved, stride, sizes), remainder_of(moved, stride, sizes)
    if any(part.has(floor, Mod) for part in parts):
        return None
    quotient, rest = (expand(part.xreplace(back)) for part in parts)
    return quotient, rest


# ---- terms -----------------------------------------------------------------------------------------------------------


def reads_in(node: Basic, ranges: Ranges) -> Iterator[tuple[Element, Ranges]]:
    """Yield the elements of a term, with the ranges of axes where they are read."""
    if not of_kind(Where, node):
        yield from ((element, ranges) for element in elements_of(node))
        return
    if isinstance(node, Where):
        condition, first, second = node.args
        yield from reads_in(condition, ranges)
        yield from reads_in(first, under(condition, ranges))
        yield from reads_in(second, under(Not(condition), ranges))
        return
    if isinstance(node, Element):
        yield node, ranges
    for arg in node.args:
        yield from reads_in(arg, ranges)


def with_strides(node: Basic, ranges: Ranges, strides: Strides) -> Basic:
    """A term whose tensors are split at strides; the term itself if it reads none of these."""
    if not elements_of(node):
        return node
    if isinstance(node, Where):
        condition, first, second = node.args
        branches = (first, under(condition, ranges)), (second, under(Not(condition), ranges))
        parts = [with_strides(condition, ranges, strides), *(with_strides(*each, strides) for each in branches)]
        return cast(Basic, with_args(node, parts))
    if isinstance(node, Element):
        place = list[Expr]()
        for index, found in zip(node.indices, strides[node.name], strict=True):
            place += (
                split_index(index, ranges, found)
                if found
                else [with_strides(at_one_place(index, ranges), ranges, strides)]
            )
        return node if tuple(place) == node.indices else Tensor(node.name)[tuple(place)]
    if isinstance(node, Reduce):
        term = with_strides(node.expr, ranges, strides)
        return node if term is node.expr else node.rebuilt(term, node.bound)
    return cast(Basic, with_args(node, [with_strides(arg, ranges, strides) for arg in node.args]))


def within_dimensions(term: Basic, sizes: Mapping[Axis, Expr], shapes: Mapping[str, Shape]) -> Basic:
    """A term with computed places where an axis runs past a dimension, as what is joined is read: conditions guard it.

    where(r < 16, x[r], y[r − 16]), r < 24, of x[16]   →   where(r < 16, x[where(r < 16, r, 0)], y[r − 16])
    """
    past = dict[Basic, Basic]()
    for element in elements_of(term):
        pairs = zip(element.indices, shapes[element.name], strict=True)
        place = [Where(index < size, index, S.Zero) if runs_past(index, size, sizes) else index
                 for index, size in pairs]  # fmt: skip
        if place != [*element.indices]:
            past[element] = Tensor(element.name)[tuple(place)]
    return cast(Basic, replace_nodes(term, past)) if past else term


def runs_past(index: Expr, size: Expr, sizes: Mapping[Axis, Expr]) -> bool:
    """Tell if an index is an axis of more places than a dimension has."""
    return isinstance(index, Axis) and bool(size.is_positive and (sizes.get(index, size) - size).is_positive)


def split_index(index: Expr, ranges: Ranges, strides: Sequence[Expr]) -> list[Expr]:
    """An index of a dimension as those of the parts that strides make of it."""
    place = list[Expr]()
    for stride in strides:
        parts = divided_index(index, stride, ranges)
        assert parts is not None
        quotient, index = parts
        place.append(at_one_place(quotient, ranges))
    return [*place, at_one_place(index, ranges)]


def at_one_place(index: Expr, ranges: Ranges) -> Expr:
    """An index of several terms where conditions leave one place of some axes: without these."""
    if not index.is_Add:
        return index
    return expand(index.xreplace({axis: low for axis, (low, size) in ranges.items() if size == 1}))


def under(condition: Basic, ranges: Ranges) -> Ranges:
    """The ranges of axes where a condition holds: those that one comparison with a number bounds."""
    return {**ranges, **_ranges_under(condition, about_axes(ranges, condition))}


@lru_cache(REMEMBERED)
def _ranges_under(condition: Basic, known: Sequence[tuple[Axis, Range]]) -> Ranges:
    """The ranges of a condition's axes where it holds."""
    ranges = dict(known)
    found = dict(ranges)
    for comparison in And.make_args(condition):
        if not isinstance(comparison, Lt | Le | Gt | Ge):
            continue
        one_less = int(isinstance(comparison, Lt | Gt))  # of whole numbers
        difference = expand(comparison.lts - comparison.gts) + one_less  # at most 0
        axes = [axis for axis in difference.free_symbols if axis in ranges]
        if len(axes) == 1 and difference.free_symbols == {axes[0]}:
            low, size = bounded_range(difference, axes[0], found[axes[0]])
            found[axes[0]] = low, size
    return found


def bounded_range(difference: Expr, axis: Axis, known: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    """The range of an axis where a difference of it and a number is at most 0."""
    low, size = known
    if (difference - axis).is_Integer:
        return low, Max(1, Min(size, axis - difference - low + 1))
    if (difference + axis).is_Integer:
        above = Max(low, difference + axis)
        return above, Max(1, size - (above - low))
    return known
