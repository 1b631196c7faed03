"""Arrays of NumPy or PyTorch, each made or changed by its own library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redalg.expression import Axis


def zeros_like(array: Any) -> Any:
    """Zeros of an array's shape, dtype and device."""
    return array.new_zeros(array.shape) if hasattr(array, "new_zeros") else np.zeros_like(array)


def integers_like(array: Any, numbers: Sequence[int]) -> list[Any]:
    """Integers in equal steps from 0, each an array on another one's device, 16 bytes apart."""
    if isinstance(array, np.ndarray):
        return [np.asarray(number) for number in numbers]
    step = numbers[1] if len(numbers) > 1 else 1
    steps = array.new_empty(0).long().new_full((len(numbers), 2), step)
    return [*(steps.cumsum(0) - step)[:, 0]]


def empty_along(array: Any, place: int, length: int) -> Any:
    """An array of another length along one dimension, not filled."""
    shape = (*array.shape[:place], length, *array.shape[place + 1 :])
    return array.new_empty(shape) if hasattr(array, "new_empty") else np.empty(shape, array.dtype)


def cast_like(array: Any, other: Any) -> Any:
    """An array in another one's dtype."""
    return array.astype(other.dtype) if isinstance(array, np.ndarray) else array.to(other.dtype)


def by_library_of(array: Any, tensors: Mapping[str, Any]) -> Any:
    """A constant array by the library of tensors, on their device, in the dtype of the first that is floating-point."""
    floats = (one for one in tensors.values() if "float" in str(getattr(one, "dtype", "")))
    like = next(floats, array)
    return like.new_tensor(array) if hasattr(like, "new_tensor") else array.astype(like.dtype)


def repeat_along(array: Any, own: tuple[Axis, ...], order: tuple[Axis, ...], sizes: Mapping[str, int]) -> Any:
    """An array of its own axes in the order of all; along those that it lacks it is repeated, without a copy.

    Axes are told by their names: of one dimension an axis may have a declared size in `own` alone.
    """
    names = [axis.name for axis in own]
    if names == [axis.name for axis in order]:
        return array
    wide = array[tuple(slice(None) if axis.name in names else None for axis in order)]
    shape = [sizes[axis.name] for axis in order]
    return np.broadcast_to(wide, shape) if isinstance(wide, np.ndarray) else wide.expand(shape)
