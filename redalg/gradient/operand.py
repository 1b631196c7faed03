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

from sympy import Expr, Integer, Mul, S
from sympy.core.basic import Basic

from redalg.errors import ExpressionError, GradientError, NotFusible, Undecided
from redalg.expression import Axis, Cast, Element, Extent, Label, Reduce, Where
from redalg.expression.contents import axes_by_name, elements_of, free_axes, of_kind
from redalg.expression.dtypes import DTYPES
from redalg.gradient.arrays import cast_like, empty_along, integers_like
from redalg.gradient.parts import Part, Places, in_part
from redalg.gradient.reverse import sum_of
from redalg.gradient.spelling import number_and_rest
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
        over: the axis that it sums over.
        number: c.
        factor: the element of the tensor that it multiplies the operand by, of whose dtype it is.
        whole, part: the function where all of that axis is there, and that of a part, which is float32.
    """

    axes: tuple[Axis, ...]
    over: Axis
    number: Expr
    factor: Element
    whole: Any
    part: Any

    def by_library(self, before: Any, operand: Any, factor: Any, part: Part, sizes: Mapping[str, int]) -> Any:
        """The result (None: none yet) with what a part adds to it, or is of it, of matrices by PyTorch.

        The operand has the axes (row, summed one).
        """
        adds, made = part.axis == self.over, before
        if before is None:
            made = empty_matrix(factor, [sizes[axis.name] for axis in self.axes], wide=adds and not part.is_whole)
        multiply_into(
            part.of(made, self.axes), operand, factor if self.factor.indices[0] == self.over else factor.mT,
            self.number_at(sizes), add=adds and before is not None,
        )  # fmt: skip
        return made

    def by_function(self, before: Any, given: Mapping[str, Any], part: Part, sizes: Mapping[str, int]) -> Any:
        """The same of arrays of any library, recorded if they are."""
        function = self.part if part.axis == self.over else self.whole
        own = {**sizes, part.axis.name: part.stop - part.start}
        made = function(**call_arguments(function, given), sizes=own_sizes(function, own))
        return with_part(before, made, self.axes, part)

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
        for given, part in self.inputs_by_part(known, sizes):
            own = own_sizes(self.function, {**sizes, part.axis.name: part.stop - part.start})
            found = self.with_part(found, self.function(**call_arguments(self.function, given), sizes=own), given, part,
                                   sizes)  # fmt: skip
        return {part.name: cast_like(made, known[product.factor.name])
                for part, made, product in zip(self.parts, found, self.products, strict=True)}  # fmt: skip

    def with_part(self, found: Sequence[Any], operand: Any, given: Mapping[str, Any], part: Part,
                  sizes: Mapping[str, int]) -> list[Any]:  # fmt: skip
        """The products (None: none yet) with what a part adds to them, or is of them; then its operand is let go."""
        factors = [given[product.factor.name] for product in self.products]
        if not self.is_by_library(operand, factors):
            named = {**given, self.operand.name: operand}
            return [product.by_function(before, named, part, sizes)
                    for before, product in zip(found, self.products, strict=True)]  # fmt: skip
        first = self.operand.axes[0]
        return [product.by_library(before, operand if product.axes[0] == first else operand.mT, factor, part, sizes)
                for before, product, factor in zip(found, self.products, factors, strict=True)]  # fmt: skip

    def is_by_library(self, operand: Any, tensors: Sequence[Any]) -> bool:
        """Tell if PyTorch multiplies: matrices that it neither records nor transforms."""
        alone = all(hasattr(one, "new_empty") and one.dim() == 2 for one in (operand, *tensors))
        return alone and not is_recorded({str(place): one for place, one in enumerate((operand, *tensors))})

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
        read = {*elements_of(self.operand.expr), *(product.factor for product in self.products)}
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
    read = [weighted_sum(part.in_axes_of_inputs()) for part in parts]
    if None in read:
        return None
    (number, operand, first, [x]), (other_number, other, second, [y]) = (one for one in read if one is not None)
    crossed = x in parts[1].axes and y in parts[0].axes and x not in parts[0].axes and y not in parts[1].axes
    if operand != other or not crossed or free_axes(operand) != {*parts[0].axes[:-1], x}:
        return None
    elements = [*elements_of(operand), first, second]
    if any(not one.is_plain for one in elements if free_axes(one) & {x, y}):
        return None
    if not all(has_one_place(axis, elements) for axis in (x, y)):
        return None
    axes = axes_by_name(free_axes(operand))
    if any({*axes} & {*one.bound} for one in of_kind(Reduce, operand)):
        return None
    places = tuple(Places.of(axis, make.names) for axis in axes)
    name, of_part = make.names.fresh("operand"), in_part(operand, places)
    element = Element(Label(name), *axes)

    def product(over: Axis, number: Expr, factor: Element, part: Stage) -> Product:
        total = in_part(number, places) * sum_of(element * factor, (over,))
        whole, wide = (of_fewest_passes(make.fuse, expr, axes_text(part.axes), part.name)
                       for expr in (total, make.wide(total)))  # fmt: skip
        return Product(part.axes, over, number, factor, whole, wide)

    try:
        stage = Stage(name, of_part, axes, make.fuse(of_part, axes_text(axes), 1))
        products = product(x, number, first, parts[0]), product(y, other_number, second, parts[1])
    except (GradientError, NotFusible, Undecided, ExpressionError):
        return None
    return OperandStage(parts, stage, products, places)


def weighted_sum(expr: Expr) -> tuple[Expr, Expr, Element, tuple[Axis, ...]] | None:
    """(c, w, T, axes) of cast(c·Σ_axes cast(w)·T); None of anything else. A mask of the terms is one of w."""
    whole = expr.args[0] if isinstance(expr, Cast) else expr
    number, total = number_and_rest(whole)
    if not isinstance(total, Reduce) or total.kind != "sum" or len(total.bound) != 1:
        return None
    term, conditions = total.expr, list[Basic]()
    while isinstance(term, Where) and term.args[2] is S.Zero:
        conditions.append(term.args[0])
        term = term.args[1]
    tensors = [one for one in Mul.make_args(term) if isinstance(one, Element)]
    operand = Mul(*(one for one in Mul.make_args(term) if one not in tensors))
    if len(tensors) != 1 or not isinstance(operand, Cast) or not tensors[0].is_plain:
        return None
    for condition in reversed(conditions):
        operand = Cast(Where(condition, operand.args[0], S.Zero), operand.dtype)
    return number, operand, tensors[0], total.bound
