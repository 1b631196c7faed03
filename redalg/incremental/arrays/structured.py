"""Monoids of several components on arrays: fold a block along an axis, join two elements, lower one to its results.

Any monoid folds by an order-preserving pairwise tree, log₂ n steps of its own `join`, which the evaluator of all other
expressions runs. If an array library does it at once, `NATIVE` says how; the results are the same.

    fold     (e₀, e₁, …) → e₀ ⊕ e₁ ⊕ …                 exact by associativity
    select   sort by value, stably, and cut at k        the same pairs as joining one by one, since lower indices come
                                                         first in every block and are put first in every join
    TwoSum   s + t = fl(s + t) + r, r a float           Knuth; where fl(s + t) is finite
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from sympy import Expr, Tuple

from redalg.expression import Axis
from redalg.incremental.arrays.arrays import ArrayOps
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.combine.let import Gather, Join
from redalg.incremental.combine.structures import NOWHERE, component_symbols, join_of
from redalg.incremental.form import Structure
from redalg.monoids import Monoid

Element = tuple[Any, ...]
"""One array for each component, of one shape."""

CHUNK = 32
"""Mantissas that are multiplied before they are normalised: 2⁻³² is far inside every range."""


@final
@dataclass(frozen=True)
class Layout:
    """Layout of an element in its arrays: the streamed dimension, and (of k places) the one that numbers them."""

    ops: ArrayOps
    dim: int
    place: int | None = None
    k: int = 1

    @property
    def place_dim(self) -> int:
        """The dimension along which an element's own places lie."""
        return self.dim if self.place is None else self.place


# ---- a structure on a scope ------------------------------------------------------------------------------------------


def structure_layout(structure: Structure, axis: Axis, scope: Scope) -> Layout:
    """The layout of a structure's arrays in a scope."""
    if structure.place is None:
        return Layout(scope.ops, scope.place(axis))
    return Layout(scope.ops, scope.place(axis), scope.place(structure.place), scope.length(structure.place))


def fold_elements(let: Gather, scope: Scope, *arrays: Any) -> Element:
    """Fold the components over the scope's ranges of the line's axes into one element, axis by axis."""
    structure, axes = let.structure, let.axes
    lies, lengths = (
        structure_layout(structure, let.axis, scope),
        {scope.place(axis): scope.length(axis) for axis in axes},
    )
    sizes = [[one.shape[dim] for one in arrays] for dim in range(len(scope.axes))]
    shape = [lengths.get(dim, 0 if 0 in size else max(size)) for dim, size in enumerate(sizes)]
    if 0 in lengths.values():
        return empty(structure.monoid, lies, [1 if dim in lengths else size for dim, size in enumerate(shape)])
    element = tuple(scope.ops.expand(one, shape) for one in arrays)
    native, join = NATIVE.get(structure.monoid.name), joiner(structure, lies, scope)
    if native is not None and let.lifted:
        element, axes = native.fold(element, lies), axes[1:]
    for axis in axes:
        element = tree(join, element, scope.place(axis), scope.ops)
    return element


def empty(monoid: Monoid, lies: Layout, shape: list[int]) -> Element:
    """The identity of a monoid, over the other dimensions of a shape."""
    shape = [lies.k if dim == lies.place_dim else 1 if dim == lies.dim else size for dim, size in enumerate(shape)]
    parts = []
    for component in monoid.components:
        identity = component.identity
        if isinstance(identity, Tuple):  # no element at any place
            identity = NOWHERE[component.name]
        constant = (lies.ops.arange(0, 1) + int(identity)).reshape([1] * len(shape)) if component.integer else \
            lies.ops.full([1] * len(shape), float(identity))  # fmt: skip
        parts.append(lies.ops.expand(constant, shape))
    return tuple(parts)


def join_elements(let: Join, scope: Scope, *components: Any) -> Element:
    """a ⊕ b, a before b, each component along its own axes alone."""
    a, b = components[: len(let.first)], components[len(let.first) :]
    parts = joiner(let.structure, structure_layout(let.structure, let.axis, scope), scope)(a, b)
    return tuple(_within(value.indices, array, scope, like)
                 for value, array, like in zip(let.structure.values, parts, a, strict=True))  # fmt: skip


