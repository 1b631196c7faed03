"""Streams of a GPU that are none: they tell which operations come before which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch

from redalg.distributed.window import Window


class Stream:
    """A stream that knows the operations that come before the next one on it."""

    def __init__(self) -> None:
        self.before = set[str]()

    def wait_stream(self, other: Stream) -> None:
        self.before |= other.before

    def record_event(self) -> frozenset[str]:
        return frozenset(self.before)

    def wait_event(self, event: frozenset[str]) -> None:
        self.before |= event


class Record:
    """The operations of a call, each with those that come before it."""

    def __init__(self) -> None:
        self.current = Stream()
        self.before = dict[str, set[str]]()

    def note(self, name: str) -> None:
        name = next(one for one in (name, *(f"{name} {number}" for number in range(2, 9))) if one not in self.before)
        self.before[name] = set(self.current.before)
        self.current.before.add(name)

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        outer, self.current = self.current, stream
        yield
        self.current = outer


@contextmanager
def streams_of(window: Window, *, captured: bool) -> Iterator[tuple[Record, pytest.MonkeyPatch]]:
    """Let a window on the CPU take its memory for that of a GPU, and record the order of its operations."""
    record = Record()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Window, "device", torch.device("cuda"))
        patch.setattr(Window, "is_captured", captured)
        patch.setitem(vars(window), "_sides", (Stream(), Stream()))
        patch.setattr(window, "barrier", lambda _: record.note("barrier"))
        patch.setattr(window, "read", partial(read_on_cpu, window, record))
        patch.setattr(torch.cuda, "current_stream", lambda _: record.current)
        patch.setattr(torch.cuda, "stream", record.on)
        yield record, patch


def read_on_cpu(window: Window, record: Record, region: int, nbytes: int) -> torch.Tensor:
    record.note("read")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Window, "device", torch.device("cpu"))
        rows = Window.read(window, region, nbytes)
    if window._has_branches(region):
        window._was_read = record.current.record_event()  # type: ignore[assignment]
    return rows
