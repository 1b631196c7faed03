"""Calls under `torch.autocast`: tensors that meet in a product of matrices are cast, as those of `torch.matmul` are.

All else is left as the caller gave it: sums, norms and what stands in exponents accumulate in float32 at least.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from redalg.expression.products import multiplied_tensors
from redalg.runtime.bind.frameworks import imported_torch
from redalg.runtime.bind.inputs import by_name

DEVICES = ("cuda", "cpu")


@contextmanager
def without_autocast() -> Iterator[None]:
    """Switch autocast off: what runs below a call has the dtypes that it says."""
    torch = imported_torch()
    with ExitStack() as stack:
        for device in DEVICES:
            if torch is not None and torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def multiplied_names(fused: Any) -> frozenset[str]:
    """The names of the tensors that autocast casts, found once for a function."""
    known: dict[str, frozenset[str]] = vars(fused)
    if "_multiplied" not in known:
        known["_multiplied"] = multiplied_tensors(expr for _, expr in fused.written)
    return known["_multiplied"]


def cast_as_autocast(array: Any) -> Any:
    """An array in autocast's dtype if autocast is on for its device; float64 stays, as in PyTorch.

    Tracers follow these lines.
    """
    import torch

    if isinstance(array, torch.Tensor) and array.dtype in (torch.float32, torch.float16, torch.bfloat16):
        device = array.device.type
        if device in DEVICES and torch.is_autocast_enabled(device):
            return array.to(torch.get_autocast_dtype(device))
    return array


def call_in_autocast(
    fused: Any, positional: Sequence[Any], tensors: Mapping[str, Any], options: Mapping[str, Any]
) -> Any:
    """The outputs of a call under autocast: those of a call outside it, on tensors that are cast as autocast says."""
    names, given = multiplied_names(fused), by_name(fused, positional, tensors)
    cast = {name: cast_as_autocast(one) if name in names else one for name, one in given.items()}
    with without_autocast():
        return fused(**cast, **options)
