"""The tiles of the streamed axis that a mask of places leaves to a tile of rows, on average.

Points of every tile are tried: its first, middle and last along each axis. A mask by data leaves all of them, since a
plan is chosen before data is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sympy import And, S, lambdify
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis
from redalg.expression.contents import elements_of, free_axes, values_of
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.varying import tiles_of

ROW_TILES, PLACES = 16, 4
"""Tiles of rows that are tried, and places of an axis of the grid."""


@final
class Live:
    """The mask of places of a form, and the tiles that it leaves."""

    def __init__(self, form: FusedForm, binding: Binding, sizes: Mapping[str, int]) -> None:
        self.binding, self.sizes = binding, sizes
        domain = S.true if form.structures else form.cascade.domain
        conjuncts = [one for one in And.make_args(domain) if compares_places(one, binding.streamed)]
        self.axes = sorted({axis for one in conjuncts for axis in free_axes(one)}, key=str)
        self.condition = And(*conjuncts)
        self._found = dict[tuple[int, int], float]()

    @cached_property
    def mask(self) -> Callable[..., Any]:
        """The condition as a function of the axes' places."""
        function: Callable[..., Any] = lambdify(self.axes, self.condition, "numpy")
        return function

    def tiles(self, rows: int, streamed: int) -> float:
        """The tiles of `streamed` elements that a tile of `rows` rows takes, on average."""
        total: int = tiles_of(max(1, self.sizes[self.binding.streamed.name]), streamed)
        if not self.axes:
            return total
        if (rows, streamed) not in self._found:
            self._found[rows, streamed] = self._count(rows, streamed)
        return self._found[rows, streamed]

    def _count(self, rows: int, streamed: int) -> float:
        shape = [1] * (2 * len(self.axes))
        points = list[NDArray[np.int64]]()
        for place, axis in enumerate(self.axes):
            own = self.points(axis, rows, streamed)
            points.append(own.reshape([*shape[: 2 * place], *own.shape, *shape[2 * place + 2 :]]))
        holds = np.asarray(self.mask(*np.broadcast_arrays(*points)), bool)
        lives = holds.any(axis=tuple(range(1, 2 * len(self.axes), 2)))
        of_streamed = self.axes.index(self.binding.streamed)
        return max(1.0, float(lives.sum(axis=of_streamed).mean()))

    def points(self, axis: Axis, rows: int, streamed: int) -> NDArray[np.int64]:
        """Points of an axis, by tile and in it."""
        size = max(1, self.sizes[axis.name])
        if axis == self.binding.streamed:
            return points_of(size, streamed, tiles_of(size, streamed))
        if axis == self.binding.row:
            return points_of(size, rows, ROW_TILES)
        if axis in self.binding.rows:
            return points_of(size, size, 1)
        return points_of(size, 1, PLACES)


def compares_places(condition: Boolean, streamed: Axis) -> bool:
    """Tell if a condition compares places of the streamed axis, and nothing but places and numbers."""
    if elements_of(condition) or values_of(condition) or streamed not in free_axes(condition):
        return False
    return all(isinstance(one, Axis) for one in condition.free_symbols)


def points_of(size: int, length: int, most: int) -> NDArray[np.int64]:
    """The first, middle and last point of up to `most` tiles of an axis, evenly spread.

    >>> points_of(8, 4, 2).tolist()
    [[0, 2, 3], [4, 6, 7]]
    """
    count = tiles_of(size, length)
    first = np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64)) * length
    return np.minimum(first[:, None] + np.array([0, length // 2, length - 1]), max(0, size - 1))
