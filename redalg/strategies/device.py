"""What a chip allows, as data. Sources: NVIDIA's CUDA C++ Programming Guide, table of compute capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from redalg.errors import PlanError


@final
@dataclass(frozen=True)
class DeviceSpec:
    """Limits of a target.

    Attributes:
        target: its name, `sm_90a` … or `c`.
        multiprocessors: number of SMs of the part named in `part`.
        smem_bytes: shared memory that one block may use.
        wgmma: whether warpgroup matrix instructions and the bulk copy engine exist.
        fp8: whether matrix instructions take 8-bit floats.
        part: the card whose SM count is given.
    """

    target: str
    multiprocessors: int
    smem_bytes: int
    wgmma: bool
    part: str
    fp8: bool = False


DEVICES = {
    one.target: one
    for one in (
        DeviceSpec("sm_90a", 132, 232448, wgmma=True, part="H200", fp8=True),
        DeviceSpec("sm_86", 72, 101376, wgmma=False, part="A10"),
        DeviceSpec("sm_80", 108, 166912, wgmma=False, part="A100"),
        DeviceSpec("c", 1, 1 << 20, wgmma=False, part="one core (tiles are stack arrays)"),
    )
}


def device_for(target: str) -> DeviceSpec:
    """The limits of a target.

    >>> device_for("sm_80").smem_bytes
    166912
    """
    if target not in DEVICES:
        raise PlanError(f"target {target!r} is not known. Use one of {', '.join(map(repr, DEVICES))}.")
    return DEVICES[target]
