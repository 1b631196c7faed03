"""A group of tensor expressions as one expression an output: definitions in the place of what is read.

    y[i, j] = exp(x[i, j]);  z[i] = Σ_r y[i, r]      →   z[i] = Σ_r exp(x[i, r])

That is SOUFFLE's vertical transformation (section 6.2): the maps of what is read are composed. Then axes are split
where an index takes quotients and remainders of them, so that every dimension of an input is read along an axis:

    x[⌊i/6⌋, i mod 6], i < 24                        →   x[a, b], i = 6·a + b

Bound axes are named by their length, and by what is free where they are bound: two reductions of a row meet on one.
Tensors within a group are not rounded to their dtypes; a cast to integers is cut off by its own rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import final

from sympy import Eq, Expr, Mod, Ne, Not, S, floor
from sympy.core.basic import Basic

from redalg.errors import GraphError
from redalg.expression import Axis, Element, Reduce, Where
from redalg.expression.contents import (
    bound_axes,
    elements_of,
    free_axes,
    of_kind,
    operations_of,
    sympy_text,
)
from redalg.expression.dtypes import is_float
from redalg.expression.rebuild import replace_nodes, with_args
from redalg.expression.tensor import Tensor
from redalg.graphs.evaluation import computes_floats, evaluate_once
from redalg.graphs.indices import (
    AxisSplit,
    about_axes,
    at_split,
    axis_to_split,
    index_bounds,
    lies_below,
    multiple_of,
    plain_index,
    plain_index_at,
    plain_node,
    split_index_of,
)
from redalg.graphs.program import Shape, TensorExpression, TensorProgram, TensorType

MOST_OPERATIONS, MOST_ON_THE_WAY = 1200, 6000
"""Operations of an expression, at most: what is longer is not given to the algebra. Before its indices are plain, it
may have more."""

SAME_OF_SAME = ("max", "min", "any", "all")
"""Reductions that give x where every element is x, and there is one."""


@final
@dataclass(frozen=True)
class Composed:
    """An output of a group.

    Attributes:
        name: of the tensor.
        axes: those of the output, in order: a dimension has one, or several of which the last runs fastest.
        sizes: axis -> its length, of bound axes too.
        term: the element.
    """

    name: str
    axes: tuple[Axis, ...]
    sizes: Mapping[Axis, Expr]
    term: Basic

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors that it reads, in order of their names."""
        return tuple(sorted({one.name for one in elements_of(self.term)}))

    def expression(self, dtype: str) -> TensorExpression:
        """The output as a statement, with one dimension for each of its axes."""
        shape = tuple(self.sizes[axis] for axis in self.axes)
        lengths = tuple((axis, size) for axis, size in self.sizes.items() if axis not in self.axes)
        return TensorExpression(self.name, TensorType(shape, dtype), self.axes, self.term, lengths)

    def __str__(self) -> str:
        lengths = ", ".join(f"{axis} < {size}" for axis, size in sorted(self.sizes.items(), key=str))
        return f"{self.name}[{', '.join(map(str, self.axes))}] = {self.term}\n    {lengths}"


def compose(program: TensorProgram, group: Collection[str], output: str) -> Composed:
    """An output of a group of a program's tensors, in terms of what the group reads from outside.

    Raises:
        GraphError: the output is no tensor expression of the group, its expression is too large, or it reads a tensor
            at an index of floating-point numbers.
    """
    return compose_outputs(program, group, [output])[0]


