"""The random numbers of samples: elements that every data set holds, and two that each has of its own.

A data set's own elements differ in size from those that all hold, and in how often they are taken, so that sums, means
and extrema vary widely; in every fourth data set they bring each tensor's sum among the x_i, in every other fourth its
mean. Places are those of a data set: all below its count, the first and the last one its own. Parameters are drawn
once.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod
from typing import Any, final

import numpy as np
from sympy import Expr, Pow, log
from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.decompose.signs import UP, Facts, sign_of
from redalg.expression import Axis, Element, Value
from redalg.expression.contents import elements_of, of_kind

SEED = 2026
OWN = 2
"""Elements that a data set has of its own."""
TIMES = (1, 2, 4, 12, 48, 200, 1000)
"""How often it may take each."""
SIZES = (0.02, 0.1, 0.5, 1.0, 2.0, 4.0)
"""How large they are."""
LEAVES = (0.125, 0.5, 2.0, 8.0)
"""How large the numbers of a leaf are in draws after the first."""


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
        seed: of other draws than the first, in which leaves differ in size.
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
        seed: int = 0,
    ) -> None:
        self.axes, self.facts, self.labels = tuple(axes), facts, labels
        self.logarithmic, self.positive = logarithmic, positive
        self.plan, self.rows, self.columns = plan, plan.rows, plan.columns
        self.random, self.seed = random.Random(SEED + seed), seed
        inner = list(range(1, plan.rows + 1))
        self.places = [self._placed(inner) for _ in self.axes]
        self.times = self._times()
        if seed and any(axis.size is None for axis in self.axes):  # the last of the data set's elements, wherever
            for places in self.places:
                places[plan.rows + plan.columns :] += [self.random.randrange(int(most)) for most in self.times[-1]]
        self._drawn: dict[Basic, Any] = {}

    @property
    def length(self) -> int:
        """The least count of a data set, beyond every place."""
        return self.rows + OWN

    def of(self, node: Basic, *, on_x: bool) -> Any:
        """A leaf's numbers: of each element, those of the data sets after the x_i; or one number."""
        if node not in self._drawn:
            made = self._elements(node) if on_x else self._parameter(node)
            self._drawn[node] = made * self._size_of(node)
        return self._drawn[node]

    def shift(self, node: Basic, by: float) -> None:
        """Move a leaf's numbers."""
        self._drawn[node] = self._drawn[node] + by

    def _size_of(self, node: Basic) -> float:
        """How large a leaf's numbers are beside those of the first draw; places and labels stay what they are."""
        plain = self.seed and node not in self.labels and not getattr(node, "is_integer", False)
        return self.random.choice(LEAVES) if plain else 1.0

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


def holds_place(node: Basic) -> bool:
    """Tells whether a place stands in it, other than as an index of an element."""
    if isinstance(node, Element | Value):
        return False
    return isinstance(node, Axis) or any(map(holds_place, node.args))


def integers(terms: Sequence[Expr], rows: int) -> dict[Element, range]:
    """Elements that are compared: with an index, lengths of the order of the places; for equality, small labels."""
    found: dict[Element, range] = {}
    for node in of_kind(Relational, *terms):
        for side in node.args:
            if isinstance(side, Element) and node.rel_op in ("==", "!="):
                found[side] = range(3)
            elif isinstance(side, Element) and any(map(holds_place, node.args)):
                found[side] = range(rows // 2, rows + OWN + 1)
    return found


def logarithmic(terms: Sequence[Expr], facts: Facts) -> set[Element]:
    """Elements that stand where a logarithm or a root is taken of what has no sign that is known."""
    taken = [node.args[0] for node in of_kind(log, *terms)]
    taken += [node.base for node in of_kind(Pow, *terms) if not node.exp.is_Integer]
    return {one for node in taken if sign_of(node, facts) is None for one in elements_of(node)}
