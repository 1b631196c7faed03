"""Slices of states along a free axis: a rank merges one slice of every rank's state, and all gather the merged ones.

    state of rank r  =  slice 0 | slice 1 | … | slice N − 1            message: a row for each rank, its slice in it
    rank j           :  slice j of every state → their merge           then every rank gathers the N merged slices

The same numbers are merged in the same order as if every rank merged whole states. A rank receives 2·(N − 1)/N times a
state instead of N − 1 times, in two collectives. Where outputs are split along that axis, a rank finishes the slice
that it merged, and nothing is gathered: one collective, (N − 1)/N times a state.

Messages are alike, so that slices are of one length. If ranks do not divide the axis, the last slices begin earlier:

    10 rows, 4 ranks, slices of 3:     0 1 2 | 3 4 5 | 6 7 8 | 7 8 9          rank 3 keeps row 9 of its outputs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch

from redalg.distributed.packed import write_slots
from redalg.errors import BackendError, InputError
from redalg.expression import Axis
from redalg.incremental.form import FusedForm, Slot
from redalg.runtime.bind.blocks import whole_axes
from redalg.runtime.bind.packing import Packed, Packing
from redalg.runtime.bind.places import axes_by_place, row_axes_by_place
from redalg.runtime.bind.state import State, copy_with
from redalg.runtime.lowering import target_of
from redalg.strategies.device import device_for
from redalg.strategies.model.exchange import gathered_us, sliced_us


@final
@dataclass(frozen=True)
class Slices:
    """Slices of states, one for each rank.

    Attributes:
        axis: the free axis that is cut; a slot without it is whole in every slice.
        size, length: the elements of the axis, and those of a slice.
        whole, packing: the layouts of a state and of a slice.
    """

    axis: Axis
    size: int
    length: int
    whole: Packing
    packing: Packing

    def span(self, number: int) -> tuple[int, int]:
        """The first element of the slice that a rank merges, and the end: the last slices overlap."""
        first = min(number * self.length, self.size - self.length)
        return first, first + self.length

    def keep_own(self, number: int, output: torch.Tensor, dimension: int) -> torch.Tensor:
        """The outputs that a rank keeps, of those of its slice: as `torch.chunk` cuts the axis, and `DTensor` does."""
        begin, end = self.span(number)
        first = min(number * self.length, self.size)
        return output.narrow(dimension, first - begin, max(0, end - first)).contiguous()

    def write(self, state: State, messages: torch.Tensor, part: int) -> None:
        """Write the slices of a state into messages, of which row j is for rank j."""
        for number, message in enumerate(messages):
            slots = {slot.name: self.cut(state.slots[slot.name], slot, number) for slot in state.layout}
            write_slots(slots, message, self.packing, part)

    def cut(self, array: torch.Tensor, slot: Slot, number: int) -> torch.Tensor:
        """The slice of a slot that a rank merges; a slot without the axis is whole."""
        if self.axis not in slot.axes:
            return array
        return array.narrow(slot.axes.index(self.axis), self.span(number)[0], self.length)

    def of_state(self, state: State) -> State:
        """The description of a slice of a state, with the state's slots."""
        return copy_with(state, sizes={**state.sizes, self.axis.name: self.length})

    def buffer(self, merged: State, device: str) -> torch.Tensor:
        """The buffer of a merged slice."""
        message = torch.empty(self.packing.nbytes, dtype=torch.uint8, device=device)
        for name, view in Packed(message, self.packing).items():
            view.copy_(merged.slots[name])
        return message

    def join(self, merged: State, buffers: torch.Tensor) -> State:
        """The whole state, of the buffers of all merged slices in order; `merged` is this rank's."""
        whole = Packed(torch.empty(self.whole.nbytes, dtype=torch.uint8, device=buffers.device), self.whole)
        for number, buffer in enumerate(buffers):
            slices = Packed(buffer, self.packing)
            for slot in merged.layout:
                self.cut(whole[slot.name], slot, number).copy_(slices[slot.name])
        return copy_with(merged, slots=whole, sizes={**merged.sizes, self.axis.name: self.size})


def target_of_rank(device: str) -> str:
    """The target of a rank's device; empty if there is none, as of a GPU that kernels are not made for."""
    try:
        return target_of(device)
    except BackendError:
        return ""


def choose_slices(
    form: FusedForm, sizes: Mapping[str, int], packing: Packing, numbers: tuple[int, int], target: str
) -> Slices | None:  # fmt: skip
    """The slices of states that are merged sooner so; None if whole states are, or there is no axis to cut.

    Args:
        form, sizes, packing: of the states.
        numbers: of the states of a rank, and of ranks.
        target: that by which all ranks choose: what they choose must be the same.
    """
    parts, ranks = numbers
    axes = [axis for axis in axes_of_rows(form) if may_be_cut(axis, form, sizes)]
    if ranks == 1 or not axes or not target:
        return None
    cut = (slices_along(axis, form, packing, sizes[axis.name], ranks) for axis in axes)
    best, device = min(cut, key=lambda slices: slices.packing.nbytes), device_for(target)
    whole_us = gathered_us(parts * packing.nbytes, ranks, device)
    return best if sliced_us(parts * ranks * best.packing.nbytes, ranks, device) < whole_us else None


def slices_along(axis: Axis, form: FusedForm, packing: Packing, size: int, ranks: int) -> Slices:
    """The slices of an axis of so many elements, one for each rank."""
    length = -(-size // ranks)
    shapes = {slot.name: tuple(length if one == axis else other for one, other in zip(slot.axes, shape, strict=True))
              for slot in form.slots for shape in (packing.shapes[slot.name],)}  # fmt: skip
    return Slices(axis, size, length, packing, Packing(packing.dtypes, shapes))


def check_sharded(form: FusedForm, axis: Axis, sharded: Axis) -> None:
    """Refuse an axis of which a rank's slice of the states has no outputs of its own; `axis` is the reduced one.

    Raises:
        InputError: an output lacks it, or keeps the reduced axis, or something is known of the whole of it alone.
    """
    lacking = [one.name for one in form.outputs if sharded not in one.axes]
    if lacking or sharded not in axes_of_rows(form):
        what = f"output `{lacking[0]}`" if lacking else "any slot of the state"
        raise InputError(f"distributed: sharded={sharded} is no axis of {what}. Outputs are split along a free axis "
                         "that all have; leave `sharded=` out to have them whole on all ranks.")  # fmt: skip
    kept = [one.name for one in form.outputs if one.carries]
    if kept:
        raise InputError(f"distributed: output `{kept[0]}` keeps axis {axis}, along which a rank has its own shard of "
                         f"it. Leave sharded={sharded} out.")  # fmt: skip
    if sharded.name in form.cascade.extents() or sharded in whole_axes(form.cascade) | row_axes_by_place(form):
        raise InputError(f"distributed: sharded={sharded}: the expression holds places or the extent of this axis, or "
                         "sums over it on its own, and a rank finishes a part of it. Leave it out.")  # fmt: skip


def axes_of_rows(form: FusedForm) -> list[Axis]:
    """The free axes of slots, but for the places of a list."""
    apart = {*form.cascade.reduced_axes} | {one.place for one in form.structures}
    return [axis for axis in form.cascade.axes() if axis not in apart and any(axis in one.axes for one in form.slots)]


def may_be_cut(axis: Axis, form: FusedForm, sizes: Mapping[str, int]) -> bool:
    """Tell if ranks may have slices of an axis: it has several elements, and their places do not matter."""
    return sizes.get(axis.name, 0) > 1 and axis not in axes_by_place(form)
