"""The state of a rank as one message, whose layout follows from what the ranks agree on.

    message  := status  buffer … buffer      a buffer for the state of each part; if slices travel (`slices`), a message
                                             has a row of this kind for every rank, with its slices
    status   := 512 bytes: the first is 0 if the rank made its state, then 7 of the agreement; 1 if it could not, then
                the reason (UTF-8, zeros behind it); 2 if its call is of another kind than the last
    buffer   := the slots in the order of the form, as `packing` lays them; of no meaning where a rank has fewer parts

Counts and indices are int64, all else has the dtype of arithmetic. If places lie beyond the integers that this dtype
holds, extrema and pivots are float64, as they may be in a leaf. The host reads the first word of every status, and
nothing else. If all is well these words are equal: a rank that called another function has another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import torch

from redalg.incremental.form import Slot
from redalg.incremental.state_outputs import INTEGERS
from redalg.runtime.bind.packing import Packed, Packing

STATUS_BYTES = 512
WORD_BYTES = 8
FAILED, ANEW = 1, 2
"""The states of a rank that has none: it could not make one, or asks all to agree anew."""
MAYBE_WIDE = ("extremum", "pivot")


def message_packing(slots: tuple[Slot, ...], sizes: Mapping[str, int], compute: str, *, far: bool) -> Packing:
    """The places of slots for free axes of these sizes; `far`: places lie beyond the integers of `compute`."""

    def dtype(slot: Slot) -> str:
        return "int64" if slot.kind in INTEGERS else "float64" if far and slot.kind in MAYBE_WIDE else compute

    shapes = {slot.name: tuple(int(sizes.get(axis.name, axis.size or 0)) for axis in slot.axes) for slot in slots}
    return Packing({slot.name: dtype(slot) for slot in slots}, shapes)


def new_message(nbytes: int, device: str, rows: tuple[int, ...] = (), word: int = 0) -> torch.Tensor:
    """A message, or rows of them, of so many bytes beyond its status, which says that all is well."""
    message = torch.empty(*rows, STATUS_BYTES + nbytes, dtype=torch.uint8, device=device)
    message[..., :STATUS_BYTES].zero_()
    first_words(message).fill_(word)
    return message


def agreement_word(text: bytes) -> int:
    """The first word of the messages of an agreement on this text: its first byte is 0."""
    return int.from_bytes(b"\0" + sha256(text).digest()[: WORD_BYTES - 1], "little", signed=True)


def first_words(messages: torch.Tensor) -> torch.Tensor:
    """The first word of every message."""
    return messages[..., :WORD_BYTES].view(torch.int64)[..., 0]


def status_of(word: int) -> int:
    """The status in a first word.

    >>> status_of(agreement_word(b"a sum over n")), status_of(FAILED)
    (0, 1)
    """
    return word & 0xFF


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
    message[..., :WORD_BYTES] = 0
    message[..., 0] = FAILED
    message[..., 1 : 1 + len(text)] = torch.tensor(list(text), dtype=torch.uint8, device=message.device)


def failures_in(messages: torch.Tensor, statuses: Sequence[int]) -> dict[int, str]:
    """The reasons of ranks that made no state, by their number in the group; `messages` has a row for every rank."""
    failed = [number for number, status in enumerate(statuses) if status == FAILED]
    texts: dict[int, Any] = {number: bytes(messages[number, 1:STATUS_BYTES].tolist()) for number in failed}
    return {number: text.rstrip(b"\0").decode(errors="ignore") for number, text in texts.items()}
