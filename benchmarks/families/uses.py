"""Attention as it is used: long, causal, windows, shared heads, decode; beside PyTorch's kernels.

Shapes are common in serving; those named "small" are for machines without a GPU.
A peer that has no kernel for a mask is given it as a boolean tensor.
"""

from benchmarks.families.attention import Attention, Use, row

CAUSAL, WINDOW, FOUR, EIGHT = Use("causal"), Use("window"), Use(groups=4), Use(groups=8)
FULL, CAUSAL_FOUR = Use(), Use("causal", groups=4)
CUDA_ROWS = (
    row("causal 2k", "4x16x2048x2048x128", CAUSAL),
    row("causal 8k", "1x16x8192x8192x128", CAUSAL),
    row("window 2k", "4x16x2048x2048x128", WINDOW),
    row("window 8k", "1x16x8192x8192x128", WINDOW),
    row("full 4k, d 64", "4x16x4096x4096x64", FULL),
    row("causal 4k, d 64", "4x16x4096x4096x64", CAUSAL),
    row("full 4k, d 128", "4x16x4096x4096x128", FULL),
    row("causal 4k, d 128", "4x16x4096x4096x128", CAUSAL),
    row("grouped causal 8k", "2x32x8192x8192x128", CAUSAL_FOUR, "bfloat16"),
    row("full 2k, d 96", "8x12x2048x2048x96", FULL),
    row("decode 1x8k", "1x32x1x8192x128", FOUR),
    row("decode 32x4k", "32x32x1x4096x128", FOUR),
    row("verify 8x4k", "8x32x4x4096x128", FOUR),
    row("decode 1x64k", "1x64x1x65536x128", EIGHT),
)
CPU_ROWS = (
    row("causal, small", "1x4x256x256x64", CAUSAL, "float32"),
    row("window, small", "1x2x1024x1024x64", WINDOW, "float32"),
    row("decode, small", "1x8x1x2048x64", FOUR, "float32"),
)
USES = Attention("uses", "attention as it is used, beside FlashAttention-2 and cuDNN", CUDA_ROWS, CPU_ROWS)
