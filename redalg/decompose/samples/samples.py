"""Samples of a cascade's terms: values of elements, and of what the reductions make of data that hold them all.

    x_i      `rows` elements that every data set holds
    d_j      the reductions of a data set: all x_i, and two elements of its own, each taken several times
    F(x_i, d_j), i < rows, j < columns

So every d_j keeps the known bounds: a share is at most 1, an extremum is one of the elements', a truth is that of the
elements. A value that no rule evaluates is a positive number of its own for every j.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, final

import numpy as np
from sympy import Add, And, Expr, Mul, Not, Or, Pow, S, Tuple
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.core.symbol import Str
from sympy.logic.boolalg import BooleanFalse, BooleanTrue

from redalg.decompose.samples.arithmetic import Arithmetic
from redalg.decompose.samples.draws import OWN, Draws
from redalg.decompose.samples.rank import Unavailable
from redalg.errors import Text
from redalg.expression import Cast, Element, Let, Reduce, Value, Where
from redalg.expression.contents import elements_of, values_of

Rule = Callable[["Samples", "Node"], Any]


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


@final
class Samples:
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
        self.draws, self.values, self.arithmetic = draws, values, arithmetic
        self._nodes = nodes
        self._made: dict[Node, Any] = {}
        self._spread: dict[Node, Any] = {}
        self._parts: dict[Any, Samples] = {}

    @cached_property
    def weights(self) -> Any:
        """The times that each element is taken."""
        return self.arithmetic.array(self.draws.times)

    def with_numbers(self, value: Value, numbers: Any) -> Samples:
        """The samples in which a value has other numbers, and so has all that is computed from it."""
        other = Samples(self.draws, self.values, self.arithmetic, self._nodes)
        moved = {value}
        for later, (_, term, _) in self.values.items():  # in order: a term holds values of those before
            if not values_of(term).isdisjoint(moved):
                moved.add(later)
        other._made = {known: made for known, made in self._made.items() if known.values.isdisjoint(moved)}
        other._spread = {known: made for known, made in self._spread.items() if known.values.isdisjoint(moved)}
        other._made[self.node_of(value)] = numbers
        return other

    def shift(self, leaf: Element, by: float) -> Samples:
        """The samples in which the numbers of a tensor's element are moved."""
        other = Samples(self.draws.shift(leaf, by), self.values, self.arithmetic, self._nodes)
        other._made = {known: made for known, made in self._made.items()
                       if not known.on_d and leaf not in elements_of(known.node)}  # fmt: skip
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
            self._parts[key] = Samples(self.draws.part(which), self.values, self.arithmetic, self._nodes)
        return self._parts[key]

    def of_some(self, columns: Any, arithmetic: Arithmetic) -> Samples:
        """Some of the data sets of one draw, in another arithmetic."""
        return Samples(self.draws.of_some(columns), self.values, arithmetic, self._nodes)

    def matrix(self, node: Basic) -> Any:
        """F(x_i, d_j), whose entries need not be finite."""
        with np.errstate(all="ignore"):
            return self.spread(self.node_of(node))[: self.draws.rows]

    def whole(self, node: Basic) -> Any:
        """F at all elements of every data set, its own last."""
        with np.errstate(all="ignore"):
            return self.spread(self.node_of(node))

    def spread(self, known: Node) -> Any:
        """A node's values as (element, data set)."""
        shape = (self.draws.length, self.draws.columns, *self.draws.copies)
        return np.broadcast_to(self._align(known) if known.on_x and not known.on_d else self.value(known), shape)

    def value(self, known: Node) -> Any:
        """A node's values, in the shape of its side."""
        if known not in self._made:
            self._made[known] = known.rule(self, known)
        return self._made[known]

    def parts(self, known: Node) -> list[Any]:
        """The values of a node's parts, in the shape of the node's side."""
        mixed = known.on_x and known.on_d
        return [self._align(part) if mixed and part.on_x and not part.on_d else self.value(part)
                for part in known.parts]  # fmt: skip

    def _align(self, known: Node) -> Any:
        """The values of a node of x alone, as (element, data set)."""
        if known not in self._spread:
            flat, rows, shape = self.value(known), self.draws.rows, (self.draws.columns, *self.draws.copies)
            own = flat[rows:].reshape(OWN, *shape)
            self._spread[known] = np.concatenate([np.broadcast_to(flat[:rows, None], (rows, *shape)), own])
        return self._spread[known]

    def node_of(self, node: Basic) -> Node:
        """A node with its side and its rule."""
        if node not in self._nodes:
            leaf = node in self.values or isinstance(node, Element | Value)
            parts = () if leaf else tuple(self.node_of(arg) for arg in node.args if not isinstance(arg, Str))
            on_x, on_d = self._sides(node, parts)
            self._nodes[node] = Node(node, values_of(node), on_x, on_d, self._rule(node), parts)
        return self._nodes[node]

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
        return next((rule for kind, rule in RULES if isinstance(node, kind)), _unknown)


