"""Outputs of the definition, in chunks of rows: memory is bounded by the largest array of a chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np
from sympy import Expr, Mul
from sympy.core.basic import Basic

from redalg.definition.arrays import Library, Numpy
from redalg.definition.evaluate import Evaluator
from redalg.errors import InputError
from redalg.expression import Axis, Element, Extent, Let, Reduce, StraightThrough
from redalg.expression.contents import bound_axes, free_axes, nodes_of, of_kind
from redalg.monoids import MONOIDS

LARGEST = 1 << 23
"""Elements of the largest array of a chunk: 64 MiB."""
Written = Mapping[str, tuple[Expr, tuple[Axis, ...]]]
Window = tuple[slice, ...]
"""A part of an output: a range along each of its axes."""


def evaluate_definition(
    outputs: Written, tensors: Mapping[str, Any], scalars: Mapping[str, float], sizes: Mapping[str, int],
    dtype: str = "float64",
) -> dict[str, Any]:  # fmt: skip
    """The outputs of expressions as they are written.

    Args:
        outputs: name -> (expression, axes of the output in order).
        tensors: name -> array; all of NumPy, or all of torch on one device.
        scalars: name -> number.
        sizes: extents by axis name, where no tensor tells them.
        dtype: of the arithmetic; in a narrow one this is the formula as it loses digits when nothing is done about it.

    Returns:
        Arrays of the tensors' library by name: of the arithmetic's dtype, int64 where the output is an index, bool
        where it is a truth.

    >>> from redalg import axes, mean, tensor
    >>> n = axes("n")
    >>> evaluate_definition({"out": (mean(tensor("x[n]"), n), ())}, {"x": np.float32([1, 2, 6])}, {}, {})
    {'out': array(3.)}
    """
    library = array_library(tensors, dtype)
    sizes = extents(outputs, tensors, sizes)
    axes = tuple(sorted({axis.name for axis in axes_of_outputs(outputs)}))
    at = Evaluator(library, axes, {name: (0, sizes[name]) for name in axes}, sizes, tensors, scalars)
    with np.errstate(all="ignore"):
        return {name: whole_output(at, expr, order) for name, (expr, order) in outputs.items()}


def evaluate_sample(
    outputs: Written, tensors: Mapping[str, Any], scalars: Mapping[str, float], sizes: Mapping[str, int], most: int
) -> dict[str, tuple[Any, Window]] | None:
    """The outputs in 120 digits at their first places, as many as a limit on operations allows.

    Args:
        outputs, tensors, scalars, sizes: as those of `evaluate_definition`; the tensors are of NumPy.
        most: operations on single numbers for each output. Along an axis that is reduced none are left out.

    Returns:
        Name -> (array of long double, the part of the output that it is); None where one place takes more.

    >>> from redalg import axes, mean, tensor
    >>> b, n = axes("b n")
    >>> written = {"out": (mean(tensor("x[b,n]"), n), (b,))}
    >>> made, part = evaluate_sample(written, {"x": np.ones((64, 8))}, {}, {}, most=100)["out"]
    >>> made.astype(float).tolist(), part
    ([1.0, 1.0, 1.0, 1.0], (slice(0, 4, None),))
    """
    from redalg.definition.digits import Digits

    sizes = extents(outputs, tensors, sizes)
    axes = tuple(sorted({axis.name for axis in axes_of_outputs(outputs)}))
    library, found = Digits(), dict[str, tuple[Any, Window]]()
    for name, (expr, order) in outputs.items():
        stops = sampled_stops(expr, order, sizes, most)
        if stops is None:
            return None
        ranges = {axis: (0, stops.get(axis, sizes[axis])) for axis in axes}
        at = Evaluator(library, axes, ranges, sizes, tensors, scalars)
        with np.errstate(all="ignore"):
            made = transpose_to_output(at, at(expr), order)
        window = tuple(slice(*ranges[axis.name]) for axis in order)
        found[name] = library.copy(made, result_dtype(expr, library.dtype)), window
    return found


def sampled_stops(
    expr: Expr, order: tuple[Axis, ...], sizes: Mapping[str, int], most: int
) -> dict[str, int] | None:  # fmt: skip
    """The ends of the output's axes that no reduction runs along, so that a limit on operations is kept."""
    lengths = {name: max(1, size) for name, size in sizes.items()}
    cuttable = {axis.name for axis in order} - {axis.name for axis in bound_axes(expr)}
    arrays = [free_axes(node) | (frozenset(node.bound) if isinstance(node, Reduce) else frozenset())
              for node in nodes_of(expr)]  # fmt: skip
    names = [[axis.name for axis in one] for one in arrays]
    while sum(prod(lengths[name] for name in one) for one in names) > most:
        longest = max(cuttable, key=lambda name: (lengths[name], name), default=None)
        if longest is None or lengths[longest] == 1:
            return None
        lengths[longest] = (lengths[longest] + 1) // 2
    return {name: min(lengths[name], sizes[name]) for name in cuttable}


