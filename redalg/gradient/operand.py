"""Products that share a computed operand, which is made once, a part of an axis at a time.

a[x, d] = c·Σ_y w(x, y)·U[y, d];  b[y, e] = Σ_x w(x, y)·T[x, e]
    →   for every part Y of y:  p = w[x, Y];  a += c·Σ_Y p·U[Y, d];  b[Y] = Σ_x p·T[x, e]

w is rounded to the products' 16 bits, as it is where each product computes it. It pays where a product has more columns
than a block: each block of columns would compute w again. A part takes `PART_BYTES` of memory at most; the sum over
parts is float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, final

import numpy as np
from sympy import Expr, Mul, S
from sympy.core.basic import Basic

from redalg.errors import ExpressionError, GradientError, NotFusible, Undecided
from redalg.expression import Axis, Cast, Element, Label, Reduce, Where
from redalg.expression.contents import axes_by_name, elements_of, free_axes, of_kind
from redalg.expression.rebuild import with_args
from redalg.gradient.elementwise import cast_like
from redalg.gradient.reverse import sum_of
from redalg.gradient.spelling import is_constant
from redalg.gradient.stage import Stage, own_sizes
from redalg.gradient.stages import Stages, of_fewest_passes

COLUMNS = 512
"""Columns of a product up to which a block computes its operand itself."""
PART_BYTES = 64 << 20
"""Memory of a part of the operand."""
STEP = 256
"""Elements of which a part is a multiple, if it is not the last."""
BYTES = 2


@final
@dataclass(frozen=True)
class Product:
    """One of the products: its stage alone, and as c·Σ over an axis of the operand's tensor and another.

    Attributes:
        stage: the tensor that it makes, alone.
        over: the axis that it sums over.
        tensor: the name of the tensor that it multiplies the operand by, of whose dtype it is.
        whole, part: the function where all of that axis is there, and that of a part, which is float32.
    """

    stage: Stage
    over: Axis
    tensor: str
    whole: Any
    part: Any


@final
@dataclass(frozen=True)
class OperandStage:
    """Two products that share an operand.

    Attributes:
        operand: the operand of a part, by its tensor's name; it reads where the part begins as `<axis>_first`.
        products: of the operand.
    """

    operand: Stage
    products: tuple[Product, Product]

    @property
    def parts(self) -> tuple[Stage, ...]:
        """The products alone."""
        return tuple(one.stage for one in self.products)

    @property
    def function(self) -> Any:
        """The function of the operand."""
        return self.operand.fused

    @property
    def name(self) -> str:
        """The names of its tensors."""
        return ", ".join(part.name for part in self.parts)

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The names of the tensors and of the scalars that it reads."""
        return frozenset().union(*(part.inputs for part in self.parts))

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Tell if the operand is made once: the products have many columns, and sum over something."""
        many = all(sizes[one.stage.axes[-1].name] > COLUMNS for one in self.products)
        return many and all(sizes[axis.name] for axis in self.operand.axes)

    def tensors(self, known: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        """The tensors by name, of those that it reads."""
        if not self.serves(sizes):
            return {part.name: part.run(known, sizes) for part in self.parts}
        axis, found = self.axis(sizes), dict[str, Any]()
        for start, stop in self.parts_of(axis, sizes):
            for product, made in self._part(known, sizes, axis, start, stop):
                self._add(found, product, made, axis, (start, stop, sizes[axis.name]))
        return {part.name: cast_like(found[part.name], known[product.tensor])
                for part, product in zip(self.parts, self.products, strict=True)}  # fmt: skip

    def axis(self, sizes: Mapping[str, int]) -> Axis:
        """The axis that is taken in parts: the longer one."""
        return max((one.over for one in self.products), key=lambda axis: sizes[axis.name])

    def parts_of(self, axis: Axis, sizes: Mapping[str, int]) -> Iterator[tuple[int, int]]:
        """Yield the parts of an axis, of about one length."""
        length = sizes[axis.name]
        row = BYTES * prod(sizes[other.name] for other in self.operand.axes if other != axis)
        number = -(-length * row // PART_BYTES)
        width = max(STEP, -(-length // (max(1, number) * STEP)) * STEP)
        for start in range(0, length, width):
            yield start, min(start + width, length)

    def slices(self, stage: Stage, known: Mapping[str, Any], axis: Axis, start: int, stop: int) -> dict[str, Any]:
        """The tensors of a part that a stage reads."""
        found = {name: one for name, one in known.items() if name in stage.inputs}
        for element in elements_of(stage.expr):
            if element.name in found and axis in element.indices:
                place = element.indices.index(axis)
                found[element.name] = known[element.name][(*[slice(None)] * place, slice(start, stop))]
        return found

    def _part(
        self, known: Mapping[str, Any], sizes: Mapping[str, int], axis: Axis, start: int, stop: int
    ) -> Iterator[tuple[Product, Any]]:
        """Yield what each product makes of a part."""
        of_operand, *of_products = self.calls(known, sizes, axis, start, stop)
        function, given, own = of_operand
        made = {self.operand.name: function(**given, sizes=own)}
        for product, (function, given, own) in zip(self.products, of_products, strict=True):
            yield product, function(**made, **given, sizes=own)

    def calls(
        self, known: Mapping[str, Any], sizes: Mapping[str, int], axis: Axis, start: int, stop: int
    ) -> Iterator[tuple[Any, dict[str, Any], dict[str, int]]]:
        """Yield the functions of a part, the operand's first, with what they read beside it and their sizes."""
        own = {**sizes, axis.name: stop - start}
        like = known[self.products[0].tensor]
        firsts = {first_of(other): integer_like(like, start if other == axis else 0) for other in self.operand.axes}
        given = self.slices(self.operand, {**known, **firsts}, axis, start, stop)
        yield self.operand.fused, given, own_sizes(self.operand.fused, own)
        for product in self.products:
            function = product.part if product.over == axis else product.whole
            tensor = self.slices(product.stage, known, axis, start, stop)[product.tensor]
            yield function, {product.tensor: tensor}, own_sizes(function, own)

    def _add(self, found: dict[str, Any], product: Product, made: Any, axis: Axis, part: tuple[int, int, int]) -> None:
        """Take what a product made of a part into its tensor."""
        name, (start, stop, length) = product.stage.name, part
        if product.over == axis:
            found[name] = made if name not in found else found[name] + made
            return
        place = product.stage.axes.index(axis)
        if name not in found:
            found[name] = made if stop - start == length else empty_along(made, place, length)
        if stop - start < length:
            found[name][(*[slice(None)] * place, slice(start, stop))] = made

    def source(self, target: str, sizes: Mapping[str, int], **options: Any) -> str:
        """The TileLang programs, one after another: of the operand and the products, or of each product alone."""
        if not self.serves(sizes):
            return "\n\n".join(part.source(target, sizes, **options) for part in self.parts)
        functions = [self.operand.fused, *(one.whole for one in self.products)]
        firsts = {first_of(axis): "int64" for axis in self.operand.axes}
        dtypes = {**firsts, self.operand.name: self.dtype, **options.pop("dtypes", {})}
        texts = list[str]()
        for function in functions:
            own = {name: dtypes[name] for name in function.cascade.inputs()}
            texts.append(function.source(target, sizes=own_sizes(function, sizes), dtypes=own, **options))
        return "\n\n".join(texts)

    @property
    def dtype(self) -> str:
        """The operand's dtype."""
        return str(self.operand.expr.args[1])

    def __str__(self) -> str:
        return "\n".join(map(str, (self.operand, *self.parts)))


