"""The kernels of regions, compiled side by side before anything is tried: each in a process of its own.

What fails here is met again, and told, when the region is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import cpu_count
from time import monotonic

import torch

from redalg.gradient.operators import read_call
from redalg.lower_tile.text.emit import Source
from redalg.runtime.bind.inputs import array_dtype
from redalg.runtime.call.ahead import kernels_of_call
from redalg.runtime.lowering import target_of
from redalg.runtime.tune.compiling import Compilers
from redalg.torch.regions import Region

Wait = Callable[[float], None]
"""Waits until everything is compiled, or until a time of the monotonic clock."""


@contextmanager
def compilers_for(regions: Iterable[Region], device: torch.device) -> Iterator[Wait]:
    """Within it, processes compile the kernels of regions; a single kernel is left to the trial of its region."""
    regions = regions if runs_kernels(device) else ()
    sources = list(dict.fromkeys(source for region in regions for source in kernel_sources(region, device)))
    if len(sources) < 2:
        yield lambda _: None
        return
    with Compilers(min(len(sources), cpu_count() or 1)) as compilers:
        jobs = [compilers.submit(source) for source in sources]

        def wait(until: float) -> None:
            for job in jobs:
                job.wait(until - monotonic())

        yield wait


def kernel_sources(region: Region, device: torch.device) -> list[Source]:
    """The sources of the kernels that a region's operator takes; none if it has no kernel."""
    [node] = region.fused.graph.find_nodes(op="call_function", target=torch.ops.redalg.run.default)
    text, tensors, _, lengths = node.args
    told, given = read_call(str(text)), [one.meta["val"] for one in tensors]
    dtypes = {name: array_dtype(fake) for name, fake in zip(told.names, given, strict=True)}
    shapes = {name: tuple(fake.shape) for name, fake in zip(told.names, given, strict=True)}
    sizes = dict(zip(told.sizes, lengths, strict=True))
    passes = told.forward(dict(zip(told.names, given, strict=True))).passes
    try:
        kernels = kernels_of_call(passes, target_of(str(device)), sizes, dtypes, shapes)
    except Exception:  # noqa: BLE001 - the trial of the region meets it again
        return []
    return [lowered.source for lowered in kernels]


def runs_kernels(device: torch.device) -> bool:
    """Tell if calls run kernels on a device, if they say nothing of it: on GPUs."""
    return device.type == "cuda"
