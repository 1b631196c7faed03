"""Choose the matrix products of a form: one pair of row and column axes holds them, other axes are on the grid.

    Σ_k f(q,k)·g(k,e)·h(k,c)   →   Σ_k (f·h)(q,k)·g(k,e), for every c       a matrix product for every place of the grid
    Σ_k f(q,k)·g(k,e)          →   Σ_k (f·g)(k), for every q and e          a plain sum, where no pair holds all sums

Exact: products are associative. The first rewrite that has a binding is taken: none, then the pair of the most rows and
columns, then plain sums. Plain sums are right for every form and use no matrix instructions; a plan says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations

from sympy import Expr, Mul

from redalg.errors import PlanError
from redalg.expression import Axis
from redalg.expression.contents import free_axes
from redalg.incremental.arrange.orient import orient_products
from redalg.incremental.fix_pivots import fix_pivots
from redalg.incremental.form import Accumulator, FusedForm
from redalg.incremental.remembered import Remembered
from redalg.strategies.binding import bind_axes, column_axis, ordered_free

_ARRANGED: Remembered[dict[frozenset[tuple[str, int]], FusedForm]] = Remembered(lambda _: {})


def arrange_products(form: FusedForm, sizes: Mapping[str, int]) -> FusedForm:
    """Arrange the products of a form so that a binding holds them, and fix the pivots of its columns.

    A form keeps what it is arranged as, and that keeps its binding.

    Raises:
        PlanError: not even its plain sums have a binding.
    """
    known, key = _ARRANGED(form), frozenset(sizes.items())
    if key not in known:
        known[key] = _arrange(form, sizes)
    return known[key]


def _arrange(form: FusedForm, sizes: Mapping[str, int]) -> FusedForm:
    *others, last = (fix_pivots(one, column_axis(one, sizes)) for one in candidates(orient_products(form), sizes))
    for candidate in others:
        try:
            bind_axes(candidate, sizes)
        except PlanError:
            continue
        return candidate
    return last


def candidates(form: FusedForm, sizes: Mapping[str, int]) -> Iterator[FusedForm]:
    """The form as it is; then arranged by pairs of axes, the longest first; then with plain sums.

    A structure that is joined lane by lane may stand beside plain sums only.
    """
    by_lane = any(not one.is_ranked for one in form.structures)
    if any(len(one.factors) > 1 for one in form.accumulators) and not by_lane:
        yield form
        pairs = permutations(ordered_free(form), 2)
        for row, column in sorted(pairs, key=lambda pair: -sizes[pair[0].name] * sizes[pair[1].name]):
            other = by_pair(form, row, column)
            if other is not None:
                yield other
    yield plain(form)


def plain(form: FusedForm) -> FusedForm:
    """The form with one factor for every sum."""
    accumulators = tuple(replace(accumulator, factors=(Mul(*accumulator.factors),)) if len(accumulator.factors) > 1
                         else accumulator for accumulator in form.accumulators)  # fmt: skip
    return replace(form, accumulators=accumulators)


def by_pair(form: FusedForm, row: Axis, column: Axis) -> FusedForm | None:
    """The form with every sum split by that pair of axes; None if a sum has no such factors, or no sum has two."""
    if column in free_axes(form.cascade.domain):
        return None
    splits = [split_by(one, row, column) for one in form.accumulators]
    accumulators = [one for one in splits if one is not None]
    if len(accumulators) < len(splits) or not any(len(one.factors) > 1 for one in accumulators):
        return None
    return replace(form, accumulators=tuple(accumulators))


def split_by(accumulator: Accumulator, row: Axis, column: Axis) -> Accumulator | None:
    """The accumulator with no columns in its first factor and no rows in its second; None if it has no such factors."""
    weighted = {axis for pivot, _ in accumulator.weight for axis in free_axes(pivot.base)}
    first = [factor for factor in accumulator.factors if column not in free_axes(factor)]
    second = [factor for factor in accumulator.factors if column in free_axes(factor)]
    if not second:
        return replace(accumulator, factors=(Mul(*first),))
    if column in weighted or any(row in free_axes(factor) for factor in second):
        return None
    if row not in weighted and not any(row in free_axes(factor) for factor in first):
        return replace(accumulator, factors=(Mul(*accumulator.factors),))
    return replace(accumulator, factors=(product(first), product(second)))


def product(factors: list[Expr]) -> Expr:
    """The product of factors; a single factor stays as it is."""
    return factors[0] if len(factors) == 1 else Mul(*factors)
