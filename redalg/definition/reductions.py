"""Reductions as they are defined: over all elements at once, or element after element in the order of the axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from string import ascii_letters
from typing import Any

from sympy import Dummy, Expr, Mul

from redalg.definition.evaluate import INFINITY, Evaluator, numerator_and_denominator
from redalg.expression import Axis, Reduce
from redalg.monoids import MONOIDS

Rows = list[Any]
"""The operands of a reduction, all of the same length along its axis."""


def reduction_value(at: Evaluator, node: Reduce) -> Any:
    """The value of a reduction: its axes stay with length 1."""
    if node.kind == "sum" and isinstance(node.expr, Mul):
        return contraction(at, node.expr, node.bound)
    if node.kind in SCALAR:
        return over_axes(at, SCALAR[node.kind], at.number(node.expr), node.bound)
    [axis] = node.bound
    place = at.place(axis)
    rows = full_rows(at, [at(one) for one in node.operands], axis)
    value = (
        ROWS[node.kind](at, rows, place)[node.result] if node.kind in ROWS else fold_registered(at, node, rows, place)
    )
    if node.place is None:
        return value
    return swap_dimensions(at, first_elements(at, value, place, node.place), place, at.place(node.place))


def full_rows(at: Evaluator, arrays: Sequence[Any], axis: Axis) -> Rows:
    """Arrays of one shape, at the full length of an axis."""
    shape = [max(sizes) if 0 not in sizes else 0 for sizes in zip(*(one.shape for one in arrays), strict=True)]
    shape[at.place(axis)] = at.length(axis)
    return [at.library.expand(one, shape) for one in arrays]


def over_axes(at: Evaluator, kind: tuple[Any, float], array: Any, axes: Sequence[Axis]) -> Any:
    """A reduction of one number along several axes."""
    reduce, empty = kind
    for axis in sorted(axes, key=at.place):
        [array] = full_rows(at, [array], axis)
        place = at.place(axis)
        array = reduce(at, array, place) if at.length(axis) else filled_slice(at, array, place, empty)
    return array


def filled_slice(at: Evaluator, array: Any, place: int, value: float) -> Any:
    """An array of one value, of length 1 along a dimension."""
    return at.library.full([1 if one == place else size for one, size in enumerate(array.shape)], value)


# ---- contractions ----------------------------------------------------------------------------------------------------


def contraction(at: Evaluator, term: Mul, axes: Sequence[Axis]) -> Any:
    """Σ of a product over axes; the product is not written out if the result is the same without it."""
    top, bottom = numerator_and_denominator(term)
    values = [at.library.float(one) for one in at.factors(top)], [at.number(one) for one in bottom]
    places = {at.place(axis) for axis in axes}
    if not all(map(at.length, axes)) or not are_all_finite(*values):
        return in_slices(at, (top, bottom), values, axes)
    inside = [one for one in values[0] if varies_along(one, places)]
    divisors = [one for one in values[1] if varies_along(one, places)]
    factors = merge_factors(inside or [at.constant(1.0)], divisors)
    value = summed_product(at, factors, axes)
    for array in values[0]:
        value = value if varies_along(array, places) else value * array
    for array in values[1]:
        value = value if varies_along(array, places) else value / array
    return value


def varies_along(array: Any, places: set[int]) -> bool:
    """Tell if an array varies along some dimensions."""
    return any(array.shape[place] != 1 for place in places)


def are_all_finite(above: Rows, below: Rows) -> bool:
    """Tell if all factors are finite: then none can hide another's ∞ or NaN, and a constant one may stand outside."""
    return all(bool((abs(one) < INFINITY).all()) for one in above) and all(
        bool(((abs(divisor) < INFINITY) & (divisor != 0)).all()) for divisor in below
    )


def merge_factors(factors: Sequence[Any], divisors: Sequence[Any]) -> list[Any]:
    """Fewer factors: one that makes no other larger is multiplied or divided at once."""
    groups = list[Any]()
    for factor in sorted(factors, key=lambda array: -prod(array.shape)):
        fitting = next((number for number, other in enumerate(groups) if covers(other, factor)), None)
        if fitting is None:
            groups.append(factor)
        else:
            groups[fitting] = groups[fitting] * factor
    for divisor in divisors:
        fitting = next((number for number, other in enumerate(groups) if covers(other, divisor)), None)
        if fitting is None:
            groups.append(1 / divisor)
        else:
            groups[fitting] = groups[fitting] / divisor
    return groups


def covers(array: Any, other: Any) -> bool:
    """Tell if an array is as large as its product with another."""
    return all(b in (1, a) for a, b in zip(array.shape, other.shape, strict=True))


