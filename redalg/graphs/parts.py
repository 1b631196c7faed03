"""The parts of dimensions that a group reads: an axis of a function runs along the whole of a dimension.

    x[i], i < 12, of x[512]               →   x[:12]: the group is given the first part
    x[i], i < n, of x[8]                  →   refused: no axis runs past the end of a dimension

Indices that are axes tell; all other places are computed, and are read in the whole dimension.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr

from redalg.errors import GraphError
from redalg.expression import Axis
from redalg.expression.contents import elements_of
from redalg.graphs.lay import Laid
from redalg.graphs.program import TensorType

Parts = Mapping[str, tuple[tuple[int, Expr], ...]]
"""Tensor -> its dimensions, as it is viewed, of which only first places are read, and how many."""


def parts_read(laid: Laid, types: Mapping[str, TensorType]) -> Parts:
    """The parts that a group's outputs read.

    Raises:
        GraphError: an axis is longer than a dimension, or two parts of one dimension are read.
    """
    found, parts = dict[tuple[str, int], tuple[Expr, set[Expr]]](), dict[str, tuple[tuple[int, Expr], ...]]()
    for output in laid.outputs:
        for element in elements_of(output.term):
            shape = laid.views.get(element.name, types[element.name].shape)
            for dim, (index, size) in enumerate(zip(element.indices, shape, strict=True)):
                length = output.sizes.get(index, size) if isinstance(index, Axis) else size
                found.setdefault((element.name, dim), (size, set()))[1].add(length)
    for (name, dim), (size, lengths) in found.items():
        length = length_read(name, size, lengths)
        if length != size:
            parts[name] = (*parts.get(name, ()), (dim, length))
    return parts


def length_read(name: str, size: Expr, lengths: set[Expr]) -> Expr:
    """The length that is read of a dimension, of the lengths that its reads have."""
    past = [length for length in lengths if length != size and not (size - length).is_positive]
    if past:
        raise GraphError(f"an axis of {past[0]} places runs past a dimension of `{name}`, which has {size}")
    if len(lengths) > 1:
        raise GraphError(f"it reads parts of a dimension of `{name}`: {', '.join(sorted(map(str, lengths)))} of {size}")
    return next(iter(lengths))
