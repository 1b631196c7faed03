"""The tilelang backend: bound tensors in, kernels from the caches, outputs out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redalg.errors import BackendError
from redalg.incremental.form import FusedForm
from redalg.lower_tile.compile import Kernel, compile_source
from redalg.lower_tile.program import Parameter
from redalg.runtime import arrays
from redalg.runtime.gathers import check_gathers, gathers_any
from redalg.runtime.inputs import Bound
from redalg.runtime.lowering import Lowered, lower, options_of, target_of

ALIGNMENT_BYTES = 16
"""What the bulk copy engine and vector loads need of a tensor's address."""


def run(form: FusedForm, bound: Bound, options: Mapping[str, Any]) -> dict[str, Any]:
    """Run the generated kernel (tensors without elements are finished by the interpreter: nothing to launch)."""
    refuse_missing_torch()
    if any(size == 0 for size in bound.sizes.values()):
        return arrays.run(form, bound, "torch", options["empty"])
    tensors = arrays.tensors_for(bound, "torch")
    if gathers_any(form.cascade) and (options["check"] or bound.device == "cpu"):
        check_gathers(form.cascade, arrays.scope_for(form.cascade, bound, arrays.ops_for(bound, "torch"), tensors))
    lowered = lowered_for(form, bound, tensors, options)
    kernel = kernel_for(lowered)
    made = launch(kernel, lowered, tensors, bound)
    shaped = {one.name: made[one.name].reshape([bound.sizes[axis.name] for axis in one.axes]) for one in form.outputs}
    rounded = {name: array.to(_dtype(lowered.results[name])) for name, array in shaped.items()}
    return arrays.to_library(rounded, bound.library, "torch")


def refuse_missing_torch() -> None:
    """TileLang is called with torch tensors."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as missing:
        raise BackendError(
            'backend="tilelang" needs torch to hold its tensors, and torch is not installed. Install it '
            '(`pip install torch`), or pass backend="numpy".'
        ) from missing


_LOWERED: dict[tuple[Any, ...], tuple[FusedForm, Lowered]] = {}
"""By the form's identity (kept alive beside the result): hashing a form's expressions would cost more than a call."""


def lowered_for(form: FusedForm, bound: Bound, tensors: Mapping[str, Any], options: Mapping[str, Any]) -> Lowered:
    """The lowering of this problem, kept in process by what it depends on."""
    shapes = {name: tuple(array.shape) for name, array in tensors.items()}
    target, wanted = target_of(bound.device), options_of(options)
    parts = (bound.sizes, bound.dtypes, shapes, wanted)
    key = (id(form), target, *(tuple(part.items()) for part in parts))
    if key not in _LOWERED:
        _LOWERED[key] = form, lower(form, target, bound.sizes, bound.dtypes, shapes=shapes, **wanted)
    return _LOWERED[key][1]


def kernel_for(lowered: Lowered) -> Kernel:
    """The compiled kernel of a lowering, from this process or from TileLang's cache on disk."""
    text = lowered.source.text
    if text not in _KERNELS:
        _KERNELS[text] = compile_source(lowered.source)
    return _KERNELS[text]


_KERNELS: dict[str, Kernel] = {}


def launch(kernel: Kernel, lowered: Lowered, tensors: Mapping[str, Any], bound: Bound) -> dict[str, Any]:
    """Call a kernel with inputs, scalars, fresh outputs and workspaces, in the program's order."""
    import torch

    made: dict[str, Any] = {}
    arguments = []
    for one in lowered.program.parameters:
        if one.role == "input":
            arguments.append(_input(tensors[one.key], one))
        elif one.role == "scalar":
            arguments.append(bound.scalars[one.key])
        else:
            made[one.key] = torch.empty(one.shape, dtype=_dtype(one.dtype), device=bound.device)
            arguments.append(made[one.key])
    kernel.run(*arguments)
    return made


def _input(array: Any, parameter: Parameter) -> Any:
    """A tensor as the kernel takes it: contiguous, aligned, masks as bytes."""
    import torch

    if array.dtype == torch.bool:
        array = array.contiguous().view(torch.uint8)
    array = array.to(_dtype(parameter.dtype)).contiguous().reshape(parameter.shape)
    return array if array.data_ptr() % ALIGNMENT_BYTES == 0 else array.clone()


def _dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)
