"""Gradients that have no derivative of their own: whoever differentiates them is told so, and only then.

A graph of the gradient is asked for by more than second derivatives: `torch.func.grad` and `jacrev` always make one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, final

from redalg.errors import GradientError
from redalg.gradient.reverse import PRODUCT


def first_only(gradients: Mapping[str, Any], sources: Sequence[Any]) -> dict[str, Any]:
    """The gradients by name, as tensors made of the sources whose derivative is an error.

    Raises:
        GradientError: later, where something differentiates them.
    """
    made = function_without_derivative().apply(len(gradients), *gradients.values(), *sources)
    return dict(zip(gradients, made, strict=True))


@cache
def function_without_derivative() -> Any:
    """PyTorch's function that hands on its first tensors, made once: torch is imported where a gradient has its own."""
    from torch import Tensor
    from torch.autograd import Function

    @final
    class FirstOnly(Function):
        """See the module."""

        generate_vmap_rule = True

        @staticmethod
        def forward(count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
            return tuple(one.clone() for one in tensors[:count])

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            """Nothing is saved."""

        @staticmethod
        def backward(*_: Any) -> Any:
            raise GradientError(PRODUCT)

        @staticmethod
        def jvp(*_: Any) -> Any:
            raise GradientError(PRODUCT)

    return FirstOnly
