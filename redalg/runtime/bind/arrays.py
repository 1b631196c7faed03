"""Run the interpreters on bound inputs: the `numpy` and `torch` backends, the reference, and the public state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

from sympy import Expr, log

from redalg.decompose.cascade import Cascade, dtype_of
from redalg.expression import Axis, Cast
from redalg.expression.contents import REMEMBERED, values_of
from redalg.expression.dtypes import DTYPES
from redalg.incremental.arrays.arrays import ArrayOps
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.arrays.interpret import Executor, interpret_cascade
from redalg.incremental.form import FormOutput, FusedForm
from redalg.incremental.remembered import Remembered
from redalg.runtime.bind.backends import ARRAY_BACKENDS, ops_for, tensors_for
from redalg.runtime.bind.blocks import Ranges, block_lengths, output_axes, pieces, stream
from redalg.runtime.bind.inputs import Bound, promote_dtypes

CARRIES = attrgetter("carries")


def scope_for(
    cascade: Cascade,
    bound: Bound,
    ops: ArrayOps,
    tensors: Mapping[str, Any],
    *,
    start: Mapping[Axis, int] | None = None,
    extents: Mapping[str, int] | None = None,
) -> Scope:
    """A scope over the whole of the bound inputs, whose first elements have the global numbers `start`."""
    axes, start = cascade.axes(), start or {}
    ranges = {axis: (start.get(axis, 0), start.get(axis, 0) + bound.sizes[axis.name]) for axis in axes}
    return Scope(ops, axes, ranges, tensors, bound.scalars, {**bound.sizes, **(extents or {})}, offsets=start)


def run(form: FusedForm, bound: Bound, backend: str, empty: str) -> dict[str, Any]:
    """The fused form on the bound inputs, block by block; outputs in the inputs' library."""
    ops, tensors = ops_for(bound, backend), tensors_for(bound, backend)
    executor = Executor(form, ops, empty)
    scope = scope_for(form.cascade, bound, ops, tensors)
    length = block_lengths(form, bound.sizes)

    def blocks(ranges: Ranges) -> Iterator[tuple[Ranges, dict[str, Any]]]:
        inner = scope.over(ranges)
        if 0 in map(inner.length, executor.reduced) and empty == "nan":  # the definition: reductions are identities
            yield ranges, interpret_cascade(form.cascade, inner)
            return
        values = executor.finish_values(inner, stream(executor, inner, length))
        yield ranges, executor.outputs(inner, values, carries=False)
        if any(map(CARRIES, form.outputs)):
            for part in pieces(executor.reduced, inner, length):
                yield {**ranges, **part}, executor.outputs(inner.over(part), values, carries=True)

    chunks = chain.from_iterable(map(blocks, pieces(output_axes(form.cascade), scope, length)))
    with ops.quiet():
        whole = assemble_chunks(chunks, output_kinds(form, bound.result), scope, backend)
    return {name: ARRAY_BACKENDS[backend].to_library(array, bound.library) for name, array in whole.items()}


def reference(form: FusedForm, bound: Bound) -> dict[str, Any]:
    """The unfused definition in float64, in chunks of rows; outputs in the inputs' library."""
    backend = bound.library
    ops, tensors = ops_for(bound, backend, "float64"), tensors_for(bound, backend)
    scope = scope_for(form.cascade, bound, ops, tensors)
    length = block_lengths(form, bound.sizes, 1 << 24)
    chunks = ((ranges, interpret_cascade(form.cascade, scope.over(ranges)))
              for ranges in pieces(output_axes(form.cascade), scope, length))  # fmt: skip
    outputs = {one.name: (one.axes, own_dtype(one, form) or "float64") for one in form.outputs}
    with ops.quiet():
        return assemble_chunks(chunks, outputs, scope, backend)


