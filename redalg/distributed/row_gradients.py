"""The backward of a call whose outputs are split along rows: every stage is a call across ranks in its turn.

    of rows, reduces the streamed axis    the streamed tensors travel, as in the forward         gradients of rows
    streamed, reduces the rows            rows travel: the same call with the axes exchanged     other gradients
    reduces neither                       is computed where it is                                row values

So no gradient travels: each is made by the rank that has its tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, final

import torch

from redalg.errors import GradientError
from redalg.expression import Axis
from redalg.gradient.backward import Backward
from redalg.gradient.recorded import backward_of
from redalg.gradient.stage import AnyStage, JointStage, Stage, sizes_of
from redalg.runtime.bind.places import axes_by_place

if TYPE_CHECKING:
    from redalg.distributed.rows import DistributedRows


def recorded_rows(call: DistributedRows, inputs: Mapping[str, Any], empty: str, sizes: Mapping[str, int]) -> Any:
    """The outputs of a call, with a backward. Every rank of the group has to run the backward too.

    Raises:
        GradientError: a gradient is no sum over one of the two axes that are split.
    """
    names = tuple(name for name, one in inputs.items() if isinstance(one, torch.Tensor))
    others = {name: one for name, one in inputs.items() if name not in names}
    split = split_backward(call, backward_of(call.fused).for_tensors({name: inputs[name] for name in names}))
    run = Run(split, names, others, empty, sizes)
    made = rows_function().apply(run, *(inputs[name] for name in names))
    outputs = made[: len(split.backward.outputs)]
    return (
        outputs[0]
        if call.fused.single
        else call.fused._outputs(dict(zip(split.backward.outputs, outputs, strict=True)))
    )


def split_backward(call: DistributedRows, backward: Backward) -> SplitBackward:
    """The backward of a call across its ranks, made once: what ranks agree on is kept."""
    known: dict[int, SplitBackward] = vars(call).setdefault("_backwards", {})
    if id(backward) not in known:
        known[id(backward)] = SplitBackward(call, backward)
    return known[id(backward)]


@final
@dataclass(frozen=True)
class SplitBackward:
    """A backward whose forward and stages are calls across ranks.

    Attributes:
        call: the function across ranks.
        backward: of the function.
    """

    call: DistributedRows
    backward: Backward

    @cached_property
    def forward(self) -> DistributedRows:
        """The forward with its row values, across the ranks."""
        return with_split(self.call, self.backward.forward, self.call.axis, self.call.rows)

    @cached_property
    def stages(self) -> Backward:
        """The backward whose stages are calls across ranks."""
        return replace(self.backward, stages=tuple(split_stage(self.call, one) for one in self.backward.stages))


@final
@dataclass(frozen=True, eq=False)
class Run:
    """The parts of a call that are no tensors, which PyTorch passes on their own.

    Attributes:
        split: the backward across ranks.
        names: of the tensors, in the order in which PyTorch passes them.
        others: inputs that are no tensors.
        empty, sizes: options of the call.
    """

    split: SplitBackward
    names: tuple[str, ...]
    others: Mapping[str, Any]
    empty: str
    sizes: Mapping[str, int]

    def forward(self, tensors: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs, then row values."""
        forward = self.split.forward
        made = forward(**self._inputs(tensors), empty=self.empty, sizes=dict(self.sizes))
        return (made,) if forward.fused.single else tuple(made)

    def gradients(self, tensors: tuple[Any, ...], made: tuple[Any, ...], cotangents: tuple[Any, ...],
                  wanted: tuple[str, ...]) -> dict[str, torch.Tensor]:  # fmt: skip
        """The gradients of the wanted tensors, of this rank's rows and of its shard."""
        backward, given = self.split.stages, self._inputs(tensors)
        names = (*backward.outputs, *backward.saved)
        by_output = dict(zip(backward.outputs, cotangents, strict=False))
        known = dict(zip(names, made, strict=True))
        lengths = sizes_of(backward.forward.cascade, self.split.call.own_part(given))
        found = backward.from_saved(by_output, known, given, self.sizes, wanted, lengths=lengths)
        return {name: one.to(given[name].dtype) for name, one in found.items()}

    def _inputs(self, tensors: Iterable[torch.Tensor]) -> dict[str, Any]:
        return {**self.others, **dict(zip(self.names, tensors, strict=True))}


@cache
def rows_function() -> Any:
    """PyTorch's function of such calls."""
    from torch.autograd.function import once_differentiable

    @final
    class RowsFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, run: Run, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            made = run.forward(tensors)
            ctx.run, ctx.number = run, len(tensors)
            ctx.save_for_backward(*tensors, *made)
            ctx.mark_non_differentiable(*made[len(run.split.backward.outputs) :])
            return made

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
            saved, run, needs = ctx.saved_tensors, ctx.run, ctx.needs_input_grad[1:]
            wanted = tuple(name for name, needed in zip(run.names, needs, strict=True) if needed)
            found = run.gradients(saved[: ctx.number], saved[ctx.number :], cotangents, wanted)
            return None, *(found.get(name) if needed else None for name, needed in zip(run.names, needs, strict=True))

    return RowsFunction


# ---- stages ----------------------------------------------------------------------------------------------------------


def with_split(call: DistributedRows, fused: Any, axis: Axis, rows: Axis) -> DistributedRows:
    """Another function across the ranks of a call, split along the same two axes."""
    from redalg.distributed.rows import check_rows
    from redalg.distributed.shard import check_form

    check_form(fused.form, axis)
    check_rows(fused.form, axis, rows)
    return replace(call, fused=fused, axis=axis, rows=rows, wide_travel=axis != call.axis)


def split_stage(call: DistributedRows, stage: AnyStage) -> AnyStage:
    """A stage that runs across the ranks of a call."""
    if not isinstance(stage, Stage | JointStage) or stage.fused is None:
        return stage
    return replace(stage, fused=SplitStage(call, stage.fused, stage.name))


@final
class SplitStage:
    """The function of a stage, across ranks; its split is sought when it is called, since some stages have none."""

    def __init__(self, call: DistributedRows, fused: Any, name: str) -> None:
        self.call, self.fused, self.name = call, fused, name
        self.cascade, self.single = fused.cascade, fused.single

    @cached_property
    def run(self) -> Callable[..., Any]:
        """The function as ranks run it."""
        both = {self.call.axis, self.call.rows}
        indexed = {axis for one in self.cascade.elements() for axis in one.indices} & both
        of_outputs = [set(one.axes) & both for one in self.cascade.outputs]
        summed = set(self.cascade.reduced_axes) & both
        if not summed and len(indexed) < 2 and not any(axes_by_place(form) & both for form in self.fused.passes.forms):
            run: Callable[..., Any] = self.fused
            return run
        [rows] = of_outputs[0] if len(of_outputs[0]) == 1 else [None]
        if rows is None or any(axes != {rows} for axes in of_outputs) or summed != both - {rows}:
            axes = " and ".join(sorted(map(str, both)))
            raise GradientError(
                f"distributed: {self.name} is not made of one sum over {axes}, along which ranks are split. Ask for "
                "the gradients of tensors that have one of these axes, and detach the others."
            )
        [axis] = both - {rows}
        return with_split(self.call, self.fused, axis, rows)

    def __call__(self, *, sizes: Mapping[str, int], backend: str | None = None, **tensors: Any) -> Any:
        """The outputs of this rank's rows."""
        split = {self.call.axis.name, self.call.rows.name}
        if self.run is self.fused:
            return self.fused(**tensors, sizes=sizes, backend=backend)
        return self.run(**tensors, sizes={name: size for name, size in sizes.items() if name not in split})