def compose_outputs(program: TensorProgram, group: Collection[str], outputs: Sequence[str]) -> tuple[Composed, ...]:
    """Outputs of a group, in terms of what it reads from outside; an axis has one length in all of them.

    Raises:
        GraphError: as of `compose`.
    """
    known = {name: program.definitions[name] for name in group if name in program.definitions}
    composer, found = Composer(known, program.types), list[Composed]()
    for output in outputs:
        if output not in known:
            raise GraphError(f"`{output}` is no tensor expression of the group {', '.join(sorted(group))}.")
        axes = composer.axes_of(known[output].type.shape)
        term = composer.value(output, axes)
        found.append(with_sized_axes(Composed(output, axes, composer.lengths(term, axes), term)))
    beyond = {axis for one in found for axis, _ in axes_beyond(one, composer.types)}
    split = split_axes(with_output_axes(found, beyond), composer.types)
    for composed in split:
        check_size(composed.name, composed.term, MOST_OPERATIONS)
    return with_output_axes(split)


def with_output_axes(outputs: Sequence[Composed], among: Collection[Axis] | None = None) -> tuple[Composed, ...]:
    """The same outputs, whose reductions bind an axis of an output where both read one tensor along it.

    If some are given, `among` these bound axes alone.

    x[i, n]/Σ_r x[i, r] → x[i, n]/Σ_n x[i, n]: one kernel then reads a row once, reduces it and writes it.
    """
    inside, lengths = dict[Axis, set[Element]](), dict[Axis, Expr]()
    for output in outputs:
        lengths |= output.sizes
        for reduction in of_kind(Reduce, output.term):
            for axis in reduction.bound:
                inside[axis] = inside.get(axis, set()) | elements_of(reduction.expr)
    outside = {element for output in outputs for element in elements_outside(output.term)}
    names = {element.label for element in outside}
    of_outputs = list(dict.fromkeys(axis for output in outputs for axis in output.axes))
    renamed = dict[Axis, Axis]()
    for axis, elements in sorted(inside.items(), key=lambda each: f"{each[0]},"):
        for own in of_outputs if among is None or axis in among else ():
            free = axis not in renamed and own not in {*renamed.values(), *inside}
            read = [one.xreplace({axis: own}) for one in elements if one.label in names]
            alike = lengths[own] == lengths[axis] and not outside.isdisjoint(read)
            if free and alike and not any(own in free_axes(element) for element in elements):
                renamed[axis] = own
    return tuple(with_bound_axes(output, renamed) for output in outputs)


def with_sized_axes(composed: Composed) -> Composed:
    """The same output, in which an axis that numbers what a reduction selects is of its size wherever it stands."""
    places = {one.place for one in of_kind(Reduce, composed.term) if one.place is not None}
    return with_other_axes(composed, {Axis(place.name): place for place in places}) if places else composed


def with_bound_axes(composed: Composed, renamed: Mapping[Axis, Axis]) -> Composed:
    """The same output, whose reductions bind other axes."""
    return replace(with_other_axes(composed, renamed), axes=composed.axes)


def with_other_axes(composed: Composed, renamed: Mapping[Axis, Axis]) -> Composed:
    """The same output, with other axes in the place of some."""
    sizes = {renamed.get(axis, axis): size for axis, size in composed.sizes.items()}
    axes = tuple(renamed.get(axis, axis) for axis in composed.axes)
    return Composed(composed.name, axes, sizes, composed.term.xreplace(renamed))


def elements_outside(term: Basic) -> set[Element]:
    """The elements of a term that stand within no reduction."""
    if isinstance(term, Element):
        return {term}
    if isinstance(term, Reduce):
        return set()
    return {element for arg in term.args for element in elements_outside(arg)}


def check_size(name: str, term: Basic, most: int) -> None:
    """Raise `GraphError` if a term has more operations than so many."""
    if operations_of(term) > most:
        raise GraphError(
            f"the expression of `{name}` has {operations_of(term)} operations, more than {most}. Take a smaller group."
        )


