"""The random numbers of samples: elements that every data set holds, and two that each has of its own.

A data set's own elements differ from the shared ones in size and in how often they are taken, so that sums, means and
extrema vary widely. In every fourth data set they bring each tensor's sum among the x_i; in every other fourth they
bring its mean there. The places are those of a data set: all are below its count, and its own elements have the first
and the last one. Parameters are drawn once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass, replace
from math import prod
from typing import Any, final

import numpy as np
from sympy import Expr, Pow, log
from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.decompose.separate.signs import UP, Facts, sign_of
from redalg.expression import Axis, Element, Reduce, Value
from redalg.expression.contents import elements_of, of_kind

SEED = 2026
OWN = 2
"""Elements that a data set has of its own."""
TIMES = (1, 2, 4, 12, 48, 200, 1000)
"""The numbers of times that it may take each of its own elements."""
MOST = (2, 12, 1000)
"""The largest number of times, in draws after the first: few elements move a function that flattens out."""
SIZES = (0.02, 0.1, 0.5, 1.0, 2.0, 4.0)
"""The sizes of a data set's own elements."""
LEAVES = (0.125, 0.5, 2.0, 8.0)
"""The sizes of a leaf's numbers in draws after the first."""
FAR = tuple(2.0**power for power in range(-8, 9))
"""Sizes that differ by more than sums do from their elements, so that thresholds of either lie among the others."""


@final
@dataclass(frozen=True)
class Plan:
    """The numbers of x_i and d_j, and the size of the x_i."""

    rows: int
    columns: int
    scale: float = 1.0


