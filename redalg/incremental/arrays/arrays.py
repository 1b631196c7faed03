"""Array operations behind one small interface, so that NumPy and any other library run the same interpreter.

Every array has one dimension for each axis of the cascade, in one fixed order, of length 1 where it does not vary: then
elementwise work is broadcasting, and a contraction is an einsum over the dimensions that are longer than 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class ArrayOps(ABC):
    """Operations that the interpreter asks of an array library. `compute` is the library's dtype of arithmetic."""

    compute: Any
    device: Any = "cpu"
    functions: dict[str, Callable[..., Any]]

    @cached_property
    def integers(self) -> int:
        """The integers from 0 to this one are numbers of the compute dtype."""
        return (2**53) if "64" in str(self.compute) else (2**24)

    def quiet(self) -> AbstractContextManager[Any]:
        """A context in which 0/0 and similar operations raise no warning: the conventions define their values."""
        return nullcontext()

    def apply(self, function: Callable[..., Any], scope: Any, *operands: Any) -> Any:
        """function(scope, …), where the result depends on the sizes, places or tensors of the scope."""
        return function(scope, *operands)

    def several(self, number: int, together: Any) -> tuple[Any, ...]:
        """The parts of a result that is a tuple of that many arrays."""
        return tuple(together)

    @abstractmethod
    def arange(self, start: int, stop: int) -> Any:
        """Integers from start to stop − 1 (64-bit)."""

    @abstractmethod
    def scalar(self, value: float) -> Any:
        """A 0-dimensional array of the compute dtype."""

    @abstractmethod
    def full(self, shape: Sequence[int], value: float) -> Any:
        """An array of the compute dtype."""

    @abstractmethod
    def to_compute(self, array: Any) -> Any:
        """An array of integers, booleans or narrow floats in the compute dtype."""

    @abstractmethod
    def wide(self, array: Any) -> Any:
        """An array in float64."""

    @abstractmethod
    def round_to(self, array: Any, dtype: str) -> Any:
        """Round to a dtype (saturating for 8-bit floats and integers); the result is in the compute dtype."""

    @abstractmethod
    def integer(self, array: Any) -> Any:
        """Convert to 64-bit integers: truth values become 0 and 1, numbers are cut to their whole part."""

    @abstractmethod
    def is_float(self, array: Any) -> bool:
        """Tell if an array holds floating-point numbers."""

    @abstractmethod
    def expand(self, array: Any, shape: Sequence[int]) -> Any:
        """Broadcast without copying."""

    @abstractmethod
    def permute(self, array: Any, order: Sequence[int]) -> Any:
        """Reorder dimensions without copying."""

    @abstractmethod
    def reduce(self, kind: str, array: Any, dim: int) -> Any:
        """sum, prod, max or min along a dimension, which stays with length 1 (NaN passes through max and min)."""

    @abstractmethod
    def count(self, array: Any, dim: int) -> Any:
        """Number of true elements along a dimension, which stays with length 1 (64-bit integers)."""

    @abstractmethod
    def any(self, array: Any, dim: int) -> Any:
        """True if any element along a dimension is true; the dimension stays with length 1."""

    @abstractmethod
    def einsum(self, spec: str, *arrays: Any) -> Any:
        """Sum of products, in the compute dtype."""

    @abstractmethod
    def isfinite(self, array: Any) -> Any:
        """Boolean array: true at the elements that are finite."""

    @abstractmethod
    def argmax(self, array: Any, dim: int) -> Any:
        """Position of the first largest element along a dimension, which stays with length 1; NaN is the largest."""

    @abstractmethod
    def order(self, array: Any, dim: int, *, descending: bool) -> Any:
        """Positions that sort along a dimension, equal elements in their order; descending, NaN comes first."""

    @abstractmethod
    def take(self, array: Any, positions: Any, dim: int) -> Any:
        """The elements at these positions along a dimension."""

    @abstractmethod
    def pick(self, array: Any, numbers: Any, dim: int) -> Any:
        """The slices of these numbers, an array of one dimension, along a dimension."""

    @abstractmethod
    def count_groups(self, keys: Any, groups: int) -> Any:
        """The number of elements of every group, from the group of each element (64-bit integers)."""

    @abstractmethod
    def fold_groups(self, kind: str, array: Any, keys: Any, dim: int, *, groups: int, identity: float = 0.0) -> Any:
        """sum, prod, max or min of every group's elements along a dimension, and the identity of no elements.

        `keys` has the group of each element. Sums of floats are added in float64.
        """

    @abstractmethod
    def concat(self, arrays: Sequence[Any], dim: int) -> Any:
        """Arrays one after the other along a dimension."""

    @abstractmethod
    def frexp(self, array: Any) -> tuple[Any, Any]:
        """(m, e) with array = m·2^e and 1/2 ≤ |m| < 1, e in 64-bit integers; e = 0 if an element is 0 or not finite."""

    def ldexp(self, mantissa: Any, exponent: Any) -> Any:
        """m·2^e by two powers of 2: neither leaves the range if the product does not."""
        half = self.functions["floor"](exponent * 0.5)
        two = self.scalar(2.0)
        return mantissa * self.functions["pow"](two, half) * self.functions["pow"](two, exponent - half)

    def addition_error(self, a: Any, b: Any) -> Any:
        """The exact a + b − fl(a + b) (TwoSum); 0 if the sum is not finite."""
        total = a + b
        second = total - a
        return self.where(self.isfinite(total), (a - (total - second)) + (b - second), self.scalar(0.0))

    def times_power(self, mantissa: Any, exponent: Any, h: Any, n: Any) -> Any:
        """m·2^e·h^n from the parts of h = ±b·2^f: as 1/2 ≤ b < 1, |n·log₂ b| ≤ |n|, and is rounded as such.

        If h is 0 or not finite, it has no parts: then the powers are computed.
        """
        usable = self.isfinite(h) & (h != 0)
        b, f = self.frexp(self.where(usable, self.functions["Abs"](h), self.scalar(1.0)))
        doublings = self.functions["log"](self.wide(b)) * self.wide(n) / math.log(2)
        whole = self.functions["floor"](doublings)
        product = self.wide(mantissa) * self.functions["pow"](self.scalar(2.0), doublings - whole)
        product = self.where((h < 0) & (n % 2 == 1), -product, product)
        product = self.to_compute(self.ldexp(product, self.wide(exponent + n * f) + whole))
        plain = self.ldexp(mantissa, self.to_compute(exponent)) * self.functions["pow"](h, self.to_compute(n))
        return self.where(usable, product, plain)

    def cut(self, array: Any, dim: int, start: int, stop: int | None = None, step: int = 1) -> Any:
        """A slice along a dimension."""
        return array[(slice(None),) * dim + (slice(start, stop, step),)]

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """a where the condition holds, else b."""
        return self.functions["where"](condition, a, b)

    def exp(self, array: Any) -> Any:
        """e^array."""
        return self.functions["exp"](array)

    def contract(self, arrays: Sequence[Any], dims: Mapping[int, int]) -> Any:
        """Σ over `dims` (place -> length) of the product of the arrays; those dimensions stay with length 1."""
        sizes = [[one.shape[place] for one in arrays] for place in range(arrays[0].ndim)]
        shape = [dims.get(place, 0 if 0 in each else max(each)) for place, each in enumerate(sizes)]
        if 0 in shape:
            return self.full([1 if place in dims else size for place, size in enumerate(shape)], 0.0)
        arrays = [self.expand(one, [dims.get(place, size) for place, size in enumerate(one.shape)]) for one in arrays]
        long = [[place for place, size in enumerate(one.shape) if size > 1 or place in dims] for one in arrays]
        out = [place for place, size in enumerate(shape) if size > 1 and place not in dims]
        flat = [one.reshape([one.shape[place] for place in places]) for one, places in zip(arrays, long, strict=True)]
        product = self._product(flat, long, out)
        return product.reshape([1 if place in dims else size for place, size in enumerate(shape)])

    def _product(self, arrays: Sequence[Any], places: Sequence[Sequence[int]], out: Sequence[int]) -> Any:
        """The sum of products with dimensions `out`, of arrays with the dimensions `places`.

        The smaller of two matrices is the left one, whatever the dimensions' order is: scores that a backward makes
        again are then rounded as those of the forward were, of which it has the maximum.
        """
        names = ["".join(LETTERS[place] for place in own) for own in places]
        order = (
            sorted(range(len(arrays)), key=lambda number: math.prod(arrays[number].shape)) if len(arrays) == 2 else []
        )
        if not order:
            return self.einsum(f"{','.join(names)}->{''.join(LETTERS[place] for place in out)}", *arrays)
        left, right = (places[number] for number in order)
        made = [place for place in left if place in right and place in out]
        made += [place for own, other in ((left, right), (right, left)) for place in own if place not in other]
        made = [place for place in made if place in out]
        natural, wanted = ("".join(LETTERS[place] for place in own) for own in (made, out))
        product = self.einsum(f"{','.join(names[number] for number in order)}->{natural}",
                              *(arrays[number] for number in order))  # fmt: skip
        return product if natural == wanted else self.einsum(f"{natural}->{wanted}", product)