@final
class Composer:
    """Terms with definitions in the place of tensors, each of which is asked for at a place."""

    def __init__(self, known: Mapping[str, TensorExpression], types: Mapping[str, TensorType]) -> None:
        self.known, self.types = known, types
        self.sizes: dict[Axis, Expr] = {}
        self.found: dict[tuple[str, tuple[Expr, ...]], Basic] = {}
        self.plain: dict[Expr, Expr] = {}

    def axes_of(self, shape: Shape) -> tuple[Axis, ...]:
        """Axes of an output, by its dimensions: those of an output before it where their lengths are the same."""
        axes = list[Axis]()
        for dimension, size in enumerate(shape):
            names = (Axis(f"i{number}") for number in count(dimension))
            axis = next(one for one in names if one not in axes and self.sizes.get(one, size) == size)
            self.sizes[axis] = size
            axes.append(axis)
        return tuple(axes)

    def value(self, name: str, place: Sequence[Expr]) -> Basic:
        """A tensor's element at a place of plain indices: of the group's its definition, of others a read."""
        place = tuple(place)
        if name not in self.known:
            self.check_place(name, place)
            return Tensor(name)[place]
        if (name, place) not in self.found:
            expression = self.known[name]
            at = dict(zip(expression.axes, place, strict=True))
            self.found[name, place] = term = self.rewrite(expression.term, at, dict(expression.lengths))
            check_size(name, term, MOST_ON_THE_WAY)
        return self.found[name, place]

    def check_place(self, name: str, place: Sequence[Expr]) -> None:
        """Raise `GraphError` if a tensor is read at an index that floating-point numbers decide."""
        for index in place:
            floats = {one.name for one in elements_of(index) if is_float(self.types[one.name].dtype)}
            if floats or computes_floats(index):
                raise GraphError(
                    f"`{name}` is read at `{index}`, which is computed from floating-point numbers: a kernel computes "
                    "indices from integers. Leave what computes the index out of the group."
                )

    def index(self, index: Expr) -> Expr:
        """An index made plain, once."""
        if index not in self.plain:
            self.plain[index] = plain_index(index, self.sizes)
        return self.plain[index]

    def rewrite(self, node: Basic, at: Mapping[Axis, Expr], lengths: Mapping[Axis, Expr]) -> Basic:
        """A term at a place: `at` has an index for each of its axes, `lengths` those of what it binds."""
        if isinstance(node, Axis):
            return at[node]
        if isinstance(node, Element):
            return self.value(node.name, [self.index_at(index, at, lengths) for index in node.indices])
        if isinstance(node, Ne | Eq) and isinstance(node.args[0], Element) and node.args[1] == 0:
            read = self.rewrite(node.args[0], at, lengths)
            is_true = Ne(read, 0) if isinstance(read, Expr) else read
            return is_true if isinstance(node, Ne) else Not(is_true)
        if isinstance(node, Reduce):
            return self.reduction(node, at, lengths)
        if not node.args:
            return node
        args = [self.rewrite(arg, at, lengths) for arg in node.args]
        if isinstance(node, Where):
            return choice(args[0], self.with_guard(args[1], args[0]), self.with_guard(args[2], Not(args[0])))
        is_own = all(a is b for a, b in zip(args, node.args, strict=True))
        return node if is_own else evaluate_once(node.func, tuple(args))

    def with_guard(self, term: Basic, condition: Basic) -> Basic:
        """A term under a condition, with the condition in its sums that read outside of their tensors without it.

        where(c, f·Σ x[i − 3, r], 0) → where(c, f·Σ where(c, x[i − 3, r], 0), 0): a kernel makes a sum for every row.
        """
        guarded = {
            total: total.rebuilt(Where(condition, total.expr, S.Zero), total.bound)
            for total in outermost_sums(term)
            if any(self.leaves_range(element) for element in elements_of(total.expr))
        }
        return replace_nodes(term, guarded) if guarded else term

    def leaves_range(self, element: Element) -> bool:
        """Tell if an index of a read leaves its dimension somewhere, as far as the ranges of axes tell."""
        pairs = zip(element.indices, self.types[element.name].shape, strict=True)
        return any(index_bounds(index, self.sizes) is not None and not lies_below(index, size, self.sizes)
                   for index, size in pairs)  # fmt: skip

    def index_at(self, index: Expr, at: Mapping[Axis, Expr], lengths: Mapping[Axis, Expr]) -> Expr:
        """An index at a place, made plain."""
        if isinstance(index, Axis):
            return at[index]
        if elements_of(index) or of_kind(Where, index):
            return self.index(self.number(index, at, lengths))
        places = about_axes(at, index)
        found = plain_index_at(index, places, about_axes(self.sizes, *(place for _, place in places)))
        assert isinstance(found, Expr)
        return found

    def number(self, node: Expr, at: Mapping[Axis, Expr], lengths: Mapping[Axis, Expr]) -> Expr:
        """As `rewrite`, of a number."""
        found = self.rewrite(node, at, lengths)
        assert isinstance(found, Expr)
        return found

    def reduction(self, node: Reduce, at: Mapping[Axis, Expr], lengths: Mapping[Axis, Expr]) -> Basic:
        """A reduction at a place, over axes whose names stand for nothing that its term reads."""
        taken = {axis for symbol in node.free_symbols if isinstance(symbol, Axis) for axis in free_axes(at[symbol])}
        inside, bound = dict(at), list[Axis]()
        for axis in node.bound:
            fresh = next(one for one in self.names(lengths[axis]) if one not in taken | {*bound})
            self.sizes[fresh] = lengths[axis]
            inside[axis] = fresh
            bound.append(fresh)
        term = self.rewrite(node.expr, inside, lengths)
        if (
            node.kind in SAME_OF_SAME
            and not free_axes(term) & {*bound}
            and all(self.sizes[one].is_positive for one in bound)
        ):
            return term
        return node.rebuilt(term, bound) if node.place is None else self.selection(node, at[node.place], term, bound)

    def selection(self, node: Reduce, place: Expr, term: Expr, bound: Sequence[Axis]) -> Reduce:
        """A reduction of several elements, which the axis at `place` numbers: that of an output, or of a sum."""
        count = 0 if node.place is None else node.place.size
        if not isinstance(place, Axis) or self.sizes.get(place) != count or place in free_axes(term) | {*bound}:
            raise GraphError(
                f"of the {count} elements that `{node.kind}` selects one is read at `{place}`, and a kernel makes all "
                "along an axis of their own. Leave what reads it out of the group."
            )
        return Reduce(node.kind, term, bound, node.result, Axis(place.name, count))

    def names(self, size: Expr) -> Iterator[Axis]:
        """Yield the axes that terms bind, in order: those of the length, and new ones."""
        number = 0
        while True:
            axis = Axis(f"r{number}")
            if self.sizes.get(axis, size) == size:
                yield axis
            number += 1

    def lengths(self, term: Basic, axes: Sequence[Axis]) -> dict[Axis, Expr]:
        """The lengths of the axes that a term has, or its output."""
        bound = {axis for one in of_kind(Reduce, term) for axis in one.bound}
        return {axis: self.sizes[axis] for axis in sorted({*axes, *bound}, key=lambda axis: axis.name)}


