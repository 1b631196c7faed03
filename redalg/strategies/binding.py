"""Axis binding: which free axis becomes the rows of a tile, which its columns, and which the grid.

    an accumulator Σ_k f(A, k)·g(B, k)     rows ∈ A − B,   columns ∈ B − A,   A ∩ B on the grid
    no such accumulator                    rows: one free axis;  the others on the grid

Derived from the axes of the form's factors alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import final

from sympy import And, Expr, Mul, S

from redalg.decompose.cascade import Producer
from redalg.errors import PlanError
from redalg.expression import Axis
from redalg.expression.contents import free_axes, values_of
from redalg.incremental.factors import group_factors
from redalg.incremental.form import Accumulator, FusedForm
from redalg.incremental.remembered import Remembered
from redalg.strategies.packing import Packing, pack


@final
@dataclass(frozen=True)
class Binding:
    """The role of every axis: `streamed` along the loop, `row` and `column` within a tile (None: length 1), the rest on
    the grid. `contracted` tells if any accumulator is a matrix product. `plain` tells if one could be a matrix product
    for other axes, but is summed element by element. If several axes are packed into rows, `row` stands for them.
    `inner` are the axes over which producers reduce."""

    streamed: Axis
    row: Axis | None
    column: Axis | None
    grid: tuple[Axis, ...]
    contracted: bool
    packing: Packing | None = None
    plain: bool = False
    inner: tuple[Axis, ...] = ()

    def all_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The extents, and those of the axes that packing makes."""
        return dict(sizes) if self.packing is None else {**sizes, **self.packing.sizes(sizes)}

    @property
    def rows(self) -> frozenset[Axis]:
        """The axes along which the rows of a tile differ."""
        packed = self.packing.axes if self.packing is not None else ()
        return frozenset(axis for axis in (self.row, *packed) if axis is not None)


_BINDINGS: Remembered[dict[frozenset[tuple[str, int]], Binding]] = Remembered(lambda _: {})


def bind_axes(form: FusedForm, sizes: Mapping[str, int]) -> Binding:
    """Bind the axes of a form; raise `PlanError` if the tile program has no place for one of its parts.

    A form keeps its bindings: lowering asks for the same one at every stage.
    """
    bindings, key = _BINDINGS(form), frozenset(sizes.items())
    if key not in bindings:
        bindings[key] = _bound(form, sizes)
    return bindings[key]


def _bound(form: FusedForm, sizes: Mapping[str, int]) -> Binding:
    refuse(form)
    free, (rows, columns) = ordered_free(form), sides(form)
    plain = any(is_plain(one) for one in form.accumulators)
    inner = tuple(dict.fromkeys(one.cascade.axis for one in form.cascade.producers))
    if not any(len(one.factors) > 1 for one in form.accumulators):
        row = _row_without_contraction(form, free)
        grid = tuple(axis for axis in free if axis != row)
        return Binding(form.cascade.axis, row, None, grid, contracted=False, plain=plain, inner=inner)
    if not columns:
        raise PlanError(
            "the contractions of this form share no column axis; the tile program cannot hold them. Run it "
            'with backend="torch".'
        )
    row = max(rows, key=lambda axis: (sizes[axis.name], free.index(axis))) if rows else None
    column = max(columns, key=lambda axis: (sizes[axis.name], free.index(axis)))
    grid = tuple(axis for axis in free if axis not in (row, column))
    binding = Binding(form.cascade.axis, row, column, grid, contracted=True, plain=plain, inner=inner)
    _check_columns(form, binding)
    packing = pack(form, sizes, free, rows, column)
    return binding if packing is None else pack_axes(binding, packing)


def sides(form: FusedForm) -> tuple[list[Axis], list[Axis]]:
    """The axes that may be rows, and those that may be columns, in every matrix product of a form.

    A mask is one of the first factors, so that no columns differ in it.
    """
    free, masked = ordered_free(form), free_axes(form.cascade.domain)
    pairs = [_sides(one, form.cascade.axis) for one in form.accumulators if len(one.factors) > 1]
    rows = [axis for axis in free if all(axis in a and axis not in b for a, b in pairs)]
    return rows, [axis for axis in free if pairs and all(axis in b and axis not in {*a, *masked} for a, b in pairs)]


def is_plain(accumulator: Accumulator) -> bool:
    """Tell if a sum of products of factors over different axes is written as a sum of single terms (`arranged`)."""
    return len(accumulator.factors) == 1 and len(group_factors(accumulator.factors[0], accumulator.weight)) > 1


def product_sides(term: Expr, binding: Binding) -> tuple[Expr, Expr] | None:
    """(the factor without the streamed axis, the factor without rows) of a term that is their product; else None.

    A matrix of one row is a side too: of Σ_d q[d]·k[n,d], say, where no axis makes rows.
    """
    factors = Mul.make_args(term)
    left = [one for one in factors if binding.streamed not in free_axes(one)]
    right = [one for one in factors if binding.streamed in free_axes(one)]
    quotient = None if binding.packing is None else binding.packing.quotient()
    fixed = {} if quotient is None else {quotient: S.Zero}
    if not left or not right or values_of(term) or any(binding.rows & free_axes(one.xreplace(fixed)) for one in right):
        return None
    return Mul(*left), Mul(*right)


