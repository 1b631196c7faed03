"""Calls on tensors that require a gradient: PyTorch records them, and their backward runs the derived stages.

    forward     outputs and row values, in one call; both are saved
    backward    the stages (`Backward.from_saved`); each is a call of its own, recorded again if a graph is asked for
    jvp         forward mode (`Forward`) of what ran, of the tensors that have tangents; its stages are such calls too

Row values are outputs that nobody sees, float32 at least: the derivative of a gradient passes through them, by the
backward, or forward mode, of the forward that has them for outputs. Under `torch.vmap` the function of a batch is
called (`batched.py`). Where no tensor requires a gradient there are no row values: a backward makes them then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

from redalg.errors import GradientError
from redalg.gradient.arrays import zeros_like
from redalg.gradient.backward import Backward
from redalg.gradient.batched import lacks_batch, of_batch
from redalg.gradient.derive import derive_backward
from redalg.gradient.derive_forward import derive_forward
from redalg.gradient.first_only import first_only
from redalg.gradient.forward import Forward
from redalg.runtime.bind.autocast import without_autocast
from redalg.runtime.bind.inputs import refuse_derivatives, refuse_scalar_gradients
from redalg.runtime.bind.private import is_in_forward_mode


def recorded_call(
    fused: Any, inputs: Mapping[str, Any], backend: str | None, sizes: Mapping[str, int], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The outputs of a call by name, with a backward if some tensor requires a gradient."""
    refuse_scalar_gradients(fused.passes.scalars, inputs)
    names = tuple(name for name, one in inputs.items() if hasattr(one, "requires_grad"))
    scalars = {name: one for name, one in inputs.items() if name not in names}
    tensors = [inputs[name] for name in names]
    options = {**options, "backend": backend}
    outputs = (output.name for output in fused.cascade.outputs)
    if fused.once or not any(one.requires_grad for one in tensors):
        run = Recorded(fused, None, names, scalars, sizes, options)
        return dict(zip(outputs, recorded_function().apply(run, *tensors), strict=True))
    backward = backward_of(fused).for_tensors({name: inputs[name] for name in names})
    if options["plan"] is not None and backward.saved:
        raise GradientError("plan= belongs to a form without the row values that a gradient needs. Leave it out, or "
                            "call under `torch.no_grad()`.")  # fmt: skip
    run = Recorded(backward.forward, backward, names, scalars, sizes, options)
    return dict(zip(outputs, recorded_function().apply(run, *tensors), strict=False))


def backward_of(fused: Any) -> Backward:
    """The backward of a function by all its tensors, derived once."""
    known: dict[str, Any] = vars(fused)
    if "_backward" not in known:
        known["_backward"] = derive_backward(fused)
    made: Backward = known["_backward"]
    return made


def forward_of(fused: Any, names: Iterable[str]) -> Forward:
    """Forward mode of a function by some of its tensors, derived once."""
    known: dict[frozenset[str], Forward] = vars(fused).setdefault("_forward", {})
    wrt = frozenset(names)
    if wrt not in known:
        known[wrt] = derive_forward(fused, sorted(wrt))
    return known[wrt]


