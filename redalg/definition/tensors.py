"""Torch as an array library of the definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch

from redalg.definition.arrays import Library
from redalg.expression.dtypes import DTYPES
from redalg.expression.operators import OPERATORS


@final
class Torch(Library):
    """Torch tensors on one device."""

    xp = torch

    def __init__(self, device: str, dtype: str = "float64") -> None:
        self.device, self.dtype = device, dtype
        self.float_type: torch.dtype = getattr(torch, dtype)
        self.functions = {
            **{name: getattr(torch, operator.torch) for name, operator in OPERATORS.items()},
            "sign": lambda x: torch.where(torch.isnan(x), x, torch.sign(x)), "sqrt": torch.sqrt, "pow": torch.pow,
            "IsNaN": torch.isnan, "Infinite": lambda x: torch.where(torch.isinf(x), torch.sign(x), 0),
            "Mantissa": lambda x: torch.where(torch.isfinite(x), torch.frexp(x)[0], x),
            "Exponent": lambda x: torch.where(torch.isfinite(x), torch.frexp(x)[1], 0),
            "Scaled": lambda m, e: torch.ldexp(torch.ldexp(m, e // 2), e - e // 2),
        }  # fmt: skip

    def arange(self, start: int, stop: int) -> Any:
        return torch.arange(start, stop, device=self.device)

    def full(self, shape: Sequence[int], value: float | bool) -> Any:
        dtype = self.float_type if isinstance(value, float) else torch.bool if isinstance(value, bool) else torch.int64
        return torch.full(tuple(shape), value, dtype=dtype, device=self.device)

    def float(self, array: Any) -> Any:
        return array.to(self.float_type)

    def whole(self, array: Any) -> Any:
        return array.to(torch.int64)

    def is_float(self, array: Any) -> bool:
        return bool(array.dtype == self.float_type)

    def transpose(self, array: Any, order: Sequence[int]) -> Any:
        return array.permute(tuple(order))

    def sum(self, array: Any, place: int) -> Any:
        return array.sum(place, keepdim=True)

    def largest(self, array: Any, place: int) -> Any:
        return array.amax(place, keepdim=True)

    def order(self, array: Any, place: int) -> Any:
        return torch.sort(array, dim=place, stable=True).indices

    def take(self, array: Any, places: Any, place: int) -> Any:
        return torch.take_along_dim(array, places, place)

    def cumsum(self, array: Any, place: int) -> Any:
        return torch.cumsum(array, place)

    def join(self, arrays: Sequence[Any], place: int) -> Any:
        return torch.cat(tuple(arrays), place)

    def einsum(self, text: str, arrays: Sequence[Any]) -> Any:
        return torch.einsum(text, *arrays)

    def round_to(self, array: Any, dtype: str) -> Any:
        if dtype.startswith("int"):
            limits = torch.iinfo(getattr(torch, dtype))
            return torch.round(array).clamp(float(limits.min), float(limits.max))
        if DTYPES[dtype].saturates:
            array = array.clamp(-DTYPES[dtype].limit, DTYPES[dtype].limit)
        return array.to(getattr(torch, dtype)).to(self.float_type)

    def through(self, value: Any, source: Any) -> Any:
        made: Any = ValueOfOther
        return made.apply(self.float(value), self.float(source).expand(value.shape))

    def copy(self, array: Any, dtype: str) -> Any:
        return array.to(getattr(torch, dtype), copy=True)

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=self.device)


@final
class ValueOfOther(torch.autograd.Function):
    """(value, source) ↦ the value, with the derivative of the source: their difference may be NaN, as of infinities."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Nothing is saved: the derivative is 1."""

    @staticmethod
    def backward(_: Any, cotangent: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, cotangent

    @staticmethod
    def jvp(*tangents: Any) -> torch.Tensor | None:
        *_, tangent = tangents
        return None if tangent is None else tangent.clone()
