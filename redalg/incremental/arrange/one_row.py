"""Matrix products of few rows: sums of columns that one weight scales, where no axis makes rows.

    Σ_k w(k)·g(k,e), Σ_k w(k)   →   the same, w a row and g a matrix      where e is long, and g in 16 bits or shared

Exact: the factors are the same. As plain sums, those with e have a tile for every e, in which w is computed again. As a
product, one tile of w serves all columns. So one query that is written without an axis costs what it does with an axis
of one element; and where g depends on an axis h through ⌊h / c⌋ alone, the c neighbours become rows (`packing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sympy import Mul

from redalg.expression import Axis
from redalg.expression.contents import elements_of, free_axes
from redalg.expression.dtypes import DTYPES
from redalg.incremental.arrange.arrange_products import product
from redalg.incremental.form import Accumulator, FusedForm
from redalg.strategies.binding import ordered_free
from redalg.strategies.packing import group, operands

LONG = 32
"""Columns from which one tile of them is cheaper than a tile for each."""
NARROW = 2
"""Bytes of a number that matrix units multiply at their full rate."""


def weigh_columns(form: FusedForm, sizes: Mapping[str, int], dtypes: Mapping[str, str]) -> FusedForm:
    """The form with its weights apart from what they weigh, if that makes a product of few rows that is worth it."""
    by_lane = any(not one.is_ranked for one in form.structures)
    if by_lane or any(len(one.factors) > 1 for one in form.accumulators):
        return form
    for column in sorted(ordered_free(form), key=lambda axis: -sizes[axis.name]):
        found = weigh_column(form, column) if sizes[column.name] >= LONG else None
        if found is not None:
            narrow = all(DTYPES[dtypes[one.name]].bytes <= NARROW for one in operands(found))
            shared = any(group(found, sizes, axis) > 1 for axis in ordered_free(found) if axis != column)
            return found if narrow or shared else form
    return form


def weigh_column(form: FusedForm, column: Axis) -> FusedForm | None:
    """The form with every sum of a column axis split into its weight and a matrix; None if one cannot be split."""
    parts = [split_weight(one, column) for one in form.accumulators]
    accumulators = [one for one in parts if one is not None]
    if len(accumulators) < len(parts) or not any(len(one.factors) > 1 for one in accumulators):
        return None
    return replace(form, accumulators=tuple(accumulators))


def split_weight(accumulator: Accumulator, column: Axis) -> Accumulator | None:
    """The sum with no columns in its first factor; itself if it has no columns; None if that is not possible."""
    factors = Mul.make_args(accumulator.factors[0])
    rest = [one for one in factors if column not in free_axes(one)]
    columns = [one for one in factors if column in free_axes(one)]
    weight = {axis for pivot, _ in accumulator.weight for axis in free_axes(pivot.base)}
    if not columns:
        return None if column in weight else accumulator
    if column in weight or not weight or not any(elements_of(one) for one in columns):
        return None
    return replace(accumulator, factors=(product(rest), product(columns)))
