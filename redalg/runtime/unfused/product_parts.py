"""A call by a product of the library and a pass over it, part by part of an axis.

for parts of i:  s = h[part] @ wᵀ;  out[part] = F(s)          one tensor s at a time
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, final

from redalg.errors import BackendError
from redalg.expression import Axis, Element
from redalg.incremental.form import FusedForm
from redalg.runtime.bind import backends
from redalg.runtime.bind.inputs import Bound, bind, native
from redalg.runtime.bind.narrow import to_numpy
from redalg.runtime.unfused.product import ProductPass, TakenOut
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
        taken, problem, rows = self.product.taken, self.product.problem, self.product.plan.rows
        total = problem.sizes[str(taken.cut)] if taken.cut is not None else 0
        if rows is None or rows >= total:
            outputs = self.pass_over(tensors, total)
        else:
            outputs = self.join([self.pass_over(cut_tensors(taken, tensors, first, min(rows, total - first)),
                                                min(rows, total - first))
                                 for first in range(0, total, rows)])  # fmt: skip
        return {name: to_numpy(one) for name, one in outputs.items()} if self.numpy else outputs

    def pass_over(self, tensors: Mapping[str, Any], rows: int) -> dict[str, Any]:
        """The outputs of a part."""
        taken, problem = self.product.taken, self.product.problem
        made = multiply_factors(taken, tensors, problem.compute, tf32=problem.precision == "tf32")
        names = {*taken.form.cascade.inputs(), *(str(one.name) for one in taken.form.cascade.scalars())}
        given = {name: one for name, one in tensors.items() if name in names} | {taken.tensor.name: made}
        if rows not in self.steps:
            names = {axis.name for axis in taken.form.cascade.axes() if axis.size is None}
            names |= {str(name) for name in taken.form.cascade.extents()}
            extents = {name: size for name, size in problem.sizes.items() if name in names}
            extents |= {} if taken.cut is None else {str(taken.cut): rows}
            bound = replace(bind(taken.form.cascade, given, extents), result=self.result)
            self.steps[rows] = self.make_step(taken.form, bound)
        return self.steps[rows](given)

    def join(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """The outputs of all parts."""
        import torch

        places = self.product.taken.output_places()
        return {name: torch.cat([part[name] for part in parts], places[name]) for name in parts[0]}


def cut_tensors(taken: TakenOut, tensors: Mapping[str, Any], first: int, rows: int) -> dict[str, Any]:
    """The tensors of a part: those with the cut axis from its first element on."""
    known = {element.name for element in (*taken.form.cascade.elements(), taken.left, taken.right)} & tensors.keys()
    places = {name: taken.place(name) for name in known}
    return {name: array if places.get(name) is None else array.narrow(places[name], first, rows)
            for name, array in tensors.items()}  # fmt: skip


def multiply_factors(taken: TakenOut, tensors: Mapping[str, Any], compute: str, *, tf32: bool) -> Array:
    """Σ left·right in the dtype of a kernel's arithmetic, contiguous along the tensor's indices."""
    import torch

    left, right = (matrix(taken, one, tensors[one.name]) for one in (taken.left, taken.right))
    dtype = getattr(torch, compute)
    batched = left.dim() == 3
    with exactly(left.device.type, tf32=tf32):
        if left.dtype == dtype:
            made = torch.matmul(left, right.mT)
        elif left.device.type == "cuda":
            made = _multiply_wide(torch.bmm if batched else torch.mm, left, right.mT, dtype)
        else:
            made = torch.matmul(left.to(dtype), right.to(dtype).mT)
    sizes = dict(zip((*taken.left.indices, *taken.right.indices),
                     (*tensors[taken.left.name].shape, *tensors[taken.right.name].shape), strict=True))  # fmt: skip
    return made.reshape([sizes[axis] for axis in taken.tensor.indices])


def _multiply_wide(operation: Callable[..., Array], left: Array, right: Array, dtype: Any) -> Array:
    """A product of 16-bit floats that is stored in float32."""
    try:
        return operation(left, right, out_dtype=dtype)
    except TypeError as error:
        raise BackendError(
            "the library's product of 16-bit floats in float32 needs PyTorch 2.8 or later. Upgrade it, or leave "
            "plan= out."
        ) from error


def matrix(taken: TakenOut, element: Element, array: Array) -> Array:
    """A factor as (batch, rows, summed axis); without a batch as (rows, summed axis)."""
    order: tuple[Axis, ...] = (*taken.batch, *taken.rows(element), taken.axis)
    array = array.permute([element.indices.index(axis) for axis in order])
    batch, rows = (prod(array.shape[: len(taken.batch)]), prod(array.shape[len(taken.batch) : -1]))
    return array.reshape([*([batch] if taken.batch else []), rows, array.shape[-1]])
