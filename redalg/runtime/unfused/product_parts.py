"""A call by a product of the library and a pass over it, part by part of an axis.

for parts of i:  s = h[part] @ wᵀ;  out[part] = F(s)          one tensor s at a time
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, final

from redalg.expression import Axis, Element
from redalg.incremental.form import FusedForm
from redalg.runtime.bind import backends
from redalg.runtime.bind.inputs import Bound, bind, native
from redalg.runtime.bind.narrow import to_numpy
from redalg.runtime.unfused.multiply import multiply_wide
from redalg.runtime.unfused.product import ProductPass, ProductSplit
from redalg.runtime.unfused.unfused import exactly

Array = Any
Step = Callable[[Mapping[str, Any]], dict[str, Any]]
MakeStep = Callable[[FusedForm, Bound], Step]
"""Makes the step that runs a form by its kernel, on tensors bound like these."""


@final
@dataclass(frozen=True)
class ProductSteps:
    """The product and the pass over it, on tensors of one kind.

    Attributes:
        product: the plan.
        make_step: for the pass over a part.
        result: the dtype of outputs.
        numpy: True if the caller's arrays are NumPy's.
        steps: the step for a part, by its rows.
    """

    product: ProductPass
    make_step: MakeStep
    result: str
    numpy: bool
    steps: dict[int, Step] = field(default_factory=dict)

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        tensors = {name: backends.torch_of(native(array)) if self.numpy and hasattr(array, "dtype") else array
                   for name, array in inputs.items()}  # fmt: skip
        split, problem, rows = self.product.split, self.product.problem, self.product.plan.rows
        total = problem.sizes[str(split.cut)] if split.cut is not None else 0
        if rows is None or rows >= total:
            outputs = self.pass_over(tensors, total)
        else:
            outputs = self.join([self.pass_over(cut_tensors(split, tensors, first, min(rows, total - first)),
                                                min(rows, total - first))
                                 for first in range(0, total, rows)])  # fmt: skip
        return {name: to_numpy(one) for name, one in outputs.items()} if self.numpy else outputs

    def pass_over(self, tensors: Mapping[str, Any], rows: int) -> dict[str, Any]:
        """The outputs of a part."""
        split, problem = self.product.split, self.product.problem
        made = multiply_factors(split, tensors, problem.compute, tf32=problem.precision == "tf32")
        names = {*split.form.cascade.inputs(), *(str(one.name) for one in split.form.cascade.scalars())}
        given = {name: one for name, one in tensors.items() if name in names} | {split.tensor.name: made}
        if rows not in self.steps:
            names = {axis.name for axis in split.form.cascade.axes() if axis.size is None}
            names |= {str(name) for name in split.form.cascade.extents()}
            extents = {name: size for name, size in problem.sizes.items() if name in names}
            extents |= {} if split.cut is None else {str(split.cut): rows}
            bound = replace(bind(split.form.cascade, given, extents), result=self.result)
            self.steps[rows] = self.make_step(split.form, bound)
        return self.steps[rows](given)

    def join(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """The outputs of all parts."""
        import torch

        places = self.product.split.output_places()
        return {name: torch.cat([part[name] for part in parts], places[name]) for name in parts[0]}


def cut_tensors(split: ProductSplit, tensors: Mapping[str, Any], first: int, rows: int) -> dict[str, Any]:
    """The tensors of a part: those with the cut axis from its first element on."""
    known = {element.name for element in (*split.form.cascade.elements(), split.left, split.right)} & tensors.keys()
    places = {name: split.place(name) for name in known}
    return {name: array if places.get(name) is None else array.narrow(places[name], first, rows)
            for name, array in tensors.items()}  # fmt: skip


def multiply_factors(split: ProductSplit, tensors: Mapping[str, Any], compute: str, *, tf32: bool) -> Array:
    """Σ left·right in the dtype of a kernel's arithmetic, contiguous along the tensor's indices."""
    import torch

    left, right = (matrix(split, one, tensors[one.name]) for one in (split.left, split.right))
    dtype = getattr(torch, compute)
    batched = left.dim() == 3
    with exactly(left.device.type, tf32=tf32):
        if left.dtype == dtype:
            made = torch.matmul(left, right.mT)
        elif left.device.type == "cuda":
            made = multiply_wide(torch.bmm if batched else torch.mm, left, right.mT, dtype=dtype)
        else:
            made = torch.matmul(left.to(dtype), right.to(dtype).mT)
    sizes = dict(zip((*split.left.indices, *split.right.indices),
                     (*tensors[split.left.name].shape, *tensors[split.right.name].shape), strict=True))  # fmt: skip
    return made.reshape([sizes[axis] for axis in split.tensor.indices])


def matrix(split: ProductSplit, element: Element, array: Array) -> Array:
    """A factor as (batch, rows, summed axis); without a batch as (rows, summed axis)."""
    order: tuple[Axis, ...] = (*split.batch, *split.rows(element), split.axis)
    array = array.permute([element.indices.index(axis) for axis in order])
    batch, rows = (prod(array.shape[: len(split.batch)]), prod(array.shape[len(split.batch) : -1]))
    return array.reshape([*([batch] if split.batch else []), rows, array.shape[-1]])