def array_library(tensors: Mapping[str, Any], dtype: str = "float64") -> Library:
    """The library of the tensors; NumPy where there are none."""
    first = next(iter(tensors.values()), np.float64(0))
    if isinstance(first, np.ndarray | np.generic):
        return Numpy(dtype)
    from redalg.definition.tensors import Torch

    return Torch(str(first.device), dtype)


def extents(outputs: Written, tensors: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, int]:
    """The size of every axis: its own, as the tensors have it, or as it is given."""
    lengths = dict(sizes)
    exprs = [expr for expr, _ in outputs.values()]
    for element in of_kind(Element, *exprs):
        for number, index in enumerate(element.indices):
            if isinstance(index, Axis) and element.name in tensors:
                lengths[index.name] = tensors[element.name].shape[number]
    lengths |= {axis.name: axis.size for axis in axes_of_outputs(outputs) if axis.size is not None}
    for node in axes_of_outputs(outputs) | of_kind(Extent, *exprs):
        if node.name not in lengths:
            raise InputError(f'axis {node.name} has no size: no tensor has it as an index. Pass sizes={{"{node.name}": '
                             "…}, or give the axis a size.")  # fmt: skip
    return lengths


def axes_of_outputs(outputs: Written) -> set[Axis]:
    """The axes of expressions, and those along which outputs repeat them."""
    exprs = [expr for expr, _ in outputs.values()]
    return of_kind(Axis, *exprs) | {axis for _, order in outputs.values() for axis in order}


def whole_output(at: Evaluator, expr: Expr, order: tuple[Axis, ...]) -> Any:
    """One output, chunk by chunk; at once if there is one, so that `torch.vmap` may look into it."""
    parts = list(chunks(at, expr, order))
    if len(parts) == 1:
        return at.library.copy(transpose_to_output(at, at(expr), order), result_dtype(expr, at.library.dtype))
    result = at.library.empty([at.sizes[axis.name] for axis in order], result_dtype(expr, at.library.dtype))
    for ranges in parts:
        inner = Evaluator(at.library, at.axes, {**at.ranges, **ranges}, at.sizes, at.tensors, at.scalars)
        window = tuple(slice(*inner.ranges[axis.name]) for axis in order)
        result[window] = transpose_to_output(inner, inner(expr), order)
    return result


def chunks(at: Evaluator, expr: Expr, order: tuple[Axis, ...]) -> Iterator[dict[str, tuple[int, int]]]:
    """Ranges of the output's axes that no reduction runs along, so small that no array is larger than `LARGEST`."""
    lengths = {name: max(1, stop) for name, (_, stop) in at.ranges.items()}
    arrays = array_axes(expr)
    cuttable = {axis.name for axis in order} - {axis.name for axis in bound_axes(expr)}
    while True:
        largest = max(arrays, key=lambda names: prod(lengths[name] for name in names))
        longest = max(largest & cuttable, key=lambda name: (lengths[name], name), default=None)
        if prod(lengths[name] for name in largest) <= LARGEST or longest is None or lengths[longest] == 1:
            break
        lengths[longest] = (lengths[longest] + 1) // 2
    names = sorted(cuttable)
    cuts = ([(first, min(first + lengths[name], stop)) for first in range(0, stop, lengths[name])]
            for name, (_, stop) in ((name, at.ranges[name]) for name in names))  # fmt: skip
    for ranges in product(*cuts):
        yield dict(zip(names, ranges, strict=True))


def array_axes(expr: Basic) -> list[frozenset[str]]:
    """The axes of every array that an evaluation holds: of a summed product its factors, and not the product."""
    summed = {one.expr for one in of_kind(Reduce, expr) if one.kind == "sum" and isinstance(one.expr, Mul)}
    return [frozenset(axis.name for axis in free_axes(node)) for node in nodes_of(expr) - summed]


def transpose_to_output(at: Evaluator, array: Any, order: tuple[Axis, ...]) -> Any:
    """An array with one dimension per axis, in the dimensions of an output."""
    shape = [1] * len(at.axes)
    for axis in order:
        shape[at.place(axis)] = at.length(axis)
    axes = sorted(order, key=at.place)
    flat = at.library.expand(array, shape).reshape([at.length(axis) for axis in axes])
    return at.library.transpose(flat, [axes.index(axis) for axis in order])


def result_dtype(expr: Expr, numbers: str = "float64") -> str:
    """The dtype of an output: that of an index or a truth where it is one, else that of numbers."""
    if isinstance(expr, Let):
        return result_dtype(expr.expr, numbers)
    if isinstance(expr, StraightThrough):
        return result_dtype(expr.value, numbers)
    if not isinstance(expr, Reduce):
        return numbers
    if expr.kind in ("any", "all"):
        return "bool"
    return next(one.dtype for one in MONOIDS[expr.kind].results if one.name == expr.result) or numbers