@final
@dataclass(frozen=True, eq=False)
class Recorded:
    """One call: what it is beside the tensors, which PyTorch passes.

    Attributes:
        function, backward: the function that runs, and its backward; None if no tensor requires a gradient.
        names: of the tensors, in order.
        scalars, sizes, options: the other arguments.
    """

    function: Any
    backward: Backward | None
    names: tuple[str, ...]
    scalars: Mapping[str, Any]
    sizes: Mapping[str, int]
    options: Mapping[str, Any]

    def call(self, tensors: Iterable[Any], function: Any = None) -> tuple[Any, ...]:
        """The outputs, then row values; `function` is another one of the same tensors."""
        function = function or self.function
        made = function(**self._arguments(tensors), **self.options, sizes=dict(self.sizes))
        return (made,) if function.single else tuple(made)

    def call_on_batch(self, size: int, places: Sequence[int | None], tensors: Iterable[Any]) -> tuple[Any, ...]:
        """The outputs of a batch, whose first dimension it is, of tensors that have it at a place or lack it."""
        named = zip(self.names, tensors, places, strict=True)
        moved = {name: tensor if place is None else tensor.movedim(place, 0) for name, tensor, place in named}
        batched = {name for name, place in zip(self.names, places, strict=True) if place is not None}
        if lacks_batch(self.function, batched):
            moved |= {name: moved[name].expand(size, *moved[name].shape) for name in moved.keys() - batched}
            batched = set(self.names)
        return self.call(moved.values(), of_batch(self.function, batched))

    def gradients(self, tensors: tuple[Any, ...], made: tuple[Any, ...], cotangents: tuple[Any, ...],
                  wanted: tuple[str, ...]) -> dict[str, Any]:  # fmt: skip
        """The gradients of the wanted tensors."""
        given = self._arguments(tensors)
        names = [output.name for output in self.function.cascade.outputs]
        by_output = {name: g for name, g in zip(names, cotangents, strict=True) if g is not None}
        backward = self.backward
        if backward is not None and by_output.keys() <= set(backward.outputs):
            found = backward.from_saved(by_output, dict(zip(names, made, strict=True)), given, self.sizes, wanted)
        else:
            found = backward_of(self.function)(by_output, sizes=self.sizes, **given)
        return {name: one.to(given[name].dtype) for name, one in found.items()}

    def tangents(self, tensors: Iterable[Any], made: Iterable[Any], tangents: Iterable[Any]) -> tuple[Any, ...]:
        """The tangents of what was made, of tensors' (None: it has none); None for what is no floating-point number."""
        given = {name: one for name, one in zip(self.names, tangents, strict=True) if one is not None}
        refuse_derivatives(one.name for one in self.function.passes.scalars if one.name in given)
        forward = forward_of(self.function, given)
        known = {name: one for name, one in given.items() if name in forward.names}
        found = forward(known, sizes=self.sizes, **self._arguments(tensors))
        return tuple(_as_tangent(found.get(output.name), value)
                     for output, value in zip(self.function.cascade.outputs, made, strict=True))  # fmt: skip

    def _arguments(self, tensors: Iterable[Any]) -> dict[str, Any]:
        """Tensors and scalars by name."""
        return {**self.scalars, **dict(zip(self.names, tensors, strict=True))}


def _as_tangent(tangent: Any, value: Any) -> Any:
    """A tangent as PyTorch needs it: of the value's dtype, 0 of a constant, None of integers and truths."""
    if not value.is_floating_point():
        return None
    return zeros_like(value) if tangent is None else tangent.to(value.dtype)


@cache
def recorded_function() -> Any:
    """PyTorch's function of calls, made once: torch is imported where a call has its tensors."""
    from torch import Tensor, is_grad_enabled, set_grad_enabled
    from torch.autograd import Function, forward_ad

    @final
    class RecordedCall(Function):
        """See the module."""

        @staticmethod
        def forward(run: Recorded, *tensors: Tensor) -> tuple[Tensor, ...]:
            return run.call(tensors)

        @staticmethod
        def vmap(info: Any, places: tuple[int | None, ...], run: Recorded, *tensors: Tensor) -> Any:
            made = run.call_on_batch(info.batch_size, places[1:], tensors)
            return made, (0,) * len(made)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            run, *tensors = inputs
            ctx.run, ctx.number = run, len(tensors)
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*(one for one in output if not one.dtype.is_floating_point))
            ctx.save_for_backward(*tensors, *output)
            if is_in_forward_mode():
                ctx.save_for_forward(*tensors, *output)

        @staticmethod
        def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
            saved, run = ctx.saved_tensors, ctx.run
            tensors, made = saved[: ctx.number], saved[ctx.number :]
            needed = ctx.needs_input_grad[1:]
            wanted = tuple(name for name, needs in zip(run.names, needed, strict=True) if needs)
            if all(one is None for one in cotangents):
                return (None, *(None for _ in run.names))
            is_last = run.backward is not None and run.backward.once and is_grad_enabled()
            with without_autocast(), set_grad_enabled(is_grad_enabled() and not is_last):
                found = run.gradients(tensors, made, cotangents, wanted)
            if is_last:
                found = first_only(found, [*tensors, *(one for one in cotangents if one is not None)])
            return (None, *(found.get(name) if needs else None for name, needs in zip(run.names, needed, strict=True)))

        @staticmethod
        def jvp(ctx: Any, _: None, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
            # PyTorch turns forward mode off here, and with it the tangents of an outer `torch.func.jvp`
            with forward_ad._set_fwd_grad_enabled(True):
                primals = [forward_ad.unpack_dual(one).primal for one in ctx.saved_tensors]
                tensors, made = primals[: ctx.number], primals[ctx.number :]
                return ctx.run.tangents(tensors, made, tangents)

    return RecordedCall
