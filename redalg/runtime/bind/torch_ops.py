"""Torch as the array library of the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch

from redalg.expression.dtypes import DTYPES
from redalg.expression.operators import OPERATORS
from redalg.incremental.arrays.arrays import ArrayOps

FOLDS = {"prod": "prod", "max": "amax", "min": "amin"}
"""⊕ as torch spells it where it scatters."""


@final
class TorchOps(ArrayOps):
    """Torch tensors on one device; contractions through torch's own matrix products, never in TF32."""

    def __init__(self, compute: str, device: str) -> None:
        self.compute, self.device = getattr(torch, compute), device
        self.functions = {
            **{name: getattr(torch, operator.torch) for name, operator in OPERATORS.items()},
            "sign": _sign, "sqrt": torch.sqrt, "pow": torch.pow, "where": torch.where,
            "Scaled": self.ldexp, "Mantissa": lambda x: self.frexp(x)[0],
            "Exponent": lambda x: self.frexp(x)[1], "IsNaN": torch.isnan, "Lost": self.addition_error,
            "Infinite": lambda x: torch.where(torch.isinf(x), torch.sign(x), 0),
        }  # fmt: skip

    def arange(self, start: int, stop: int) -> Any:
        return torch.arange(start, stop, device=self.device)

    def scalar(self, value: float) -> Any:
        return torch.tensor(value, dtype=self.compute, device=self.device)

    def full(self, shape: Sequence[int], value: float) -> Any:
        return torch.full(tuple(shape), value, dtype=self.compute, device=self.device)

    def to_compute(self, array: Any) -> Any:
        return torch.as_tensor(array, device=self.device).to(self.compute)

    def wide(self, array: Any) -> Any:
        return array.to(torch.float64)

    def round_to(self, array: Any, dtype: str) -> Any:
        if dtype.startswith("int"):
            limits = torch.iinfo(getattr(torch, dtype))
            return torch.round(array).clamp(limits.min, limits.max)
        if DTYPES[dtype].saturates:
            array = array.clamp(-DTYPES[dtype].limit, DTYPES[dtype].limit)
        return array.to(getattr(torch, dtype)).to(self.compute)

    def integer(self, array: Any) -> Any:
        return array.to(torch.int64)

    def is_float(self, array: Any) -> bool:
        return bool(array.is_floating_point())

    def expand(self, array: Any, shape: Sequence[int]) -> Any:
        return array.expand(tuple(shape))

    def permute(self, array: Any, order: Sequence[int]) -> Any:
        return array.permute(tuple(order))

    def reduce(self, kind: str, array: Any, dim: int) -> Any:
        if kind == "max":
            return array.amax(dim, keepdim=True)
        if kind == "min":
            return array.amin(dim, keepdim=True)
        return array.sum(dim, keepdim=True) if kind == "sum" else array.prod(dim, keepdim=True)

    def count(self, array: Any, dim: int) -> Any:
        return array.sum(dim, keepdim=True, dtype=torch.int64)

    def any(self, array: Any, dim: int) -> Any:
        return array.any(dim, keepdim=True)

    def einsum(self, spec: str, *arrays: Any) -> Any:
        allowed = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        try:
            return torch.einsum(spec, *arrays)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = allowed

    def isfinite(self, array: Any) -> Any:
        return torch.isfinite(array)

    def argmax(self, array: Any, dim: int) -> Any:
        return array.argmax(dim, keepdim=True)

    def order(self, array: Any, dim: int, *, descending: bool) -> Any:
        return torch.sort(array, dim=dim, descending=descending, stable=True).indices

    def take(self, array: Any, positions: Any, dim: int) -> Any:
        return torch.take_along_dim(array, positions, dim)

    def pick(self, array: Any, numbers: Any, dim: int) -> Any:
        return array.index_select(dim, numbers)

    def count_groups(self, keys: Any, groups: int) -> Any:
        return torch.zeros(groups, dtype=torch.int64, device=self.device).index_add_(0, keys, torch.ones_like(keys))

    def fold_groups(self, kind: str, array: Any, keys: Any, dim: int, *, groups: int, identity: float = 0.0) -> Any:
        shape = [groups if place == dim else size for place, size in enumerate(array.shape)]
        if kind == "sum":
            wide = torch.float64 if array.is_floating_point() else array.dtype
            total = torch.zeros(shape, dtype=wide, device=self.device)
            return total.index_add_(dim, keys, array.to(wide)).to(array.dtype)
        folded = torch.full(shape, identity, dtype=array.dtype, device=self.device)
        places = keys.reshape([-1 if place == dim else 1 for place in range(array.ndim)]).expand(array.shape)
        return folded.scatter_reduce_(dim, places, array, FOLDS[kind])

    def concat(self, arrays: Sequence[Any], dim: int) -> Any:
        return torch.cat(tuple(arrays), dim)

    def frexp(self, array: Any) -> tuple[Any, Any]:
        mantissa, exponent = torch.frexp(array)
        plain = torch.isfinite(array) & (array != 0)
        return torch.where(plain, mantissa, array), torch.where(plain, exponent, 0).to(torch.int64)


def _sign(array: Any) -> Any:
    """−1, 0 or 1, and NaN of a NaN, of which torch gives 0."""
    return torch.where(torch.isnan(array), array, torch.sign(array))
