"""Calls on tensors that require a gradient: PyTorch records them, and their backward runs the derived stages.

    forward     outputs and row values, in one call; both are saved
    backward    the stages (`Backward.from_saved`); each is a call of its own, recorded again if a graph is asked for

Row values are outputs that nobody sees, float32 at least: the derivative of a gradient passes through them, by the
backward of the forward that has them for outputs. Under `torch.vmap` the function of a batch is called (`batched.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, final

from redalg.errors import GradientError
from redalg.gradient.backward import Backward
from redalg.gradient.batched import lacks_batch, of_batch
from redalg.gradient.derive import derive_backward


def recorded_call(
    fused: Any, inputs: Mapping[str, Any], backend: str | None, sizes: Mapping[str, int], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The outputs of a call by name, with a backward."""
    names = tuple(name for name, one in inputs.items() if hasattr(one, "requires_grad"))
    if not any(inputs[name].requires_grad for name in names):
        return mapped_call(fused, names, inputs, {**options, "backend": backend, "sizes": dict(sizes)})
    backward = backward_of(fused).for_tensors({name: inputs[name] for name in names})
    if options["plan"] is not None and backward.saved:
        raise GradientError("plan= belongs to a form without the row values that a gradient needs. Leave it out, or "
                            "call under `torch.no_grad()`.")  # fmt: skip
    others = {name: one for name, one in inputs.items() if name not in names}
    run = Recorded(backward, names, others, {**options, "backend": backend}, dict(sizes))
    made = functions()[0].apply(run, *(inputs[name] for name in names))
    return dict(zip(backward.outputs, made, strict=False))


def mapped_call(fused: Any, names: tuple[str, ...], inputs: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """The outputs of a call under `torch.vmap`, by name."""
    others = {name: one for name, one in inputs.items() if name not in names}
    made = functions()[1].apply(Mapped(fused, names, {**others, **options}), *(inputs[name] for name in names))
    return dict(zip((output.name for output in fused.cascade.outputs), made, strict=True))


@final
@dataclass(frozen=True, eq=False)
class Mapped:
    """A call of which tensors may hold batches: the function, its tensors' names in order, and its other arguments."""

    function: Any
    names: tuple[str, ...]
    others: Mapping[str, Any]

    def call(self, tensors: Iterable[Any]) -> tuple[Any, ...]:
        """The outputs."""
        made = self.function(**dict(zip(self.names, tensors, strict=True)), **self.others)
        return (made,) if self.function.single else tuple(made)

    def call_on_batch(self, size: int, places: Sequence[int | None], tensors: Iterable[Any]) -> tuple[Any, ...]:
        """The outputs of a batch, whose first dimension it is, of tensors that have it at a place or lack it."""
        named = zip(self.names, tensors, places, strict=True)
        moved = {name: tensor if place is None else tensor.movedim(place, 0) for name, tensor, place in named}
        batched = {name for name, place in zip(self.names, places, strict=True) if place is not None}
        if lacks_batch(self.function, batched):
            moved |= {name: moved[name].expand(size, *moved[name].shape) for name in moved.keys() - batched}
            batched = set(self.names)
        return Mapped(of_batch(self.function, batched), self.names, self.others).call(moved.values())


def backward_of(fused: Any) -> Backward:
    """The backward of a function by all its tensors, derived once."""
    known: dict[str, Any] = vars(fused)
    if "_backward" not in known:
        known["_backward"] = derive_backward(fused)
    made: Backward = known["_backward"]
    return made


PRODUCT = ("a product (`ra.prod`) has no second derivative in redalg: where two factors are 0 the stages say nothing "
           "of it. Take the gradient without `create_graph=True`.")  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class Recorded:
    """One call: its backward, and what is no tensor."""

    backward: Backward
    names: tuple[str, ...]
    others: Mapping[str, Any]
    options: Mapping[str, Any]
    sizes: Mapping[str, int]

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The names of what the forward returns."""
        return (*self.backward.outputs, *self.backward.saved)

    def _arguments(self, tensors: tuple[Any, ...]) -> dict[str, Any]:
        """The arguments of a call by name."""
        return {**self.others, **dict(zip(self.names, tensors, strict=True))}

    def forward(self, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        """Outputs, then row values."""
        function = self.backward.forward
        made = function(**self._arguments(tensors), **self.options, sizes=dict(self.sizes))
        return (made,) if function.single else tuple(made)

    def gradients(self, tensors: tuple[Any, ...], made: tuple[Any, ...], cotangents: tuple[Any, ...],
                  wanted: tuple[str, ...]) -> dict[str, Any]:  # fmt: skip
        """The gradients of the wanted tensors."""
        given = self._arguments(tensors)
        by_output = {name: g for name, g in zip(self.outputs, cotangents, strict=True) if g is not None}
        if by_output.keys() <= set(self.backward.outputs):
            saved = dict(zip(self.outputs, made, strict=True))
            found = self.backward.from_saved(by_output, saved, given, self.sizes, wanted)
        else:
            found = backward_of(self.backward.forward)(by_output, sizes=self.sizes, **given)
        return {name: one.to(given[name].dtype) for name, one in found.items()}


@cache
def functions() -> tuple[Any, Any]:
    """PyTorch's functions of recorded calls and of mapped ones; torch is imported where a call has its tensors."""
    from torch import Tensor, is_grad_enabled
    from torch.autograd import Function

    @final
    class MappedCall(Function):
        """A call under `torch.vmap`, without gradients of its own."""

        @staticmethod
        def forward(call: Mapped, *tensors: Tensor) -> tuple[Tensor, ...]:
            return call.call(tensors)

        @staticmethod
        def setup_context(ctx: Any, _: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            ctx.mark_non_differentiable(*output)

        @staticmethod
        def vmap(info: Any, places: tuple[int | None, ...], call: Mapped, *tensors: Tensor) -> Any:
            made = call.call_on_batch(info.batch_size, places[1:], tensors)
            return made, (0,) * len(made)

    @final
    class RecordedCall(Function):
        """See the module."""

        @staticmethod
        def forward(run: Recorded, *tensors: Tensor) -> tuple[Tensor, ...]:
            return run.forward(tensors)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            run, *tensors = inputs
            ctx.run, ctx.number = run, len(tensors)
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*(one for one in output if not one.dtype.is_floating_point))
            ctx.save_for_backward(*tensors, *output)

        @staticmethod
        def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
            saved, run = ctx.saved_tensors, ctx.run
            tensors, made = saved[: ctx.number], saved[ctx.number :]
            needed = ctx.needs_input_grad[1:]
            wanted = tuple(name for name, needs in zip(run.names, needed, strict=True) if needs)
            if all(one is None for one in cotangents):
                return (None, *(None for _ in run.names))
            if run.backward.once and is_grad_enabled():
                raise GradientError(PRODUCT)
            found = run.gradients(tensors, made, cotangents, wanted)
            return (None, *(found.get(name) if needs else None for name, needs in zip(run.names, needed, strict=True)))

        @staticmethod
        def vmap(info: Any, places: tuple[int | None, ...], run: Recorded, *tensors: Tensor) -> Any:
            call = Mapped(run.backward.forward, run.names, {**run.others, **run.options, "sizes": dict(run.sizes)})
            made = call.call_on_batch(info.batch_size, places[1:], tensors)
            return made, (0,) * len(made)

    return RecordedCall, MappedCall
