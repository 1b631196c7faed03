"""Attention of few small heads beside PyTorch's FlashAttention-2 and cuDNN kernels.

Shapes S1 to S9 are those that MCFuser publishes (Table III; batch 1, heads x queries x keys x width), in float16; C1
and C2 are small ones for machines without a GPU.
"""

from typing import Any, final

import torch

from benchmarks.families.mha import TOLERANCE, error_of_heads, fused, peers_on, row
from benchmarks.family import Contestant, Family, Row, Tensors

CUDA_ROWS = tuple(
    row(f"S{number}", size)
    for number, size in enumerate(
        ("1x8x512x512x64", "1x12x512x512x64", "1x16x512x512x64", "1x12x256x256x64", "1x16x256x256x64",
         "1x16x256x256x80", "1x1x512x256x64", "1x1x768x384x64", "1x1x1024x512x64"), 1)
)  # fmt: skip
CPU_ROWS = (row("C1", "1x2x64x64x64", "float32"), row("C2", "1x1x96x48x80", "float32"))


@final
class AttentionSmall(Family):
    """See the module."""

    name, title = "attention_small", "attention of few small heads, beside FlashAttention-2 and cuDNN"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        return CUDA_ROWS if device.type == "cuda" else CPU_ROWS

    def fused(self, row: Row) -> Any:
        return fused()

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        return peers_on(device)

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[row.dtypes["Q"]]

    def error(self, row: Row, out: Any, inputs: Tensors) -> float:
        return error_of_heads(out, inputs)
