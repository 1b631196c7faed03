"""Array backends: the libraries that run a form block by block.

A new one is a class here and a row of `ARRAY_BACKENDS`; its elementary operations are an `ArrayOps`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any, final

from redalg.errors import BackendError
from redalg.expression.dtypes import is_eight_bits
from redalg.incremental.arrays.arrays import ArrayOps
from redalg.runtime.bind.inputs import Bound
from redalg.runtime.bind.narrow import numpy_dtype, to_numpy, to_torch, widen_narrow


class ArrayBackend(ABC):
    """A library of arrays in which forms are computed."""

    @abstractmethod
    def ops(self, compute: str, device: str) -> ArrayOps:
        """Its operations, in a compute dtype, on the device of the inputs."""

    @abstractmethod
    def tensors(self, bound: Bound) -> dict[str, Any]:
        """The inputs as its arrays, on the same memory if the libraries can share it."""

    @abstractmethod
    def empty(self, shape: Sequence[int], dtype: str, ops: ArrayOps) -> Any:
        """An uninitialised array."""

    @abstractmethod
    def to_library(self, array: Any, library: str) -> Any:
        """An output as an array of the caller's library, `numpy` or `torch`."""


@final
class NumpyBackend(ArrayBackend):
    """NumPy, on the CPU."""

    def ops(self, compute: str, device: str) -> ArrayOps:
        from redalg.incremental.arrays.numpy_ops import NumpyOps

        return NumpyOps(compute)

    def tensors(self, bound: Bound) -> dict[str, Any]:
        if bound.library == "numpy":
            return {name: widen_narrow(array) for name, array in bound.tensors.items()}
        if "bfloat16" in bound.dtypes.values() or bound.device != "cpu":
            raise BackendError(
                'backend="numpy" has no bfloat16 and no GPU. Pass float32 CPU tensors, or backend="torch".'
            )
        narrow = {name for name, dtype in bound.dtypes.items() if is_eight_bits(dtype)}
        return {name: (array.float() if name in narrow else array).numpy() for name, array in bound.tensors.items()}

    def empty(self, shape: Sequence[int], dtype: str, ops: ArrayOps) -> Any:
        import numpy as np

        return np.empty(tuple(shape), numpy_dtype(dtype))

    def to_library(self, array: Any, library: str) -> Any:
        if library == "numpy":
            return array
        import torch

        return torch.from_numpy(array)


@final
class TorchBackend(ArrayBackend):
    """torch, on the device of its tensors."""

    def ops(self, compute: str, device: str) -> ArrayOps:
        try:
            from redalg.runtime.bind.torch_ops import TorchOps
        except ModuleNotFoundError as missing:
            raise BackendError(
                'backend="torch" needs torch, which is not installed. Install it (`pip install "redalg[torch]"`), '
                'or pass backend="numpy".'
            ) from missing
        return TorchOps(compute, device)

    def tensors(self, bound: Bound) -> dict[str, Any]:
        if bound.library == "torch":
            return dict(bound.tensors)
        return {name: torch_of(array) for name, array in bound.tensors.items()}

    def empty(self, shape: Sequence[int], dtype: str, ops: ArrayOps) -> Any:
        import torch

        return torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=getattr(ops, "device", "cpu"))

    def to_library(self, array: Any, library: str) -> Any:
        return to_numpy(array) if library == "numpy" else array


def torch_of(array: Any) -> Any:
    """A NumPy array as a torch tensor, on the same memory where torch can read it."""
    readable = array.flags.writeable and all(step >= 0 for step in array.strides)
    return to_torch(array if readable else array.copy())


ARRAY_BACKENDS: dict[str, ArrayBackend] = {"torch": TorchBackend(), "numpy": NumpyBackend()}
"""The array backends by name, as `backend=` takes it. `tilelang` is none: it runs kernels."""


def ops_for(bound: Bound, backend: str, compute: str | None = None) -> ArrayOps:
    """The operations of a backend, in the bound inputs' compute dtype unless another is given."""
    return ops_of(backend, compute or bound.compute, bound.device)


@cache
def ops_of(backend: str, compute: str, device: str) -> ArrayOps:
    """One library for a dtype and device: what is recorded of it is kept between calls."""
    return ARRAY_BACKENDS[backend].ops(compute, device)


def tensors_for(bound: Bound, backend: str) -> dict[str, Any]:
    """The bound tensors as a backend's own arrays."""
    return ARRAY_BACKENDS[backend].tensors(bound)
