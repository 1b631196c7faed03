"""The derivatives of a fused function, derived when they are asked for."""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypeAlias

from redalg.errors import InputError
from redalg.expression import Element, Scalar
from redalg.expression.arguments import answer_methods
from redalg.expression.spelling import did_you_mean

if TYPE_CHECKING:
    from redalg.gradient import Backward, Forward

Wrt: TypeAlias = str | Element | Scalar | Sequence[str | Element | Scalar] | None
"""Tensors, as elements or by name; None for all."""
HELD = "A fused function holds no parameters and no device: it runs where its tensors lie."
INSTEAD = {
    "backward": "Call it on tensors that require a gradient, or derive its backward by `vjp`.",
    "forward": "Call it: `fused(x=…)`.",
    "apply": "Call it: `fused(x=…)`.",
    "grad": "Call it on tensors that require a gradient, or derive its backward by `vjp`.",
    "jit": "Call it: kernels are compiled at the first call, or ahead by `compile`.",
    "parameters": f"{HELD} `as_module` makes a module with parameters.",
} | dict.fromkeys(("to", "cuda", "cpu", "eval", "train", "half", "float"), f"{HELD} `as_module` makes a module.")
"""Methods of modules and functions of PyTorch -> what to do instead."""


@answer_methods(InputError)
class Differentiable(ABC):  # noqa: B024 - of what it derives everything is in the function
    """A function with derived modes of differentiation, each a value of its own."""

    if not TYPE_CHECKING:  # for a type checker every name would be an attribute

        def __getattr__(self, name: str) -> object:
            """Nothing: the error says what to do instead of what PyTorch's modules have, or names the nearest."""
            kind, public = type(self).__name__, [one for one in dir(self) if one[0] != "_"]
            advice = f" {INSTEAD[name]}" if name in INSTEAD else did_you_mean(name, public) if name[0] != "_" else ""
            raise AttributeError(f"{kind} has no `{name}`.{advice}", name=name, obj=self)

    def vjp(self, wrt: Wrt = None) -> Backward:
        """The derived backward: the gradients of tensors from cotangents of the outputs, as fused stages.

        Args:
            wrt: the tensors, or their names; None for all that have a gradient.

        Raises:
            GradientError: something has no derivative that redalg knows.

        >>> import redalg as ra
        >>> n = ra.axes("n")
        >>> print(ra.fuse(ra.sum(ra.tensor("x[b,n]") ** 2, n), axes="b").vjp())
        saved by the forward: nothing beside the inputs
        grad_x[b, n] = 2*grad_out[b]*x[b, n]    (element by element)
        """
        from redalg.gradient import derive_backward

        return derive_backward(self, names_of_tensors(wrt))

    def jvp(self, wrt: Wrt = None) -> Forward:
        """The derived forward mode: the tangents of the outputs from tangents of the tensors, in one pass if one does.

        Args:
            wrt: the tensors that have tangents, or their names; None for all.

        Raises:
            GradientError: something has no derivative that redalg knows.

        >>> import redalg as ra
        >>> n = ra.axes("n")
        >>> print(ra.fuse(ra.sum(ra.tensor("x[b,n]") ** 2, n), axes="b").jvp())
        linear in: tangent_x (of x)
        tangent_out[b] = sum(2*tangent_x[b, n]*x[b, n], n)    (passes: 1)
        """
        from redalg.gradient import derive_forward

        return derive_forward(self, names_of_tensors(wrt))


def names_of_tensors(wrt: Wrt) -> list[str] | None:
    """The names of tensors that are given as elements or by name, one or several.

    >>> from redalg import tensors
    >>> x, y = tensors("x[n] y[n]")
    >>> names_of_tensors(x), names_of_tensors("x"), names_of_tensors([x, "y"])
    (['x'], ['x'], ['x', 'y'])
    """
    if wrt is None:
        return None
    each = [wrt] if isinstance(wrt, str | Element | Scalar) or not isinstance(wrt, Collection) else wrt
    if other := [one for one in each if not isinstance(one, str | Element | Scalar)]:
        raise InputError(f"wrt: a {type(other[0]).__name__} is no tensor of the function. Give elements or names, as "
                         'in `vjp(["x"])`.')  # fmt: skip
    return [one if isinstance(one, str) else str(one.name) for one in each]
