"""Floats of 16 and 8 bits that NumPy lacks: arrays of `ml_dtypes` (which brings them), to torch and back.

Widening to float32 is exact; so is a tensor of torch with the same bits.
"""

from __future__ import annotations

from typing import Any

from redalg.expression.dtypes import DTYPES, is_emulated


def integers_of(name: str) -> str:
    """The integers of as many bits as a float that NumPy lacks."""
    return {1: "uint8", 2: "int16"}[DTYPES[name].bytes]


def widen_narrow(array: Any) -> Any:
    """A NumPy array, in float32 where NumPy's own functions do not know its dtype."""
    return array.astype("float32") if is_emulated(str(array.dtype)) else array


def numpy_dtype(name: str) -> Any:
    """A dtype for NumPy: where it lacks one and `ml_dtypes` is not there, float32 holds the same numbers."""
    if not is_emulated(name):
        return name
    try:
        import ml_dtypes
    except ModuleNotFoundError:
        return "float32"
    return getattr(ml_dtypes, name)


def to_torch(array: Any) -> Any:
    """A NumPy array as a tensor that shares its memory."""
    import torch

    name = str(array.dtype)
    if not is_emulated(name):
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(integers_of(name))).view(getattr(torch, name))


def to_numpy(tensor: Any) -> Any:
    """A tensor as a NumPy array that shares its memory, by `ml_dtypes` where NumPy lacks its dtype."""
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    if not is_emulated(name):
        return tensor.numpy()
    import ml_dtypes

    return tensor.view(getattr(torch, integers_of(name))).numpy().view(getattr(ml_dtypes, name))
