"""Counters of blocks that are done: a kernel finds them at 0, and leaves them at 0.

Launches that may run at the same time must not share a counter:

    CPU               zeros at every call: calls of several threads run side by side
    stream            one, kept: launches on a stream run one after another, and each leaves it at 0
    graph's capture   one for every captured launch, which no other ever gets: graphs may be replayed side by side. It
                      is cut from zeros laid by beforehand, so that the graph need not set it to 0 again; where none
                      are left, it is allocated, and set to 0, in the graph itself
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, final

LINE = 32
"""Integers of a cache line: counters of different launches lie on different ones."""
LAID_BY, LAUNCHES = 1 << 16, 32
"""Integers that are laid by at a time for captured launches; launches of a kernel that they are enough for."""


@final
@dataclass(frozen=True)
class Counters:
    """The source of a launch's counter, an int32 tensor of a shape on a device; `kept` holds those of streams."""

    shape: tuple[int, ...]
    device: Any
    kept: dict[int, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        if self.device.type == "cpu":
            return zeros(self.shape, self.device)
        if is_capturing():
            return self.cut()
        stream = stream_of(self.device)
        if stream not in self.kept:
            self.kept[stream] = zeros(self.shape, self.device)
            lay_by(self.device, LAUNCHES * self.length)
        return self.kept[stream]

    @property
    def length(self) -> int:
        """Integers of a counter, in whole cache lines."""
        return -(-prod(self.shape) // LINE) * LINE

    def cut(self) -> Any:
        """The counter of one captured launch: of the zeros laid by, or new zeros if too few are left."""
        left = _LEFT.get(str(self.device))
        if left is None or left.numel() < self.length:
            return zeros(self.shape, self.device)
        _LEFT[str(self.device)] = left[self.length :]
        return left[: prod(self.shape)].view(self.shape)


_LEFT: dict[str, Any] = {}
"""The zeros that are left, by device."""
_KEPT: list[Any] = []
"""All that were ever laid by: a graph that holds some may be replayed at any time."""


def lay_by(device: Any, length: int) -> None:
    """Make sure that `length` zeros are left for captured launches; they are there when this returns."""
    left = _LEFT.get(str(device))
    if left is None or left.numel() < length:
        _LEFT[str(device)] = zeros((max(LAID_BY, length),), device)
        _KEPT.append(_LEFT[str(device)])
        wait_for(device)


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def zeros(shape: tuple[int, ...], device: Any) -> Any:
    """int32 zeros, in the order of the current stream."""
    import torch

    return torch.zeros(shape, dtype=torch.int32, device=device)


def is_capturing() -> bool:
    """Tell if launches are captured into a graph."""
    import torch

    return torch.cuda.is_current_stream_capturing()


def stream_of(device: Any) -> int:
    """The handle of a device's current stream."""
    import torch

    return int(torch.cuda.current_stream(device).cuda_stream)


def wait_for(device: Any) -> None:
    """Wait for a device's current stream."""
    import torch

    torch.cuda.current_stream(device).synchronize()