def assemble_chunks(
    chunks: Iterable[tuple[Ranges, dict[str, Any]]],
    outputs: Mapping[str, tuple[tuple[Axis, ...], str]],
    scope: Scope,
    backend: str,
) -> dict[str, Any]:
    """Write the chunks' outputs into whole arrays, in the outputs' axis order and dtype."""
    whole: dict[str, Any] = {}
    for ranges, arrays in chunks:
        for name in arrays:
            axes, dtype = outputs[name]
            if name not in whole:
                shape = [scope.length(axis) for axis in axes]
                whole[name] = ARRAY_BACKENDS[backend].empty(shape, dtype, scope.ops)
            inner, key = scope.over(ranges), list[slice]()
            for axis in axes:
                (base, _), (start, stop) = scope.ranges[axis], inner.ranges[axis]
                key.append(slice(start - base, stop - base))
            whole[name][tuple(key)] = to_axes(arrays[name], axes, inner)
    return {name: whole[name] for name in outputs}


def to_axes(array: Any, axes: tuple[Axis, ...], scope: Scope) -> Any:
    """Bring an array with one dimension per axis of the scope to the dimensions `axes`, in their order."""
    order, ranks = _order_of_axes(axes, scope.axes)
    full = [size if place in order else 1 for place, size in enumerate(scope.lengths)]
    flat = scope.ops.expand(array, full).reshape(list(map(scope.lengths.__getitem__, sorted(order))))
    return flat if ranks == tuple(range(len(ranks))) else scope.ops.permute(flat, ranks)


def from_axes(array: Any, axes: tuple[Axis, ...], scope: Scope) -> Any:
    """The inverse of `to_axes`: one dimension per axis of the scope, in its order; of length 1 if not in `axes`."""
    order, ranks = _order_of_axes(axes, scope.axes)
    if ranks != tuple(range(len(ranks))):
        array = scope.ops.permute(array, [order.index(place) for place in sorted(order)])
    shape = [1] * len(scope.axes)
    for place, size in zip(sorted(order), array.shape, strict=True):
        shape[place] = size
    return array.reshape(shape)


@lru_cache(REMEMBERED)
def _order_of_axes(axes: tuple[Axis, ...], all_axes: tuple[Axis, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The places of axes among all, and the rank of each of these places."""
    order = tuple(map(all_axes.index, axes))
    return order, tuple(map(sorted(order).index, order))


Kinds = dict[str, tuple[tuple[Axis, ...], str]]
"""Output -> its axes and dtype."""
_KINDS: Remembered[dict[str, Kinds]] = Remembered(lambda _: {})


def output_kinds(form: FusedForm, result: str) -> Kinds:
    """The axes and dtype of every output, for inputs of the dtype `result`."""
    kinds = _KINDS(form)
    if result not in kinds:
        kinds[result] = {one.name: (one.axes, output_dtype(one, form, result)) for one in form.outputs}
    return kinds[result]


def output_dtype(output: FormOutput, form: FusedForm, result: str) -> str:
    """The dtype of an output: the inputs', the cast's or the value's own; logarithms and extrema: at least float32."""
    if isinstance(output.expr, Cast):
        return output.expr.dtype
    own = own_dtype(output, form)
    if own:
        return own
    if output.carries:  # as many numbers as the inputs have: their dtype, as of any elementwise function
        return result
    wide = output.expr.has(log) or _is_extremum(output.expr, form)
    return result if not wide or DTYPES[result].bytes > 2 else "float32"


def output_dtypes(fused: Any, dtypes: Mapping[str, str]) -> dict[str, str]:
    """The dtypes of a function's outputs by name, of its floating-point tensors'."""
    _, result = promote_dtypes(list(dtypes.values()))
    return {one.name: output_dtype(one, fused.form, result) for one in fused.form.outputs}


def own_dtype(output: FormOutput, form: FusedForm) -> str:
    """The dtype that an output has for all inputs: int64 for an index, bool for a truth value; empty for the rest."""
    definition = next((one.expr for one in form.cascade.outputs if one.name == output.name), output.expr)
    return dtype_of(definition, {one.value: one.dtype for one in form.cascade.reductions})


def _is_extremum(expr: Expr, form: FusedForm) -> bool:
    extrema = {one.value for one in form.cascade.reductions if one.monoid.name in ("max", "min", "topk")}
    return bool(values_of(expr) & (extrema | {one.value for one in form.extrema}))
