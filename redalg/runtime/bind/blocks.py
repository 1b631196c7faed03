"""Stream a form over blocks: memory is bounded by the block for all sizes.

Free axes are cut into independent chunks; within a chunk the reduced axes are cut into blocks, and the blocks' states
are merged one after the other. Outputs that carry a reduced axis are made block by block from the finished values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import product
from math import prod

from sympy import S

from redalg.decompose.cascade import Cascade
from redalg.expression import Axis
from redalg.expression.contents import bound_axes, free_axes
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.arrays.interpret import Executor, Slots
from redalg.incremental.form import FusedForm
from redalg.incremental.remembered import Remembered
from redalg.strategies.varying import producer_axes

BLOCK_ELEMENTS = 1 << 20
"""Elements of the largest array of a block: 4 MiB in float32. Larger blocks leave a core's cache, smaller ones make
short matrix products; a few temporaries of this size stay below 50 MiB."""
BLOCK_ELEMENTS_OF_A_CORE = 1 << 17
"""The same where NumPy makes all arrays elementwise, on one core: 1 MiB in float64, and memory that is used again. A
leaf of the variance of 4 million numbers takes half of the time that blocks of 2^20 take."""
SMALLEST_BLOCK = 128
Ranges = dict[Axis, tuple[int, int]]
"""Axis -> its first element and that after its last, in global numbering."""


Sizes = tuple[frozenset[tuple[str, int]], int]
"""Extents by name, and the largest number of elements."""
_LENGTHS: Remembered[dict[Sizes, dict[Axis, int]]] = Remembered(lambda _: {})


def block_lengths(form: FusedForm, sizes: Mapping[str, int], limit: int = BLOCK_ELEMENTS) -> dict[Axis, int]:
    """Length of a block along every axis, so that no array of a block has more than `limit` elements."""
    lengths, key = _LENGTHS(form), (frozenset(sizes.items()), limit)
    if key not in lengths:
        lengths[key] = _blocks(form, sizes, limit)
    return lengths[key]


def _makes_products(form: FusedForm) -> bool:
    tensors = (set(map(free_axes, accumulator.factors)) for accumulator in form.accumulators)
    return bool(form.cascade.producers) or any(len(axes) > 1 for axes in tensors)


makes_products: Remembered[bool] = Remembered(_makes_products)
"""Form -> True if a block of it may be a product of matrices: of arrays over different axes."""


def _blocks(form: FusedForm, sizes: Mapping[str, int], limit: int) -> dict[Axis, int]:
    length = {axis: max(1, sizes[axis.name]) for axis in form.cascade.axes()}
    if any(pivot.slopes for pivot in form.pivots):  # residuals y − β·x are rounded as β·x is: its range within a block
        length[form.cascade.axis] = min(length[form.cascade.axis], SMALLEST_BLOCK)
    inner = {axis for producer in form.cascade.producers for axis in producer.cascade.axes()}
    inner -= {
        axis for value in (*form.cascade.values, *(p.value for p in form.cascade.producers)) for axis in value.indices
    }
    inner -= set(form.cascade.reduced_axes)
    whole = whole_axes(form.cascade)
    arrays = [axes - inner for axes in _arrays(form)]
    while True:
        largest = max(arrays, key=lambda axes: prod(length[axis] for axis in axes))
        if prod(length[axis] for axis in largest) <= limit:
            return length
        cut = sorted(largest - whole, key=str)
        if max((length[axis] for axis in cut), default=1) == 1:
            return length
        axis = max(cut, key=lambda one: (length[one] > SMALLEST_BLOCK, _preference(form, one), length[one]))
        if length[axis] == 1:
            axis = max(cut, key=lambda one: length[one])
        length[axis] = (length[axis] + 1) // 2


def whole_axes(cascade: Cascade) -> set[Axis]:
    """The axes that are not cut: a producer or an epilogue reduces over them, on its own."""
    within = {axis for one in cascade.producers for axis in producer_axes(one.cascade)}
    return within | {axis for one in cascade.outputs for axis in bound_axes(one.expr)}


def _preference(form: FusedForm, axis: Axis) -> int:
    """Batch axes (those of every output) are cut only when the two long axes are small already."""
    return int(axis in form.cascade.reduced_axes or any(axis in one.axes for one in form.outputs))


def _arrays(form: FusedForm) -> list[AbstractSet[Axis]]:
    """The axes of every array that a block makes."""
    arrays: list[AbstractSet[Axis]] = []
    arrays += [free_axes(one.term) for one in form.extrema]
    arrays += [free_axes(one.term) for one in form.structures]
    arrays += [free_axes(factor) for one in form.accumulators for factor in one.factors]
    arrays += [free_axes(pivot.base) for one in form.accumulators for pivot, _ in one.weight]
    arrays += [set(one.value.indices) for one in form.accumulators]
    arrays += [free_axes(form.cascade.domain)] if form.cascade.domain is not S.true else []
    arrays += [set(one.axes) for one in form.cascade.producers]
    arrays += [set(one.expr.atoms(Axis)) for one in form.outputs if one.carries]
    return [*arrays, set(form.cascade.reduced_axes)]


def stream(executor: Executor, scope: Scope, length: Mapping[Axis, int]) -> Slots:
    """The state of the scope's whole ranges of the reduced axes, block after block."""
    state: Slots | None = None
    for ranges in pieces(executor.reduced, scope, length):
        block = executor.leaf(scope.over(ranges))
        state = block if state is None else executor.merge(scope, state, block)
    return executor.identity(scope) if state is None else state


def pieces(axes: tuple[Axis, ...], scope: Scope, length: Mapping[Axis, int]) -> Iterator[Ranges]:
    """The scope's ranges of the given axes, cut into blocks (one empty range if an axis has no elements)."""
    cuts = []
    for axis in axes:
        start, stop = scope.ranges[axis]
        firsts = range(start, max(stop, start + 1), length[axis])
        cuts.append([(first, min(first + length[axis], stop)) for first in firsts])
    for ranges in product(*cuts):
        yield dict(zip(axes, ranges, strict=True))


def _output_axes(cascade: Cascade) -> tuple[Axis, ...]:
    axes = {axis for one in cascade.outputs for axis in one.axes}
    axes |= {axis for one in cascade.reductions for axis in one.axes}
    places = {one.place for one in cascade.reductions if one.place is not None}  # held together in the state
    return tuple(sorted(axes - whole_axes(cascade) - set(cascade.reduced_axes) - places, key=str))


output_axes: Remembered[tuple[Axis, ...]] = Remembered(_output_axes)
"""Cascade -> the axes that any output or value has: those that may be cut into independent chunks."""
