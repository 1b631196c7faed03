"""The gate: a group is put into a graph if its region runs faster with it than without, measured on the device.

    1  exploration    the plan has only groups that save memory traffic and launches, by counting
    2  trial          the operator runs on drawn tensors, and agrees with PyTorch's own operators
    3  measurement    the region compiled by Inductor as it is, and with the operator; the operator stays if it wins

A decision depends on the region's text, the device, and the versions of PyTorch and redalg, and it is kept under a
digest of these: `graphs/<digest>.json` in the cache folder. Another process measures nothing.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, cast, final

import torch
from torch.fx import GraphModule

from redalg.runtime.compile.cache import folder
from redalg.runtime.tune.timing import measure
from redalg.torch.regions import Region, drawn_inputs
from redalg.version import VERSION

FORMAT, SAMPLES = "redalg decision, 1", 7
MEASURED, PREDICTED = "measured", "predicted"
GATES = (MEASURED, PREDICTED)
"""The words for `redalg.gate`: groups that were measured to be faster, or all that exploration finds and a trial lets
pass."""
TOLERANCE, NARROW_TOLERANCE = 1e-3, 5e-2
"""The difference of results beside the largest of them, up to which a trial takes it for rounding; of 16 bits."""
DISAGREES = "its results are not those of PyTorch's operators"


@final
@dataclass(frozen=True)
class Decision:
    """The decision on a group.

    Attributes:
        is_put: true if the group is put into the graph.
        fused_us, plain_us: the time of its region with it and without (µs); None if that was not measured.
        reason: why it is left out, if not for its time.
    """

    is_put: bool
    fused_us: float | None = None
    plain_us: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.fused_us is None or self.plain_us is None:
            return f"left to Inductor: {self.reason}" if self.reason else "put, not measured"
        said = "put" if self.is_put else "left to Inductor"
        return f"{said}: {self.fused_us:.1f} µs with it, {self.plain_us:.1f} µs without"


def decide_on_region(region: Region, device: torch.device, gate: str = MEASURED, *, is_late: bool = False) -> Decision:
    """The decision on a region's group: as it was measured before, or measured now; "predicted" tries it alone.

    If it is late, nothing is tried or measured any more.

    Several processes that compile one model side by side measure nothing, for they wait for each other: what was not
    measured before is left to Inductor. A region for which memory lacks is left to Inductor, and is tried another time.
    """
    path = folder() / "graphs" / f"{digest_of(region, device)}.json"
    known = read_decision(path) if gate == MEASURED else None
    if known is not None:
        return known
    if is_late:
        return Decision(is_put=False, reason="the budget for measurements was spent before it")
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    if together and gate == MEASURED:
        return Decision(is_put=False, reason="it was not measured before, and several processes compile together")
    judge = partial(try_region, region) if gate == PREDICTED else partial(measure_region, region, device)
    try:
        decision = in_thread(judge)
    except torch.OutOfMemoryError as failure:
        return Decision(is_put=False, reason=first_line(failure))
    if gate == MEASURED:
        write_decision(path, decision)
    return decision


def measure_region(region: Region, device: torch.device) -> Decision:
    """The decision by the times of a region on a device."""
    inputs = drawn_inputs(region.inputs)
    if not agrees(region, inputs):
        return Decision(is_put=False, reason=DISAGREES)
    plain, fused = (compile_part(module, inputs) for module in (region.plain, region.fused))
    times = [measure([partial(call, *inputs)], device, SAMPLES).median_us for call in (plain, fused)]
    return Decision(is_put=times[1] < times[0], fused_us=times[1], plain_us=times[0])


def try_region(region: Region) -> Decision:
    """The decision by a trial alone."""
    fine = agrees(region, drawn_inputs(region.inputs))
    return Decision(is_put=fine, reason="" if fine else DISAGREES)


def agrees(region: Region, inputs: Sequence[torch.Tensor]) -> bool:
    """Tell if a region returns the same with its operator as without, but for roundings."""
    with torch.no_grad():
        pairs = zip(region.fused(*inputs), region.plain(*inputs), strict=True)
        return all(is_near(found, wanted) for found, wanted in pairs)


def is_near(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Tell if two results are the same but for roundings: beside the largest number, at the same finite places."""
    if not wanted.dtype.is_floating_point:
        return torch.equal(found, wanted)
    finite, bound = wanted.isfinite(), TOLERANCE if wanted.dtype.itemsize > 2 else NARROW_TOLERANCE
    if not wanted.numel() or not torch.equal(finite, found.isfinite()):
        return not wanted.numel()
    found, wanted = (one.where(finite, 0).double() for one in (found, wanted))
    return bool((found - wanted).abs().max() <= bound * wanted.abs().max())


def compile_part(module: GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """A part of a graph as Inductor compiles it."""
    from torch._inductor.compile_fx import compile_fx

    patches = {"post_grad_custom_post_pass": None, "triton.cudagraphs": False}
    with torch.no_grad():
        run = cast(Callable[..., Any], compile_fx(module, list(inputs), config_patches=patches))
        run(*inputs)
    return run


def in_thread(make: Callable[[], Decision]) -> Decision:
    """A decision from a thread of its own, where no compilation is under way and no mode is active.

    A region that fails there is left to Inductor.

    Raises:
        torch.OutOfMemoryError: the device lacks memory for it now.
    """
    found = list[Decision | torch.OutOfMemoryError]()

    def run() -> None:
        try:
            found.append(make())
        except torch.OutOfMemoryError as failure:
            found.append(failure)
        except Exception as failure:  # noqa: BLE001 - whatever fails in a group, Inductor's code runs
            found.append(Decision(is_put=False, reason=first_line(failure)))

    thread = threading.Thread(target=run, name="redalg gate")
    thread.start()
    thread.join()
    [answer] = found
    if isinstance(answer, torch.OutOfMemoryError):
        raise answer
    return answer


def first_line(failure: Exception) -> str:
    """An exception as one line."""
    return f"{type(failure).__name__}: {failure}".splitlines()[0]


# ---- decisions on disk -----------------------------------------------------------------------------------------------


def digest_of(region: Region, device: torch.device) -> str:
    """The digest of what a decision depends on."""
    return sha256("\n".join((*environment_of(device), region.text)).encode()).hexdigest()


def environment_of(device: torch.device) -> tuple[str, ...]:
    """The versions and the device on which decisions depend."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} {os.cpu_count()}"
    return FORMAT, torch.__version__, VERSION, name


def read_decision(path: Path) -> Decision | None:
    """The decision of a file that this user owns; None if there is none that can be read."""
    try:
        if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            return None
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    kinds = {"is_put": bool, "fused_us": float | None, "plain_us": float | None, "reason": str}
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT or found.keys() != kinds.keys():
        return None
    return Decision(**found) if all(isinstance(found[name], kind) for name, kind in kinds.items()) else None


def write_decision(path: Path, decision: Decision) -> None:
    """Keep a decision for other processes, if the folder can be written."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = path.with_suffix(f".{os.getpid()}")
        own.write_text(json.dumps({"format": FORMAT, **asdict(decision)}))
        own.replace(path)