# ---- leaves ----------------------------------------------------------------------------------------------------------


def _place(samples: Samples, known: Node) -> Any:
    draws = samples.draws
    return samples.arithmetic.array(draws.places[draws.axes.index(known.node)])


def _leaf(samples: Samples, known: Node) -> Any:
    return samples.arithmetic.array(samples.draws.of(known.node, on_x=known.on_x))


def _value(samples: Samples, known: Node) -> Any:
    """The value of a reduction over every data set."""
    kind, term, result = samples.values[known.node]
    reduce = REDUCED.get((kind, result))
    if reduce is None:
        return samples.arithmetic.array(samples.draws.of_columns(known.node))
    terms = term.args if isinstance(term, Tuple) else (term,)
    return reduce(samples, known.node, [samples.spread(samples.node_of(one)) for one in terms])


# ---- reductions ------------------------------------------------------------------------------------------------------


def _largest(samples: Samples, x: Any) -> Any:
    most = samples.arithmetic.function("Max")
    made = x[0]
    for row in x[1:]:
        made = most(made, row) if most is not None else row
    return made


def _sum(samples: Samples, _: Value, terms: list[Any]) -> Any:
    return (terms[0] * samples.weights).sum(axis=0)


def _prod(samples: Samples, _: Value, terms: list[Any]) -> Any:
    return samples.arithmetic.power(terms[0], samples.weights).prod(axis=0)


def _max(samples: Samples, _: Value, terms: list[Any]) -> Any:
    return _largest(samples, terms[0])


def _min(samples: Samples, _: Value, terms: list[Any]) -> Any:
    return -_largest(samples, -terms[0])


def _order(samples: Samples, u: Any) -> Any:
    """The elements of every data set, the largest first, of equal ones that of the lower place."""
    places = samples.spread(samples.node_of(samples.draws.axes[0]))
    if u.dtype != object:
        return np.lexsort((np.broadcast_to(places, u.shape), -u), axis=0)
    return np.array([sorted(range(len(u)), key=lambda i: (-u[i, j], places[i, j])) for j in range(u.shape[1])]).T


def _at(x: Any, index: Any) -> Any:
    return np.take_along_axis(x, index[None, :], axis=0)[0]


def _first(samples: Samples, u: Any) -> Any:
    """The largest element of every data set, of equal ones that of the lowest place: the first of `_order`."""
    if u.dtype == object:
        return _order(samples, u)[0]
    places = samples.spread(samples.node_of(samples.draws.axes[0]))
    largest = np.fmax.reduce(u, axis=0)
    return np.where((u == largest) | np.isnan(largest), places, np.inf).argmin(axis=0)


def _argmax(samples: Samples, _: Value, terms: list[Any]) -> Any:
    places = samples.spread(samples.node_of(samples.draws.axes[0]))
    return _at(places, _first(samples, terms[0]))


def _argmin(samples: Samples, value: Value, terms: list[Any]) -> Any:
    return _argmax(samples, value, [-terms[0]])


def _topk(samples: Samples, value: Value, terms: list[Any]) -> Any:
    """One of the largest, by the place that was drawn for the axis that numbers them."""
    number = [samples.draws.of(axis, on_x=False) for axis in value.free_symbols if getattr(axis, "size", None)]
    order = _order(samples, terms[0])
    place = np.asarray(number[0] if number else 0).astype(int)
    return _at(terms[0], _at(order, np.broadcast_to(place, order.shape[1:])))


def _selection_rule(plus: str, *, at: bool) -> Callable[..., Any]:
    def rule(samples: Samples, _: Value, terms: list[Any]) -> Any:
        u, w = terms
        chosen = (u == _largest(samples, u)) == at
        if plus == "sum":
            return np.where(chosen, w * samples.weights, 0 * samples.weights).sum(axis=0)
        sign = 1 if plus == "max" else -1
        return sign * _largest(samples, np.where(chosen, sign * w, samples.arithmetic.number(S.NegativeInfinity)))

    return rule


