"""Windows of ranks on one CPU: files stand for the memory of GPUs, and counters in one for their signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
import torch

from redalg.distributed import exchange
from redalg.distributed.exchange import Reach
from redalg.distributed.ranks import Ranks
from redalg.distributed.window import CAPTURED, WINDOW_BYTES, Window

LIMIT_S = 5.0


def shared_window(folder: Path, number: int, size: int, limit_s: float = LIMIT_S) -> Window:
    """The window of a rank, in files that all ranks map."""
    folder.mkdir(parents=True, exist_ok=True)
    buffers = [mapped(folder / f"memory {one}", WINDOW_BYTES, torch.uint8) for one in range(size)]
    return Window(number, buffers, shared_barrier(folder, number, size, limit_s))


def mapped(path: Path, elements: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_file(str(path), shared=True, size=elements, dtype=dtype)


def shared_barrier(folder: Path, number: int, size: int, limit_s: float) -> Callable[[int], None]:
    """A barrier that fails as PyTorch's does: with a RuntimeError, after a time."""
    counts = mapped(folder / "signals", size * (CAPTURED + 1), torch.int64).view(size, CAPTURED + 1)

    def wait(channel: int) -> None:
        counts[number, channel] += 1
        begin = monotonic()
        while int(counts[:, channel].min()) < int(counts[number, channel]):
            if monotonic() - begin > limit_s:
                raise RuntimeError(f"CUDASymmetricMemory::barrier: rank {number} timed out on channel {channel}")
            sleep(0)

    return wait


@contextmanager
def shared_windows(rank: int, size: int, folder: Path, limit_s: float = LIMIT_S) -> Iterator[pytest.MonkeyPatch]:
    """Let ranks read each other's memory, as GPUs of one machine do."""

    def reach(_: Ranks, __: torch.device) -> Reach:
        return Reach(f"here/{rank}", tuple(f"here/{one}" for one in range(size) if one != rank))

    def opened(ranks: Ranks, _: torch.device) -> Window:
        return shared_window(folder, ranks.number, len(ranks.names), limit_s)

    exchange._WINDOWS.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redalg.distributed.call.reach_of_rank", reach)
        patch.setattr(exchange, "open_window", opened)
        yield patch
    exchange._WINDOWS.clear()
