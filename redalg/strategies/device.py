"""What chips allow, as data: compute capabilities, and the cards that have them.

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


def hopper(part: str, multiprocessors: int, memory_gb_s: int, product_tflops: int) -> DeviceSpec:
    """A card of compute capability 9.0."""
    return DeviceSpec("sm_90a", multiprocessors, 232448, True, part, True, memory_gb_s, product_tflops)


def ada(part: str, multiprocessors: int, memory_gb_s: int, product_tflops: int) -> DeviceSpec:
    """A card of compute capability 8.9."""
    return DeviceSpec("sm_89", multiprocessors, 101376, False, part, True, memory_gb_s, product_tflops)


def ampere(part: str, multiprocessors: int, memory_gb_s: int, product_tflops: int) -> DeviceSpec:
    """A card of compute capability 8.6."""
    return DeviceSpec("sm_86", multiprocessors, 101376, False, part, False, memory_gb_s, product_tflops)


CARDS = {
    one.part: one
    for one in (
        hopper("H200", 132, 4800, 989),
        hopper("H100", 132, 3350, 989),
        hopper("H800", 132, 3350, 989),
        DeviceSpec("sm_80", 108, 166912, False, "A100", False, 2039, 312),
        ampere("A10", 72, 600, 125),
        ampere("RTX 3080", 68, 760, 60),
        ada("L40S", 142, 864, 362),
        ada("RTX 4090", 128, 1008, 165),
    )
}
TARGETS = ("sm_90a", "sm_89", "sm_86", "sm_80")
DEVICES = {target: next(one for one in CARDS.values() if one.target == target) for target in TARGETS} | {
    "c": DeviceSpec("c", 1, 1 << 20, False, "one core (tiles are stack arrays)", False, 10, 1)
}
"""Every target, by the first card that has it. The rates of a core are orders of magnitude: they rank plans alone."""


def device_for(target: str) -> DeviceSpec:
    """The limits of a target, or of a card by its name.

    >>> device_for("sm_80").smem_bytes, device_for("RTX 4090").multiprocessors
    (166912, 128)
    """
    found = DEVICES.get(target) or CARDS.get(target)
    if found is None:
        known = ", ".join(map(repr, (*DEVICES, *CARDS)))
        raise PlanError(f"target {target!r} is not known. Use one of {known}.")
    return found


def card_of(name: str, capability: tuple[int, int]) -> str | None:
    """The card, or else the target, of a GPU by the name that its driver gives and its compute capability.

    None where no target has that capability.

    >>> card_of("NVIDIA H800", (9, 0)), card_of("NVIDIA RTX A6000", (8, 6)), card_of("NVIDIA B200", (10, 0))
    ('H800', 'sm_86', None)
    """
    target = {(9, 0): "sm_90a", (8, 9): "sm_89", (8, 6): "sm_86", (8, 0): "sm_80"}.get(capability)
    words = f"{name} ".replace("-", " ")
    named = [card for card, one in CARDS.items() if f" {card} " in words and one.target == target]
    return named[0] if named else target
