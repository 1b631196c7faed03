"""Attention of few small heads beside PyTorch's FlashAttention-2 and cuDNN kernels.

Shapes S1 to S9 are those that MCFuser publishes (Table III; batch 1, heads x queries x keys x width), in float16; C1
and C2 are small ones for machines without a GPU.
"""

from benchmarks.families.attention import Attention, row

SIZES = ("1x8x512x512x64", "1x12x512x512x64", "1x16x512x512x64", "1x12x256x256x64", "1x16x256x256x64",
         "1x16x256x256x80", "1x1x512x256x64", "1x1x768x384x64", "1x1x1024x512x64")  # fmt: skip
SMALL = Attention(
    "attention_small",
    "attention of few small heads, beside FlashAttention-2 and cuDNN",
    tuple(row(f"S{number}", size) for number, size in enumerate(SIZES, 1)),
    (row("C1", "1x2x64x64x64", dtype="float32"), row("C2", "1x1x96x48x80", dtype="float32")),
)
