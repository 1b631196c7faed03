"""Merge states by a kernel, of one program for a number of states and their sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

from redalg.errors import PlanError
from redalg.incremental.form import FusedForm, Slot
from redalg.incremental.remembered import Remembered
from redalg.incremental.stages import single
from redalg.incremental.state_outputs import with_state_for_outputs
from redalg.lower_tile.ir.program import Parameter
from redalg.lower_tile.place.state_merge import MergeProgram, program_of_merge
from redalg.lower_tile.text.emit import Source, emit
from redalg.lower_tile.text.header import header
from redalg.runtime.bind.packing import Packed, Packing, empty_buffer, views_of
from redalg.runtime.bind.state import State, reduced_names
from redalg.runtime.call.kernels import with_alignment
from redalg.runtime.compile.compile import compile_source, launch_function
from redalg.runtime.lowering import problem_of, target_of
from redalg.strategies.binding import bind_axes
from redalg.strategies.device import device_for
from redalg.strategies.rules.rows import lanes_of_structures
from redalg.strategies.rules.rules import RULES_IN_REGISTERS, choose_schedule
from redalg.strategies.schedule import numbers_of

ELEMENTS = 64
"""Elements of a part, by which a schedule is chosen: a merge reads none."""


@final
@dataclass(frozen=True)
class SlotInput:
    """The inputs of a merging kernel that hold one slot of all states, in the dimensions of the kernel.

    Attributes:
        slot: its name.
        order: the dimensions of the slot, in the order in which the kernel has those that they have.
        absent: the dimensions of the kernel that the slot lacks: it is repeated along them.
        shape, dtype: of the kernel's input, for one state.
        is_plain: whether the slot of a state is that input.
        apart: an input for every state; else one, of all side by side.
        counts: whether the states' numbers are added up beside the kernel, which counts in float32.
    """

    slot: str
    order: tuple[int, ...]
    absent: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    is_plain: bool
    apart: bool
    counts: bool

    def of(self, arrays: Sequence[Any]) -> list[Any]:
        """The inputs, from the slot of every state."""
        if self.apart:
            return [with_alignment(self._in_order(array)) for array in arrays]
        import torch

        return [torch.stack([self._in_order(array) for array in arrays])]

    def of_rows(self, stacked: Any) -> list[Any]:
        """The inputs, from the slot of all states, whose first dimension they are; no row is copied in vain."""
        import torch

        if not self.is_plain:
            stacked = stacked.permute(0, *(1 + dimension for dimension in self.order))
            for place in self.absent:
                stacked = stacked.unsqueeze(1 + place)
            stacked = stacked.expand(-1, *self.shape)
        if not self.apart:
            return [stacked.to(getattr(torch, self.dtype)).contiguous().view(len(stacked), *self.shape)]
        rows = stacked.unbind()
        if self.is_plain and rows[0].shape == self.shape:
            return list(rows)
        if self.is_plain:
            return [one.view(self.shape) for one in rows]
        return [with_alignment(one.to(getattr(torch, self.dtype)).contiguous()) for one in rows]

    def _in_order(self, array: Any) -> Any:
        """The slot of a state in the dimensions of the kernel."""
        if self.is_plain:
            return array.contiguous().view(self.shape)
        import torch

        array = array.permute(self.order)
        for place in self.absent:
            array = array.unsqueeze(place)
        return array.expand(self.shape).to(getattr(torch, self.dtype)).contiguous()


@final
@dataclass(frozen=True)
class Merge:
    """A kernel that merges a number of states of one kind.

    Attributes:
        entry: takes the inputs and the outputs, in order.
        inputs: its inputs, by slot.
        packing: of the merged state.
    """

    entry: Callable[..., Any]
    inputs: tuple[SlotInput, ...]
    packing: Packing

    @cached_property
    def takes_apart(self) -> bool:
        """Tell if the kernel takes the slots of all states where they lie, and nothing beside it is launched."""
        return all(given.apart and given.is_plain and not given.counts for given in self.inputs)

    def of_apart(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The slots of all states together, from those of each by name, of a kernel that takes them where they lie."""
        import torch

        device = states[0][self.inputs[0].slot].device
        merged = views_of(torch.empty(self.packing.nbytes, dtype=torch.uint8, device=device), self.packing)
        arguments = [one[given.slot].view(given.shape) for given in self.inputs for one in states]
        self.entry(*arguments, *(one if one.dim() else one.view(1) for one in merged.values()))
        return merged

    def of_rows(self, stacked: Mapping[str, Any]) -> dict[str, Any]:
        """The slots of all states together, from those of all states; each slot is a view of one tensor of bytes.

        Args:
            stacked: by slot; its first dimension is that of the states.
        """
        import torch

        buffer = torch.empty(self.packing.nbytes, dtype=torch.uint8, device=stacked[self.inputs[0].slot].device)
        merged = views_of(buffer, self.packing)
        arguments = [one for given in self.inputs for one in given.of_rows(stacked[given.slot])]
        self.entry(*arguments, *(one if one.dim() else one.view(1) for one in merged.values()))
        for given in self.inputs:
            if given.counts:
                torch.sum(stacked[given.slot], 0, out=merged[given.slot])
        return merged

    def __call__(self, states: Sequence[State]) -> Packed:
        """The slots of all states together, in one buffer."""
        import torch

        slots = [state.slots for state in states]
        merged = Packed(empty_buffer(self.packing, "torch", slots[0][self.inputs[0].slot].device), self.packing)
        arguments = list[Any]()
        for given in self.inputs:
            arguments += given.of([one[given.slot] for one in slots])
        self.entry(*arguments, *(one if one.dim() else one.view(1) for one in merged.values()))
        for given in self.inputs:
            if given.counts:
                torch.sum(torch.stack([one[given.slot] for one in slots]), 0, out=merged[given.slot])
        return merged