def shared_operand(parts: tuple[Stage, Stage], make: Stages) -> OperandStage | None:
    """Two stages as products of one operand; None if they are none."""
    read = [weighted_sum(part.in_axes_of_inputs()) for part in parts]
    if None in read:
        return None
    (number, operand, first, [x]), (other_number, other, second, [y]) = (one for one in read if one is not None)
    crossed = x in parts[1].axes and y in parts[0].axes and x not in parts[0].axes and y not in parts[1].axes
    if operand != other or not crossed or free_axes(operand) != {*parts[0].axes[:-1], x}:
        return None
    if any(not one.is_plain for one in elements_of(operand) if free_axes(one) & {x, y}):
        return None
    axes = axes_by_name(free_axes(operand))
    name = make.names.fresh("operand")
    element = Element(Label(name), *axes)
    try:
        of_operand = make.fuse(with_firsts(operand, axes), _text(axes), 1)
        whole = [number * sum_of(element * first, (x,)), other_number * sum_of(element * second, (y,))]
        functions = [(_product(make, expr, part), _product(make, _wide(expr), part))
                     for part, expr in zip(parts, whole, strict=True)]  # fmt: skip
    except (GradientError, NotFusible, Undecided, ExpressionError):
        return None
    stage = Stage(name, with_firsts(operand, axes), axes, of_operand)
    of_first, of_second = (Product(part, bound, tensor.name, *made) for part, bound, tensor, made
                           in zip(parts, (x, y), (first, second), functions, strict=True))  # fmt: skip
    return OperandStage(stage, (of_first, of_second))


