"""The functions of PyTorch that are used though they are private, each for want of a public one.

`tests/runtime/test_private.py` holds what each is relied on for. The backend of `torch.compile` (`redalg/torch`) stands
on Inductor's own modules too, and checks PyTorch's version.
"""

from __future__ import annotations

import os
from typing import Any

import torch

NO_MULTICAST = "TORCH_SYMM_MEM_DISABLE_MULTICAST"


def is_eager() -> bool:
    """Tell if neither a transform nor forward mode is at work: one question in place of two."""
    return torch._C._functorch.peek_interpreter_stack() is None and torch.autograd.forward_ad._current_level < 0


def is_transforming() -> bool:
    """Tell if a transform of `torch.func` is at work (`grad`, `vmap`, `jvp`, …)."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_in_forward_mode() -> bool:
    """Tell if PyTorch is within a level of forward mode."""
    return bool(torch.autograd.forward_ad._current_level >= 0)


def computes_tangents() -> bool:
    """Tell if operations pass tangents on within a level of forward mode: not so inside recorded calls."""
    return bool(torch._C._is_fwd_grad_enabled())


def timeout_of(group: Any, device: torch.device) -> float:
    """Seconds that a process group waits for a message between devices of this type."""
    return float(group._get_backend(device).options._timeout.total_seconds())


def symmetric_backend(device: torch.device) -> str | None:
    """The name of PyTorch's allocator of symmetric memory on a device, `"CUDA"` by default; None if there is none."""
    try:
        from torch.distributed import _symmetric_memory

        return _symmetric_memory.get_backend(device)
    except (ImportError, AttributeError):  # of a PyTorch that is too old for it
        return None


def symmetric_memory(nbytes: int, device: torch.device, group: Any) -> tuple[torch.Tensor, Any]:
    """Bytes on a device that all ranks of a group read, and PyTorch's handle of those of the others.

    Every rank of the group has to call it. The memory is an allocation of its own, so that nobody else signals by its
    pads, and it is mapped without NVLink's multicast.
    """
    from torch._C._distributed_c10d import _SymmetricMemory
    from torch.distributed import _symmetric_memory

    before = os.environ.get(NO_MULTICAST)
    os.environ[NO_MULTICAST] = "1"  # PyTorch reads it at each rendezvous
    try:
        own = _SymmetricMemory.empty_strided_p2p((nbytes,), (1,), torch.uint8, device)
        return own, _symmetric_memory.rendezvous(own, group)
    finally:
        if before is None:
            del os.environ[NO_MULTICAST]
        else:
            os.environ[NO_MULTICAST] = before
