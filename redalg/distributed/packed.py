"""The state of a rank as one message, whose layout follows from what the ranks agree on.

    message  := status  buffer … buffer      a buffer for the state of each part
    status   := 512 bytes: the first is 0 if the rank made its state; else 1, then the reason (UTF-8, zeros behind it)
    buffer   := the slots in the order of the form, as `packing` lays them; zeros where a rank has fewer parts

Counts and indices are int64, all else has the dtype of arithmetic. If places lie beyond the integers that this dtype
holds, extrema and pivots are float64, as they may be in a leaf. Nothing is copied to the host but the first byte of
every status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from redalg.incremental.form import Slot
from redalg.incremental.state_outputs import INTEGERS
from redalg.runtime.bind.packing import Packed, Packing

STATUS_BYTES = 512
MAYBE_WIDE = ("extremum", "pivot")


def message_packing(slots: tuple[Slot, ...], sizes: Mapping[str, int], compute: str, *, far: bool) -> Packing:
    """The places of slots for free axes of these sizes; `far`: places lie beyond the integers of `compute`."""

    def dtype(slot: Slot) -> str:
        return "int64" if slot.kind in INTEGERS else "float64" if far and slot.kind in MAYBE_WIDE else compute

    shapes = {slot.name: tuple(int(sizes.get(axis.name, axis.size or 0)) for axis in slot.axes) for slot in slots}
    return Packing({slot.name: dtype(slot) for slot in slots}, shapes)


def new_message(packing: Packing, parts: int, device: str) -> torch.Tensor:
    """A message of zeros for the states of so many parts."""
    return torch.zeros(STATUS_BYTES + parts * packing.nbytes, dtype=torch.uint8, device=device)


def buffer_in(message: torch.Tensor, packing: Packing, part: int) -> torch.Tensor:
    """The buffer of a part."""
    first = STATUS_BYTES + part * packing.nbytes
    return message[first : first + packing.nbytes]


def write_slots(slots: Mapping[str, torch.Tensor], message: torch.Tensor, packing: Packing, part: int) -> None:
    """Write the slots of a state into a message: in one copy if they lie alike in a buffer."""
    if isinstance(slots, Packed) and slots.packing == packing:
        buffer_in(message, packing, part).copy_(slots.buffer)
        return
    for name, view in slots_in(message, packing, part).items():
        view.copy_(slots[name])


def slots_in(message: torch.Tensor, packing: Packing, part: int) -> Packed:
    """The slots of a part, which share the message's memory."""
    return Packed(buffer_in(message, packing, part), packing)


def write_failure(reason: str, message: torch.Tensor) -> None:
    """Say in a message that there is no state, and the reason."""
    text = reason.encode(errors="replace")[: STATUS_BYTES - 1]
    message[1 : 1 + len(text)] = torch.tensor(list(text), dtype=torch.uint8, device=message.device)
    message[0] = 1


def read_failures(messages: torch.Tensor) -> dict[int, str]:
    """The reasons of ranks that made no state, by their number in the group; `messages` has a row for every rank."""
    failed = [number for number, flag in enumerate(messages[:, 0].tolist()) if flag]
    texts: dict[int, Any] = {number: bytes(messages[number, 1:STATUS_BYTES].tolist()) for number in failed}
    return {number: text.rstrip(b"\0").decode(errors="ignore") for number, text in texts.items()}
