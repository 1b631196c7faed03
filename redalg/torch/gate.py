"""The gate: a group is put into a graph if its region runs faster with it than without, measured on the device.

    1  exploration    the plan has only groups that save memory traffic and launches, by counting
    2  trial          the operator runs on drawn tensors, and agrees with PyTorch's own operators
    3  measurement    the region compiled by Inductor as it is, and with the operator; the operator stays if it wins

What a call of a region costs is the time of the device, or that of the host if it is longer: an operator takes the host
longer than a kernel of Inductor's. Where a model's calls are replayed in CUDA graphs, the host has no part in it.

Regions that are alike are decided on once, those first that would gain most by counting. Their kernels are compiled
side by side, while Inductor compiles the regions as they are; then nothing else runs, and each is tried and measured. A
decision depends on the region's text, the device, and the versions of PyTorch and redalg, and it is kept under a digest
of these: `graphs/<digest>.json` in the cache folder. Another process measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, TypeVar, cast

import torch
from torch.fx import GraphModule

from redalg.progress import progress_bar
from redalg.runtime.compile.cache import folder
from redalg.runtime.tune.timing import Timing, measure
from redalg.torch.ahead import Ahead, compilers_for
from redalg.torch.decisions import Decision, digest_of, read_decision, write_decision
from redalg.torch.ranks import has_ranks, is_first_rank, share_decision, wait_for_decision
from redalg.torch.records import LOG, first_line
from redalg.torch.regions import Region
from redalg.torch.stitch import leave_autograd

SAMPLES = 7
GATE_THREAD = "redalg gate"
SHARE_AHEAD = 0.4
"""Of the budget: for regions as they are, while kernels compile; each other is compiled when it is measured."""
MEASURED, REPLAYED, PREDICTED = "measured", "replayed", "predicted"
KEPT = "kept"
"""No word for `redalg.gate`, but for work beside a program's own calls, which would disturb measurements: decisions
that were measured before hold, and for other groups a trial alone."""
GATES = (MEASURED, REPLAYED, PREDICTED)
"""The words for `redalg.gate`: groups that were measured to be faster, by the device's time alone if calls are
replayed; or all that exploration finds and a trial lets pass."""
HOST_MARGIN = 1.2
"""An operator's time on the host counts so many times: in a model, with cold caches, it takes longer than in a loop."""
TOLERANCE, NARROW_TOLERANCE = 1e-3, 5e-2
"""The difference of results beside the largest of them, up to which a trial takes it for rounding; of 16 bits."""
DISAGREES = Decision(is_put=False, reason="its results are not those of PyTorch's operators")
SLOW = Decision(is_put=False, reason="its kernels take more than a minute to compile")
LATE = Decision(is_put=False, reason="the budget for measurements was spent before it", lasts=False)
Run = Callable[..., Any]
Found = TypeVar("Found")


def decide_on_regions(regions: Sequence[Region], device: torch.device, gate: str, until: float) -> list[Decision]:
    """The decisions on regions' groups: as they were measured before, or measured now; "predicted" tries them alone.

    Nothing is tried or measured after `until`, a time of the monotonic clock. Of several processes that compile one
    model side by side the first measures for all. A region for which memory lacks is left to Inductor, and is tried
    another time.
    """
    digests = [digest_of(region, device, MEASURED if gate == KEPT else gate) for region in regions]
    distinct = by_gain(digests, regions)
    if gate in (PREDICTED, KEPT):
        known = known_decisions(distinct) if gate == KEPT else {}
        new = {digest: region for digest, region in distinct.items() if digest not in known}
        known |= in_thread(partial(try_regions, new, device, until)) if new else {}
    elif has_ranks() and not is_first_rank():
        read = known_decisions(distinct)
        known = {digest: read.get(digest) or wait_for_decision(digest, until) for digest in distinct}
    else:
        known = known_decisions(distinct)
        new = {digest: region for digest, region in distinct.items() if digest not in known}
        known |= in_thread(partial(measure_regions, new, device, until, is_replayed=gate == REPLAYED)) if new else {}
        if has_ranks():
            for digest, decision in known.items():
                share_decision(digest, decision)
    return [known[digest] for digest in digests]


