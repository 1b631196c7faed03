"""Products of two matrices by PyTorch, written or added to where they belong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redalg.errors import BackendError

Array = Any


def multiply_wide(operation: Callable[..., Array], *factors: Array, dtype: Any, **options: Any) -> Array:
    """A product of 16-bit floats on a GPU that is stored in a wider dtype."""
    try:
        return operation(*factors, out_dtype=dtype, **options)
    except TypeError as error:
        raise BackendError(
            "the library's product of 16-bit floats in float32 needs PyTorch 2.8 or later. Upgrade it, or leave "
            "plan= out."
        ) from error


def empty_matrix(like: Array, shape: Sequence[int], *, wide: bool) -> Array:
    """A matrix on a tensor's device, not filled; in float32 if it is `wide`, else in the tensor's dtype."""
    import torch

    return like.new_empty(shape, dtype=torch.float32 if wide else like.dtype)


def multiply_into(target: Array, left: Array, right: Array, number: float = 1.0, *, add: bool = False) -> None:
    """Write number·left·right to a matrix, or add it to what is there; it is rounded to the matrix's dtype."""
    import torch

    scaled = {"alpha": number, "beta": 1.0 if add else 0.0, "out": target}
    if target.dtype == left.dtype:
        torch.addmm(target, left, right, **scaled)
    elif left.device.type == "cuda":
        multiply_wide(torch.addmm, target, left, right, dtype=target.dtype, **scaled)
    else:
        torch.addmm(target, left.to(target.dtype), right.to(target.dtype), **scaled)
