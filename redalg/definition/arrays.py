"""The array libraries of the definition: what NumPy and torch spell differently."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from redalg.errors import InputError
from redalg.expression.dtypes import DTYPES
from redalg.expression.operators import OPERATORS, numpy_function


class Library(ABC):
    """An array library. Numbers are of one dtype, float64 unless another is asked for, indices and labels int64.

    Attributes:
        dtype: the name of the numbers' dtype.
        functions: SymPy's name of a function -> the library's function.
    """

    dtype: str
    functions: Mapping[str, Callable[..., Any]]
    xp: Any

    @abstractmethod
    def arange(self, start: int, stop: int) -> Any:
        """Integers from `start` on."""

    @abstractmethod
    def full(self, shape: Sequence[int], value: float | bool) -> Any:
        """An array of one value: of int64, of truth values or of numbers, as the value is."""

    @abstractmethod
    def float(self, array: Any) -> Any:
        """The array as numbers."""

    @abstractmethod
    def whole(self, array: Any) -> Any:
        """The array in int64."""

    @abstractmethod
    def is_float(self, array: Any) -> bool:
        """Tells whether the numbers are floats."""

    @abstractmethod
    def transpose(self, array: Any, order: Sequence[int]) -> Any:
        """The dimensions in another order."""

    @abstractmethod
    def sum(self, array: Any, place: int) -> Any:
        """Σ along a dimension, which stays."""

    @abstractmethod
    def largest(self, array: Any, place: int) -> Any:
        """The largest along a dimension, which stays and is not empty; NaN beside a NaN."""

    @abstractmethod
    def order(self, array: Any, place: int) -> Any:
        """The places of the elements in rising order along a dimension; of equal ones the lower first, NaN last."""

    @abstractmethod
    def take(self, array: Any, places: Any, place: int) -> Any:
        """The elements at places along a dimension."""

    @abstractmethod
    def cumsum(self, array: Any, place: int) -> Any:
        """Σ of integers up to every place of a dimension."""

    @abstractmethod
    def join(self, arrays: Sequence[Any], place: int) -> Any:
        """The arrays one after another along a dimension."""

    @abstractmethod
    def einsum(self, text: str, arrays: Sequence[Any]) -> Any:
        """A contraction."""

    @abstractmethod
    def round_to(self, array: Any, dtype: str) -> Any:
        """The numbers rounded to a dtype, as numbers again."""

    @abstractmethod
    def copy(self, array: Any, dtype: str) -> Any:
        """A copy of the array in a dtype."""

    @abstractmethod
    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        """An array to be filled."""

    def expand(self, array: Any, shape: Sequence[int]) -> Any:
        """The array at a shape to which it broadcasts."""
        return self.xp.broadcast_to(array, tuple(shape))

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """`a` where a condition holds, else `b`; of integers alone an integer."""
        if self.is_float(a) or self.is_float(b):
            a, b = self.float(a), self.float(b)
        return self.xp.where(condition, a, b)

    def through(self, value: Any, source: Any) -> Any:
        """The value, which is differentiated as the source, of a shape that broadcasts to its own."""
        return value

    def call(self, name: str, arrays: Sequence[Any], node: Any) -> Any:
        """A function of floats by SymPy's name."""
        if name not in self.functions:
            raise InputError(
                f"`{node}`: redalg cannot evaluate `{name}`. Write it by exp, log, sqrt, tanh, Abs and the like."
            )
        return self.float(self.functions[name](*map(self.float, arrays)))


class NumpyArrays(Library, ABC):
    """Arrays of NumPy of any numbers."""

    xp = np
    float_type: Any

    def arange(self, start: int, stop: int) -> Any:
        return np.arange(start, stop, dtype=np.int64)

    def is_float(self, array: Any) -> bool:
        return bool(array.dtype == self.float_type)

    def transpose(self, array: Any, order: Sequence[int]) -> Any:
        return np.transpose(array, order)

    def sum(self, array: Any, place: int) -> Any:
        last = np.ascontiguousarray(np.moveaxis(array, place, -1))  # NumPy adds pairwise along this one alone
        return np.moveaxis(np.sum(last, axis=-1, keepdims=True), -1, place)

    def order(self, array: Any, place: int) -> Any:
        return np.argsort(array, axis=place, kind="stable")

    def take(self, array: Any, places: Any, place: int) -> Any:
        return np.take_along_axis(array, places, place)

    def cumsum(self, array: Any, place: int) -> Any:
        return np.cumsum(array, axis=place)

    def join(self, arrays: Sequence[Any], place: int) -> Any:
        return np.concatenate(arrays, place)

    def einsum(self, text: str, arrays: Sequence[Any]) -> Any:
        return np.einsum(text, *arrays, optimize=True)

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return np.empty(tuple(shape), dtype)


@final
class Numpy(NumpyArrays):
    """NumPy; its `longdouble` has 64 bits of mantissa on x86, and no more than float64 elsewhere."""

    def __init__(self, dtype: str = "float64") -> None:
        self.dtype = dtype
        self.float_type: Any = np.dtype(dtype)
        self.functions = {
            **{name: numpy_function(operator) for name, operator in OPERATORS.items()},
            "sqrt": np.sqrt, "pow": np.power, "IsNaN": np.isnan,
            "Infinite": lambda x: np.where(np.isinf(x), np.sign(x), 0),
            "Mantissa": lambda x: np.frexp(x)[0], "Exponent": lambda x: np.where(np.isfinite(x), np.frexp(x)[1], 0),
            "Scaled": lambda m, e: np.ldexp(m, e.astype(np.int64)),
        }  # fmt: skip

    def full(self, shape: Sequence[int], value: float | bool) -> Any:
        return np.full(tuple(shape), value, dtype=self.float_type if isinstance(value, float) else None)

    def float(self, array: Any) -> Any:
        return np.asarray(array).astype(self.float_type, copy=False)

    def whole(self, array: Any) -> Any:
        return np.asarray(array).astype(np.int64, copy=False)

    def largest(self, array: Any, place: int) -> Any:
        return np.max(array, axis=place, keepdims=True)

    def round_to(self, array: Any, dtype: str) -> Any:
        if dtype.startswith("int"):
            limits = np.iinfo(dtype)
            return np.clip(np.rint(array), float(limits.min), float(limits.max))
        row = DTYPES[dtype]
        if row.in_numpy:
            return self.float(array.astype(dtype))
        unit = np.ldexp(1.0, np.maximum(np.frexp(array)[1] - 1, row.least) - (row.digits - 1))
        with np.errstate(all="ignore"):
            near = np.where(np.isfinite(array), np.rint(array / unit) * unit, array)
        if not row.saturates:
            return np.where(np.abs(near) >= 2.0**128, np.copysign(math.inf, near), near)
        return np.clip(near, -row.limit, row.limit)

    def copy(self, array: Any, dtype: str) -> Any:
        return np.array(array, dtype)