def choice(condition: Basic, first: Basic, second: Basic) -> Basic:
    """where(c, a, b), of which neither branch asks for c again: where(c, a, where(¬c, b, d)) → where(c, a, b).

    Of numbers that are computed only if c is an equality: where one is NaN, neither a < b nor a ≥ b holds.
    """
    if isinstance(condition, Eq | Ne) or not elements_of(condition):
        first, second = branch_under(condition, first), branch_under(Not(condition), second)
    return Where(condition, first, second)


def branch_under(condition: Basic, term: Basic) -> Basic:
    """A term where a condition holds, as the branch that it takes there."""
    while isinstance(term, Where) and term.condition in (condition, Not(condition)):
        term = term.args[1] if term.condition == condition else term.args[2]
    return term


def outermost_sums(term: Basic) -> list[Reduce]:
    """The sums of a term that stand within no other reduction."""
    if isinstance(term, Reduce):
        return [term] if term.kind == "sum" else []
    return [one for arg in term.args for one in outermost_sums(arg)]


def split_axes(outputs: Sequence[Composed], types: Mapping[str, TensorType]) -> tuple[Composed, ...]:
    """The same outputs with axes split until no index takes a quotient or a remainder that a split can say."""
    found = next((split for one in outputs for split in splits_needed(one, types)), None)
    while found is not None:
        outputs = [split_axis(one, *found) if found[0] in one.sizes else one for one in outputs]
        found = next((split for one in outputs for split in splits_needed(one, types)), None)
    return tuple(outputs)