def by_gain(digests: Sequence[str], regions: Sequence[Region]) -> dict[str, Region]:
    """The distinct regions by their digests, those first that would gain most, wherever they stand."""
    gains = dict[str, float]()
    for digest, region in zip(digests, regions, strict=True):
        gains[digest] = gains.get(digest, 0.0) + region.gain_us
    distinct = dict(zip(digests, regions, strict=True))
    return {digest: distinct[digest] for digest in sorted(distinct, key=lambda digest: -gains[digest])}


def known_decisions(digests: Iterable[str]) -> dict[str, Decision]:
    """The decisions that were kept."""
    found = {digest: read_decision(path_of(digest)) for digest in digests}
    return {digest: decision for digest, decision in found.items() if decision is not None}


def path_of(digest: str) -> Path:
    """The file of a decision."""
    return folder() / "graphs" / f"{digest}.json"


# ---- trials and measurements -----------------------------------------------------------------------------------------


def try_regions(regions: Mapping[str, Region], device: torch.device, until: float) -> dict[str, Decision]:
    """The decisions by trials alone."""
    with compilers_for(regions, device) as ahead:
        ahead.wait(until)
        return {digest: with_kernels(ahead, digest, partial(try_region, region), until)
                for digest, region in regions.items()}  # fmt: skip


def with_kernels(ahead: Ahead, digest: str, make: Callable[[], Decision], until: float) -> Decision:
    """A step of a region's decision, if its kernels are compiled."""
    if ahead.is_given_up(digest):
        return SLOW
    return attempt(make, until) if ahead.is_ready(digest) else LATE


def measure_regions(
    regions: Mapping[str, Region], device: torch.device, until: float, *, is_replayed: bool
) -> dict[str, Decision]:  # fmt: skip
    """The decisions by measurements; those that last are kept."""
    found = dict[str, Decision]()
    with (
        progress_bar("measuring groups", len(regions)) as tell,
        compilers_for(regions, device) as ahead,
    ):
        start = monotonic()
        plain, share = dict[str, Run | Decision](), start + SHARE_AHEAD * (until - start)
        for digest, region in regions.items():
            if monotonic() > share:
                break
            plain[digest] = attempt(partial(compile_plain, region), until)
        LOG.debug("%d regions compiled as they are, %.1f s", len(plain), monotonic() - start)
        ahead.wait(until)
        LOG.debug("kernels compiled, %.1f s", monotonic() - start)
        for digest, region in regions.items():
            step = partial(decide_region, region, plain.get(digest), device, is_replayed=is_replayed)
            found[digest] = with_kernels(ahead, digest, step, until)
            tell(len(found))
            LOG.debug("region %d of %d: %s, %.1f s", len(found), len(regions), found[digest], monotonic() - start)
            if found[digest].lasts:
                write_decision(path_of(digest), found[digest])
    return found


def decide_region(
    region: Region, plain: Run | Decision | None, device: torch.device, *, is_replayed: bool
) -> Decision:  # fmt: skip
    """The decision on a region whose kernels are there; `plain` is the region as it is, if it was compiled before."""
    run = compile_plain(region) if plain is None else plain
    return run if isinstance(run, Decision) else measure_region(region, run, device, is_replayed=is_replayed)


def measure_region(region: Region, plain: Run, device: torch.device, *, is_replayed: bool = False) -> Decision:
    """The decision by the times of a region on a device; Inductor compiled the region as it is already."""
    arguments = region.draw()
    if not agrees(region, arguments):
        return DISAGREES
    fused = compile_part(region.whole(region.fused, arguments), arguments)
    timings = [measure([partial(run, *arguments)], device, SAMPLES) for run in (fused, plain)]
    return decision_by(timings, host=device.type == "cuda" and not is_replayed)


