"""Values of reductions over every data set of samples, by monoid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sympy import S

from redalg.expression import Value

if TYPE_CHECKING:
    from redalg.decompose.samples.samples import Samples


def _largest(samples: Samples, x: Any) -> Any:
    most = samples.arithmetic.function("Max")
    result = x[0]
    for row in x[1:]:
        result = most(result, row) if most is not None else row
    return result


def _sum(samples: Samples, _: Value, terms: list[Any]) -> Any:
    return (terms[0] * samples.weights).sum(axis=0)


def _prod(samples: Samples, _: Value, terms: list[Any]) -> Any:
    return samples.arithmetic.power(terms[0], samples.weights).prod(axis=0)


def _max(samples: Samples, _: Value, terms: list[Any]) -> Any:
    return _largest(samples, terms[0])


def _min(samples: Samples, _: Value, terms: list[Any]) -> Any:
    return -_largest(samples, -terms[0])


def _sum_of_x(samples: Samples, flat: Any) -> Any:
    """The sum of what is of x alone: that of the x_i is the same in every data set."""
    rows = samples.draws.rows
    return np.add.accumulate(flat[:rows])[-1] + (samples.own(flat) * samples.weights[rows:]).sum(axis=0)


def _max_of_x(samples: Samples, flat: Any) -> Any:
    shared, own = _largest(samples, flat[: samples.draws.rows]), _largest(samples, samples.own(flat))
    return _largest(samples, [shared, own])


OF_X: Mapping[str, Callable[[Samples, Any], Any]] = {
    "sum": _sum_of_x, "max": _max_of_x, "min": lambda samples, flat: -_max_of_x(samples, -flat),
}  # fmt: skip
"""Monoid -> its value of what is of x alone."""


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
    """One of the largest, by the place that was drawn for the axis that numbers them; -inf beyond the last sample."""
    number = [samples.draws.of(axis, on_x=False) for axis in value.free_symbols if getattr(axis, "size", None)]
    order = _order(samples, terms[0])
    place = np.asarray(number[0] if number else 0).astype(int)
    place, last = np.broadcast_to(place, order.shape[1:]), len(order) - 1
    values = _at(terms[0], _at(order, np.minimum(place, last)))
    return np.where(place <= last, values, samples.arithmetic.number(S.NegativeInfinity))


def _selection_rule(plus: str, *, at: bool) -> Callable[..., Any]:
    def rule(samples: Samples, _: Value, terms: list[Any]) -> Any:
        u, w = terms
        mask = (u == _largest(samples, u)) == at
        if plus == "sum":
            return np.where(mask, w * samples.weights, 0 * samples.weights).sum(axis=0)
        sign = 1 if plus == "max" else -1
        return sign * _largest(samples, np.where(mask, sign * w, samples.arithmetic.number(S.NegativeInfinity)))

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
