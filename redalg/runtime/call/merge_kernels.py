"""Merge states by a kernel, of one program for a number of states and their sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from redalg.errors import PlanError
from redalg.expression import Axis
from redalg.incremental.form import FusedForm
from redalg.incremental.remembered import Remembered
from redalg.incremental.stages import single
from redalg.incremental.state_outputs import with_state_for_outputs
from redalg.lower_tile.ir.program import Parameter
from redalg.lower_tile.place.state_merge import MergeProgram, program_of_merge
from redalg.lower_tile.text.emit import Source, emit
from redalg.lower_tile.text.header import header
from redalg.runtime.bind.packing import Packed, Packing, empty_buffer
from redalg.runtime.bind.state import State, reduced_names
from redalg.runtime.call.kernels import with_alignment
from redalg.runtime.compile.compile import compile_source, launch_function
from redalg.runtime.lowering import problem_of, target_of
from redalg.strategies.device import device_for
from redalg.strategies.rules.rules import choose_schedule
from redalg.strategies.schedule import numbers_of

ELEMENTS = 64
"""Elements of a part, by which a schedule is chosen: a merge reads none."""


@final
@dataclass(frozen=True)
class Merge:
    """A kernel that merges a number of states of one kind.

    Attributes:
        entry: takes the inputs and the outputs, in order.
        inputs: its inputs, a slot each.
        axes: slot -> axes of its dimensions after the first.
        packing: of the merged state.
    """

    entry: Callable[..., Any]
    inputs: tuple[Parameter, ...]
    axes: Mapping[str, tuple[Axis | None, ...]]
    packing: Packing

    def __call__(self, states: Sequence[State]) -> Packed:
        """The slots of all states together, in one buffer."""
        import torch

        device = torch.device(states[0].device)
        arguments = [with_alignment(self.stack(one, states)) for one in self.inputs]
        merged = Packed(empty_buffer(self.packing, "torch", device), self.packing)
        results = [one if one.dim() else one.reshape(1) for one in merged.values()]
        self.entry(*arguments, *results)
        for slot in states[0].layout:
            if slot.kind == "count":  # kernels count in float32
                torch.sum(torch.stack([state.slots[slot.name] for state in states]), 0, out=merged[slot.name])
        return merged

    def stack(self, parameter: Parameter, states: Sequence[State]) -> Any:
        """The slot of every state, in the dimensions of the kernel."""
        import torch

        [slot] = (one for one in states[0].layout if one.name == parameter.key)
        axes, stacked = self.axes[slot.name], torch.stack([state.slots[slot.name] for state in states])
        places = [axis for axis in axes if axis in slot.axes]
        stacked = stacked.permute(0, *(1 + slot.axes.index(axis) for axis in places if axis is not None))
        for place, axis in enumerate(axes):
            if axis not in slot.axes:
                stacked = stacked.unsqueeze(1 + place)
        return stacked.expand(parameter.shape).to(getattr(torch, parameter.dtype)).contiguous()


_MERGES: Remembered[dict[Any, Merge]] = Remembered(lambda _: {})


def merge_of(form: FusedForm, states: Sequence[State]) -> Merge:
    """The kernel that merges so many states as these, made once for their number and sizes.

    Raises:
        PlanError: no kernel merges states of this form.
    """
    first = states[0]
    packing = Packing.of({slot.name: first.slots[slot.name] for slot in first.layout})
    key = len(states), first.device, tuple(packing.dtypes.items()), tuple(packing.shapes.items())
    known = _MERGES(form)
    if key not in known:
        known[key] = _merge(form, len(states), first, packing)
    return known[key]


def _merge(form: FusedForm, number: int, like: State, packing: Packing) -> Merge:
    compute = "float64" if "float64" in packing.dtypes.values() else "float32"
    made, source = lower_merge(form, number, like.sizes, compute, target_of(like.device))
    inputs = tuple(one for one in made.program.parameters if one.role == "input")
    return Merge(launch_function(compile_source(source)), inputs, made.axes, packing)


def lower_merge(
    form: FusedForm, number: int, sizes: Mapping[str, int], compute: str, target: str
) -> tuple[MergeProgram, Source]:
    """The program that merges a number of states of a form's sizes, and its source.

    Raises:
        PlanError: no kernel merges states of this form.
    """
    if form.cascade.scalars():
        raise PlanError("run-time scalars stand in the merge of this form.")
    outer = with_state_for_outputs(form, compute)
    lengths = {name: sizes[name] for name in sizes if name in {axis.name for axis in form.cascade.axes()}}
    lengths |= dict.fromkeys(reduced_names(form), 1) | {str(form.cascade.axis.name): ELEMENTS * number}
    lengths |= {axis.name: 1 for axis in form.cascade.axes() if axis.name not in lengths and axis.size is None}
    problem = problem_of(outer, target, lengths, dict.fromkeys(form.cascade.inputs(), compute))
    schedule = choose_schedule(outer, problem, device_for(target))
    plan = numbers_of(schedule)
    level = "block" if plan.level == "row" else plan.level
    plan = replace(plan, segments=number, merge="kernel", level=level, persistent=0)
    made = program_of_merge(outer, plan, problem, {one.name: one.expr.dtype for one in outer.outputs})
    text = header(single(outer), schedule, problem)
    return made, emit(made.program, plan, f"{text}\nMerges {number} states of it.", "")
