"""Stages that are tensors as they stand, or numbers; and stages that repeat along axes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from sympy import Expr

from redalg.definition import evaluate_definition
from redalg.expression import Axis
from redalg.expression.contents import free_axes


def elementwise_value(expr: Expr, order: tuple[Axis, ...], given: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """An expression at every place of its axes; along an axis that it lacks it is repeated."""
    scalars = {name: one for name, one in given.items() if isinstance(one, int | float)}
    tensors = {name: one for name, one in given.items() if name not in scalars}
    own = tuple(axis for axis in order if axis in free_axes(expr))
    made = evaluate_definition({"out": (expr, own)}, tensors, scalars, dict(sizes))["out"]
    floats = [one.reshape(-1)[:0] for one in tensors.values() if "float" in str(one.dtype)]
    made = made if not floats else cast_like(made, reduce(add, floats))
    return repeat_along(made, own, order, sizes)


def repeat_along(array: Any, own: tuple[Axis, ...], order: tuple[Axis, ...], sizes: Mapping[str, int]) -> Any:
    """An array of its own axes in the order of all; along those that it lacks it is repeated, without a copy."""
    if own == order:
        return array
    wide = array[tuple(slice(None) if axis in own else None for axis in order)]
    shape = [sizes[axis.name] for axis in order]
    return np.broadcast_to(wide, shape) if isinstance(wide, np.ndarray) else wide.expand(shape)


def cast_like(array: Any, other: Any) -> Any:
    """An array in another one's dtype, by its own library."""
    return array.astype(other.dtype) if isinstance(array, np.ndarray) else array.to(other.dtype)


def by_library_of(array: Any, tensors: Mapping[str, Any]) -> Any:
    """A constant array by the library of tensors, on their device, in the dtype of the first that is floating-point."""
    floats = (one for one in tensors.values() if "float" in str(getattr(one, "dtype", "")))
    like = next(floats, array)
    return like.new_tensor(array) if hasattr(like, "new_tensor") else array.astype(like.dtype)
