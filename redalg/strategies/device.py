"""Limits of chips, as data: compute capabilities, and the cards that have them.

Shared memory of a block, warpgroup instructions, 8-bit floats: NVIDIA's CUDA C++ Programming Guide, table "Technical
specifications per compute capability". Cards (multiprocessors, GB/s of memory, TFLOP/s of dense float16 products that
accumulate in float32):

    H200        132  4800  989    NVIDIA H200 datasheet; multiprocessors as the driver reports them
    H100 (SXM)  132  3350  989    NVIDIA H100 datasheet; "NVIDIA H100 Tensor Core GPU Architecture", table 3
    H800 (SXM)  132  3350  989    the H100 with slower links between cards: no datasheet gives other figures for these
    A100 (SXM)  108  2039  312    NVIDIA A100 80GB datasheet; "NVIDIA A100 Tensor Core GPU Architecture", table 4
    A10          72   600  125    NVIDIA A10 datasheet
    RTX 3080     68   760   60    "NVIDIA Ampere GA102 GPU Architecture", table 2 (10 GB card)
    RTX 4090    128  1008  165    "NVIDIA Ada GPU Architecture", appendix A
    L40S        142   864  362    NVIDIA L40S datasheet
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

from redalg.errors import PlanError
from redalg.expression.spelling import did_you_mean

WARP = 32
"""Threads of a warp, on every NVIDIA GPU."""
LOAD_BYTES = 16
"""Bytes that a thread loads at once, at most, on every NVIDIA GPU that is a target."""
BANKS, BANK_BYTES = 32, 4
"""Banks of shared memory, which threads of a warp read at once, and bytes that a bank gives."""
LINE_BYTES = 128
"""Bytes of a line of the L2 cache, on every NVIDIA GPU."""
REGISTERS = 65536
"""Registers of a multiprocessor, on every NVIDIA GPU that is a target."""


@final
@dataclass(frozen=True)
class DeviceSpec:
    """Limits of a target.

    Attributes:
        target: its name, `sm_90a` … or `c`.
        multiprocessors: number of SMs of the part named in `part`.
        smem_bytes: shared memory that one block may use.
        wgmma: True if the target has warpgroup matrix instructions and the bulk copy engine.
        fp8: True if matrix instructions take 8-bit floats.
        part: the card whose SM count is given.
        memory_gb_s: bandwidth of its memory, in 10⁹ bytes a second (0: not said).
        product_tflops: rate of dense float16 products that accumulate in float32, in 10¹² a second (0: not said).
    """

    target: str
    multiprocessors: int
    smem_bytes: int
    wgmma: bool
    part: str
    fp8: bool = False
    memory_gb_s: int = 0
    product_tflops: int = 0


@final
@dataclass(frozen=True)
class Architecture:
    """A compute capability; its attributes are those of `DeviceSpec`."""

    target: str
    capability: tuple[int, int]
    smem_bytes: int
    wgmma: bool = False
    fp8: bool = False


ARCHITECTURES = {
    architecture.target: architecture
    for architecture in (
        Architecture("sm_90a", (9, 0), 232448, wgmma=True, fp8=True),
        Architecture("sm_89", (8, 9), 101376, fp8=True),
        Architecture("sm_86", (8, 6), 101376),
        Architecture("sm_80", (8, 0), 166912),
    )
}
"""Every compute capability, by the target that kernels are compiled for."""


def card(target: str, part: str, multiprocessors: int, memory_gb_s: int, product_tflops: int) -> DeviceSpec:
    """Return the limits of a card, from the target of its compute capability."""
    of = ARCHITECTURES[target]
    return DeviceSpec(target, multiprocessors, of.smem_bytes, of.wgmma, part, of.fp8, memory_gb_s, product_tflops)


CARDS = {
    device.part: device
    for device in (
        card("sm_90a", "H200", 132, 4800, 989),
        card("sm_90a", "H100", 132, 3350, 989),
        card("sm_90a", "H800", 132, 3350, 989),
        card("sm_80", "A100", 108, 2039, 312),
        card("sm_86", "A10", 72, 600, 125),
        card("sm_86", "RTX 3080", 68, 760, 60),
        card("sm_89", "L40S", 142, 864, 362),
        card("sm_89", "RTX 4090", 128, 1008, 165),
    )
}
"""Cards by name. The first of a target stands for it."""
CORE = DeviceSpec("c", 1, 1 << 20, False, "one core (tiles are stack arrays)", False, 10, 1)
"""The C target. Its rates are orders of magnitude: they rank plans alone."""


def targets() -> dict[str, DeviceSpec]:
    """Every target, by the first card that has it; the C target last."""
    firsts = {target: next((one for one in CARDS.values() if one.target == target), None) for target in ARCHITECTURES}
    return {target: one for target, one in firsts.items() if one is not None} | {CORE.target: CORE}


USUAL = {
    "cuda": ' A kernel is for a card: name yours, such as "H100".',
    "gpu": ' A kernel is for a card: name yours, such as "H100".',
    "cpu": ' A kernel for the CPU is in C: name it "c".',
}
"""Names of devices in other libraries -> what to write."""


def device_for(target: str) -> DeviceSpec:
    """The limits of a target, or of a card by its name.

    >>> device_for("sm_80").smem_bytes, device_for("RTX 4090").multiprocessors
    (166912, 128)
    """
    found = targets().get(target) or CARDS.get(target)
    if found is None:
        names = ", ".join(map(repr, (*targets(), *CARDS)))
        near = USUAL.get(target) or near_target(str(target))
        capabilities = ", ".join(f"{one} for {'.'.join(map(str, of.capability))}" for one, of in ARCHITECTURES.items())
        raise PlanError(
            f"target {target!r} is not known.{near} Use one of {names}. A card that is not listed has the target of "
            f"its compute capability: {capabilities}; there is none for others."
        )
    return found


def near_target(target: str) -> str:
    """The question that names a target or a card spelt alike; of another compute capability none is meant.

    >>> near_target("sm_90"), near_target("sm_100"), near_target("H1000")
    (' Did you mean sm_90a?', '', ' Did you mean H100?')
    """
    asked = re.fullmatch(r"(?:sm|compute)_?(\d+)\w?", target)
    if asked is None:
        return did_you_mean(target, (*targets(), *CARDS))
    return did_you_mean(target, [one for one in targets() if re.fullmatch(rf"sm_{asked[1]}\w?", one)])


def card_of(name: str, capability: tuple[int, int]) -> str | None:
    """The card of a GPU, from the name that its driver gives and its compute capability; its target if none is known.

    None if no target has that capability.

    >>> card_of("NVIDIA H800", (9, 0)), card_of("NVIDIA RTX A6000", (8, 6)), card_of("NVIDIA B200", (10, 0))
    ('H800', 'sm_86', None)
    """
    target = next((one.target for one in ARCHITECTURES.values() if one.capability == capability), None)
    words = f"{name} ".replace("-", " ")
    cards = [card for card, one in CARDS.items() if f" {card} " in words and one.target == target]
    return cards[0] if cards else target
