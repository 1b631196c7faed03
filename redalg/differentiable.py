"""The derivatives of a fused function, derived when they are asked for."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redalg.gradient import Backward, Forward


class Differentiable(ABC):  # noqa: B024 - of what it derives everything is in the function
    """A function with derived modes of differentiation, each a value of its own."""

    def vjp(self, wrt: Sequence[str] | None = None) -> Backward:
        """The derived backward: the gradients of tensors from cotangents of the outputs, as fused stages.

        Args:
            wrt: the names of the tensors; None for all that have a gradient.

        Raises:
            GradientError: something has no derivative that redalg knows.

        >>> import redalg as ra
        >>> n = ra.axes("n")
        >>> print(ra.fuse(ra.sum(ra.tensor("x[b,n]") ** 2, n), axes="b").vjp())
        saved by the forward: nothing beside the inputs
        grad_x[b, n] = 2*grad_out[b]*x[b, n]    (element by element)
        """
        from redalg.gradient import derive_backward

        return derive_backward(self, wrt)

    def jvp(self, wrt: Sequence[str] | None = None) -> Forward:
        """The derived forward mode: the tangents of the outputs from tangents of the tensors, in one pass if one does.

        Args:
            wrt: the names of the tensors that have tangents; None for all.

        Raises:
            GradientError: something has no derivative that redalg knows.

        >>> import redalg as ra
        >>> n = ra.axes("n")
        >>> print(ra.fuse(ra.sum(ra.tensor("x[b,n]") ** 2, n), axes="b").jvp())
        linear in: tangent_x (of x)
        tangent_out[b] = sum(2*tangent_x[b, n]*x[b, n], n)    (passes: 1)
        """
        from redalg.gradient import derive_forward

        return derive_forward(self, wrt)