@final
class Draws:
    """The random numbers: floats, so that every arithmetic has the same.

    Args:
        axes: the reduced axes.
        facts: the meaning of each value, which gives its sign.
        labels: the range of elements that are compared, which are integers.
        logarithmic: elements whose logarithms or roots are taken, which are positive.
        plan: the numbers of x_i and d_j, and the size of the x_i.
        positive: True if every number is positive.
        seed: 0 for the first draw; leaves differ in size in the others.
        leaves: the sizes that leaves may have.
        copies: the number of draws side by side, in a last axis of every array; 0 for one draw without such an axis.
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
        copies: int = 0,
        leaves: Sequence[float] = LEAVES,
    ) -> None:
        self.axes, self.facts, self.labels = tuple(axes), facts, labels
        self.logarithmic, self.positive = logarithmic, positive
        self.plan, self.rows, self.columns = plan, plan.rows, plan.columns
        self.random, self.seed = random.Random(SEED + seed), seed
        self.copies, self.leaves = (copies,) if copies else (), leaves
        self.places = [self._draw_places() for _ in self.axes]
        self.times = self._times()
        if seed and any(axis.size is None for axis in self.axes):  # the last of the data set's elements, wherever
            for places in self.places:
                places[plan.rows + plan.columns :] += np.floor(self._sizes(plan.columns) / 2 * self.times[-1])
        self._drawn: dict[Basic, Any] = {}
        self.whole: Draws | None = None
        self.select: Callable[[Any], Any] = lambda one: one

    @property
    def length(self) -> int:
        """The least count of a data set, beyond every place."""
        return self.rows + OWN

    def of(self, node: Basic, *, on_x: bool) -> Any:
        """The numbers of a leaf: one for each element, the x_i before the data sets' own; or a single number."""
        if node not in self._drawn:
            if self.whole is not None:
                self._drawn[node] = self.select(self.whole.of(node, on_x=on_x))
            else:
                numbers = self._elements(node) if on_x else self._parameter(node)
                self._drawn[node] = numbers * self._size_of(node)
        return self._drawn[node]

    def part(self, which: int | slice) -> Draws:
        """One or some of several draws; what is not drawn yet is drawn for all."""
        other = copy(self)
        other.whole, other.select, other._drawn = self, lambda one: one[..., which], {}
        other.times, other.places = self.times[..., which], [one[..., which] for one in self.places]
        other.copies = other.times.shape[2:]
        return other

    def of_some(self, columns: Any) -> Draws:
        """Some of the data sets of one draw; what is not drawn yet is drawn for all."""
        own = [self.rows + part * self.columns + columns for part in range(OWN)]
        places, length = np.concatenate([np.arange(self.rows), *own]), self.rows + OWN * self.columns
        other = copy(self)
        other.columns, other.plan = len(columns), replace(self.plan, columns=len(columns))
        other.times, other.places = self.times[:, columns], [one[places] for one in self.places]
        shorter = {length: places, self.columns: columns}
        other.whole, other._drawn = self, {}
        other.select = lambda one: one[shorter[len(one)]] if np.ndim(one) else one
        return other

    def shift(self, node: Basic, by: float) -> Draws:
        """The draws in which a leaf's numbers are moved."""
        other = copy(self)
        other._drawn = {**self._drawn, node: self._drawn[node] + by}
        return other

    def _size_of(self, node: Basic) -> Any:
        """The factor of a leaf's numbers relative to the first draw; places and labels stay the same."""
        plain = self.seed and node not in self.labels and not getattr(node, "is_integer", False)
        return self._choose(self.leaves, 1)[0] if plain else 1.0

    def of_columns(self, node: Basic) -> Any:
        """A positive number for each d_j."""
        if node not in self._drawn:
            whole = self.whole
            self._drawn[node] = self._sizes(self.columns) if whole is None else self.select(whole.of_columns(node))
        return self._drawn[node]

    def _bits(self, number: int) -> Any:
        """Random 64-bit integers."""
        shape = (number, *self.copies)
        return np.frombuffer(self.random.randbytes(8 * prod(shape)), dtype="<u8").reshape(shape)

    def _sizes(self, number: int) -> Any:
        """Numbers between 0 and 2, 0 left out."""
        return ((self._bits(number) >> 12) + 1) / 2.0**51

    def _choose(self, options: Sequence[float], number: int) -> Any:
        """Some of the options, each as likely as the others."""
        return np.asarray(options)[((self._bits(number) >> 32) * len(options)) >> 32]

    def _shuffle(self) -> Any:
        """The numbers below `rows` in a random order."""
        return np.argsort(self._sizes(self.rows), axis=0)

    def _draw_places(self) -> Any:
        """The places of the x_i in a random order, and the first and the last one of every data set."""
        ends = np.ones((self.columns, *self.copies))
        return np.concatenate([1 + self._shuffle(), 0 * ends, (self.length - 1) * ends])

    def _times(self) -> Any:
        """The times that each element is taken: in total the number of elements, if all axes have known sizes."""
        sizes = [axis.size for axis in self.axes if axis.size is not None]
        times = np.ones((self.length, self.columns, *self.copies))
        if len(sizes) < len(self.axes):
            most = self._choose(MOST, 1) if self.seed else TIMES[-1]
            counts = np.minimum(self._choose(TIMES, OWN * self.columns), most)
            times[self.rows :] = counts.reshape(OWN, *times.shape[1:])
            return times
        left = max(prod(sizes) - self.rows, 2)
        first = 1 + np.floor(self._sizes(self.columns) / 2 * (left - 1)).clip(0, left - 2)
        times[self.rows :] = first, left - first
        return times

    def _elements(self, node: Basic) -> Any:
        number, rows = self.rows + OWN * self.columns, self.rows
        labels = self.labels.get(node) if isinstance(node, Element) else None
        if labels is not None:
            return self._choose(labels, number).astype(float)
        numbers = self._sizes(number)
        numbers[:rows] *= self.plan.scale
        numbers[rows:] *= self._choose(SIZES, number - rows)
        if sign := self._sign(node):
            return sign * numbers
        flipped = self._choose((1.0, -1.0), number)
        flipped[:rows] = np.where(self._shuffle() < rows // 2, -1.0, 1.0)
        return self._balance(numbers * flipped)

    def _balance(self, values: Any) -> Any:
        """The numbers of a leaf; in every other data set their sum or their mean lies among the x_i."""
        rows, odd = self.rows, np.arange(1, self.columns, 2)
        first, second = self.times[rows:, odd]
        summed = (odd % 4 == 1).reshape(-1, *(1 for _ in self.copies))
        sums = 2 * (self._sizes(len(odd)) - 1) * np.where(summed, rows + first + second, 1.0)
        values[rows + odd] = (sums - values[:rows].sum(axis=0) - second * values[rows + self.columns + odd]) / first
        return values

    def _parameter(self, node: Basic) -> Any:
        labels = self.labels.get(node) if isinstance(node, Element) else None
        if labels is not None:
            return self._choose(labels, 1)[0].astype(float)
        if isinstance(node, Axis) and node.size is not None:
            return self._choose(range(node.size), 1)[0].astype(float)
        if getattr(node, "is_integer", False):
            return self._choose(range(self.rows // 2, self.length + 1), 1)[0].astype(float)
        return (self._sign(node) or self._choose((1.0, -1.0), 1)[0]) * self._sizes(1)[0]

    def _sign(self, node: Basic) -> float:
        """The sign that every number of a leaf has; 0 if the numbers have both signs."""
        if self.positive or node in self.logarithmic:
            return 1.0
        known = sign_of(node, self.facts) if isinstance(node, Expr) else None
        return 0.0 if known is None else 1.0 if known in UP else -1.0


def holds_place(node: Basic, bound: AbstractSet[Axis] = frozenset()) -> bool:
    """Tell if a place stands in a node other than as an index of an element or as a reduced axis."""
    if isinstance(node, Element | Value):
        return False
    if isinstance(node, Reduce):
        return holds_place(node.expr, bound | set(node.bound))
    return node not in bound if isinstance(node, Axis) else any(holds_place(arg, bound) for arg in node.args)


def integers(terms: Sequence[Expr], rows: int) -> dict[Element, range]:
    """The ranges of compared elements: small labels in an equality, lengths as large as the places beside an index."""
    ranges: dict[Element, range] = {}
    for node in of_kind(Relational, *terms):
        for side in node.args:
            if isinstance(side, Element) and node.rel_op in ("==", "!="):
                ranges[side] = range(3)
            elif isinstance(side, Element) and any(map(holds_place, node.args)):
                ranges[side] = range(rows // 2, rows + OWN + 1)
    return ranges


def log_arguments(terms: Sequence[Expr], facts: Facts) -> set[Element]:
    """The elements under a logarithm or a root whose argument has no known sign."""
    arguments = [node.args[0] for node in of_kind(log, *terms)]
    arguments += [node.base for node in of_kind(Pow, *terms) if not node.exp.is_Integer]
    return {one for node in arguments if sign_of(node, facts) is None for one in elements_of(node)}
