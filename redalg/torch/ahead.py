"""The kernels of regions, compiled side by side before anything is tried: each in a process of its own.

What fails here is met again, and told, when the region is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import cpu_count
from time import monotonic
from typing import Any, cast, final

import torch
from torch.fx import Node

import redalg.runtime.together.operator  # noqa: F401 - it registers the operator that is named below
from redalg.gradient.operators import read_call
from redalg.lower_tile.text.emit import Source
from redalg.runtime.bind.inputs import array_dtype
from redalg.runtime.call.ahead import kernels_of_call
from redalg.runtime.lowering import target_of
from redalg.runtime.together.lower import lower_steps
from redalg.runtime.together.steps import read_steps
from redalg.runtime.tune.compiling import STOPPED, Compilers, Job
from redalg.torch.regions import Region

RUN, TOGETHER = torch.ops.redalg.run.default, torch.ops.redalg.together.default
MOST_COMPILED_S = 60.0
"""The seconds for a kernel, at most: what takes longer has grown beyond what pays."""


@final
@dataclass(frozen=True)
class Ahead:
    """The kernels of regions, as they are compiled.

    Attributes:
        jobs: source -> what compiles it.
        sources: region's digest -> the sources of its kernels.
    """

    jobs: Mapping[Source, Job]
    sources: Mapping[str, Sequence[Source]]

    def wait(self, until: float) -> None:
        """Wait until all is compiled, or until a time of the monotonic clock; a kernel that takes long is given up."""
        for job in self.jobs.values():
            while monotonic() < until and job.wait(min(1.0, until - monotonic())) == STOPPED and not job.given_up:
                if job.has_run(MOST_COMPILED_S):
                    job.give_up()

    def is_given_up(self, digest: str) -> bool:
        """Tell if a kernel of a region takes long."""
        return any(job.given_up for job in self._jobs_of(digest))

    def is_ready(self, digest: str) -> bool:
        """Tell if nothing of a region compiles still: what failed is met again when the region is tried."""
        return not any(job.wait(0.0) == STOPPED for job in self._jobs_of(digest))

    def _jobs_of(self, digest: str) -> list[Job]:
        return [self.jobs[source] for source in self.sources[digest] if source in self.jobs]


@contextmanager
def compilers_for(regions: Mapping[str, Region], device: torch.device) -> Iterator[Ahead]:
    """Within it, processes compile the kernels of regions; a single kernel is left to the trial of its region."""
    found = {digest: kernel_sources(region, device) if runs_kernels(device) else []
             for digest, region in regions.items()}  # fmt: skip
    sources = list(dict.fromkeys(source for each in found.values() for source in each))
    if len(sources) < 2:
        yield Ahead({}, found)
        return
    with Compilers(min(len(sources), cpu_count() or 1)) as compilers:
        yield Ahead({source: compilers.submit(source) for source in sources}, found)


def kernel_sources(region: Region, device: torch.device) -> list[Source]:
    """The sources of the kernels that a region's operator takes; none if it has no kernel."""
    try:
        [node] = [one for one in region.fused.graph.nodes if one.target in (RUN, TOGETHER)]
        return source_of_steps(node, device) if node.target == TOGETHER else sources_of_call(node, device)
    except Exception:  # noqa: BLE001 - the trial of the region meets it again
        return []


def source_of_steps(node: Node, device: torch.device) -> list[Source]:
    """The source of the launch of a subprogram."""
    steps, given = read_steps(str(node.args[0])), cast(list[Node], node.args[1])
    dtypes = {name: array_dtype(each.meta["val"]) for name, each in zip(steps.inputs, given, strict=True)}
    lengths = tuple(map(int, cast(list[int], node.args[2]))) if len(node.args) > 2 else ()
    return [lower_steps(steps, target_of(str(device)), dtypes, lengths).source]


def sources_of_call(node: Node, device: torch.device) -> list[Source]:
    """The sources of the kernels of a group's function."""
    text, tensors, _, lengths = cast(tuple[str, list[Node], Any, list[int]], node.args)
    told, given = read_call(text), [each.meta["val"] for each in tensors]
    dtypes = {name: array_dtype(fake) for name, fake in zip(told.names, given, strict=True)}
    shapes = {name: tuple(fake.shape) for name, fake in zip(told.names, given, strict=True)}
    sizes = dict(zip(told.sizes, lengths, strict=True))
    passes = told.forward(dict(zip(told.names, given, strict=True))).passes
    return [lowered.source for lowered in kernels_of_call(passes, target_of(str(device)), sizes, dtypes, shapes)]


def runs_kernels(device: torch.device) -> bool:
    """Tell if calls run kernels on a device, if they say nothing of it: on GPUs."""
    return device.type == "cuda"