def splits_needed(composed: Composed, types: Mapping[str, TensorType]) -> Iterator[tuple[Axis, Expr]]:
    """Yield the axes of which an index takes parts, with the length of the inner part.

    So it is of an axis that runs on beyond a dimension, where tensors of one size stand beside each other.
    """
    found = {element: [*filter(None, (axis_to_split(index, composed.sizes) for index in element.indices))]
             for element in elements_of(composed.term)}  # fmt: skip
    for element in sorted(filter(found.get, found), key=sympy_text):
        yield from found[element]
    yield from axes_beyond(composed, types)


def axes_beyond(composed: Composed, types: Mapping[str, TensorType]) -> Iterator[tuple[Axis, Expr]]:
    """Yield the axes that are several times as long as a dimension along which they run, with its length."""
    found = {
        element: [(index, size) for index, size in zip(element.indices, types[element.name].shape, strict=True)
                  if isinstance(index, Axis) and is_several(composed.sizes.get(index, size), size)]
        for element in elements_of(composed.term)
    }  # fmt: skip
    for element in sorted(filter(found.get, found), key=sympy_text):
        yield from found[element]


def is_several(length: Expr, size: Expr) -> bool:
    """Tell if a length is a size several times, for certain."""
    count = multiple_of(length, size) if size not in (0, 1) else None
    return count is not None and bool(count.is_Integer) and count > 1


def split_axis(composed: Composed, axis: Axis, inner: Expr) -> Composed:
    """The same output with i = inner·a + b in the place of an axis i."""
    if axis.size is not None:
        raise GraphError(f"`{composed.name}`: a part of the {axis.size} elements that a reduction selects is read")
    outer, last, lengths = at_split(axis, inner, composed.sizes)
    sizes = {one: size for one, size in composed.sizes.items() if one != axis} | lengths
    axes = tuple(part for one in composed.axes for part in ((outer, last) if one == axis else (one,)))
    split = AxisSplit(axis, outer, last, inner)

    @cache
    def rewrite(node: Basic) -> Basic:
        if axis not in free_axes(node) and axis not in bound_axes(node):
            return node
        if isinstance(node, Element):
            return Element(node.args[0], *map(rewrite_index, node.indices))
        if isinstance(node, Reduce):
            bound = [part for one in node.bound for part in ((outer, last) if one == axis else (one,))]
            return node.rebuilt(rewrite(node.expr), bound)
        if not elements_of(node) and not of_kind(Reduce, node):
            return split_index_of(node, split, (*about_axes(lengths, outer, last), *about_axes(sizes, node)))
        rewritten = with_args(node, [rewrite(arg) for arg in node.args])
        return plain_node(rewritten, sizes) if isinstance(node, floor | Mod) else rewritten

    def rewrite_index(index: Expr) -> Expr:
        if elements_of(index) or of_kind(Where, index):
            return plain_index(rewrite(index), sizes)
        known = (*about_axes(lengths, outer, last), *about_axes(sizes, index))
        return plain_index_at(index, ((axis, inner * outer + last),), known)

    return Composed(composed.name, axes, sizes, rewrite(composed.term))
