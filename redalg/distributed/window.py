"""The window of a group: memory of every rank that all ranks read, through which small messages go.

    window  :=  half 0 | half 1 | captured       regions of 512 KB and a status, alike on every rank, allocated once
    a call  :=  write into this rank's region → barrier → read that region of all ranks       no collective

Calls take the halves in turn. A rank that writes a half again has passed the barrier of the call between, which every
rank reaches after it has read that half: so one barrier a call suffices. A call in a CUDA graph has one region whenever
the graph is replayed, and no call between: those have the third region, and a second barrier after they have read.

Each region has a channel of its own. Ranks that are in unlike regions never meet, and none reads old numbers. Barriers
are bounded: PyTorch's ends all work of the GPU, and the host raises an error. No operation is NVLink's multicast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import final

import torch

from redalg.distributed.packed import STATUS_BYTES, first_words, write_failure

MOST_BYTES = 512 << 10
"""States of a rank that are smaller than this go through a window."""
REGION_BYTES = STATUS_BYTES + MOST_BYTES
CAPTURED = 2
"""The region of calls in CUDA graphs; 0 and 1 are the halves."""
WINDOW_BYTES = (CAPTURED + 1) * REGION_BYTES
STATUSES, LEAVING = 0, 1
"""Branches of a CUDA graph beside the one that merges: to look at statuses, and to leave a region."""


@final
class Window:
    """The window of a group, as a rank sees it.

    Attributes:
        number: of this rank in the group.
        buffers: the memory of every rank, `WINDOW_BYTES` bytes each, in the order of the group.
        barrier: lets the current stream (the host, on CPUs) wait on a channel until all ranks have come, or fails.
    """

    def __init__(self, number: int, buffers: Sequence[torch.Tensor], barrier: Callable[[int], None]) -> None:
        self.number, self.buffers, self.barrier = number, tuple(buffers), barrier
        self._turn = 0
        self._words: list[int | None] = [None, None]
        self._views: dict[tuple[int, int], tuple[torch.Tensor, ...]] = {}
        self._words_of: dict[tuple[int, int], list[torch.Tensor]] = {}
        self._stream: torch.cuda.Stream | None = None
        self._was_read: torch.cuda.Event | None = None

    @property
    def device(self) -> torch.device:
        """The device from which this rank reads."""
        return self.buffers[self.number].device

    @property
    def is_captured(self) -> bool:
        """Tell if the current stream is captured in a CUDA graph."""
        return self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def begin(self) -> int:
        """The region of the next message. What an earlier call does on another stream comes before it."""
        if self.is_captured:
            return CAPTURED
        if self.device.type != "cuda":
            return self._turn
        stream = torch.cuda.current_stream(self.device)
        if self._stream is not None and stream != self._stream:
            stream.wait_stream(self._stream)
        self._stream = stream
        return self._turn

    def messages(self, region: int, nbytes: int) -> tuple[torch.Tensor, ...]:
        """The messages of all ranks in a region, where they lie: each status, and so many bytes in all."""
        if (region, nbytes) not in self._views:
            with torch.inference_mode(mode=False):
                views = tuple(one.narrow(0, region * REGION_BYTES, nbytes) for one in self.buffers)
                self._views[region, nbytes] = views
                self._words_of[region, nbytes] = [one.view(torch.int64) for one in views]
        return self._views[region, nbytes]

    def own(self, region: int, nbytes: int) -> torch.Tensor:
        """The message of this rank, to be written."""
        return self.messages(region, nbytes)[self.number]

    def write_word(self, region: int, word: int) -> None:
        """Say in the status of this rank that all is well, if it does not say so yet."""
        if region == CAPTURED or self._words[region] != word:  # graphs of several functions share that region
            self._set_word(region, None)
            first_words(self.own(region, STATUS_BYTES)).fill_(word)
            self._set_word(region, word)

    def fail(self, region: int, reason: str) -> None:
        """Tell all others that this rank has no state, and the reason."""
        self._set_word(region, None)
        write_failure(reason, self.own(region, STATUS_BYTES))
        self.meet(region)
        self.leave(region)

    def _set_word(self, region: int, word: int | None) -> None:
        if region != CAPTURED:
            self._words[region] = word

    def meet(self, region: int) -> None:
        """Wait for all ranks, whose messages in a region are there then."""
        self.barrier(region)
        if region != CAPTURED:
            self._turn = 1 - region

    def read(self, region: int, nbytes: int) -> torch.Tensor:
        """The first bytes of all messages in a region, a row for each: one operation reads them all."""
        self.messages(region, nbytes)
        words = torch.cat(self._words_of[region, nbytes])  # a multiple of 16 bytes
        rows = words.view(torch.uint8).view(len(self.buffers), nbytes)
        if self._has_branches(region):
            self._was_read = torch.cuda.current_stream(self.device).record_event()
        return rows

    def leave(self, region: int) -> None:
        """Say that this rank has read a region; it waits for the others if nothing else keeps them from writing it."""
        if region != CAPTURED:
            return
        if self._was_read is not None:
            torch.cuda.current_stream(self.device).wait_event(self._was_read)
            self._was_read = None
        self.barrier(region)

    def gather(self, message: torch.Tensor) -> torch.Tensor:
        """The messages of all ranks, a row for each; every rank calls it with a message of the same length."""
        region = self.begin()
        self._set_word(region, None)
        self.own(region, len(message)).copy_(message)
        self.meet(region)
        rows = self.read(region, len(message))
        self.leave(region)
        return rows

    @contextmanager
    def beside(self, region: int, branch: int) -> Iterator[None]:
        """In a CUDA graph let the operations within be a branch, which begins after all so far; else nothing is new.

        `join` lets the current stream wait for its end.
        """
        if not self._has_branches(region):
            yield
            return
        self._sides[branch].wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._sides[branch]):
            yield

    def join(self, region: int, branch: int) -> None:
        """Let the current stream wait for a branch."""
        if self._has_branches(region):
            torch.cuda.current_stream(self.device).wait_stream(self._sides[branch])

    def _has_branches(self, region: int) -> bool:
        return region == CAPTURED and self.device.type == "cuda"

    @cached_property
    def _sides(self) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
        return torch.cuda.Stream(self.device), torch.cuda.Stream(self.device)
