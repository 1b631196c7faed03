"""Decisions that processes share which compile one model side by side, as under `torch.distributed`.

    rank 0      measures, and writes every decision into the store by which the processes found each other
    the others  read it there, and wait for it as long as the budget lasts; they measure nothing

No collective is called, so that processes whose graphs differ, or of which some compile nothing, never hang. The one
private name of PyTorch that is needed stands here.
"""

from __future__ import annotations

from datetime import timedelta
from time import monotonic
from typing import Any

import torch

from redalg.torch.decisions import Decision, decision_of_text, text_of_decision

PREFIX = "redalg/decisions/"
MISSING = Decision(is_put=False, reason="rank 0 decided nothing on it in the time of the budget", lasts=False)


def has_ranks() -> bool:
    """Tell if this process is one of several that work together."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def is_first_rank() -> bool:
    """Tell if this process measures for all."""
    return torch.distributed.get_rank() == 0


def share_decision(digest: str, decision: Decision) -> None:
    """Write a decision for the other processes."""
    _store().set(PREFIX + digest, text_of_decision(decision))


def wait_for_decision(digest: str, until: float) -> Decision:
    """The decision of rank 0, for which it is waited until a time of the monotonic clock."""
    store, key = _store(), PREFIX + digest
    try:
        store.wait([key], timedelta(seconds=max(0.001, until - monotonic())))
    except RuntimeError:  # it was not written in time
        return MISSING
    return decision_of_text(store.get(key).decode()) or MISSING


def _store() -> Any:
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()
