"""Multi-head attention beside PyTorch's FlashAttention-2 and cuDNN kernels.

Shapes H1 to H9 are those that RedFuser publishes (appendix A.5); C1 to C3 are small ones for machines without a GPU.
"""

from functools import cache
from typing import Any, final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.family import Contestant, Family, Row, Tensors, relative_error, width
from redalg.library import attention

CHECKED_HEADS = 8
TOLERANCE = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}


def row(name: str, size: str, dtype: str = "float16") -> Row:
    """One row of batch x heads x queries x keys x width: Q[b,h,q,d], K[b,h,k,d] and V[b,h,k,e], e as long as d."""
    b, h, q, k, d = map(int, size.split("x"))
    queries, keys = (b, h, q, d), (b, h, k, d)
    return Row(
        name,
        sizes={"b": b, "h": h, "q": q, "k": k, "d": d, "e": d},
        shapes={"Q": queries, "K": keys, "V": keys},
        dtypes=dict.fromkeys("QKV", dtype),
        flops=4 * b * h * q * k * d,
        out_bytes=width(dtype) * b * h * q * d,
    )


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
    row("C1", "1x4x256x256x64", "float32"),
    row("C2", "1x4x77x1000x64", "float32"),
    row("C3", "2x8x1x2048x128", "float32"),
)
PEERS = {"FlashAttention-2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


@cache
def fused() -> Any:
    """Softmax attention, derived once."""
    return attention()


@final
class Attention(Family):
    """Softmax attention of given rows: the published ones on CUDA, small ones on the CPU."""

    def __init__(self, name: str, title: str, cuda: tuple[Row, ...], cpu: tuple[Row, ...]) -> None:
        self.name, self.title, self.cuda, self.cpu = name, title, cuda, cpu

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        return self.cuda if device.type == "cuda" else self.cpu

    def fused(self, row: Row) -> Any:
        return fused()

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        return peers_on(device)

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[row.dtypes["Q"]]

    def error(self, row: Row, out: Any, inputs: Tensors) -> float:
        return error_of_heads(out, inputs)


MHA = Attention("mha", "multi-head attention beside FlashAttention-2 and cuDNN", CUDA_ROWS, CPU_ROWS)


def peers_on(device: torch.device) -> dict[str, Contestant]:
    """PyTorch's kernels."""
    if device.type != "cuda":
        return {"SDPA": sdpa(None)}
    return {name: sdpa(backend) for name, backend in PEERS.items()}


def error_of_heads(out: torch.Tensor, inputs: Tensors) -> float:
    """On a few heads spread over the batch."""
    batch, heads = out.shape[:2]
    flat = torch.linspace(0, batch * heads - 1, min(CHECKED_HEADS, batch * heads)).long().tolist()
    pick = [list(pair) for pair in zip(*(divmod(i, heads) for i in flat), strict=True)]
    Q, K, V = (inputs[name][pick[0], pick[1]].double() for name in "QKV")
    reference = torch.softmax(Q @ K.mT / Q.shape[-1] ** 0.5, -1) @ V
    return relative_error(out[pick[0], pick[1]], reference)


def sdpa(backend: SDPBackend | None) -> Contestant:
    """PyTorch's attention, held to one of its backends."""

    def call(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        if backend is None:
            return scaled_dot_product_attention(Q, K, V)
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(Q, K, V)

    return call
