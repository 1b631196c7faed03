"""Which products of a form are matrix products: what one pair of row and column axes holds, the rest on the grid.

    Σ_k f(q,k)·g(k,e)·h(k,c)   →   Σ_k (f·h)(q,k)·g(k,e), for every c       a matrix product for every place of the grid
    Σ_k f(q,k)·g(k,e)          →   Σ_k (f·g)(k), for every q and e          a plain sum, where no pair holds all sums

Exact: products are associative. The first rewrite that has a binding is taken: none, then the pair of the most rows and
columns, then plain sums, which are right for every form and use no matrix instructions; a plan says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations

from sympy import Expr, Mul

from redalg.errors import PlanError
from redalg.expression import Axis
from redalg.expression.contents import free_axes
from redalg.incremental.arrange.orient import oriented
from redalg.incremental.fixed import fixed
from redalg.incremental.form import Accumulator, FusedForm
from redalg.strategies.binding import bind_axes, column_axis, ordered_free


def arranged(form: FusedForm, sizes: Mapping[str, int]) -> FusedForm:
    """The form with its products so that a binding holds them, and columns' pivots fixed.

    Raises:
        PlanError: not even its plain sums have a binding.
    """
    *others, last = (fixed(one, column_axis(one, sizes)) for one in candidates(oriented(form), sizes))
    for one in others:
        try:
            bind_axes(one, sizes)
        except PlanError:
            continue
        return one
    return last


def candidates(form: FusedForm, sizes: Mapping[str, int]) -> Iterator[FusedForm]:
    """The form as it is; then by pairs of axes, the longest first; then with plain sums, beside which alone what is
    joined lane by lane may stand."""
    by_lane = any(not one.ranked for one in form.structures)
    if any(len(one.factors) > 1 for one in form.accumulators) and not by_lane:
        yield form
        pairs = permutations(ordered_free(form), 2)
        for row, column in sorted(pairs, key=lambda pair: -sizes[pair[0].name] * sizes[pair[1].name]):
            made = by_pair(form, row, column)
            if made is not None:
                yield made
    yield plain(form)


def plain(form: FusedForm) -> FusedForm:
    """The form with one factor for every sum."""
    made = tuple(replace(one, factors=(Mul(*one.factors),)) if len(one.factors) > 1 else one
                 for one in form.accumulators)  # fmt: skip
    return replace(form, accumulators=made)


def by_pair(form: FusedForm, row: Axis, column: Axis) -> FusedForm | None:
    """The form with every sum of products over rows and columns of that pair; None where one has no such factors."""
    made = [split_by(one, row, column) for one in form.accumulators]
    found = [one for one in made if one is not None]
    if len(found) < len(made) or not any(len(one.factors) > 1 for one in found):
        return None
    return replace(form, accumulators=tuple(found))


def split_by(one: Accumulator, row: Axis, column: Axis) -> Accumulator | None:
    """An accumulator whose first factor has no columns, and whose second no rows."""
    weighted = {axis for pivot, _ in one.weight for axis in free_axes(pivot.base)}
    first = [factor for factor in one.factors if column not in free_axes(factor)]
    second = [factor for factor in one.factors if column in free_axes(factor)]
    if not second:
        return replace(one, factors=(Mul(*first),))
    if column in weighted or any(row in free_axes(factor) for factor in second):
        return None
    if row not in weighted and not any(row in free_axes(factor) for factor in first):
        return replace(one, factors=(Mul(*one.factors),))
    return replace(one, factors=(product(first), product(second)))


def product(factors: list[Expr]) -> Expr:
    """Factors as one (the only one as it is)."""
    return factors[0] if len(factors) == 1 else Mul(*factors)
