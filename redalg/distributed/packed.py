"""Slots of a state as one message: a contiguous buffer of bytes, whose layout follows from what ranks agree on.

    message  := status  slot … slot
    status   := 512 bytes: the first is 0 if the rank made its state; else 1, then why not (UTF-8, zeros behind it)
    slot     := elements row by row, in the machine's byte order, behind zeros up to a multiple of 16 bytes

Slots stand in the order of the form. Counts and indices are int64, all else has the dtype of arithmetic. If places lie
beyond the integers that this dtype holds, extrema and pivots are float64, as they may be in a leaf: places are exact.
Nothing is copied to the host but the first byte of every status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, final

import torch

from redalg.incremental.form import Slot

STATUS_BYTES = 512
ALIGNMENT_BYTES = 16
INTEGERS, MAYBE_WIDE = ("count", "index"), ("extremum", "pivot")


@final
@dataclass(frozen=True)
class SlotPlace:
    """The place of a slot in a message, in bytes from its first."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + prod(self.shape) * self.dtype.itemsize


@final
@dataclass(frozen=True)
class MessageLayout:
    """The places of all slots in a message, and its length in bytes."""

    places: tuple[SlotPlace, ...]
    bytes: int

    @classmethod
    def of_slots(cls, slots: tuple[Slot, ...], sizes: Mapping[str, int], compute: str, *, far: bool) -> MessageLayout:
        """The layout for free axes of these sizes; `far` tells if places lie beyond the integers of `compute`."""
        places, end = list[SlotPlace](), STATUS_BYTES
        for slot in slots:
            wide = torch.float64 if far and slot.kind in MAYBE_WIDE else getattr(torch, compute)
            dtype = torch.int64 if slot.kind in INTEGERS else wide
            shape = tuple(sizes.get(axis.name, axis.size) for axis in slot.axes)
            start = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            places.append(SlotPlace(slot.name, dtype, shape, start))
            end = places[-1].stop
        return cls(tuple(places), -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)

    def new_message(self, device: Any) -> torch.Tensor:
        """A message of zeros."""
        return torch.zeros(self.bytes, dtype=torch.uint8, device=device)

    def views(self, message: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """The slots of a message by name, which share its memory."""
        for place in self.places:
            yield place.name, message[place.start : place.stop].view(place.dtype).view(place.shape)

    def write_slots(self, slots: Mapping[str, torch.Tensor], message: torch.Tensor) -> None:
        """Write the slots of a state into a message."""
        for name, view in self.views(message):
            view.copy_(slots[name])


def write_failure(reason: str, message: torch.Tensor) -> None:
    """Say in a message that there is no state, and why."""
    text = reason.encode()[: STATUS_BYTES - 1]
    message[1 : 1 + len(text)] = torch.tensor(list(text), dtype=torch.uint8, device=message.device)
    message[0] = 1


def read_failures(messages: torch.Tensor) -> dict[int, str]:
    """The reasons of ranks that made no state, by their number in the group; `messages` has a row for every rank."""
    failed = [number for number, flag in enumerate(messages[:, 0].tolist()) if flag]
    texts = {number: bytes(messages[number, 1:STATUS_BYTES].tolist()) for number in failed}
    return {number: text.rstrip(b"\0").decode(errors="ignore") for number, text in texts.items()}
