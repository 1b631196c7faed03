"""Samples of a cascade's terms: values of elements, and of what the reductions make of data that hold them all.

    x_i      `rows` elements that every data set holds
    d_j      the reductions of a data set: all x_i, and two elements of its own, each taken several times
    F(x_i, d_j), i < rows, j < columns

So every d_j keeps the known bounds: a share is at most 1, an extremum is one of the elements', a truth is that of the
elements. A value that no rule evaluates is a positive number of its own for every j.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from typing import Any, TypeAlias, final

import numpy as np
from sympy import Add, And, Expr, Mul, Not, Or, Pow, Tuple
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.core.symbol import Str
from sympy.logic.boolalg import BooleanFalse, BooleanTrue

from redalg.decompose.samples.arithmetic import Arithmetic
from redalg.decompose.samples.draws import OWN, Draws
from redalg.decompose.samples.rank import Unavailable
from redalg.decompose.samples.reduced import OF_X, REDUCED
from redalg.errors import Text
from redalg.expression import Cast, Element, Let, Reduce, Value, Where
from redalg.expression.contents import elements_of, values_of

Rule = Callable[[Any, "Node"], Any]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node with the values in it, its sides, its parts and its rule; a key that is found at once."""

    node: Any
    values: frozenset[Value]
    on_x: bool
    on_d: bool
    rule: Rule
    parts: tuple[Node, ...]


BLOCK = 12
"""Draws that are computed side by side: arrays of more leave a core's cache."""
Values: TypeAlias = Mapping[Value, tuple[str, Expr, str]]
"""The meaning of each value: its monoid, its term or terms, and the name of its result if there are several."""


class Evaluation(ABC):
    """The computation of nodes at samples, each once."""

    def __init__(self, draws: Draws, values: Values, arithmetic: Arithmetic, nodes: dict[Basic, Node]) -> None:
        self.draws, self.values, self.arithmetic, self.nodes = draws, values, arithmetic, nodes
        self._arrays: dict[Node, Any] = {}

    @abstractmethod
    def value(self, entry: Node) -> Any:
        """A node's values, in the shape of its side."""

    @abstractmethod
    def align(self, entry: Node) -> Any:
        """The values of a node of x alone, as (element, data set)."""

    @abstractmethod
    def stretch(self, flat: Any) -> Any:
        """An array of x alone as (element, data set)."""

    def parts(self, entry: Node) -> list[Any]:
        """The values of a node's parts, in the shape of the node's side."""
        mixed = entry.on_x and entry.on_d
        return [self.align(part) if mixed and part.on_x and not part.on_d else self.value(part)
                for part in entry.parts]  # fmt: skip

    def fold(self, entry: Node, function: Callable[[Any, Any], Any]) -> Any:
        """The values of a node's parts, joined by a function that may join them in any order."""
        return self.join(entry, [self.value(part) for part in entry.parts], function)

    def join(self, entry: Node, arrays: Iterable[Any], function: Callable[[Any, Any], Any]) -> Any:
        """Arrays of a node's parts, joined: those of x alone and those of d alone first, as they are small."""
        if not (entry.on_x and entry.on_d):
            return reduce(function, arrays)
        groups = dict[tuple[bool, bool], Any]()
        for part, each in zip(entry.parts, arrays, strict=True):
            side = part.on_x, part.on_x and part.on_d
            groups[side] = function(groups[side], each) if side in groups else each
        return reduce(function, [self.stretch(each) if side == (True, False) else each
                                 for side, each in groups.items()])  # fmt: skip

    def node_of(self, node: Basic) -> Node:
        """A node with its side and its rule."""
        if node not in self.nodes:
            leaf = node in self.values or isinstance(node, Element | Value)
            parts = () if leaf else tuple(self.node_of(arg) for arg in node.args if not isinstance(arg, Str))
            on_x, on_d = self._sides(node, parts)
            self.nodes[node] = Node(node, values_of(node), on_x, on_d, self._rule(node), parts)
        return self.nodes[node]

    def _sides(self, node: Basic, parts: Sequence[Node]) -> tuple[bool, bool]:
        if node in self.values:
            return False, True
        if isinstance(node, Element | Value):
            return not node.free_symbols.isdisjoint(self.draws.axes), False
        return node in self.draws.axes or any(one.on_x for one in parts), any(one.on_d for one in parts)

    def _rule(self, node: Basic) -> Rule:
        if node in self.draws.axes:
            return _place
        if node in self.values:
            return _value
        if isinstance(node, Element | Value) or node.is_Symbol:
            return _leaf
        kind: Any = type(node)
        return _rule_of(kind)


