"""Pivots along the columns of a matrix product, fixed at the first element of the data.

    Σ f(x; c)·g,  c moving   →   Σ f(x; u₀)·g,  u₀ = u of element 0, or 0 where that is not finite      δ = 0

Exact, as every finite c is (THEORY, section 1). All blocks and segments share it, so nothing moves when they merge. If
u₀ lies far from the rest, digits are lost as by any pivot that lags. So kernels of a known length take one among nine
elements for it (`among_nine`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sympy import And, Expr, Integer, Max, Min, Mul, Ne, S
from sympy.logic.boolalg import Boolean

from redalg.decompose.separate.plain import is_finite
from redalg.expression import Axis, Let, Value, Where
from redalg.expression.contents import free_axes, of_kind, values_of
from redalg.incremental.form import Accumulator, FusedForm, Pivot, PivotPolicy
from redalg.incremental.mapped import mapped_output

CENTRE, NEAREST, SAMPLE = "centre", "nearest", "sample"
"""The names of a pivot that is found among nine elements, of the nearest to the middle of those that count, and of an
element that counts, or else the nearest."""


def fix_pivots(form: FusedForm, column: Axis | None) -> FusedForm:
    """Fix every shift pivot along `column`, or within a second factor: its slot and its moves are gone."""
    right = {value for one in form.accumulators for factor in one.factors[1:] for value in values_of(factor)}
    along = [one for one in form.pivots if column in one.value.indices or one.value in right]
    pivots = [one for one in along if column is not None and fixable(one, form)]
    return hold_pivots(form, {one.value: finite_element(one.base, form.cascade.axis) for one in pivots})


def hold_pivots(form: FusedForm, at: Mapping[Expr, Expr]) -> FusedForm:
    """The form with pivots held at expressions."""
    if not at:
        return form
    no_moves: dict[Expr, Expr] = {one.displacement: S.Zero for one in form.pivots if one.value in at}
    return replace(
        form,
        pivots=tuple(_hold_pivot(one, at) for one in form.pivots if one.value not in at),
        accumulators=tuple(_hold_accumulator(one, at, no_moves) for one in form.accumulators),
        assignments=tuple(replace(one, expr=one.expr.xreplace(at)) for one in form.assignments),
        outputs=tuple(mapped_output(one, lambda node: node.xreplace(at)) for one in form.outputs),
    )


def fixable(pivot: Pivot, form: FusedForm) -> bool:
    """Tell if a pivot only shifts values read from inputs: it scales nothing, and no other pivot is found from it."""
    scales = form.scaling
    found_from = any(pivot.value in values_of(other.source) for other in form.pivots if other is not pivot)
    plain = not values_of(pivot.base) and not pivot.slopes and not pivot.scales and pivot.value not in scales
    return plain and not found_from and pivot.policy in (PivotPolicy.BLOCK_MEAN, PivotPolicy.TILE_LOCAL)


def finite_element(u: Expr, axis: Axis, place: int = 0) -> Expr:
    """u at an element; 0 if it is not finite."""
    at_place: Expr = u.xreplace({axis: Integer(place)})
    return Where(is_finite(at_place), at_place, S.Zero)


def fix_among_nine(form: FusedForm, length: int | None) -> FusedForm:
    """Fix every shift pivot among nine elements, spread over the axis.

    One outlier, or a trend, hardly moves such a pivot. A pivot that stands at the first element moves there too. If the
    length of the axis is not known (None), the first element serves.
    """
    axis, pivots = form.cascade.axis, [one for one in form.slot_pivots if fixable(one, form)]
    if length is None:
        return hold_pivots(form, {one.value: finite_element(one.base, axis) for one in pivots})
    at: dict[Expr, Expr] = {one.value: among_nine(one.base, form, length, named=True) for one in pivots}
    return hold_pivots(form, at | _first_elements(form, length, named=True))


def move_first(form: FusedForm, length: int | None) -> FusedForm:
    """Move the pivots that stand at the first element to one among nine, if the length is known."""
    return form if length is None else hold_pivots(form, _first_elements(form, length))


def _first_elements(form: FusedForm, length: int, *, named: bool = False) -> dict[Expr, Expr]:
    """Every first element at which a pivot stands -> a number among nine elements."""
    axis = form.cascade.axis
    there = of_kind(Where, *(factor for one in form.accumulators for factor in one.factors))
    streamed = sorted((one for one in form.cascade.elements() if axis in one.indices), key=str)
    firsts = ((finite_element(one, axis), one) for one in streamed) if there else ()
    return {first: among_nine(one, form, length, named=named) for first, one in firsts if first in there}


def among_nine(u: Expr, form: FusedForm, length: int, *, named: bool = False) -> Expr:
    """One of u at nine elements, the ends of eight steps along the axis: near the middle of the data.

    It is the median of the medians of elements 0, 3, 6, of 1, 4, 7 and of 2, 5, 8 (Tukey's ninther). An element has the
    digits of the data: numbers of 16 bits differ from it by short ones, and no sum of them rounds every element alike.
    A mean of those medians would have all digits.

    Elements that a mask or a weight of 0 hides may hold anything: the one nearest to the middle that counts stands in
    for them. Where the kernel does not compute that one under its name (`named`), every use would write it out again:
    then it is the median of three, the first of elements 1, 0, 2, of 4, 3, 5 and of 7, 6, 8 that count. If other axes
    than those of u tell it, element 0 serves.
    """
    axis, counts, last = form.cascade.axis, condition_of_count(form), max(length - 1, 0)
    if counts is None or not free_axes(counts) <= free_axes(u):
        return finite_element(u, axis)
    places = [last * step // 8 for step in range(9)]

    def first_of(order: Sequence[int], other: Expr) -> Expr:
        """The first element that counts, in an order of places, or else another number."""
        for place in reversed(order):
            element, there = (node.xreplace({axis: Integer(place)}) for node in (u, counts))
            other = Where(And(there, is_finite(element)), element, other)
        return other

    nearest: Expr = S.Zero
    if counts is not S.true:
        nearest = Let(NEAREST, first_of(sorted(places, key=lambda place: abs(2 * place - last)), S.Zero))
    if counts is S.true or named:
        values = [first_of([place], nearest) for place in places]
        values = values if counts is S.true else [Let(SAMPLE, value) for value in values]
        return Let(CENTRE, median(*(median(*values[first : first + 7 : 3]) for first in range(3))))
    thirds = (first_of((places[middle], places[middle - 1], places[middle + 1]), nearest) for middle in (1, 4, 7))
    return Let(CENTRE, median(*thirds))


def median(a: Expr, b: Expr, c: Expr) -> Expr:
    """The median of three numbers."""
    middle: Expr = Max(Min(a, b), Min(Max(a, b), c))
    return middle


def condition_of_count(form: FusedForm) -> Boolean | None:
    """The condition under which an element counts: in no mask, and of no factor of all sums 0; None of exponentials."""
    sums = [one for one in form.accumulators if not one.is_count]
    if any(one.weight for one in sums):
        return None
    factors = [] if len(sums) < len(form.accumulators) else [set(map(_base, Mul.make_args(one.term))) for one in sums]
    common = set.intersection(*factors) if factors else set[Expr]()
    weights = sorted((one for one in common if free_axes(one) and not values_of(one)), key=str)
    return And(form.cascade.domain, *(Ne(one, 0) for one in weights))


def _base(factor: Expr) -> Expr:
    base: Expr = factor.as_base_exp()[0]
    return base


def _hold_pivot(pivot: Pivot, at: Mapping[Expr, Expr]) -> Pivot:
    slopes = tuple((slope, S(centre).xreplace(at)) for slope, centre in pivot.slopes if slope not in at)
    return replace(pivot, slopes=slopes, source=pivot.source.xreplace(at))


def _hold_accumulator(accumulator: Accumulator, at: Mapping[Expr, Expr], no_moves: Mapping[Expr, Expr]) -> Accumulator:
    moves: list[tuple[Value, Expr]] = [(value, c.xreplace(no_moves)) for value, c in accumulator.transition]
    factors = tuple(factor.xreplace(at) for factor in accumulator.factors)
    return replace(accumulator, factors=factors, transition=tuple(move for move in moves if move[1] is not S.Zero))
