"""Products that share a computed operand, which is made once, a part of an axis at a time.

a[x, d] = c·Σ_y w(x, y)·U[y, d];  b[y, e] = Σ_x w(x, y)·T[x, e]
    →   for every part Y of y:  p = w[x, Y];  a += c·Σ_Y p·U[Y, d];  b[Y] = Σ_x p·T[x, e]

w is rounded to the products' 16 bits, as it is where each product computes it. It pays where a product has more columns
than a block: each block of columns would compute w again. A part takes `PART_BYTES` of memory at most; the sum over
parts is float32. PyTorch multiplies matrices that it neither records nor transforms, and writes them where they belong;
others are functions like any stage's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, final

from sympy import And, Expr, Integer, Mul, S
from sympy.core.basic import Basic

from redalg.errors import ExpressionError, GradientError, NotDecided, NotFusible
from redalg.expression import Axis, Cast, Element, Extent, Label, Reduce, Where
from redalg.expression.contents import axes_by_name, elements_of, free_axes, of_kind
from redalg.expression.dtypes import DTYPES
from redalg.expression.parts import Part, Places, in_part, reads_in_parts
from redalg.gradient.arrays import cast_like, empty_along, integers_like
from redalg.gradient.reverse import sum_of
from redalg.gradient.spelling import masks_and_rest, number_and_rest
from redalg.gradient.stage import Stage, StagesTogether, axes_text, own_sizes
from redalg.gradient.stages import Stages, of_fewest_passes
from redalg.runtime.bind.inputs import is_recorded
from redalg.runtime.unfused.multiply import empty_matrix, multiply_into
from redalg.runtime.unfused.product import has_one_place

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
        axes: of its result.
        operand: the operand's element.
        over: the axis that it sums over.
        number: c.
        factor: the element of the tensor that it multiplies the operand by, of whose dtype it is.
        whole, part: the function where all of that axis is there, and that of a part, which is float32.
        unmasked: the name of its result before it is masked.
        of_factor, of_result: the functions that mask the tensor, and the result, whose NaN is hidden where they do not
            count; None where no mask is one of their rows.
    """

    axes: tuple[Axis, ...]
    operand: Element
    over: Axis
    number: Expr
    factor: Element
    whole: Any
    part: Any
    unmasked: str
    of_factor: Any
    of_result: Any

    def without_hidden(self, known: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
        """The tensor that it multiplies by, 0 in the rows that do not count."""
        if self.of_factor is None:
            return known[self.factor.name]
        return self.of_factor(**call_arguments(self.of_factor, known), sizes=own_sizes(self.of_factor, sizes))

    def result(self, made: Any, known: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
        """The result in its dtype, 0 in the rows that do not count."""
        made = cast_like(made, known[self.factor.name])
        if self.of_result is None:
            return made
        given = call_arguments(self.of_result, {**known, self.unmasked: made})
        return self.of_result(**given, sizes=own_sizes(self.of_result, sizes))

    def multiply_part(
        self, before: Any, operand: Any, given: Mapping[str, Any], part: Part, sizes: Mapping[str, int]
    ) -> Any:
        """The result (None: none yet) with what a part adds to it, or is of it."""
        factor = part.of(given[self.factor.name], self.factor.indices)
        if is_by_library(operand, factor):
            rows = operand if self.axes[0] == self.operand.indices[0] else operand.mT
            return self.by_library(before, rows, factor, part, sizes)
        function = self.part if part.axis == self.over else self.whole
        named = {**given, self.operand.name: operand, self.factor.name: factor}
        own = own_sizes(function, {**sizes, part.axis.name: part.stop - part.start})
        return with_part(before, function(**call_arguments(function, named), sizes=own), self.axes, part)

    def by_library(self, before: Any, operand: Any, factor: Any, part: Part, sizes: Mapping[str, int]) -> Any:
        """The same of matrices by PyTorch; the operand has the axes (row, summed one)."""
        adds, made = part.axis == self.over, before
        if before is None:
            made = empty_matrix(factor, [sizes[axis.name] for axis in self.axes], wide=adds and not part.is_whole)
        multiply_into(
            part.of(made, self.axes), operand, factor if self.factor.indices[0] == self.over else factor.mT,
            self.number_at(sizes), add=adds and before is not None,
        )  # fmt: skip
        return made

    def number_at(self, sizes: Mapping[str, int]) -> float:
        """c at some sizes."""
        return float(self.number.xreplace({one: Integer(sizes[one.name]) for one in self.number.atoms(Extent)}))


@final
@dataclass(frozen=True)
class OperandStage(StagesTogether):
    """Two products that share an operand.

    Attributes:
        operand: the operand of a part, by its tensor's name.
        products: of the operand, in the order of the parts.
        places: the names of the numbers that the functions of a part read, by axis of the operand.
    """

    operand: Stage
    products: tuple[Product, Product]
    places: tuple[Places, ...]

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
        found: list[Any] = [None] * len(self.products)
        factors = [product.without_hidden(known, sizes) for product in self.products]
        for given, part in self.inputs_by_part(known, sizes):
            own = own_sizes(self.function, {**sizes, part.axis.name: part.stop - part.start})
            operand = self.function(**call_arguments(self.function, given), sizes=own)
            named = [{**given, product.factor.name: factor}
                     for product, factor in zip(self.products, factors, strict=True)]  # fmt: skip
            found = [product.multiply_part(before, operand, own_given, part, sizes)
                     for before, product, own_given in zip(found, self.products, named, strict=True)]  # fmt: skip
            del operand  # its memory serves the next part
        return {part.name: product.result(made, known, sizes)
                for part, made, product in zip(self.parts, found, self.products, strict=True)}  # fmt: skip

    def axis(self, sizes: Mapping[str, int]) -> Axis:
        """The axis that is taken in parts: the longer one."""
        return max((one.over for one in self.products), key=lambda axis: sizes[axis.name])

    def parts_of(self, axis: Axis, sizes: Mapping[str, int]) -> Iterator[Part]:
        """Yield the parts of an axis, of about one length."""
        length, others = sizes[axis.name], (sizes[one.name] for one in self.operand.axes if one != axis)
        number = -(-length * DTYPES[self.dtype].bytes * prod(others) // PART_BYTES)
        width = max(STEP, -(-length // (max(1, number) * STEP)) * STEP)
        for start in range(0, length, width):
            yield Part(axis, start, min(start + width, length), length)

    def inputs_by_part(
        self, known: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Iterator[tuple[dict[str, Any], Part]]:
        """Yield the tensors and numbers that functions read, with the part that they are of."""
        parts = [*self.parts_of(self.axis(sizes), sizes)]
        starts = integers_like(known[self.products[0].factor.name], [part.start for part in parts])
        read = elements_of(self.operand.expr)
        for part, first in zip(parts, starts, strict=True):
            found = dict(known)
            for places in self.places:
                cut = places.axis == part.axis
                found |= {places.first: first if cut else starts[0], places.start: part.start if cut else 0,
                          places.length: sizes[places.axis.name]}  # fmt: skip
            yield found | {one.name: part.of(found[one.name], one.indices) for one in read}, part

    def source_of_all(self, target: str, sizes: Mapping[str, int], **options: Any) -> str:
        """The TileLang programs of the operand, and of the products that PyTorch does not multiply."""
        firsts = {places.first: "int64" for places in self.places}
        dtypes = {**firsts, self.operand.name: self.dtype, **options.pop("dtypes", {})}
        matrices = len(self.operand.axes) == 2
        functions = [self.function, *(() if matrices else (product.whole for product in self.products))]
        texts = [function.source(target, sizes=own_sizes(function, sizes), **options,
                                 dtypes={name: dtypes[name] for name in function.cascade.inputs()})
                 for function in functions]  # fmt: skip
        if matrices:
            texts += [f"# {part.name} is a product of `{self.operand.name}` and `{product.factor.name}`: PyTorch "
                      "multiplies them." for part, product in zip(self.parts, self.products, strict=True)]  # fmt: skip
        return "\n\n".join(texts)

    def __str__(self) -> str:
        return "\n".join(map(str, (self.operand, *self.parts)))


def is_by_library(*tensors: Any) -> bool:
    """Tell if PyTorch multiplies: matrices that it neither records nor transforms."""
    matrices = all(hasattr(one, "new_empty") and one.dim() == 2 for one in tensors)
    return matrices and not is_recorded({str(place): one for place, one in enumerate(tensors)})


def call_arguments(function: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a function, of the tensors and scalars that are known."""
    names = {*function.cascade.inputs(), *(one.name for one in function.cascade.scalars())}
    return {name: one for name, one in given.items() if name in names}


def with_part(before: Any, made: Any, axes: Sequence[Axis], part: Part) -> Any:
    """A tensor of these axes (None: none yet) with what a part adds to it, or is of it."""
    if part.axis not in axes:
        return made if before is None else before + made
    if part.is_whole:
        return made
    tensor = empty_along(made, axes.index(part.axis), part.length) if before is None else before
    part.of(tensor, axes)[...] = made
    return tensor


def shared_operand(parts: tuple[Stage, Stage], make: Stages) -> OperandStage | None:
    """Two stages as products of one operand; None if they are none."""
    first, second = (weighted_sum(part.in_axes_of_inputs()) for part in parts)
    if first is None or second is None or first.operand != second.operand:
        return None
    x, y = first.over, second.over
    crossed = x in parts[1].axes and y in parts[0].axes and x not in parts[0].axes and y not in parts[1].axes
    elements = [*elements_of(first.operand), first.factor, second.factor]
    plain = all(reads_in_parts(one, {x, y}) for one in elements)
    if not (crossed and plain and all(has_one_place(axis, elements) for axis in (x, y))):
        return None
    axes = axes_by_name(free_axes(first.operand))
    of_rows = all(len(free_axes(one)) <= 1 for one in first.masks)
    apart = not any({*axes} & {*one.bound} for one in of_kind(Reduce, first.operand))
    if {*axes} != {*parts[0].axes[:-1], x} or not (of_rows and apart):
        return None
    places = tuple(Places.of(axis, make.names.fresh) for axis in axes)
    name, of_part = make.names.fresh("operand"), in_part(first.operand, places)
    try:
        stage = Stage(name, of_part, axes, make.fuse(of_part, axes_text(axes), 1))
        products = [operand_product(total, part, Element(Label(name), *axes), places, make)
                    for total, part in zip((first, second), parts, strict=True)]  # fmt: skip
    except (GradientError, NotFusible, NotDecided, ExpressionError):
        return None
    return OperandStage(parts, stage, (products[0], products[1]), places)


def operand_product(
    total: WeightedSum, part: Stage, operand: Element, places: tuple[Places, ...], make: Stages
) -> Product:
    """A weighted sum as a product of the operand's tensor."""
    expr = in_part(total.number, places) * sum_of(operand * total.factor, (total.over,))
    whole, wide = (of_fewest_passes(make.fuse, own, axes_text(part.axes), part.name) for own in (expr, make.wide(expr)))
    made = Element(Label(make.names.fresh("unmasked")), *part.axes)
    summed = [one for one in total.masks if free_axes(one) <= {total.over}]
    of_factor = with_mask(make, total.factor, summed)
    of_result = with_mask(make, made, [one for one in total.masks if one not in summed])
    return Product(part.axes, operand, total.over, total.number, total.factor, whole, wide, made.name, of_factor,
                   of_result)  # fmt: skip


@final
@dataclass(frozen=True)
class WeightedSum:
    """cast(c·Σ_axis cast(w)·T), whose masks are also those of w.

    Attributes:
        number, operand, factor, over: c, cast(w), T and the axis.
        masks: the conditions under which a term counts.
    """

    number: Expr
    operand: Expr
    factor: Element
    over: Axis
    masks: tuple[Basic, ...]


def weighted_sum(expr: Expr) -> WeightedSum | None:
    """An expression as such a sum, whose rows' factors beside it are in w; None of anything else."""
    whole = expr.args[0] if isinstance(expr, Cast) else expr
    number, rest = number_and_rest(whole)
    sums = [one for one in Mul.make_args(rest) if isinstance(one, Reduce)]
    beside = Mul(*(one for one in Mul.make_args(rest) if one not in sums))
    if len(sums) != 1 or sums[0].kind != "sum" or len(sums[0].bound) != 1 or of_kind(Reduce, beside):
        return None
    [total] = sums
    conditions, term = masks_and_rest(total.expr)
    tensors = [one for one in Mul.make_args(term) if isinstance(one, Element)]
    operand = Mul(*(one for one in Mul.make_args(term) if one not in tensors))
    if len(tensors) != 1 or not isinstance(operand, Cast) or not tensors[0].is_plain:
        return None
    weight = beside * operand.args[0]
    weight = Where(And(*conditions), weight, S.Zero) if conditions else weight
    return WeightedSum(number, Cast(weight, operand.dtype), tensors[0], total.bound[0], conditions)


def with_mask(make: Stages, element: Element, conditions: Sequence[Basic]) -> Any:
    """The function that is a tensor where conditions hold, and 0 elsewhere; None of no condition."""
    if not conditions:
        return None
    return make.fuse(Where(And(*conditions), element, S.Zero), axes_text(element.indices), 1)
