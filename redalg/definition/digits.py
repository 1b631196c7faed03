"""Numbers of 120 digits as an array library of the definition: what cancels in floats keeps its digits here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, final

import numpy as np
from mpmath import MPContext

from redalg.definition.arrays import NumpyArrays
from redalg.expression.dtypes import DTYPES
from redalg.expression.operators import OPERATORS

PLACES = 120
"""Decimal digits of a number."""
LONGEST = 4096
"""The most bits before the point of an argument of a function: mpmath writes each of them, 2·10⁹ of exp(exp(21))."""
UNBOUNDED = ("log", "log1p", "Abs", "sign")
"""Functions that take an argument of any length."""
RANGE = np.finfo(np.longdouble)
SHOWN = 25
"""Decimal digits that a long double is read from."""


@cache
def long_arithmetic() -> Any:
    """Arithmetic of 120 digits, apart from mpmath's own, in which a quotient by 0 is infinite or NaN, as of floats."""
    ctx = MPContext()
    ctx.dps = PLACES
    divide, divided = ctx.mpf.__truediv__, ctx.mpf.__rtruediv__

    def quotient(top: Any, bottom: Any) -> Any:
        return top * ctx.inf if bottom == 0 else divide(top, bottom)  # 0·∞ is NaN

    def quotient_of(bottom: Any, top: Any) -> Any:
        return top * ctx.inf if bottom == 0 else divided(bottom, top)

    ctx.mpf.__truediv__, ctx.mpf.__rtruediv__ = quotient, quotient_of
    return ctx


@final
class Digits(NumpyArrays):
    """NumPy arrays of objects, numbers of 120 digits; NaN where a function is not real, or its argument too long."""

    def __init__(self) -> None:
        self.dtype, self.float_type, self.ctx = "object", np.dtype(object), long_arithmetic()
        named = {name: getattr(self.ctx, row.mpmath or name, None) for name, row in OPERATORS.items()}
        self.functions = {
            **{name: self.each(made if name in UNBOUNDED else self.short(made), OPERATORS[name].inputs)
               for name, made in named.items() if made},
            "Max": self.each(self.larger, 2), "Min": self.each(lambda a, b: -self.larger(-a, -b), 2),
            "Mod": self.each(lambda a, b: a % b, 2), "pow": self.each(self.short(self.ctx.power), 2),
            "sqrt": self.each(self.ctx.sqrt),
            "IsNaN": lambda x: np.asarray(np.frompyfunc(self.ctx.isnan, 1, 1)(x), bool),
            "Infinite": self.each(lambda x: self.ctx.sign(x) if abs(x) == self.ctx.inf else 0),
            "Mantissa": self.each(lambda x: self.ctx.frexp(x)[0] if self.ctx.isfinite(x) else x),
            "Exponent": self.each(lambda x: self.ctx.frexp(x)[1] if self.ctx.isfinite(x) else 0),
            "Scaled": self.each(lambda m, e: self.ctx.ldexp(m, int(e)), 2),
        }  # fmt: skip

    def each(self, function: Callable[..., Any], inputs: int = 1) -> Callable[..., Any]:
        """A function of single numbers on arrays; NaN where it has no real value."""

        def real(*args: Any) -> Any:
            try:
                made = self.ctx.convert(function(*args))
            except (ArithmeticError, ValueError, TypeError):
                return self.ctx.nan
            return made if isinstance(made, self.ctx.mpf) else self.ctx.nan

        elementwise = np.frompyfunc(real, inputs, 1)
        return lambda *arrays: np.asarray(elementwise(*arrays), dtype=object)

    def short(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that is NaN where an argument has more bits before its point than can be written."""

        def of_short(*args: Any) -> Any:
            parts = [arg._mpf_ for arg in args]
            return self.ctx.nan if any(man and at + bits > LONGEST for _, man, at, bits in parts) else function(*args)

        return of_short

    def full(self, shape: Sequence[int], value: float | bool) -> Any:
        if not isinstance(value, float):
            return np.full(tuple(shape), value)
        return np.full(tuple(shape), self.ctx.mpf(value), dtype=object)

    def float(self, array: Any) -> Any:
        array = np.asarray(array)
        if array.dtype == object:
            return array
        exact = array.astype(np.float64) if array.dtype.kind == "f" else array.astype(object)
        return self.each(self.ctx.mpf)(exact.astype(object))

    def whole(self, array: Any) -> Any:
        return np.asarray(array).astype(np.int64)

    def largest(self, array: Any, place: int) -> Any:
        made = np.frompyfunc(self.larger, 2, 1).reduce(array, axis=place, keepdims=True)
        return np.asarray(made, dtype=object)

    def larger(self, a: Any, b: Any) -> Any:
        """The larger of two numbers; NaN if one is."""
        return a if a >= b or self.ctx.isnan(a) else b

    def round_to(self, array: Any, dtype: str) -> Any:
        return self.each(lambda x: self.round_number(x, dtype))(array)

    def round_number(self, x: Any, dtype: str) -> Any:
        """A number rounded to a dtype; integers, and dtypes that saturate, end at their limits."""
        ctx = self.ctx
        if dtype.startswith("int"):
            limits = np.iinfo(dtype)
            return min(max(ctx.nint(x), int(limits.min)), int(limits.max))
        row = DTYPES[dtype]
        if ctx.isnan(x):
            return x
        x = min(max(x, -row.limit), row.limit)
        if abs(x) == ctx.inf or x == 0:
            return ctx.mpf(x)
        x = ctx.mpf(x)
        unit = max(ctx.frexp(x)[1] - 1, row.least) - (row.digits - 1)
        near = ctx.ldexp(ctx.nint(ctx.ldexp(x, -unit)), unit)
        return near if row.saturates or abs(near) <= float(row.largest) else ctx.sign(near) * ctx.inf

    def copy(self, array: Any, dtype: str) -> Any:
        """The outputs in long double, the widest that NumPy has, and indices as they are."""
        if dtype != self.dtype:
            return np.array(array, dtype)
        made = [np.longdouble(self.ctx.nstr(self.in_range(one), SHOWN)) for one in self.float(array).flat]
        return np.array(made, np.longdouble).reshape(np.shape(array))

    def in_range(self, x: Any) -> Any:
        """A number where long double holds it; infinite beyond its range, 0 below."""
        largest, least = (self.ctx.mpf(str(one)) for one in (RANGE.max, RANGE.tiny))
        if abs(x) > largest:
            return self.ctx.sign(x) * self.ctx.inf
        return x * 0 if abs(x) < least else x
