"""Peak memory of a call, above what the process or the device holds before it."""

from __future__ import annotations

import ctypes
import re
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch

Result = TypeVar("Result")
STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
RESET_HIGH_WATER = "5"  # proc(5): sets VmHWM to what is resident now


def peak_bytes(call: Callable[[], Result], device: str) -> tuple[Result, int]:
    """The result of a call, and the most memory in bytes that it held above what was held before it.

    On a CUDA device PyTorch's allocator counts. On the CPU the kernel's high-water mark of resident memory counts;
    what an earlier
    call has freed is given back to the system first, where its C library can; a fresh process is more exact.
    """
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = call()
        torch.cuda.synchronize()
        return result, torch.cuda.max_memory_allocated() - before
    give_back()
    reset_high_water()
    before = resident_bytes("VmRSS")
    result = call()
    return result, resident_bytes("VmHWM") - before


def give_back() -> None:
    """Give memory that was freed back to the system: only what is new would not show as resident."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def reset_high_water() -> None:
    """Forget earlier peaks where the system can; elsewhere they count too, so the figure is never too small."""
    with suppress(OSError):
        CLEAR_REFS.write_text(RESET_HIGH_WATER, encoding="ascii")


def resident_bytes(field: str) -> int:
    """Resident memory: now (VmRSS), or at most so far (VmHWM, ru_maxrss where there is none: it outlives `exec`)."""
    if STATUS.exists():
        found = re.search(rf"^{field}:\s+(\d+) kB$", STATUS.read_text(encoding="ascii"), re.MULTILINE)
        if found:
            return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
