"""Launches of one call of a model, by PyTorch's profiler: kernels, and copies or fills."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from benchmarks.compete import said

COPIES = ("Memcpy", "Memset")
"""The beginnings of names of what the device does that is no kernel."""


def launches_of(call: Callable[[], object], where: torch.device) -> dict[str, Any]:
    """The kernels of a call, and its copies and fills; nothing is counted on a CPU."""
    if where.type != "cuda":
        return {}
    from torch.profiler import ProfilerActivity, profile

    try:
        call()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            call()
            torch.cuda.synchronize()
    except Exception as failure:  # noqa: BLE001 - the time that was measured stands without it
        return {"launches": None, "launches_failure": said(failure)}
    names = [event.name for event in profiled.events() or ()
             if event.device_type.name == "CUDA" and not event.is_user_annotation]  # fmt: skip
    return {"launches": count_launches(names)}


def count_launches(names: Iterable[str]) -> dict[str, int]:
    """The kernels among what a device did, and what else it did.

    >>> count_launches(["triton_red_fused_0", "Memset (Device)", "nvjet_tst_64x8"])
    {'kernels': 2, 'copies': 1}
    """
    known = list(names)
    copies = sum(name.startswith(COPIES) for name in known)
    return {"kernels": len(known) - copies, "copies": copies}