def _place_rule(*, at: bool) -> Callable[..., Any]:
    def rule(samples: Samples, _: Value, terms: list[Any]) -> Any:
        u, w = terms
        first = _first(samples, u)
        alone = _at(w, first)
        return alone if at else (w * samples.weights).sum(axis=0) - alone

    return rule


def _outermost(*, last: bool) -> Callable[..., Any]:
    def rule(samples: Samples, _: Value, terms: list[Any]) -> Any:
        x, counts = terms
        places = samples.spread(samples.node_of(samples.draws.axes[0]))
        key = np.where(counts != 0, places if last else -places, samples.arithmetic.number(S.NegativeInfinity))
        return _at(x, _first(samples, key))

    return rule


def _affine(samples: Samples, _: Value, terms: list[Any]) -> Any:
    """h ↦ a·h + b at every place in turn, from 0."""
    a, b = terms
    order = _order(samples, -samples.spread(samples.node_of(samples.draws.axes[0])))
    h = 0 * b[0]
    for index in order:
        h = _at(a, index) * h + _at(b, index)
    return h


REDUCED: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("sum", ""): _sum, ("prod", ""): _prod, ("max", ""): _max, ("min", ""): _min, ("any", ""): _max, ("all", ""): _min,
    ("compensated_sum", ""): _sum, ("argmax", ""): _argmax, ("argmin", ""): _argmin, ("topk", "values"): _topk,
    ("at_argmax", ""): _place_rule(at=True), ("sum_beside_argmax", ""): _place_rule(at=False),
    ("first", ""): _outermost(last=False), ("last", ""): _outermost(last=True), ("affine", "shift"): _affine,
} | {(f"{plus}_{'at' if at else 'below'}_max", ""): _selection_rule(plus, at=at)
     for plus in ("sum", "max", "min") for at in (True, False)}  # fmt: skip
"""(monoid, result) -> its value of every data set."""


# ---- nodes -----------------------------------------------------------------------------------------------------------


def _power(samples: Samples, known: Node) -> Any:
    base, exponent = samples.parts(known)
    whole = known.node.exp
    return samples.arithmetic.power(base, int(whole) if whole.is_Integer else exponent)


def _where(samples: Samples, known: Node) -> Any:
    condition, a, b = samples.parts(known)
    return np.where(condition, a, b)


def _relation(samples: Samples, known: Node) -> Any:
    a, b = samples.parts(known)
    return COMPARED[known.node.rel_op](a, b)


def _cast(samples: Samples, known: Node) -> Any:
    return samples.arithmetic.round_to(samples.parts(known)[0], known.node.dtype)


def _let(samples: Samples, known: Node) -> Any:
    return samples.parts(known)[0]


def _inner(samples: Samples, known: Node) -> Any:
    """A reduction of values over axes of its own: those may have one element."""
    return samples.value(samples.node_of(known.node.expr))


def _unavailable(node: Basic) -> Unavailable:
    return Unavailable(Text("`", node, f"` applies `{type(node).__name__}`, which the test cannot evaluate"))


def _unknown(_: Samples, known: Node) -> Any:
    raise _unavailable(known.node)


def _function(samples: Samples, known: Node) -> Any:
    node = known.node
    if not known.parts and node.is_number:
        return samples.arithmetic.number(node)
    name = type(node).__name__
    function = samples.arithmetic.function(name)
    if function is None:
        raise _unavailable(node)
    if name not in ("Max", "Min"):
        return function(*samples.parts(known))
    first, *rest = samples.parts(known)
    for part in rest:
        first = function(first, part)
    return first


COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


def _fold_rule(function: Callable[[Any, Any], Any]) -> Rule:
    def rule(samples: Samples, known: Node) -> Any:
        first, *rest = samples.parts(known)
        for part in rest:
            first = function(first, part)
        return first

    return rule


RULES: tuple[tuple[Any, Rule], ...] = (
    (Where, _where),
    (Reduce, _inner),
    (Cast, _cast),
    (Let, _let),
    (Pow, _power),
    (Relational, _relation),
    (And, _fold_rule(np.logical_and)),
    (Or, _fold_rule(np.logical_or)),
    (Not, lambda samples, known: np.logical_not(samples.parts(known)[0])),
    (BooleanTrue, lambda *_: np.True_),
    (BooleanFalse, lambda *_: np.False_),
    (Add, _fold_rule(np.add)),
    (Mul, _fold_rule(np.multiply)),
    (Expr, _function),
)
