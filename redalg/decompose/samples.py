"""Samples of a cascade's terms: values of elements, and of what the reductions make of data that hold them all.

    x_i      `rows` elements that every data set holds
    d_j      the reductions of a data set: all x_i, and two elements of its own, each taken several times
    F(x_i, d_j), i < rows, j < columns

So every d_j lies inside what is known of it: a share is at most 1, an extremum is one of the elements', a truth is that
of the elements. The two elements of a data set differ in size from the x_i, and in how often they are taken, so that
sums, means and extrema vary widely; in every fourth data set they bring each tensor's sum among the x_i, in every other
fourth its mean. Places are those of a data set: all below its count, the first and the last one
its own. Parameters are drawn once; what no rule evaluates is a positive number of its own for every j.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias, final

import numpy as np
from sympy import Add, And, Expr, Mul, Not, Or, Pow, S, Tuple, log
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.core.symbol import Str
from sympy.logic.boolalg import BooleanFalse, BooleanTrue

from redalg.decompose.arithmetic import Arithmetic
from redalg.decompose.rank import Unavailable
from redalg.decompose.signs import UP, Facts, sign_of
from redalg.expression import Axis, Cast, Element, Let, Value, Where
from redalg.expression.contents import elements_of, of_kind

SEED = 2026
OWN = 2
"""Elements that a data set has of its own."""
TIMES = (1, 2, 4, 12, 48, 200, 1000)
"""How often it may take each."""
SIZES = (0.02, 0.1, 0.5, 1.0, 2.0, 4.0)
"""How large they are."""
Rule = Callable[["Samples", "Node"], Any]


@final
@dataclass(frozen=True)
class Plan:
    """How many x_i and d_j there are, and how large the x_i are."""

    rows: int
    columns: int
    scale: float = 1.0


@final
class Draws:
    """The random numbers: floats, so that every arithmetic has the same.

    Args:
        axes: the reduced axes.
        facts: what each value is, for its sign.
        labels: the range of elements that are compared, which are integers.
        logarithmic: elements whose logarithms or roots are taken, which are positive.
        plan: how many x_i and d_j there are, and how large the x_i are.
        positive: whether every number is.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        facts: Facts,
        labels: Mapping[Element, range],
        logarithmic: AbstractSet[Element],
        plan: Plan,
        *,
        positive: bool = False,
    ) -> None:
        self.axes, self.facts, self.labels = tuple(axes), facts, labels
        self.logarithmic, self.positive = logarithmic, positive
        self.plan, self.rows, self.columns = plan, plan.rows, plan.columns
        self.random = random.Random(SEED)
        inner = list(range(1, plan.rows + 1))
        self.places = [self._placed(inner) for _ in self.axes]
        self.times = self._times()
        self._drawn: dict[Basic, Any] = {}

    @property
    def length(self) -> int:
        """The least count of a data set, beyond every place."""
        return self.rows + OWN

    def of(self, node: Basic, *, on_x: bool) -> Any:
        """A leaf's numbers: of each element, those of the data sets after the x_i; or one number."""
        if node not in self._drawn:
            self._drawn[node] = self._elements(node) if on_x else self._parameter(node)
        return self._drawn[node]

    def of_columns(self, node: Basic) -> Any:
        """A positive number for each d_j."""
        if node not in self._drawn:
            self._drawn[node] = self._sizes(self.columns)
        return self._drawn[node]

    def _size(self) -> float:
        return float(self._sizes(1)[0])

    def _sizes(self, number: int) -> Any:
        """Numbers between 0 and 2, 0 left out."""
        return ((np.frombuffer(self.random.randbytes(8 * number), dtype="<u8") >> 12) + 1) / 2.0**51

    def _placed(self, inner: list[int]) -> Any:
        """The places of the x_i in a random order, and the first and the last one of every data set."""
        shuffled = self.random.sample(inner, len(inner))
        return np.array(shuffled + [0] * self.columns + [self.length - 1] * self.columns, dtype=float)

    def _times(self) -> Any:
        """How often each element is taken: all together as often as axes of known sizes have elements."""
        sizes = [axis.size for axis in self.axes if axis.size is not None]
        made = np.ones((self.length, self.columns))
        for j in range(self.columns):
            own = [self.random.choice(TIMES) for _ in range(OWN)]
            if len(sizes) == len(self.axes):
                left = max(prod(sizes) - self.rows, 2)
                first = self.random.randint(1, left - 1)
                own = [first, left - first]
            made[self.rows :, j] = own
        return made

    def _elements(self, node: Basic) -> Any:
        number = self.rows + OWN * self.columns
        drawn = self.labels.get(node) if isinstance(node, Element) else None
        if drawn is not None:
            return np.array([self.random.choice(drawn) for _ in range(number)], dtype=float)
        made = self._sizes(number)
        made[: self.rows] *= self.plan.scale
        made[self.rows :] *= self.random.choices(SIZES, k=number - self.rows)
        if sign := self._sign(node):
            return sign * made
        flipped = self.random.sample(range(self.rows), self.rows // 2)
        flipped += [i for i in range(self.rows, number) if self.random.random() < 0.5]
        made[flipped] *= -1
        return self._balanced(made)

    def _balanced(self, made: Any) -> Any:
        """The numbers of a leaf, of every other data set such that the sum or the mean lies among the x_i."""
        rows, total = self.rows, made[: self.rows].sum()
        for j in range(1, self.columns, 2):
            first, second = self.times[rows:, j]
            wanted = self.random.uniform(-2, 2) * (rows + first + second if j % 4 == 1 else 1.0)
            made[rows + j] = (wanted - total - second * made[rows + self.columns + j]) / first
        return made

    def _parameter(self, node: Basic) -> Any:
        drawn = self.labels.get(node) if isinstance(node, Element) else None
        if drawn is not None:
            return float(self.random.choice(drawn))
        if isinstance(node, Axis) and node.size is not None:
            return float(self.random.randrange(node.size))
        if getattr(node, "is_integer", False):
            return float(self.random.randrange(self.rows // 2, self.length + 1))
        return (self._sign(node) or self.random.choice((1.0, -1.0))) * self._size()

    def _sign(self, node: Basic) -> float:
        """The sign that every number of a leaf has, 0 where it has either."""
        if self.positive or node in self.logarithmic:
            return 1.0
        known = sign_of(node, self.facts) if isinstance(node, Expr) else None
        return 0.0 if known is None else 1.0 if known in UP else -1.0


@final
@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node with its parts, on which side it stands and how it is evaluated."""

    node: Any
    on_x: bool
    on_d: bool
    rule: Rule
    parts: tuple[Node, ...]


Values: TypeAlias = Mapping[Value, tuple[str, Expr, str]]
"""What each value is: its monoid, its term or terms, and which of several results."""


@final
class Samples:
    """Values of nodes at the samples in one arithmetic, each computed once.

    An array of x alone has an entry for every element, the x_i first; of d alone one for every data set; of both one
    for every element and data set that belong together, the data set's own elements after the x_i.
    """

    def __init__(self, draws: Draws, values: Values, arithmetic: Arithmetic) -> None:
        self.draws, self.values, self.arithmetic = draws, values, arithmetic
        self.weights = arithmetic.array(draws.times)
        self._nodes: dict[Basic, Node] = {}
        self._made: dict[Basic, Any] = {}

    def matrix(self, node: Basic) -> Any:
        """F(x_i, d_j), whose entries need not be finite."""
        with np.errstate(all="ignore"):
            return self.spread(self.known(node))[: self.draws.rows]

    def whole(self, node: Basic) -> Any:
        """F at all elements of every data set, its own last."""
        with np.errstate(all="ignore"):
            return self.spread(self.known(node))

    def spread(self, known: Node) -> Any:
        """A node's values as (element, data set)."""
        value, shape = self.value(known), (self.draws.length, self.draws.columns)
        return np.broadcast_to(self._aligned(value) if known.on_x and not known.on_d else value, shape)

    def value(self, known: Node) -> Any:
        """A node's values, in the shape of its side."""
        if known.node not in self._made:
            self._made[known.node] = known.rule(self, known)
        return self._made[known.node]

    def parts(self, known: Node) -> list[Any]:
        """The values of a node's parts, in the shape of the node's side."""
        mixed = known.on_x and known.on_d
        return [self._aligned(self.value(part)) if mixed and part.on_x and not part.on_d else self.value(part)
                for part in known.parts]  # fmt: skip

    def _aligned(self, flat: Any) -> Any:
        """An array of x alone as (element, data set)."""
        rows, columns = self.draws.rows, self.draws.columns
        own = flat[rows:].reshape(OWN, columns)
        return np.concatenate([np.broadcast_to(flat[:rows, None], (rows, columns)), own])

    def known(self, node: Basic) -> Node:
        """A node with its side and its rule."""
        if node not in self._nodes:
            leaf = node in self.values or isinstance(node, Element | Value)
            parts = () if leaf else tuple(self.known(arg) for arg in node.args if not isinstance(arg, Str))
            on_x, on_d = self._sides(node, parts)
            self._nodes[node] = Node(node, on_x, on_d, self._rule(node), parts)
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
    """What a reduction makes of every data set."""
    kind, term, result = samples.values[known.node]
    reduce = REDUCED.get((kind, result))
    if reduce is None:
        return samples.arithmetic.array(samples.draws.of_columns(known.node))
    terms = term.args if isinstance(term, Tuple) else (term,)
    return reduce(samples, known.node, [samples.spread(samples.known(one)) for one in terms])


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
    places = samples.spread(samples.known(samples.draws.axes[0]))
    return np.array([sorted(range(len(u)), key=lambda i: (-u[i, j], places[i, j])) for j in range(u.shape[1])]).T


def _at(x: Any, index: Any) -> Any:
    return np.take_along_axis(x, index[None, :], axis=0)[0]


def _argmax(samples: Samples, _: Value, terms: list[Any]) -> Any:
    places = samples.spread(samples.known(samples.draws.axes[0]))
    return _at(places, _order(samples, terms[0])[0])


def _argmin(samples: Samples, value: Value, terms: list[Any]) -> Any:
    return _argmax(samples, value, [-terms[0]])


def _topk(samples: Samples, value: Value, terms: list[Any]) -> Any:
    """One of the largest, by the place that was drawn for the axis that numbers them."""
    number = [int(samples.draws.of(axis, on_x=False)) for axis in value.free_symbols if getattr(axis, "size", None)]
    return _at(terms[0], _order(samples, terms[0])[number[0] if number else 0])


def _selected(plus: str, *, at: bool) -> Callable[..., Any]:
    def made(samples: Samples, _: Value, terms: list[Any]) -> Any:
        u, w = terms
        chosen = (u == _largest(samples, u)) == at
        if plus == "sum":
            return np.where(chosen, w * samples.weights, 0 * samples.weights).sum(axis=0)
        sign = 1 if plus == "max" else -1
        return sign * _largest(samples, np.where(chosen, sign * w, samples.arithmetic.number(S.NegativeInfinity)))

    return made


def _placed(*, at: bool) -> Callable[..., Any]:
    def made(samples: Samples, _: Value, terms: list[Any]) -> Any:
        u, w = terms
        first = _order(samples, u)[0]
        alone = _at(w, first)
        return alone if at else (w * samples.weights).sum(axis=0) - alone

    return made


def _outermost(*, last: bool) -> Callable[..., Any]:
    def made(samples: Samples, _: Value, terms: list[Any]) -> Any:
        x, counts = terms
        places = samples.spread(samples.known(samples.draws.axes[0]))
        key = np.where(counts != 0, places if last else -places, samples.arithmetic.number(S.NegativeInfinity))
        return _at(x, _order(samples, key)[0])

    return made


def _affine(samples: Samples, _: Value, terms: list[Any]) -> Any:
    """h ↦ a·h + b at every place in turn, from 0."""
    a, b = terms
    order = _order(samples, -samples.spread(samples.known(samples.draws.axes[0])))
    h = 0 * b[0]
    for index in order:
        h = _at(a, index) * h + _at(b, index)
    return h


REDUCED: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("sum", ""): _sum, ("prod", ""): _prod, ("max", ""): _max, ("min", ""): _min, ("any", ""): _max, ("all", ""): _min,
    ("argmax", ""): _argmax, ("argmin", ""): _argmin, ("topk", "values"): _topk,
    ("at_argmax", ""): _placed(at=True), ("sum_beside_argmax", ""): _placed(at=False),
    ("first", ""): _outermost(last=False), ("last", ""): _outermost(last=True), ("affine", "shift"): _affine,
} | {(f"{plus}_{'at' if at else 'below'}_max", ""): _selected(plus, at=at)
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
    return samples.arithmetic.rounded(samples.parts(known)[0], known.node.dtype)


def _let(samples: Samples, known: Node) -> Any:
    return samples.parts(known)[0]


def _unknown(_: Samples, known: Node) -> Any:
    raise Unavailable(f"`{known.node}` applies `{type(known.node).__name__}`, which the test cannot evaluate")


def _function(samples: Samples, known: Node) -> Any:
    node = known.node
    if not known.parts and node.is_number:
        return samples.arithmetic.number(node)
    name = type(node).__name__
    function = samples.arithmetic.function(name)
    if function is None:
        raise Unavailable(f"`{node}` applies `{name}`, which the test cannot evaluate")
    if name not in ("Max", "Min"):
        return function(*samples.parts(known))
    first, *rest = samples.parts(known)
    for part in rest:
        first = function(first, part)
    return first


COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


def _folded(function: Callable[[Any, Any], Any]) -> Rule:
    def rule(samples: Samples, known: Node) -> Any:
        first, *rest = samples.parts(known)
        for part in rest:
            first = function(first, part)
        return first

    return rule


RULES: tuple[tuple[Any, Rule], ...] = (
    (Where, _where),
    (Cast, _cast),
    (Let, _let),
    (Pow, _power),
    (Relational, _relation),
    (And, _folded(np.logical_and)),
    (Or, _folded(np.logical_or)),
    (Not, lambda samples, known: np.logical_not(samples.parts(known)[0])),
    (BooleanTrue, lambda *_: np.True_),
    (BooleanFalse, lambda *_: np.False_),
    (Add, _folded(np.add)),
    (Mul, _folded(np.multiply)),
    (Expr, _function),
)


def integers(terms: Sequence[Expr], rows: int) -> dict[Element, range]:
    """Elements that are compared: with an index, lengths of the order of the places; for equality, small labels."""
    found: dict[Element, range] = {}
    for node in of_kind(Relational, *terms):
        for side in node.args:
            if isinstance(side, Element) and node.rel_op in ("==", "!="):
                found[side] = range(3)
            elif isinstance(side, Element) and node.atoms(Axis) - side.atoms(Axis):
                found[side] = range(rows // 2, rows + OWN + 1)
    return found


def logarithmic(terms: Sequence[Expr], facts: Facts) -> set[Element]:
    """Elements that stand where a logarithm or a root is taken of what has no sign that is known."""
    taken = [node.args[0] for node in of_kind(log, *terms)]
    taken += [node.base for node in of_kind(Pow, *terms) if not node.exp.is_Integer]
    return {one for node in taken if sign_of(node, facts) is None for one in elements_of(node)}
