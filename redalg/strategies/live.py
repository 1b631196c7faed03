"""The tiles of the streamed axis that a mask leaves to a tile of rows, on average.

Points of every tile are tried: its first, middle and last along each axis. A plan is chosen before data is seen, so
that data is assumed: documents and blocks leave a share of the tiles (`BY_DATA`), an alternative by data adds none, and
other masks by data leave all. A run-time scalar that is compared with places (a window's width) is a number if its
value is given. If not, it is as data: a condition by it leaves all tiles, an alternative by it adds none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from math import isnan
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sympy import And, Float, Integer, Or, S, lambdify
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis, Scalar
from redalg.expression.contents import elements_of, free_axes, quotient_of, values_of
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.varying import tiles_of

ROW_TILES, PLACES = 16, 4
"""Tiles of rows that are tried, and places of an axis of the grid."""
BY_DATA = 1 / 3
"""The share of tiles that documents, and blocks that are open or not, are assumed to leave (of eight documents in 4096
tokens, causal or not, and of a third of the blocks, plans on an H100 took 0.28 to 0.35 of the time of all tiles)."""


@final
class Live:
    """The mask of places of a form, and the tiles that it leaves.

    Attributes:
        values: those of run-time scalars that are known, by name.
        unknown: the names of run-time scalars without a value by which a condition of places may skip tiles.
        ignored: the names of those by which an alternative of places may add tiles.
    """

    def __init__(
        self, form: FusedForm, binding: Binding, sizes: Mapping[str, int], scalars: Mapping[str, float] | None = None
    ) -> None:
        self.binding, self.sizes = binding, sizes
        self.values = scalars or {}
        domain = S.true if form.structures else with_values(form.cascade.domain, self.values)
        conditions = And.make_args(domain)
        without = [one for one in conditions if without_data(one, binding.streamed) is None]
        self.unknown = scalars_of_places(without, binding.streamed)
        self.ignored = scalars_of_places([one for one in conditions if one not in without], binding.streamed)
        self.is_empty = domain is S.false
        known = [without_data(one, binding.streamed) for one in conditions]
        conjuncts = [one for one in known if one is not None]
        self.share = BY_DATA if any(joins_data(one, binding) for one in conditions) else 1.0
        self.axes = sorted({axis for one in conjuncts for axis in free_axes(one)}, key=str)
        self.condition = And(*conjuncts)
        self._found = dict[tuple[int, int], float]()

    @property
    def premises(self) -> str:
        """The clauses on the run-time scalars of masks: values that count, or those that have none; else empty."""
        known = [f"predicted for {name} = {value:g}" for name, value in self.values.items()]
        absent = "its value is not given (`plans(scalars=…)`)"
        known += [f"nothing is assumed to be skipped by `{name}`: {absent}" for name in self.unknown]
        return "; ".join([*known, *(f"nothing is assumed to be added by `{name}`: {absent}" for name in self.ignored)])

    @cached_property
    def mask(self) -> Callable[..., Any]:
        """The condition as a function of the axes' places."""
        function: Callable[..., Any] = lambdify(self.axes, self.condition, "numpy")
        return function

    def tiles(self, rows: int, streamed: int) -> float:
        """The tiles of `streamed` elements that a tile of `rows` rows takes, on average."""
        total: int = tiles_of(max(1, self.sizes[self.binding.streamed.name]), streamed)
        if self.is_empty:
            return 1.0
        if not self.axes:
            return max(1.0, total * self.share)
        if (rows, streamed) not in self._found:
            self._found[rows, streamed] = self._count(rows, streamed)
        return max(1.0, self._found[rows, streamed] * self.share)

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


def with_values(domain: Boolean, values: Mapping[str, float]) -> Boolean:
    """A domain with numbers in the place of run-time scalars that have a value."""
    scalars = [one for one in domain.free_symbols if isinstance(one, Scalar) and one.name in values]
    numbers = {one: values[one.name] for one in scalars if not isnan(values[one.name])}
    exact = {one: Integer(value) if value.is_integer() else Float(value) for one, value in numbers.items()}
    return domain.xreplace(exact)


def scalars_of_places(conditions: Iterable[Boolean], streamed: Axis) -> tuple[str, ...]:
    """The names of the run-time scalars in conditions that would compare places of the streamed axis without them."""
    found = set[str]()
    for part in [part for one in conditions for part in Or.make_args(one)]:
        scalars = [one for one in part.free_symbols if isinstance(one, Scalar)]
        if compares_places(part.xreplace(dict.fromkeys(scalars, S.One)), streamed):
            found |= {one.name for one in scalars}
    return tuple(sorted(found))


def without_data(condition: Boolean, streamed: Axis) -> Boolean | None:
    """The part of a condition that compares places of the streamed axis alone; None if there is none."""
    parts = [one for one in Or.make_args(condition) if compares_places(one, streamed)]
    return Or(*parts) if parts else None


def joins_data(condition: Boolean, binding: Binding) -> bool:
    """Tell if a condition tells whole tiles by data: data of rows beside data of streamed elements, or of blocks."""
    indices = [index for one in elements_of(condition) for index in one.indices]
    whole = all(len(free_axes(one) & {*binding.rows, binding.streamed}) < 2 for one in elements_of(condition))
    blocks = any(quotient_of(index, binding.streamed) > 1 for index in indices)
    axes = {axis for index in indices for axis in free_axes(index)}
    return binding.streamed in axes and bool(axes & {*binding.rows}) and (whole or blocks)


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