def decision_by(timings: Sequence[Timing], *, host: bool) -> Decision:
    """The decision by the times with an operator and without; those of the `host` may count."""
    fused_us, plain_us = (one.median_us for one in timings)
    if not host:
        return Decision(is_put=fused_us < plain_us, fused_us=fused_us, plain_us=plain_us)
    hosts = (timings[0].host_us * HOST_MARGIN, timings[1].host_us)
    with_host = [max(one.median_us, host_us) for one, host_us in zip(timings, hosts, strict=True)]
    return Decision(is_put=with_host[0] < with_host[1], fused_us=fused_us, plain_us=plain_us,
                    fused_host_us=timings[0].host_us, plain_host_us=timings[1].host_us)  # fmt: skip


def try_region(region: Region) -> Decision:
    """The decision by a trial alone."""
    return Decision(is_put=True) if agrees(region, region.draw()) else DISAGREES


def agrees(region: Region, arguments: Sequence[torch.Tensor]) -> bool:
    """Tell if a region returns the same with its operator as without, but for roundings; gradients too.

    Where a tensor of 16 bits goes in, roundings are those of 16 bits also in results of 32: PyTorch's operators round
    what lies between, and a group does not.
    """
    found, wanted = (region.whole(part, arguments)(*arguments) for part in (region.fused, region.plain))
    numbers = [each for each in arguments if each.dtype.is_floating_point]
    narrow = any(each.dtype.itemsize <= 2 for each in numbers)
    return all(is_near(one, other, narrow=narrow) for one, other in zip(found, wanted, strict=True))


def is_near(found: torch.Tensor, wanted: torch.Tensor, *, narrow: bool = False) -> bool:
    """Tell if two results are the same but for roundings: beside the largest number, at the same finite places."""
    if not wanted.dtype.is_floating_point:
        return torch.equal(found, wanted)
    finite, bound = wanted.isfinite(), NARROW_TOLERANCE if narrow or wanted.dtype.itemsize <= 2 else TOLERANCE
    if not wanted.numel() or not torch.equal(finite, found.isfinite()):
        return not wanted.numel()
    found, wanted = (one.where(finite, 0).double() for one in (found, wanted))
    return bool((found - wanted).abs().max() <= bound * wanted.abs().max())


def compile_plain(region: Region) -> Run:
    """A region as it is, compiled by Inductor."""
    arguments = region.draw()
    return compile_part(region.whole(region.plain, arguments), arguments)


def compile_part(module: GraphModule, arguments: Sequence[torch.Tensor]) -> Run:
    """A part of a graph as Inductor compiles it."""
    from torch._inductor.compile_fx import compile_fx

    patches = {"post_grad_custom_post_pass": None, "triton.cudagraphs": False}
    leave_autograd(module.graph)
    module.recompile()
    with torch.no_grad():
        run = cast(Run, compile_fx(module, list(arguments), config_patches=patches))
        run(*arguments)
    return run


def attempt(make: Callable[[], Found], until: float) -> Found | Decision:
    """A step of a region's decision; if it fails, or comes too late, the region is left to Inductor."""
    if monotonic() > until:
        return LATE
    try:
        return make()
    except torch.OutOfMemoryError as failure:
        return Decision(is_put=False, reason=first_line(failure), lasts=False)
    except Exception as failure:  # noqa: BLE001 - whatever fails in a group, Inductor's code runs
        return Decision(is_put=False, reason=first_line(failure))


def in_thread(make: Callable[[], Found]) -> Found:
    """Call a function in a thread of its own, where no compilation is under way and no mode is active.

    A process that ends does not wait for it.
    """
    future = Future[Found]()

    def run() -> None:
        try:
            future.set_result(make())
        except BaseException as failure:  # noqa: BLE001 - the caller raises it
            future.set_exception(failure)

    Thread(target=run, name=GATE_THREAD, daemon=True).start()
    return future.result()
