"""Calls on tensors that require a gradient: PyTorch records them, and their backward runs the derived stages.

    forward     outputs and row values, in one call; both are saved
    backward    the stages (`Backward.from_saved`); each is a call of its own, recorded again if a graph is asked for

Row values are outputs that nobody sees, float32 at least: the derivative of a gradient passes through them, by the
backward of the forward that has them for outputs. Under `torch.vmap` the function of a batch is called (`batched.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, final

from redalg.errors import GradientError
from redalg.gradient.backward import Backward
from redalg.gradient.batched import lacks_batch, of_batch
from redalg.gradient.derive import derive_backward
from redalg.runtime.bind.autocast import without_autocast


def recorded_call(
    fused: Any, inputs: Mapping[str, Any], backend: str | None, sizes: Mapping[str, int], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The outputs of a call by name, with a backward if some tensor requires a gradient."""
    names = tuple(name for name, one in inputs.items() if hasattr(one, "requires_grad"))
    scalars = {name: one for name, one in inputs.items() if name not in names}
    tensors = [inputs[name] for name in names]
    options = {**options, "backend": backend}
    outputs = (output.name for output in fused.cascade.outputs)
    if not any(one.requires_grad for one in tensors):  # under `torch.vmap`
        run = Recorded(fused, None, names, scalars, sizes, options)
        return dict(zip(outputs, functions().mapped.apply(run, *tensors), strict=True))
    backward = backward_of(fused).for_tensors({name: inputs[name] for name in names})
    if options["plan"] is not None and backward.saved:
        raise GradientError("plan= belongs to a form without the row values that a gradient needs. Leave it out, or "
                            "call under `torch.no_grad()`.")  # fmt: skip
    run = Recorded(backward.forward, backward, names, scalars, sizes, options)
    return dict(zip(outputs, functions().recorded.apply(run, *tensors), strict=False))


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
        backward, given = self.backward, self._arguments(tensors)
        if backward is None:
            raise AssertionError("a call without a gradient has no backward")
        outputs = (*backward.outputs, *backward.saved)
        by_output = {name: g for name, g in zip(outputs, cotangents, strict=True) if g is not None}
        if by_output.keys() <= set(backward.outputs):
            saved = dict(zip(outputs, made, strict=True))
            found = backward.from_saved(by_output, saved, given, self.sizes, wanted)
        else:
            found = backward_of(backward.forward)(by_output, sizes=self.sizes, **given)
        return {name: one.to(given[name].dtype) for name, one in found.items()}

    def _arguments(self, tensors: Iterable[Any]) -> dict[str, Any]:
        """Tensors and scalars by name."""
        return {**self.scalars, **dict(zip(self.names, tensors, strict=True))}


class Functions(NamedTuple):
    """PyTorch's functions of calls that are transformed alone, and of those that have a gradient."""

    mapped: Any
    recorded: Any


@cache
def functions() -> Functions:
    """PyTorch's functions, made once: torch is imported where a call has its tensors."""
    from torch import Tensor, is_grad_enabled
    from torch.autograd import Function

    def run_call(run: Recorded, *tensors: Tensor) -> tuple[Tensor, ...]:
        return run.call(tensors)

    def run_batch(info: Any, places: tuple[int | None, ...], run: Recorded, *tensors: Tensor) -> Any:
        made = run.call_on_batch(info.batch_size, places[1:], tensors)
        return made, (0,) * len(made)

    @final
    class MappedCall(Function):
        """A call under `torch.vmap`, without gradients of its own."""

        forward, vmap = staticmethod(run_call), staticmethod(run_batch)

        @staticmethod
        def setup_context(ctx: Any, _: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            ctx.mark_non_differentiable(*output)

    @final
    class RecordedCall(Function):
        """See the module."""

        forward, vmap = staticmethod(run_call), staticmethod(run_batch)

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
            with without_autocast():
                found = run.gradients(tensors, made, cotangents, wanted)
            return (None, *(found.get(name) if needs else None for name, needs in zip(run.names, needed, strict=True)))

    return Functions(MappedCall, RecordedCall)