@final
class Samples(Evaluation):
    """Values of nodes at the samples in one arithmetic, each computed once.

    An array of x alone has an entry for every element, the x_i first. An array of d alone has one for every data set.
    An array of both has one for every element and data set that belong together, the data set's own elements after
    the x_i. Several draws side by side have a last axis.

    Args:
        draws: the random numbers.
        values: the meaning of each value.
        arithmetic: the arithmetic of the computation.
        nodes: the nodes that other samples over the same axes and values have met already.
    """

    def __init__(self, draws: Draws, values: Values, arithmetic: Arithmetic, nodes: dict[Basic, Node]) -> None:
        super().__init__(draws, values, arithmetic, nodes)
        self._spread: dict[Node, Any] = {}
        self._parts: dict[Any, Samples] = {}

    @cached_property
    def weights(self) -> Any:
        """The times that each element is taken."""
        return self.arithmetic.array(self.draws.times)

    def with_numbers(self, value: Value, numbers: Any) -> Samples:
        """The samples in which a value has other numbers, and so has all that is computed from it."""
        other = Samples(self.draws, self.values, self.arithmetic, self.nodes)
        dependents = {value}
        for later, (_, term, _) in self.values.items():  # in order: a term holds values of those before
            if not values_of(term).isdisjoint(dependents):
                dependents.add(later)
        other._arrays = {entry: array for entry, array in self._arrays.items() if entry.values.isdisjoint(dependents)}
        other._spread = {entry: array for entry, array in self._spread.items() if entry.values.isdisjoint(dependents)}
        other._arrays[self.node_of(value)] = numbers
        return other

    def shift(self, leaf: Element, by: float) -> Samples:
        """The samples in which the numbers of a tensor's element are moved."""
        other = Samples(self.draws.shift(leaf, by), self.values, self.arithmetic, self.nodes)
        other._arrays = {entry: array for entry, array in self._arrays.items()
                         if not entry.on_d and leaf not in elements_of(entry.node)}  # fmt: skip
        return other

    def alone(self, number: int) -> Samples:
        """The samples of one of several draws."""
        return self._part(number)

    def blocks(self) -> Iterator[tuple[int, Samples]]:
        """Yield the samples of a few of several draws at a time, with the number of the first."""
        copies = sum(self.draws.copies)
        return ((number, self._part(slice(number, number + BLOCK))) for number in range(0, copies, BLOCK))

    def _part(self, which: int | slice) -> Samples:
        key = (which.start, which.stop) if isinstance(which, slice) else which
        if key not in self._parts:
            self._parts[key] = Samples(self.draws.part(which), self.values, self.arithmetic, self.nodes)
        return self._parts[key]

    def of_some(self, columns: Any, arithmetic: Arithmetic) -> Samples:
        """Some of the data sets of one draw, in another arithmetic."""
        return Samples(self.draws.of_some(columns), self.values, arithmetic, self.nodes)

    @cached_property
    def at_rows(self) -> Shared:
        """The samples of the x_i alone."""
        return Shared(self)

    def matrix(self, node: Basic) -> Any:
        """F(x_i, d_j), whose entries need not be finite."""
        entry, shape = self.node_of(node), (self.draws.rows, self.draws.columns, *self.draws.copies)
        with np.errstate(all="ignore"):
            array = self.at_rows.align(entry) if entry.on_x and not entry.on_d else self.at_rows.value(entry)
            return np.broadcast_to(array, shape)

    def whole(self, node: Basic) -> Any:
        """F at all elements of every data set, its own last."""
        with np.errstate(all="ignore"):
            return self.spread(self.node_of(node))

    def spread(self, entry: Node) -> Any:
        """A node's values as (element, data set)."""
        shape = (self.draws.length, self.draws.columns, *self.draws.copies)
        return np.broadcast_to(self.align(entry) if entry.on_x and not entry.on_d else self.value(entry), shape)

    def own(self, flat: Any) -> Any:
        """The part of an array of x alone that is of the data sets' own elements, as (element, data set)."""
        return flat[self.draws.rows :].reshape(OWN, self.draws.columns, *self.draws.copies)

    def value(self, entry: Node) -> Any:
        """A node's values, in the shape of its side."""
        if entry not in self._arrays:
            self._arrays[entry] = entry.rule(self, entry)
        return self._arrays[entry]

    def get(self, entry: Node) -> Any:
        """A node's values if they are computed already; else None."""
        return self._arrays.get(entry)

    def stretch(self, flat: Any) -> Any:
        """An array of x alone as (element, data set)."""
        rows = self.draws.rows
        each = np.broadcast_to(flat[:rows, None], (rows, self.draws.columns, *self.draws.copies))
        return np.concatenate([each, self.own(flat)])

    def align(self, entry: Node) -> Any:
        """The values of a node of x alone, as (element, data set)."""
        if entry not in self._spread:
            self._spread[entry] = self.stretch(self.value(entry))
        return self._spread[entry]


