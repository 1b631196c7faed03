"""Streaming a form over blocks: memory is bounded by the block, whatever the sizes.

Free axes are cut into independent chunks; within a chunk the streamed axis is cut into blocks, and the blocks' states
are merged one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

from sympy import S

from redalg.decompose import Cascade
from redalg.decompose.cascade import free_axes
from redalg.expression import Axis, Reduce
from redalg.incremental.evaluate import Scope
from redalg.incremental.form import FusedForm
from redalg.incremental.interpret import Executor, Slots, define

BLOCK_ELEMENTS = 1 << 20
"""Elements of the largest array of a block: 4 MiB in float32. Larger blocks leave a core's cache, smaller ones make
short matrix products; a few temporaries of this size stay below 50 MiB."""
SMALLEST_BLOCK = 128


def blocks(form: FusedForm, sizes: Mapping[str, int], limit: int = BLOCK_ELEMENTS) -> dict[Axis, int]:
    """Length of a block along every axis, so that no array of a block has more than `limit` elements."""
    length = {axis: max(1, sizes[axis.name]) for axis in form.cascade.axes()}
    if any(pivot.slopes for pivot in form.pivots):  # residuals y − β·x are rounded as β·x is: its range within a block
        length[form.cascade.axis] = min(length[form.cascade.axis], SMALLEST_BLOCK)
    inner = {axis for producer in form.cascade.producers for axis in producer.cascade.axes()}
    inner -= {
        axis for one in (*form.cascade.values, *(p.value for p in form.cascade.producers)) for axis in one.indices
    }
    inner -= {form.cascade.axis}
    arrays = [axes - inner for axes in _arrays(form)]
    while True:
        largest = max(arrays, key=lambda axes: prod(length[axis] for axis in axes))
        if prod(length[axis] for axis in largest) <= limit:
            return length
        axis = max(
            sorted(largest, key=str),
            key=lambda one: (length[one] > SMALLEST_BLOCK, _preference(form, one), length[one]),
        )
        if length[axis] == 1:
            axis = max(sorted(largest, key=str), key=lambda one: length[one])
        length[axis] = (length[axis] + 1) // 2


def _preference(form: FusedForm, axis: Axis) -> int:
    """Batch axes (those of every output) are cut only when the two long axes are small already."""
    return int(axis == form.cascade.axis or any(axis in one.axes for one in form.outputs))


def _arrays(form: FusedForm) -> list[set[Axis]]:
    """The axes of every array that a block makes."""
    made = [free_axes(one.term) for one in form.extrema] + [free_axes(one.term) for one in form.structures]
    made += [free_axes(factor) for one in form.accumulators for factor in one.factors]
    made += [free_axes(pivot.base) for one in form.accumulators for pivot, _ in one.weight]
    made += [set(one.value.indices) for one in form.accumulators]
    made += [free_axes(form.cascade.domain)] if form.cascade.domain is not S.true else []
    made += [set(one.axes) for one in form.cascade.producers]
    return [*made, {form.cascade.axis}]


def chunks(
    axes: tuple[Axis, ...], sizes: Mapping[str, int], length: Mapping[Axis, int]
) -> Iterator[dict[Axis, tuple[int, int]]]:
    """Every combination of ranges of the given axes (one empty range where an axis has no elements)."""
    cuts = []
    for axis in axes:
        size = sizes[axis.name]
        cuts.append([(start, min(start + length[axis], size)) for start in range(0, max(size, 1), length[axis])])
    for ranges in product(*cuts):
        yield dict(zip(axes, ranges, strict=True))


def stream(executor: Executor, scope: Scope, length: int) -> Slots:
    """The state of the scope's whole range of the streamed axis, block after block."""
    axis = executor.axis
    start, stop = scope.ranges[axis]
    state: Slots | None = None
    for first in range(start, max(stop, start + 1), length):
        block = executor.leaf(scope.over({axis: (first, min(first + length, stop))}))
        state = block if state is None else executor.merge(scope, state, block)
    return executor.identity(scope) if state is None else state


def output_axes(cascade: Cascade) -> tuple[Axis, ...]:
    """The axes that any output or value has: those that may be cut into independent chunks."""
    found = {axis for one in cascade.outputs for axis in one.axes}
    found |= {axis for one in cascade.reductions for axis in one.axes}
    reduced = {axis for one in cascade.outputs for axis in _epilogue_axes(one.expr)}
    reduced |= {one.place for one in cascade.reductions if one.place is not None}  # held together in the state
    return tuple(sorted(found - reduced, key=str))


def _epilogue_axes(expr: Any) -> set[Axis]:
    return {axis for node in expr.atoms(Reduce) for axis in node.bound}


def unfused(cascade: Cascade, scope: Scope) -> dict[str, Any]:
    """The outputs by the definition, over the scope's ranges."""
    inner = scope.over({})
    define(cascade, inner)
    return {one.name: inner.evaluate(one.expr) for one in cascade.outputs}
