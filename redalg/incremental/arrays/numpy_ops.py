"""NumPy as the array library of the interpreters (the reference backend)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, final

import numpy as np

from redalg.expression.dtypes import DTYPES, is_emulated
from redalg.expression.operators import OPERATORS, numpy_function
from redalg.incremental.arrays.arrays import ArrayOps


def round_to_format(array: Any, bits: int, smallest: int, largest: float) -> Any:
    """To nearest, ties to even, in a format given by its mantissa, smallest exponent and largest value."""
    _, exponent = np.frexp(array)
    step = np.ldexp(np.asarray(1.0, array.dtype), np.maximum(exponent - 1, smallest) - bits)
    return np.where(np.isfinite(array), np.clip(np.rint(array / step) * step, -largest, largest),
                    np.clip(array, -largest, largest))  # fmt: skip


def is_innermost_last(array: np.ndarray[Any, Any]) -> bool:
    """Tell if the elements along the last dimension are neighbours in memory, and those along no other are.

    >>> rows = np.zeros((4, 9))
    >>> is_innermost_last(rows[:, 2:5]), is_innermost_last(rows.T), is_innermost_last(np.broadcast_to(rows, (2, 4, 9)))
    (True, False, False)
    """
    *outer, last = zip(array.strides, array.shape, strict=True)
    return last[0] == array.itemsize and all(step > last[0] or size == 1 for step, size in outer)


@final
class NumpyOps(ArrayOps):
    """NumPy, in float64 or float32."""

    def __init__(self, compute: str = "float64") -> None:
        self.compute = np.dtype(compute)
        self.functions = {
            **{name: numpy_function(operator) for name, operator in OPERATORS.items()},
            "sqrt": np.sqrt, "pow": np.power, "where": np.where,
            "Scaled": self.ldexp, "Mantissa": lambda x: self.frexp(x)[0], "Exponent": lambda x: self.frexp(x)[1],
            "IsNaN": np.isnan, "Infinite": lambda x: np.where(np.isinf(x), np.sign(x), 0), "Lost": self.addition_error,
        }  # fmt: skip

    def quiet(self) -> AbstractContextManager[Any]:
        return np.errstate(all="ignore")

    def arange(self, start: int, stop: int) -> Any:
        return np.arange(start, stop, dtype=np.int64)

    def scalar(self, value: float) -> Any:
        return np.asarray(value, self.compute)

    def full(self, shape: Sequence[int], value: float) -> Any:
        return np.full(tuple(shape), value, self.compute)

    def to_compute(self, array: Any) -> Any:
        return np.asarray(array).astype(self.compute, copy=False)

    def wide(self, array: Any) -> Any:
        return np.asarray(array).astype(np.float64, copy=False)

    def round_to(self, array: Any, dtype: str) -> Any:
        if dtype.startswith("int"):
            limits = np.iinfo(dtype)
            return self.to_compute(np.clip(np.rint(array), limits.min, limits.max))
        if is_emulated(dtype):
            row = DTYPES[dtype]
            return self.to_compute(round_to_format(np.asarray(array), row.digits - 1, row.least, row.limit))
        return self.to_compute(np.asarray(array).astype(dtype))

    def integer(self, array: Any) -> Any:
        return np.asarray(array).astype(np.int64, copy=False)

    def is_float(self, array: Any) -> bool:
        return bool(np.issubdtype(array.dtype, np.floating))

    def expand(self, array: Any, shape: Sequence[int]) -> Any:
        whole = tuple(shape)
        return array if array.shape == whole else np.broadcast_to(array, whole)

    def permute(self, array: Any, order: Sequence[int]) -> Any:
        return np.transpose(array, order)

    def reduce(self, kind: str, array: Any, dim: int) -> Any:
        if kind == "sum":  # NumPy adds pairwise along the last dimension in memory only
            last = array.swapaxes(dim, -1)
            if not is_innermost_last(last):
                last = np.ascontiguousarray(last)
            return np.sum(last, axis=-1, keepdims=True).swapaxes(dim, -1)
        return getattr(np, kind)(array, axis=dim, keepdims=True)

    def count(self, array: Any, dim: int) -> Any:
        return np.sum(array, axis=dim, keepdims=True, dtype=np.int64)

    def any(self, array: Any, dim: int) -> Any:
        return np.any(array, axis=dim, keepdims=True)

    def einsum(self, spec: str, *arrays: Any) -> Any:
        return np.einsum(spec, *arrays, optimize=True)

    def isfinite(self, array: Any) -> Any:
        return np.isfinite(array)

    def argmax(self, array: Any, dim: int) -> Any:
        return np.argmax(array, axis=dim, keepdims=True)

    def order(self, array: Any, dim: int, *, descending: bool) -> Any:
        places = np.argsort(-array if descending else array, axis=dim, kind="stable")
        if not descending or not self.is_float(array):
            return places
        numbers = ~np.isnan(np.take_along_axis(array, places, dim))
        return np.take_along_axis(places, np.argsort(numbers, axis=dim, kind="stable"), dim)

    def take(self, array: Any, positions: Any, dim: int) -> Any:
        return np.take_along_axis(array, positions, dim)

    def concat(self, arrays: Sequence[Any], dim: int) -> Any:
        return np.concatenate(arrays, dim)

    def frexp(self, array: Any) -> tuple[Any, Any]:
        mantissa, exponent = np.frexp(array)
        plain = np.isfinite(array) & (array != 0)
        return mantissa, np.where(plain, exponent, 0).astype(np.int64)
