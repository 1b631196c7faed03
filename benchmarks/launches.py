"""Launches of one call of a model, by PyTorch's profiler: kernels, and copies or fills; bytes, as Inductor counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

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
    if not names:
        return {"launches": None, "launches_failure": "the profiler saw nothing on the device"}
    return {"launches": count_launches(names)}


@contextmanager
def bytes_of_graphs() -> Iterator[list[int | str]]:
    """Within it, the bytes of each graph that Inductor writes code for, or why they are not counted, in that order.

    Every kernel moves each tensor once that it reads or writes, an operator of a group too: this is Inductor's own
    count. Of a graph that comes from its cache nothing is counted.
    """
    from torch._inductor.graph import GraphLowering

    found, write = list[int | str](), GraphLowering.codegen

    def write_and_count(graph: Any) -> Any:
        code = write(graph)
        try:
            found.append(sum(node.get_read_write_buffers_sizes() for node in graph.scheduler.nodes))
        except Exception as failure:  # noqa: BLE001 - the model is measured without it
            found.append(said(failure))
        return code

    with patch.object(GraphLowering, "codegen", write_and_count):
        yield found


def bytes_counted(found: list[int | str], *, parts: int) -> dict[str, Any]:
    """The bytes of the last graphs, of which a model has so many parts; regions of groups are compiled before each.

    >>> bytes_counted([7, 100], parts=1), bytes_counted([], parts=1), bytes_counted([5, "no size"], parts=1)
    ({'counted_bytes': 100}, {}, {'counted_bytes_failure': 'no size'})
    >>> bytes_counted([7, 100], parts=2)
    {}
    """
    if parts != 1 or not found:  # a forward and a backward are not told from regions between them
        return {}
    return {"counted_bytes": found[-1]} if isinstance(found[-1], int) else {"counted_bytes_failure": found[-1]}


def count_launches(names: Iterable[str]) -> dict[str, int]:
    """The kernels among what a device did, and what else it did.

    >>> count_launches(["triton_red_fused_0", "Memset (Device)", "nvjet_tst_64x8"])
    {'kernels': 2, 'copies': 1}
    """
    known = list(names)
    copies = sum(name.startswith(COPIES) for name in known)
    return {"kernels": len(known) - copies, "copies": copies}