def _within(axes: tuple[Expr, ...], array: Any, scope: Scope, like: Any) -> Any:
    """Cut a component to its own axes: the join added the axes of the others, along which it does not vary."""
    for place, axis in enumerate(scope.axes):
        if axis not in axes and array.shape[place] != 1:
            if array.shape[place] == 0:
                return like
            array = scope.ops.cut(array, place, 0, 1)
    return array


# ---- any monoid ------------------------------------------------------------------------------------------------------

Joiner = Callable[[Element, Element], Element]
"""(a, b) -> a ⊕ b."""


def joiner(structure: Structure, lies: Layout, scope: Scope) -> Joiner:
    """The join of two elements: the array library's own, or that of the monoid's expressions."""
    native = NATIVE.get(structure.monoid.name)
    if native is None:
        return lambda a, b: combine_elements(structure.monoid, a, b, scope)

    def join(a: Element, b: Element) -> Element:
        shapes = zip(*(one.shape for one in (*a, *b)), strict=True)
        shape = [0 if 0 in sizes else max(sizes) for sizes in shapes]
        a, b = (tuple(scope.ops.expand(one, shape) for one in element) for element in (a, b))
        return native.join(a, b, lies)

    return join


def combine_elements(monoid: Monoid, a: Element, b: Element, scope: Scope) -> Element:
    """a ⊕ b by the monoid's own expressions."""
    symbols = (*component_symbols(monoid, "a"), *component_symbols(monoid, "b"))
    inner = scope.over({}, dict(zip(symbols, (*a, *b), strict=True)))
    return tuple(inner.evaluate(expr) if component.integer else inner.number(expr)
                 for expr, component in zip(join_of(monoid), monoid.components, strict=True))  # fmt: skip


def tree(join: Joiner, element: Element, dim: int, ops: ArrayOps) -> Element:
    """Join neighbours until one element is left; an odd one waits at the end."""
    cut, length = ops.cut, element[0].shape[dim]
    while length > 1:
        even = length - length % 2
        first = tuple(cut(array, dim, 0, even, 2) for array in element)
        second = tuple(cut(array, dim, 1, even, 2) for array in element)
        joint = join(first, second)
        if even < length:
            joint = tuple(ops.concat([head, cut(array, dim, even)], dim)
                          for head, array in zip(joint, element, strict=True))  # fmt: skip
        element, length = joint, length - even // 2
    return element


# ---- at once ---------------------------------------------------------------------------------------------------------


class Native(ABC):
    """A monoid by the operations of array libraries.

    Attributes:
        ranks: it selects the best of its elements.
    """

    ranks = False

    @abstractmethod
    def fold(self, element: Element, lies: Layout) -> Element:
        """⊕ along the streamed dimension, of at least one place."""

    @abstractmethod
    def join(self, a: Element, b: Element, lies: Layout) -> Element:
        """a ⊕ b."""


@final
class Selected(Native):
    """argmax, argmin (one place) and topk (k places): pairs of a value and an index."""

    ranks = True

    def fold(self, element: Element, lies: Layout) -> Element:
        ops, (values, indices) = lies.ops, element
        if lies.k == 1:
            order = ops.argmax(values, lies.dim)
        else:
            order = ops.cut(ops.order(values, lies.dim, descending=True), lies.dim, 0, lies.k)
        best = tuple(ops.take(array, order, lies.dim) for array in (values, indices))
        return self._pad(tuple(self._move_to_place_dim(array, lies) for array in best), lies)

    def _move_to_place_dim(self, array: Any, lies: Layout) -> Any:
        """Move the selected places to the dimension that numbers them."""
        order = list(range(array.ndim))
        order[lies.dim], order[lies.place_dim] = lies.place_dim, lies.dim
        return lies.ops.permute(array, order)

    def _pad(self, element: Element, lies: Layout) -> Element:
        missing = lies.k - element[0].shape[lies.place_dim]
        if not missing:
            return element
        shape = [missing if dim == lies.place_dim else size for dim, size in enumerate(element[0].shape)]
        values = lies.ops.full(shape, NOWHERE["value"])
        indices = lies.ops.expand((lies.ops.arange(0, 1) - 1).reshape([1] * len(shape)), shape)
        return tuple(lies.ops.concat([array, rest], lies.place_dim)
                     for array, rest in zip(element, (values, indices), strict=True))  # fmt: skip

    def join(self, a: Element, b: Element, lies: Layout) -> Element:
        ops, dim = lies.ops, lies.place_dim
        values, indices = (ops.concat(pair, dim) for pair in zip(a, b, strict=True))
        last = ops.where(indices < 0, ops.arange(0, 1)[0] + (1 << 62), indices)
        by_index = ops.order(last, dim, descending=False)
        values, indices = (ops.take(one, by_index, dim) for one in (values, indices))
        by_value = ops.order(values, dim, descending=True)
        values, indices = (ops.take(one, by_value, dim) for one in (values, indices))
        return ops.cut(values, dim, 0, lies.k), ops.cut(indices, dim, 0, lies.k)


