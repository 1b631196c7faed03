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
from math import prod
from typing import Any, final

from sympy import Expr, Mul, S
from sympy.core.basic import Basic

from redalg.errors import ExpressionError, GradientError, NotFusible, Undecided
from redalg.expression import Axis, Cast, Element, Label, Reduce, Where
from redalg.expression.contents import axes_by_name, elements_of, free_axes, of_kind
from redalg.expression.dtypes import DTYPES
from redalg.expression.rebuild import with_args
from redalg.gradient.arrays import cast_like, empty_along, integer_like
from redalg.gradient.reverse import sum_of
from redalg.gradient.spelling import is_constant
from redalg.gradient.stage import Stage, StagesTogether, axes_text, own_sizes
from redalg.gradient.stages import Stages, of_fewest_passes

COLUMNS = 512
"""Columns of a product up to which a block computes its operand itself."""
PART_BYTES = 64 << 20
"""Memory of a part of the operand."""
STEP = 256
"""Elements of which a part is a multiple, if it is not the last."""


@final
@dataclass(frozen=True)
class Product:
    """One of the products, as c·Σ over an axis of the operand's tensor and another.

    Attributes:
        over: the axis that it sums over.
        tensor: the name of the tensor that it multiplies the operand by, of whose dtype it is.
        whole, part: the function where all of that axis is there, and that of a part, which is float32.
    """

    over: Axis
    tensor: str
    whole: Any
    part: Any


@final
@dataclass(frozen=True)
class OperandStage(StagesTogether):
    """Two products that share an operand.

    Attributes:
        operand: the operand of a part, by its tensor's name; it reads where the part begins as `<axis>_first`.
        products: of the operand, in the order of the parts.
    """

    operand: Stage
    products: tuple[Product, Product]

    @property
    def function(self) -> Any:
        """The function of the operand."""
        return self.operand.fused

    @property
    def dtype(self) -> str:
        """The operand's dtype."""
        rounded: Any = self.operand.expr
        return str(rounded.dtype)

    def serves(self, sizes: Mapping[str, int], /) -> bool:
        """Tell if the products have many columns, and sum over something."""
        many = all(sizes[part.axes[-1].name] > COLUMNS for part in self.parts)
        return many and all(sizes[axis.name] for axis in self.operand.axes)

    def tensors_of_all(self, known: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        """The tensors by name, part by part of the longer axis."""
        axis, found = self.axis(sizes), dict[str, Any]()
        for start, stop in self.parts_of(axis, sizes):
            of_operand, *of_products = self.calls(known, sizes, axis, start, stop)
            function, given, own = of_operand
            operand = {self.operand.name: function(**given, sizes=own)}
            for part, (function, given, own) in zip(self.parts, of_products, strict=True):
                made = function(**operand, **given, sizes=own)
                found[part.name] = with_part(found.get(part.name), made, part, axis, (start, stop, sizes[axis.name]))
        return {part.name: cast_like(found[part.name], known[product.tensor])
                for part, product in zip(self.parts, self.products, strict=True)}  # fmt: skip

    def axis(self, sizes: Mapping[str, int]) -> Axis:
        """The axis that is taken in parts: the longer one."""
        return max((one.over for one in self.products), key=lambda axis: sizes[axis.name])

    def parts_of(self, axis: Axis, sizes: Mapping[str, int]) -> Iterator[tuple[int, int]]:
        """Yield the parts of an axis, of about one length."""
        length, others = sizes[axis.name], (sizes[one.name] for one in self.operand.axes if one != axis)
        number = -(-length * DTYPES[self.dtype].bytes * prod(others) // PART_BYTES)
        width = max(STEP, -(-length // (max(1, number) * STEP)) * STEP)
        for start in range(0, length, width):
            yield start, min(start + width, length)

    def calls(
        self, known: Mapping[str, Any], sizes: Mapping[str, int], axis: Axis, start: int, stop: int
    ) -> Iterator[tuple[Any, dict[str, Any], dict[str, int]]]:
        """Yield the functions of a part, the operand's first, with what they read beside it and their sizes."""
        own = {**sizes, axis.name: stop - start}
        like = known[self.products[0].tensor]
        firsts = {first_of(other): integer_like(like, start if other == axis else 0) for other in self.operand.axes}
        given = slices(self.operand, {**known, **firsts}, axis, start, stop)
        yield self.operand.fused, given, own_sizes(self.operand.fused, own)
        for part, product in zip(self.parts, self.products, strict=True):
            function = product.part if product.over == axis else product.whole
            tensor = slices(part, known, axis, start, stop)[product.tensor]
            yield function, {product.tensor: tensor}, own_sizes(function, own)

    def source_of_all(self, target: str, sizes: Mapping[str, int], **options: Any) -> str:
        """The TileLang programs of the operand and of the products, one after another."""
        functions = [self.operand.fused, *(one.whole for one in self.products)]
        firsts = {first_of(axis): "int64" for axis in self.operand.axes}
        dtypes = {**firsts, self.operand.name: self.dtype, **options.pop("dtypes", {})}
        texts = list[str]()
        for function in functions:
            own = {name: dtypes[name] for name in function.cascade.inputs()}
            texts.append(function.source(target, sizes=own_sizes(function, sizes), dtypes=own, **options))
        return "\n\n".join(texts)

    def __str__(self) -> str:
        return "\n".join(map(str, (self.operand, *self.parts)))


def slices(stage: Stage, known: Mapping[str, Any], axis: Axis, start: int, stop: int) -> dict[str, Any]:
    """The tensors that a stage reads, of a part of an axis."""
    found = {name: one for name, one in known.items() if name in stage.inputs}
    for element in elements_of(stage.expr):
        if element.name in found and axis in element.indices:
            place = element.indices.index(axis)
            found[element.name] = known[element.name][(*[slice(None)] * place, slice(start, stop))]
    return found


def with_part(before: Any, made: Any, stage: Stage, axis: Axis, part: tuple[int, int, int]) -> Any:
    """A stage's tensor (None: none yet) with what a part (start, stop, length) of an axis adds to it, or is of it."""
    start, stop, length = part
    if axis not in stage.axes:
        return made if before is None else before + made
    if stop - start == length:
        return made
    place = stage.axes.index(axis)
    tensor = empty_along(made, place, length) if before is None else before
    tensor[(*[slice(None)] * place, slice(start, stop))] = made
    return tensor


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
        of_operand = make.fuse(with_firsts(operand, axes), axes_text(axes), 1)
        whole = [number * sum_of(element * first, (x,)), other_number * sum_of(element * second, (y,))]
        functions = [(_product(make, expr, part), _product(make, make.wide(expr), part))
                     for part, expr in zip(parts, whole, strict=True)]  # fmt: skip
    except (GradientError, NotFusible, Undecided, ExpressionError):
        return None
    stage = Stage(name, with_firsts(operand, axes), axes, of_operand)
    products = (Product(x, first.name, *functions[0]), Product(y, second.name, *functions[1]))
    return OperandStage(parts, stage, products)


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


def _product(make: Stages, expr: Expr, part: Stage) -> Any:
    """A product as a function."""
    return of_fewest_passes(make.fuse, expr, axes_text(part.axes), part.name)
