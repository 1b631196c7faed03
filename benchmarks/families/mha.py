"""Multi-head attention beside PyTorch's FlashAttention-2 and cuDNN kernels.

Shapes H1 to H9 are those that RedFuser publishes (appendix A.5); C1 to C3 are small ones for machines without a GPU.
"""

from benchmarks.families.attention import Attention, row

CUDA_ROWS = (
    row("H1", "32x8x512x512x64"),
    row("H2", "32x12x512x512x64"),
    row("H3", "32x16x512x512x64"),
    row("H4", "32x12x256x256x64"),
    row("H5", "32x16x256x256x64"),
    row("H6", "32x16x256x256x80"),
    row("H7", "32x64x1x1024x128"),
    row("H8", "32x64x1x2048x128"),
    row("H9", "32x64x1x4096x128"),
)
CPU_ROWS = (
    row("C1", "1x4x256x256x64", dtype="float32"),
    row("C2", "1x4x77x1000x64", dtype="float32"),
    row("C3", "2x8x1x2048x128", dtype="float32"),
)
MHA = Attention("mha", "multi-head attention beside FlashAttention-2 and cuDNN", CUDA_ROWS, CPU_ROWS)
