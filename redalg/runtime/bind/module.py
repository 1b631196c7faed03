"""A module of PyTorch that calls a fused function with parameters of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch.nn import Module, Parameter

from redalg.errors import InputError
from redalg.expression.contents import elements_of
from redalg.runtime.bind.functions import function_of_text


@final
class FusedModule(Module):
    """The function and its parameters: `forward` takes the other tensors and the options of a call.

    >>> import redalg as ra
    >>> scaled = ra.fuse(ra.sum(ra.tensor("x[b,n]") * ra.tensor("w[n]"), ra.axes("n")), axes="b")
    >>> module = scaled.as_module({"w": torch.ones(3)})
    >>> module.extra_repr()
    'w=(3,)'
    >>> module.forward(x=torch.ones(2, 3)).detach()
    tensor([3., 3.])
    """

    def __init__(self, fused: Any, parameters: Mapping[str, Any]) -> None:
        super().__init__()
        fused.to_json()  # which raises if the module could not be pickled
        self.fused = fused
        if not isinstance(parameters, Mapping):
            raise InputError(f"as_module: a {type(parameters).__name__} is given. Give parameters by the names of "
                             'their tensors: `as_module({"w": …})`.')  # fmt: skip
        names = sorted({one.name for _, expr in fused.written for one in elements_of(expr)})
        for name, value in parameters.items():
            if name not in names:
                raise InputError(f"as_module: `{name}` is no tensor of the function, which has {', '.join(names)}. "
                                 "Give parameters of these names.")  # fmt: skip
            if hasattr(self, name):
                raise InputError(f"as_module: `{name}` is an attribute that the module has itself. Rename the tensor.")
            self.register_parameter(name, _as_parameter(name, value))

    def forward(self, *positional: Any, **inputs: Any) -> Any:
        """The outputs of the function; tensors by position are those of `inputs=` that are no parameters."""
        own = self._parameters
        if twice := [name for name in inputs if name in own]:
            raise InputError(f"forward: `{twice[0]}` is a parameter of the module, and is given too. Leave it out.")
        places = [name for name in self.fused.inputs if name not in own]
        if len(positional) > len(places):
            raise InputError(f"forward: {len(positional)} tensors are given by position, and {len(places)} may be. "
                             "Pass tensors by keyword.")  # fmt: skip
        return self.fused(**dict(zip(places, positional, strict=False)), **own, **inputs)

    def extra_repr(self) -> str:
        """The shapes of its parameters."""
        return ", ".join(f"{name}={tuple(one.shape)}" for name, one in self.named_parameters())

    def __getstate__(self) -> dict[str, Any]:
        """The attributes, the function as its text."""
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        return {**state, "fused": self.fused.to_json()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "fused": function_of_text(state["fused"])})  # type: ignore[no-untyped-call]


def _as_parameter(name: str, value: Any) -> Parameter:
    if isinstance(value, Parameter):
        return value
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return Parameter(value.detach())
    found = f"a tensor of {value.dtype}" if isinstance(value, torch.Tensor) else f"{value!r}"
    raise InputError(f"as_module: `{name}` is {found}, and a parameter is a tensor of floats, which has its "
                     "first values: write `torch.ones(4096)`, say. Pass other tensors at the call.")  # fmt: skip