@final
class ScaledProduct(Native):
    """Mantissas in chunks, exponents as a sum."""

    def fold(self, element: Element, lies: Layout) -> Element:
        ops, dim, (mantissa, exponent) = lies.ops, lies.dim, element
        total = self._sum(exponent, lies)
        while mantissa.shape[dim] > 1:
            mantissa, more = ops.frexp(ops.concat(self._chunks(mantissa, lies), dim))
            total = total + self._sum(more, lies)
        return mantissa, ops.where(mantissa == 0, total * 0, total)

    def _chunks(self, mantissa: Any, lies: Layout) -> list[Any]:
        """Products of CHUNK mantissas each, element by element of strided slices."""
        ops, dim, length = lies.ops, lies.dim, mantissa.shape[lies.dim]
        whole = length - length % CHUNK
        product = ops.cut(mantissa, dim, 0, whole, CHUNK)
        for place in range(1, CHUNK):
            product = product * ops.cut(mantissa, dim, place, whole, CHUNK)
        rest = [ops.reduce("prod", ops.cut(mantissa, dim, whole), dim)] if whole < length else []
        return [product, *rest]

    def _sum(self, exponent: Any, lies: Layout) -> Any:
        return exponent.sum(lies.dim).reshape([1 if d == lies.dim else n for d, n in enumerate(exponent.shape)])

    def join(self, a: Element, b: Element, lies: Layout) -> Element:
        mantissa, more = lies.ops.frexp(a[0] * b[0])
        total = a[1] + b[1] + more
        return mantissa, lies.ops.where(mantissa == 0, total * 0, total)


@final
class CompensatedSum(Native):
    """TwoSum: the part that an addition of two floats loses is a float."""

    def fold(self, element: Element, lies: Layout) -> Element:
        return _fold_by_halves(element, lies, lambda a, b: self.join(a, b, lies))

    def join(self, a: Element, b: Element, lies: Layout) -> Element:
        return a[0] + b[0], a[1] + b[1] + lies.ops.addition_error(a[0], b[0])


def _fold_by_halves(element: Element, lies: Layout, join: Callable[[Element, Element], Element]) -> Element:
    """Join the first half to the second until one element is left, by contiguous slices; for commutative monoids."""
    cut, dim, length = lies.ops.cut, lies.dim, element[0].shape[lies.dim]
    while length > 1:
        half = length // 2
        joint = join(*(tuple(cut(one, dim, start, start + half) for one in element) for start in (0, half)))
        odd = tuple(cut(one, dim, 2 * half) for one in element)
        pairs: Sequence[tuple[Any, Any]] = list(zip(joint, odd, strict=True))
        element = tuple(lies.ops.concat(pair, dim) for pair in pairs) if length % 2 else joint
        length -= half
    return element


NATIVE: dict[str, Native] = {
    "argmax": Selected(), "argmin": Selected(), "topk": Selected(), "scaled_product": ScaledProduct(),
    "compensated_sum": CompensatedSum(),
}  # fmt: skip
"""By the monoid's name."""