def weighted_sum(expr: Expr) -> tuple[Expr, Expr, Element, tuple[Axis, ...]] | None:
    """(c, w, T, axes) of cast(c·Σ_axes cast(w)·T); None of anything else. A mask of the terms is one of w."""
    whole = expr.args[0] if isinstance(expr, Cast) else expr
    numbers = [one for one in Mul.make_args(whole) if is_constant(one)]
    sums = [one for one in Mul.make_args(whole) if not is_constant(one)]
    if len(sums) != 1 or not isinstance(sums[0], Reduce) or sums[0].kind != "sum" or len(sums[0].bound) != 1:
        return None
    term, conditions = sums[0].expr, list[Basic]()
    while isinstance(term, Where) and term.args[2] is S.Zero:
        conditions.append(term.args[0])
        term = term.args[1]
    tensors = [one for one in Mul.make_args(term) if isinstance(one, Element)]
    operand = Mul(*(one for one in Mul.make_args(term) if one not in tensors))
    if len(tensors) != 1 or not isinstance(operand, Cast) or not tensors[0].is_plain:
        return None
    for condition in reversed(conditions):
        operand = Cast(Where(condition, operand.args[0], S.Zero), operand.dtype)
    return Mul(*numbers), operand, tensors[0], sums[0].bound


def with_firsts(node: Basic, axes: tuple[Axis, ...]) -> Expr:
    """An expression whose places, but those at which tensors are read, are counted from where a part begins."""
    if node in axes:
        return node + Element(Label(first_of(node)))
    if isinstance(node, Element) or not of_kind(Axis, node):
        return node
    return with_args(node, [with_firsts(one, axes) for one in node.args])


def first_of(axis: Axis) -> str:
    """The name of the number at which a part of an axis begins."""
    return f"{axis.name}_first"


def integer_like(array: Any, number: int) -> Any:
    """An integer on an array's device, by its own library."""
    return array.new_zeros(()).long() + number if hasattr(array, "new_zeros") else np.asarray(number)


def empty_along(array: Any, place: int, length: int) -> Any:
    """An array of another length along one dimension, not filled, by its own library."""
    shape = (*array.shape[:place], length, *array.shape[place + 1 :])
    return array.new_empty(shape) if hasattr(array, "new_empty") else np.empty(shape, array.dtype)


def _wide(expr: Expr) -> Expr:
    """The sum of a part, which is not rounded to 16 bits."""
    return Cast(expr, "float32")


def _product(make: Stages, expr: Expr, part: Stage) -> Any:
    """A product as a function."""
    return of_fewest_passes(make.fuse, expr, _text(part.axes), part.name)


def _text(axes: tuple[Axis, ...]) -> str:
    return " ".join(map(str, axes))