@final
class Shared(Evaluation):
    """The samples of the x_i alone, which all data sets hold: an array of both has no entry for any other element."""

    def __init__(self, whole: Samples) -> None:
        super().__init__(whole.draws, whole.values, whole.arithmetic, whole.nodes)
        self._whole = whole

    def value(self, entry: Node) -> Any:
        """A node's values; those of x alone, or of d alone, are those of all elements."""
        if not (entry.on_x and entry.on_d):
            return self._whole.value(entry)
        if entry not in self._arrays:
            whole = self._whole.get(entry)
            self._arrays[entry] = entry.rule(self, entry) if whole is None else whole[: self.draws.rows]
        return self._arrays[entry]

    def align(self, entry: Node) -> Any:
        """The values of a node of x alone, as (element, 1)."""
        return self.stretch(self._whole.value(entry))

    def stretch(self, flat: Any) -> Any:
        """An array of x alone as (element, 1)."""
        return flat[: self.draws.rows, None]


# ---- leaves ----------------------------------------------------------------------------------------------------------


def _place(samples: Samples, entry: Node) -> Any:
    draws = samples.draws
    return samples.arithmetic.array(draws.places[draws.axes.index(entry.node)])


def _leaf(samples: Samples, entry: Node) -> Any:
    return samples.arithmetic.array(samples.draws.of(entry.node, on_x=entry.on_x))


def _value(samples: Samples, entry: Node) -> Any:
    """The value of a reduction over every data set."""
    kind, term, result = samples.values[entry.node]
    reduced = REDUCED.get((kind, result))
    if reduced is None:
        return samples.arithmetic.array(samples.draws.of_columns(entry.node))
    terms = [samples.node_of(one) for one in (term.args if isinstance(term, Tuple) else (term,))]
    if kind in OF_X and terms[0].on_x and not terms[0].on_d:
        return OF_X[kind](samples, samples.value(terms[0]))
    return reduced(samples, entry.node, [samples.spread(one) for one in terms])


# ---- nodes -----------------------------------------------------------------------------------------------------------


def _power(samples: Samples, entry: Node) -> Any:
    whole, arithmetic = entry.node.exp, samples.arithmetic
    if whole.is_Integer:
        return arithmetic.power(samples.parts(entry)[0], int(whole))
    base, exponent = map(samples.value, entry.parts)
    if not whole.is_number and (logarithm := arithmetic.logarithm(base)) is not None:
        return np.exp(samples.join(entry, (logarithm, exponent), np.multiply))
    return arithmetic.power(*samples.parts(entry))


def _where(samples: Samples, entry: Node) -> Any:
    condition, a, b = samples.parts(entry)
    return np.where(condition, a, b)


def _relation(samples: Samples, entry: Node) -> Any:
    a, b = samples.parts(entry)
    return COMPARED[entry.node.rel_op](a, b)


def _cast(samples: Samples, entry: Node) -> Any:
    return samples.arithmetic.round_to(samples.parts(entry)[0], entry.node.dtype)


def _let(samples: Samples, entry: Node) -> Any:
    return samples.parts(entry)[0]


def _inner(samples: Samples, entry: Node) -> Any:
    """A reduction of values over axes of its own: those may have one element."""
    return samples.value(samples.node_of(entry.node.expr))


def _unavailable(node: Basic) -> Unavailable:
    return Unavailable(Text("`", node, f"` applies `{type(node).__name__}`, which the test cannot evaluate"))


def _unknown(_: Samples, entry: Node) -> Any:
    raise _unavailable(entry.node)


def _function(samples: Samples, entry: Node) -> Any:
    node = entry.node
    if not entry.parts and node.is_number:
        return samples.arithmetic.number(node)
    name = type(node).__name__
    function = samples.arithmetic.function(name)
    if function is None:
        raise _unavailable(node)
    return samples.fold(entry, function) if name in ("Max", "Min") else function(*samples.parts(entry))


COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


def _fold_rule(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda samples, entry: samples.fold(entry, function)


@cache
def _rule_of(kind: type[Basic]) -> Rule:
    return next((rule for head, rule in RULES if issubclass(kind, head)), _unknown)


RULES: tuple[tuple[Any, Rule], ...] = (
    (Where, _where),
    (Reduce, _inner),
    (Cast, _cast),
    (Let, _let),
    (Pow, _power),
    (Relational, _relation),
    (And, _fold_rule(np.logical_and)),
    (Or, _fold_rule(np.logical_or)),
    (Not, lambda samples, entry: np.logical_not(samples.parts(entry)[0])),
    (BooleanTrue, lambda *_: np.True_),
    (BooleanFalse, lambda *_: np.False_),
    (Add, _fold_rule(np.add)),
    (Mul, _fold_rule(np.multiply)),
    (Expr, _function),
)
