"""Arithmetics in which samples of a term are evaluated: arrays of floats, and arrays of numbers of 120 digits.

Both compute elementwise on NumPy arrays, in real numbers: what is not real is NaN, as it is for every backend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import reduce
from operator import mul as multiply
from typing import Any, final

import numpy as np
from sympy import Expr, Float, S

from redalg.decompose.samples.digits import context
from redalg.expression.dtypes import DTYPES
from redalg.expression.operators import OPERATORS, numpy_function

MULTIPLIED = 4
"""The largest exponent for which factors are multiplied: NumPy's power takes as long as an exponential."""
EXACT = ("Abs", "sign", "floor", "ceiling")
"""Functions that round nothing, of arguments of any size."""
LONGEST = 4096
"""The most bits before the point of an argument of a function at 120 digits: mpmath writes each of them, which are
2·10⁹ of exp(exp(21))."""


class Arithmetic(ABC):
    """Elementwise arithmetic on arrays of one kind of numbers; `is_fine` if all is better than in float64 so far."""

    is_fine = True

    @abstractmethod
    def array(self, numbers: Any) -> Any:
        """An array of floats, exactly."""

    @abstractmethod
    def number(self, value: Expr) -> Any:
        """A SymPy number; NaN where it is not real."""

    @abstractmethod
    def function(self, name: str) -> Callable[..., Any] | None:
        """An elementwise function by SymPy's name, or None where the arithmetic has none."""

    @abstractmethod
    def power(self, base: Any, exponent: Any) -> Any:
        """base^exponent; the exponent is an `int`, or an array."""

    def logarithm(self, base: Any) -> Any:
        """The logarithms of an array of positive numbers if powers are faster by them; else None."""
        return None

    @abstractmethod
    def round_to(self, x: Any, dtype: str) -> Any:
        """An array rounded to a dtype, integers saturated."""

    @abstractmethod
    def is_finite(self, x: Any) -> Any:
        """Marks the numbers that are neither infinite nor NaN."""


@final
class Floats(Arithmetic):
    """Floating point of one of NumPy's types."""

    def __init__(self, dtype: Any) -> None:
        self.dtype, self.is_fine = dtype, dtype is not np.float64

    def array(self, numbers: Any) -> Any:
        return np.asarray(numbers, dtype=np.float64).astype(self.dtype, copy=False)

    def number(self, value: Expr) -> Any:
        if value.is_Rational:
            try:
                return self.dtype(int(value.p)) / self.dtype(int(value.q))
            except OverflowError:
                return self.dtype("nan")
        if value is S.Infinity or value is S.NegativeInfinity:
            return self.dtype("inf" if value is S.Infinity else "-inf")
        return self.dtype(str(Float(value, 30))) if value.is_extended_real and value.is_finite else self.dtype("nan")

    def function(self, name: str) -> Callable[..., Any] | None:
        operator = OPERATORS.get(name)
        if operator is None:
            return None
        function = numpy_function(operator)
        if not operator.numpy.startswith("math."):
            return function
        self.is_fine = False  # no better than float64, which the coarser type is made to show
        unit = 2.0**-49 if self.dtype is np.float64 else 0.0
        return lambda x: np.asarray(function(np.asarray(x, dtype=np.float64)), dtype=self.dtype) * (1 + unit)

    def power(self, base: Any, exponent: Any) -> Any:
        if isinstance(exponent, int) and 0 < abs(exponent) <= MULTIPLIED:
            product = reduce(multiply, [base] * abs(exponent))
            return product if exponent > 0 else 1 / product
        if np.ndim(exponent) == 0 and abs(exponent) == 1 / 2:
            return np.sqrt(base) if exponent > 0 else 1 / np.sqrt(base)
        return np.power(base, self.dtype(exponent) if isinstance(exponent, int) else exponent)

    def logarithm(self, base: Any) -> Any:
        return np.log(base) if (base > 0).all() else None

    def round_to(self, x: Any, dtype: str) -> Any:
        if dtype.startswith("int"):
            limit = 2.0 ** (int(dtype[3:]) - 1)
            return np.clip(np.rint(x), self.dtype(-limit), self.dtype(limit - 1))
        significand, exponent = np.frexp(x)
        unit = self.dtype(2.0 ** DTYPES[dtype].digits)
        return np.ldexp(np.rint(significand * unit) / unit, exponent)

    def is_finite(self, x: Any) -> Any:
        return np.isfinite(x)


@final
class Digits(Arithmetic):
    """Numbers of 120 digits, as objects."""

    def __init__(self) -> None:
        self.ctx = context()
        self.nan = self.ctx.mpf("nan")

    def array(self, numbers: Any) -> Any:
        return self._each(self.ctx.mpf, 1)(np.asarray(numbers, dtype=np.float64).astype(object))

    def number(self, value: Expr) -> Any:
        if value is S.Infinity or value is S.NegativeInfinity:
            return self.ctx.mpf("inf" if value is S.Infinity else "-inf")
        real = value.is_extended_real and value.is_finite
        return self.ctx.mpmathify(value._to_mpmath(self.ctx.prec)) if real else self.nan

    def function(self, name: str) -> Callable[..., Any] | None:
        if name in ("Max", "Min"):
            return self._each(self._largest if name == "Max" else self._least, 2)
        if name == "Mod":
            return self._each(self._short(lambda a, b: a % b), 2)
        operator = OPERATORS.get(name)
        if operator is None:
            return None
        function = getattr(self.ctx, operator.mpmath or name)
        return self._each(function if name in EXACT else self._short(function), operator.inputs)

    def power(self, base: Any, exponent: Any) -> Any:
        if isinstance(exponent, int):
            return self._each(lambda x: x**exponent, 1)(base)
        return self._each(self._short(self.ctx.power), 2)(base, exponent)

    def round_to(self, x: Any, dtype: str) -> Any:
        return self._each(lambda one: self._round_number(one, dtype), 1)(x)

    def is_finite(self, x: Any) -> Any:
        return np.asarray(np.frompyfunc(self.ctx.isfinite, 1, 1)(x), dtype=bool)

    def _round_number(self, x: Any, dtype: str) -> Any:
        ctx = self.ctx
        if dtype.startswith("int"):
            limit = 2 ** (int(dtype[3:]) - 1)
            return min(max(ctx.nint(x), ctx.mpf(-limit)), ctx.mpf(limit - 1))
        significand, exponent = ctx.frexp(x)
        unit = ctx.mpf(2) ** DTYPES[dtype].digits
        return ctx.ldexp(ctx.nint(significand * unit) / unit, exponent)

    def _largest(self, a: Any, b: Any) -> Any:
        return a if a > b or self.ctx.isnan(a) else b

    def _least(self, a: Any, b: Any) -> Any:
        return a if a < b or self.ctx.isnan(a) else b

    def _short(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function where its arguments are short, NaN elsewhere: such samples are left out as infinite ones are."""

        def of_short(*args: Any) -> Any:
            parts = (arg._mpf_ for arg in args)
            return self.nan if any(man and exp + bits > LONGEST for _, man, exp, bits in parts) else function(*args)

        return of_short

    def _each(self, function: Callable[..., Any], number: int) -> Callable[..., Any]:
        """A function of single numbers, elementwise; NaN where it has no real value."""

        def real(*args: Any) -> Any:
            try:
                result = function(*args)
            except (ArithmeticError, ValueError, TypeError):
                return self.nan
            return result if isinstance(result, self.ctx.mpf) else self.nan

        return np.frompyfunc(real, number, 1)