def summed_product(at: Evaluator, factors: Sequence[Any], axes: Sequence[Axis]) -> Any:
    """Σ over axes of a product of arrays, by einsum; an axis along which none varies counts its elements."""
    places = {at.place(axis) for axis in axes}
    if len(factors) == 1:
        return over_axes(at, SCALAR["sum"], factors[0], axes)
    letters, texts, arrays = dict[int, str](), list[str](), list[Any]()
    for factor in factors:
        long = [place for place, size in enumerate(factor.shape) if size != 1]
        for place in long:
            letters.setdefault(place, ascii_letters[len(letters)])
        texts.append("".join(letters[place] for place in long))
        arrays.append(factor.reshape([factor.shape[place] for place in long]))
    rest = sorted(set(letters) - places)
    product = at.library.einsum(f"{','.join(texts)}->{''.join(letters[place] for place in rest)}", arrays)
    shape = [1] * len(at.axes)
    for number, place in enumerate(rest):
        shape[place] = product.shape[number]
    times = prod(at.length(axis) for axis in axes if at.place(axis) not in letters)
    return product.reshape(shape) * times


LARGEST = 1 << 24
"""Elements of a product that is written out."""


def in_slices(at: Evaluator, factors: Any, values: Any, axes: Sequence[Axis]) -> Any:
    """Σ of a product written out, in slices along the longest dimension that is not summed, if it is large."""
    arrays = [one for part in values for one in part]
    hiding = at.hiding_masks(factors[0])
    shape = list(full_rows(at, [*arrays, *hiding, at.constant(1.0)], axes[0])[0].shape)
    places = {at.place(axis) for axis in axes}
    free = [place for place in range(len(shape)) if place not in places]
    long = max(free, key=lambda place: shape[place], default=None)
    if long is None or prod(shape) <= LARGEST or shape[long] == 1:
        return sum_by_elements(at, values, hiding, axes)
    sums = []
    step = max(1, shape[long] * LARGEST // prod(shape))
    for first in range(0, shape[long], step):
        cut = tuple(slice(None) if place != long else slice(first, first + step) for place in range(len(shape)))
        part = [[one if one.shape[long] == 1 else one[cut] for one in arrays] for arrays in (*values, hiding)]
        sums.append(sum_by_elements(at, part[:2], part[2], axes))
    return at.library.join(sums, long)


def sum_by_elements(at: Evaluator, values: Any, hiding: Sequence[Any], axes: Sequence[Axis]) -> Any:
    """Σ of a product, element by element."""
    value = at.constant(1.0)
    for factor in values[0]:
        value = value * factor
    for nothing in hiding:
        value = at.library.where(nothing, at.constant(0.0), value)
    if values[1]:
        below = at.constant(1.0)
        for divisor in values[1]:
            below = below * divisor
        value = value / below
    return over_axes(at, SCALAR["sum"], value, axes)


# ---- one number ------------------------------------------------------------------------------------------------------


def range_safe_product(at: Evaluator, array: Any, place: int) -> Any:
    """Π, by mantissas and exponents: no partial product leaves the range."""
    call = at.library.functions
    exponent = at.library.sum(at.library.whole(call["Exponent"](array)), place)
    array = call["Mantissa"](array)
    while array.shape[place] > 1:
        half = array.shape[place] // 2
        left, right, rest = (
            slice_along(array, place, *edges) for edges in ((0, half), (half, 2 * half), (2 * half, None))
        )
        array = at.library.join([left * right, rest], place)
        exponents = at.library.whole(call["Exponent"](array))
        exponent, array = exponent + at.library.sum(exponents, place), call["Mantissa"](array)
    return call["Scaled"](array, exponent)


def slice_along(array: Any, place: int, first: int, stop: int | None) -> Any:
    """A part of an array along a dimension."""
    return array[(slice(None),) * place + (slice(first, stop),)]


SCALAR: dict[str, tuple[Callable[..., Any], float]] = {
    "sum": (lambda at, array, place: at.library.sum(array, place), 0.0),
    "prod": (range_safe_product, 1.0),
    "scaled_product": (range_safe_product, 1.0),
    "max": (lambda at, array, place: at.library.largest(array, place), -INFINITY),
    "min": (lambda at, array, place: -at.library.largest(-array, place), INFINITY),
    "any": (lambda at, array, place: at.library.largest(array, place), 0.0),
    "all": (lambda at, array, place: -at.library.largest(-array, place), 1.0),
    "xor": (lambda at, array, place: at.library.sum(array, place) % 2, 0.0),
}
"""Kind -> the function that takes it along a dimension, and its value for no elements."""


# ---- whole rows ------------------------------------------------------------------------------------------------------


def falling_order(at: Evaluator, array: Any, place: int) -> Any:
    """Places in falling order: NaN first, of equal elements the lower."""
    order = at.library.order(-array, place)
    numbers = at.library.take(at.library.whole(~at.library.functions["IsNaN"](array)), order, place)
    return at.library.take(order, at.library.order(numbers, place), place)


def sort_with_places(at: Evaluator, rows: Rows, place: int) -> dict[str, Any]:
    """The elements in falling order, with their places."""
    array = at.library.float(rows[0])
    order = falling_order(at, array, place)
    return {"values": at.library.take(array, order, place), "indices": order}


def first_elements(at: Evaluator, array: Any, place: int, axis: Axis) -> Any:
    """The first elements, as many as a new axis counts: −∞, or the place −1, if there are too few."""
    first, stop = at.ranges[axis.name]
    missing = stop - array.shape[place]
    if missing > 0:
        shape = [missing if one == place else size for one, size in enumerate(array.shape)]
        array = at.library.join([array, at.library.full(shape, -INFINITY if at.library.is_float(array) else -1)], place)
    return slice_along(array, place, first, stop)


def swap_dimensions(at: Evaluator, array: Any, place: int, other: int) -> Any:
    """Two dimensions exchanged."""
    order = list(range(len(at.axes)))
    order[place], order[other] = other, place
    return at.library.transpose(array, order)


def largest_place(at: Evaluator, rows: Rows, place: int) -> dict[str, Any]:
    """The place of the largest element."""
    if not rows[0].shape[place]:
        return {"": filled_slice(at, rows[0], place, -1)}
    return {"": slice_along(falling_order(at, at.library.float(rows[0]), place), place, 0, 1)}


def is_largest(at: Evaluator, rows: Rows, place: int, *, alone: bool) -> Any:
    """The mask of the elements that attain the largest: all of them, or the first alone."""
    array = at.library.float(rows[0])
    if not alone:
        return array == at.library.largest(array, place)
    size = array.shape[place]
    shape = [size if one == place else 1 for one in range(len(at.axes))]
    return at.library.arange(0, size).reshape(shape) == slice_along(falling_order(at, array, place), place, 0, 1)


def beside(kind: str, *, alone: bool, others: bool) -> Callable[..., dict[str, Any]]:
    """The function that takes ⊕ of what attains the largest, or of all others."""
    reduce, empty = SCALAR[kind]

    def reduction(at: Evaluator, rows: Rows, place: int) -> dict[str, Any]:
        if not rows[0].shape[place]:
            return {"": filled_slice(at, rows[0], place, empty)}
        mask = is_largest(at, rows, place, alone=alone)
        mask = ~mask if others else mask
        value = reduce(at, at.library.where(mask, at.library.float(rows[1]), at.constant(empty)), place)
        unordered = (
            at.library.largest(at.library.float(at.library.functions["IsNaN"](at.library.float(rows[0]))), place) > 0
        )
        return {"": value if alone else at.library.where(unordered, at.constant(float("nan")), value)}

    return reduction


def first_or_last(last: bool) -> Callable[..., dict[str, Any]]:
    """The function that takes the first or the last element that counts; NaN if none does."""

    def reduction(at: Evaluator, rows: Rows, place: int) -> dict[str, Any]:
        if not rows[0].shape[place]:
            return {"": filled_slice(at, rows[0], place, float("nan"))}
        counts = at.library.whole(rows[1] == 1)
        before = at.library.cumsum(counts, place)
        number = at.library.sum(counts, place)
        mask = (counts == 1) & (before == (number if last else 1))
        value = at.library.where(mask, at.library.float(rows[0]), at.constant(0.0))
        return {"": at.library.where(number > 0, at.library.sum(value, place), at.constant(float("nan")))}

    return reduction


def outermost_place(last: bool) -> Callable[..., dict[str, Any]]:
    """The function that takes the place of the first or the last element that counts; −1 if none does."""

    def reduction(at: Evaluator, rows: Rows, place: int) -> dict[str, Any]:
        size = rows[0].shape[place]
        if not size:
            return {"": filled_slice(at, rows[0], place, -1)}
        places = at.library.arange(0, size).reshape([size if one == place else 1 for one in range(len(at.axes))])
        key = at.library.whole(rows[0] == 1) * (places + 1 if last else size - places)  # 0 of what does not count
        top = at.library.largest(key, place)
        return {"": top - 1 if last else at.library.where(top > 0, size - top, top - 1)}

    return reduction


def recurrence(at: Evaluator, rows: Rows, place: int) -> dict[str, Any]:
    """h ← a·h + b, step by step, of h = 1 and 0."""
    scales, shifts = map(at.library.float, rows)
    scale, shift = filled_slice(at, scales, place, 1.0), filled_slice(at, scales, place, 0.0)
    for step in range(scales.shape[place]):
        a, b = slice_along(scales, place, step, step + 1), slice_along(shifts, place, step, step + 1)
        scale, shift = a * scale, a * shift + b
    return {"scale": scale, "shift": shift}


def compensated_total(at: Evaluator, rows: Rows, place: int) -> dict[str, Any]:
    """Σ with what each addition lost (Knuth's TwoSum), in pairs."""
    total = at.library.float(rows[0])
    lost = total * 0
    while total.shape[place] > 1:
        half = total.shape[place] // 2
        a, b, rest = (slice_along(total, place, *edges) for edges in ((0, half), (half, 2 * half), (2 * half, None)))
        c, d, more = (slice_along(lost, place, *edges) for edges in ((0, half), (half, 2 * half), (2 * half, None)))
        both = a + b
        part = both - a
        lost = at.library.join([c + d + (a - (both - part)) + (b - part), more], place)
        total = at.library.join([both, rest], place)
    if not total.shape[place]:
        return {"": filled_slice(at, total, place, 0.0)}
    return {"": at.library.where(abs(lost) < INFINITY, total + lost, total)}


def log_sum_exp(at: Evaluator, rows: Rows, place: int) -> dict[str, Any]:
    """log Σ exp about the largest."""
    array = at.library.float(rows[0])
    if not array.shape[place]:
        return {"": filled_slice(at, array, place, -INFINITY)}
    top = at.library.largest(array, place)
    call = at.library.functions
    total = call["log"](at.library.sum(call["exp"](array - top), place))
    return {"": at.library.where(abs(top) < INFINITY, top + total, top)}


ROWS: dict[str, Callable[..., dict[str, Any]]] = {
    "topk": sort_with_places,
    "argmax": largest_place,
    "argmin": lambda at, rows, place: largest_place(at, [-at.library.float(rows[0])], place),
    "at_argmax": beside("sum", alone=True, others=False),
    "first": first_or_last(last=False),
    "last": first_or_last(last=True),
    "first_place": outermost_place(last=False),
    "last_place": outermost_place(last=True),
    "affine": recurrence,
    "compensated_sum": compensated_total,
    "logsumexp": log_sum_exp,
    **{f"{kind}_at_max": beside(kind, alone=False, others=False) for kind in ("sum", "max", "min")},
    **{f"{kind}_below_max": beside(kind, alone=False, others=True) for kind in ("sum", "max", "min")},
    **{f"{kind}_beside_argmax": beside(kind, alone=True, others=True) for kind in ("sum", "max", "min")},
}
"""Kind -> its results by name, from the operands along a dimension."""


def fold_registered(at: Evaluator, node: Reduce, rows: Rows, place: int) -> Any:
    """A registered monoid, by the functions that it was registered with: combined element after element."""
    kind = MONOIDS[node.kind]
    operands = [Dummy() for _ in rows]
    index = Dummy(integer=True)
    places = at.library.arange(0, rows[0].shape[place])
    shape = [rows[0].shape[place] if one == place else 1 for one in range(len(at.axes))]
    known = {**dict(zip(operands, rows, strict=True)), index: places.reshape(shape)}
    elements = full_rows(at, [symbolic_value(at, one, known) for one in kind.lift(*operands, index)], node.bound[0])
    a, b = ([Dummy(integer=part.integer or None) for part in kind.components] for _ in range(2))
    joined = kind.join(tuple(a), tuple(b))
    total = [at.numeral(one) for one in kind.empty]
    for step in range(rows[0].shape[place]):
        after = (slice_along(one, place, step, step + 1) for one in elements)
        known = {**dict(zip(a, total, strict=True)), **dict(zip(b, after, strict=True))}
        total = [symbolic_value(at, one, known) for one in joined]
    known = dict(zip(a, total, strict=True))
    number = next(number for number, one in enumerate(kind.results) if one.name == node.result)
    return symbolic_value(at, kind.lower(*a)[number], known)


def symbolic_value(at: Evaluator, expr: Expr, known: dict[Any, Any]) -> Any:
    """An expression of symbols that stand for arrays."""
    return replace(at, known=known)(expr)
