"""The functions of PyTorch that are used though they are private, each for want of a public one.

`tests/runtime/test_private.py` holds what each is relied on for. The backend of `torch.compile` (`redalg/torch`) stands
on Inductor's own modules too, and checks PyTorch's version.
"""

from __future__ import annotations

from typing import Any

import torch


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