def makes_product(producer: Producer, binding: Binding) -> bool:
    """Tell if all that a producer reduces are sums of products, for every row and streamed element."""
    parts = producer.cascade.reductions
    return all(part.monoid.name == "sum" and product_sides(part.term, binding) is not None for part in parts)


def column_axis(form: FusedForm, sizes: Mapping[str, int]) -> Axis | None:
    """The longest axis that may be columns; None if no product has one."""
    free, (_, columns) = ordered_free(form), sides(form)
    return max(columns, key=lambda axis: (sizes[axis.name], free.index(axis))) if columns else None


def pack_axes(binding: Binding, packing: Packing) -> Binding:
    """Return the binding with the axes of a packing as its rows."""
    grid = [packing.outer if axis == packing.grouped else axis for axis in binding.grid]
    rest = tuple(axis for axis in grid if axis is not None and axis not in packing.axes)
    return replace(binding, row=packing.row, grid=rest, packing=packing)


def with_column(binding: Binding, axis: Axis) -> Binding:
    """Return the binding with an axis of the grid as the columns of a tile."""
    return replace(binding, column=axis, grid=tuple(one for one in binding.grid if one != axis))


def refuse(form: FusedForm) -> None:
    """Refuse a product of more than two factors, which the tile program does not hold yet; the error names it."""
    for accumulator in form.accumulators:
        if len(accumulator.factors) > 2:
            raise PlanError(
                f"accumulator `{accumulator.value}` is a product of {len(accumulator.factors)} factors over different "
                'axes; the tile program holds contractions of two. Run it with backend="torch".'
            )


def ordered_free(form: FusedForm) -> list[Axis]:
    """The free axes, those of the outputs first."""
    axes: dict[Axis, None] = {}
    for output in form.outputs:
        axes.update(dict.fromkeys(axis for axis in output.axes if axis not in form.cascade.reduced_axes))
    for reduction in form.cascade.reductions:
        axes.update(dict.fromkeys(reduction.axes))
    return [axis for axis in axes if axis not in form.places]


def _sides(product: Accumulator, streamed: Axis) -> tuple[AbstractSet[Axis], AbstractSet[Axis]]:
    first = {axis for pivot, _ in product.weight for axis in free_axes(pivot.base)} | free_axes(product.factors[0])
    return first - {streamed}, free_axes(product.factors[1]) - {streamed}


def _row_without_contraction(form: FusedForm, free: list[Axis]) -> Axis | None:
    """The axis along which neighbours are contiguous if it is not the streamed one; else the innermost free axis.

    All sums have it. Where none has both, and lanes keep states of their own, the most sums have it: the others are
    alike for all rows, and each row keeps them.
    """
    indices = [one.value.indices for one in form.accumulators if one.value.indices and not one.is_count]
    common = [axis for axis in free if all(axis in one for one in indices)]
    streamed = [one for one in form.cascade.elements() if form.cascade.axis in one.indices]
    beside = [one.indices[-1] for one in streamed if one.indices[-1] in free]
    shared = next((axis for axis in beside if axis in common), None)
    own = form.is_lanewise and not form.structures and not form.cascade.producers
    if shared is None and own and beside and len(indices) > 1:
        return max(beside, key=lambda axis: sum(axis in one for one in indices))
    return shared or (common[-1] if common else None)


def _check_columns(form: FusedForm, binding: Binding) -> None:
    for condition in And.make_args(form.cascade.domain):
        if values_of(condition) and not binding.rows & free_axes(condition):  # a tile of columns would have to read it
            raise PlanError(
                f"`{condition}` tells which elements count, alike for all rows, and is computed in a tile of rows, "
                f'which no tile along {binding.column} reads. Run it with backend="torch".'
            )
    for output in form.outputs:
        if output.carries and binding.column in output.axes:
            raise PlanError(
                f"output `{output.name}` carries {binding.streamed} and the contraction's column axis "
                f'{binding.column}, of which a tile of rows has no place. Run it with backend="torch".'
            )
    for extremum in form.extrema:
        if binding.column in free_axes(extremum.term):
            raise PlanError(
                f"`{extremum.value}` is an extremum along the contraction's column axis {binding.column}, which the "
                'tile program does not hold yet. Run it with backend="torch".'
            )
    for accumulator in form.accumulators:
        alone = len(accumulator.factors) == 1 and binding.column in accumulator.value.indices
        if alone and (
            len(accumulator.transition) > 1 or accumulator.weight or binding.row in accumulator.value.indices
        ):
            raise PlanError(
                f"accumulator `{accumulator.value}` moves along the column axis {binding.column} without a row "
                'factor, which the tile program does not hold yet. Run it with backend="torch".'
            )
        if len(accumulator.factors) > 1 and values_of(accumulator.factors[1]):
            raise PlanError(
                f"accumulator `{accumulator.value}` multiplies two computed factors; the tile program holds one. "
                'Run it with backend="torch".'
            )
        columnar = {pivot.value for pivot in form.pivots if binding.column in pivot.value.indices}
        if len(accumulator.factors) > 1 and values_of(accumulator.factors[0]) & columnar:
            raise PlanError(
                f"accumulator `{accumulator.value}` moves with a pivot along the column axis {binding.column}, which "
                'the tile program does not hold yet. Run it with backend="torch".'
            )
