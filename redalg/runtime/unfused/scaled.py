"""A product of 8-bit floats with a scale for every row and every column, as the operation that PyTorch has for it.

    out[m, n] = bfloat16((Σ_k A[m, k]·B[n, k])·a(m)·b(n))   →   torch._scaled_mm(A, Bᵀ, scale_a=a, scale_b=b)

Exact but for the order of sums and of the three factors: both sum products of 8 bits in the tensor cores' own
accumulators (`use_fast_accum`), and round once, at the end.

PyTorch takes it on cards that multiply 8 bits, of bfloat16 results, where |k| and |n| are multiples of 16 and not both
tensors are of `float8_e5m2`. It is the second of two passes if the first makes the tensor that is rounded to 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from sympy import Expr, Mul, S

from redalg.decompose.cascade import Cascade, Output
from redalg.expression import Axis, Cast, Element
from redalg.expression.contents import elements_of, free_axes, values_of
from redalg.expression.dtypes import is_eight_bits
from redalg.incremental.form import FusedForm
from redalg.lower_tile.ir.names import Names, kernel_name
from redalg.strategies.device import DeviceSpec
from redalg.strategies.plan import Problem
from redalg.unfused.definition import OTHER_NAMES, definition

STEP = 16
"""The number that extents of the product are multiples of."""


@final
@dataclass(frozen=True)
class ScaledProduct:
    """The tensors A[row, k] and B[column, k], and the scales that rows and columns are multiplied by."""

    tensors: tuple[Element, Element]
    axes: tuple[Axis, Axis]
    scales: tuple[Expr, Expr]


def scaled_product(form: FusedForm, problem: Problem, device: DeviceSpec) -> ScaledProduct | None:
    """The product that a form is, of these dtypes and sizes; None if PyTorch has no operation for it on a card."""
    product = product_of(form.cascade) if device.fp8 else None
    if product is None:
        return None
    dtypes = {problem.dtypes[one.name] for one in product.tensors}
    others = {problem.dtypes[one.name] for expr in product.scales for one in elements_of(expr)}
    multiples = [problem.sizes[axis.name] for axis in (form.cascade.axis, product.axes[1])]
    holds = all(map(is_eight_bits, dtypes)) and dtypes != {"float8_e5m2"} and others == {"float32"}
    return product if holds and all(size and size % STEP == 0 for size in multiples) else None


def product_of(cascade: Cascade) -> ScaledProduct | None:
    """The scaled product that a cascade is written as; None if it is written otherwise."""
    if len(cascade.outputs) != 1 or len(cascade.reductions) != 1 or cascade.producers or cascade.inner:
        return None
    [output], [sum_of] = cascade.outputs, cascade.reductions
    expr, pair = output.expr, Mul.make_args(sum_of.term)
    if not isinstance(expr, Cast) or expr.dtype != "bfloat16" or cascade.domain is not S.true:
        return None
    parts = Mul.make_args(expr.args[0])
    indices = {one.indices: one for one in pair if isinstance(one, Element)}
    places = [(axis, cascade.axis) for axis in output.axes]
    if sum_of.monoid.name != "sum" or parts.count(sum_of.value) != 1 or len(pair) != 2 or set(indices) != set(places):
        return None
    row, column = output.axes
    rest = [one for one in parts if one != sum_of.value]
    of_column = [one for one in rest if column in free_axes(one)]
    of_row = [one for one in rest if column not in free_axes(one)]
    scales = Mul(*of_row), Mul(*of_column)
    if [free_axes(one) for one in scales] != [{row}, {column}] or any(map(values_of, scales)):
        return None
    return ScaledProduct((indices[places[0]], indices[places[1]]), (row, column), scales)


def scaled_product_text(product: ScaledProduct, form: FusedForm, problem: Problem) -> str:
    """The text of the function `definition` that calls it; it takes the cascade's tensors and scalars in order."""
    cascade = form.cascade
    parts = zip("ab", product.scales, product.axes, strict=True)
    outputs = tuple(Output(name, expr, (axis,)) for name, expr, axis in parts)
    alone = replace(cascade, reductions=(), outputs=outputs)
    scales = definition("scales", alone, problem.sizes, problem.shapes)
    names = Names((*OTHER_NAMES, "scales", "a", "b"))
    parameters = {name: names.fresh(kernel_name(name)) for name in arguments(cascade)}
    left, right = (parameters[one.name] for one in product.tensors)
    return f"""
{scales.text}


def definition({", ".join(parameters.values())}):
    a, b = scales({", ".join(parameters[name] for name in arguments(alone))})
    return torch._scaled_mm(
        {left}, {right}.mT, scale_a=a[:, None], scale_b=b[None], out_dtype=torch.bfloat16, use_fast_accum=True
    ),
""".strip()


def arguments(cascade: Cascade) -> tuple[str, ...]:
    """The names of a definition's arguments, in order."""
    return *cascade.inputs(), *(str(one.name) for one in cascade.scalars())