_MERGES: Remembered[dict[Any, Merge]] = Remembered(lambda _: {})


def merge_of(form: FusedForm, states: Sequence[State]) -> Merge:
    """The kernel that merges so many states as these, made once for their number and sizes.

    Raises:
        PlanError: no kernel merges states of this form.
    """
    first = states[0]
    key = len(states), first.device, slot_packing(first).key
    known = _MERGES(form)
    found = known.get(key)
    if found is None:
        found = known[key] = _merge(form, len(states), first, slot_packing(first))
    return found


def slot_packing(state: State) -> Packing:
    """The dtypes and shapes of the slots of a state, and where they lie or would lie in its buffer."""
    if isinstance(state.slots, Packed):
        return state.slots.packing
    return Packing.of({slot.name: state.slots[slot.name] for slot in state.layout})


def _merge(form: FusedForm, number: int, like: State, packing: Packing) -> Merge:
    compute = "float64" if "float64" in packing.dtypes.values() else "float32"
    made, source = lower_merge(form, number, like.sizes, compute, target_of(like.device))
    return Merge(launch_function(compile_source(source)), slot_inputs(form, made, packing.dtypes), packing)


def slot_inputs(form: FusedForm, made: MergeProgram, dtypes: Mapping[str, str]) -> tuple[SlotInput, ...]:
    """The inputs of a merging program by slot, in order, for slots of these dtypes."""
    slots = {slot.name: slot for slot in form.slots}
    return tuple(_slot_input(one[0], slots[name], made, dtypes[name]) for name, one in made.inputs.items())


def _slot_input(parameter: Parameter, slot: Slot, made: MergeProgram, dtype: str) -> SlotInput:
    axes = made.axes[slot.name]
    order = tuple(slot.axes.index(axis) for axis in axes if axis is not None and axis in slot.axes)
    absent = tuple(place for place, axis in enumerate(axes) if axis not in slot.axes)
    shape = tuple(map(int, parameter.shape if made.apart else parameter.shape[1:]))
    ones = all(axis is None for axis in axes if axis not in slot.axes)
    is_plain = order == tuple(range(len(slot.axes))) and ones and dtype == parameter.dtype
    return SlotInput(slot.name, order, absent, shape, parameter.dtype, is_plain, made.apart, slot.kind == "count")


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
    if outer.structures and not outer.places:  # tiles hold the best as a rank; states hold it, and its place
        binding = bind_axes(outer, problem.sizes)
        schedule = lanes_of_structures(device_for(target), binding, lengths[str(form.cascade.axis.name)])
    else:
        schedule = choose_schedule(outer, problem, device_for(target), RULES_IN_REGISTERS)
    plan = numbers_of(schedule)
    level = "block" if plan.level == "row" else plan.level
    plan = replace(plan, segments=number, merge="kernel", level=level, persistent=0)
    made = program_of_merge(outer, plan, problem, {one.name: one.expr.dtype for one in outer.outputs})
    text = header(single(outer), schedule, problem)
    return made, emit(made.program, plan, f"{text}\nMerges {number} states of it.", "")
