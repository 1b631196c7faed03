"""Attention as it is used: causal, windows, decode with shared heads; beside PyTorch's kernels.

Shapes are common in serving; those named "small" are for machines without a GPU.
A peer that has no kernel for a mask is given it as a boolean tensor.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import redalg as ra
from benchmarks.family import Contestant, Family, Row, Tensors, width
from redalg.library import attention

TOLERANCE = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}
WINDOW = 512


@dataclass(frozen=True)
class Use:
    """How attention is used in a row: which mask, and how many heads share a K/V head."""

    mask: str = ""
    groups: int = 1


def row(name: str, size: str, use: str, dtype: str = "float16") -> Row:
    """One row of batch x heads x queries x keys x width."""
    b, h, q, k, d = map(int, size.split("x"))
    keys = (b, h // USES[use].groups, k, d)
    live = {"causal": 0.5, "window": min(1.0, WINDOW / k)}.get(USES[use].mask, 1.0)
    return Row(
        name,
        sizes={"b": b, "h": h, "q": q, "k": k, "d": d, "e": d},
        shapes={"Q": (b, h, q, d), "K": keys, "V": keys},
        dtypes=dict.fromkeys("QKV", dtype),
        flops=4 * b * h * q * k * d * live,
        out_bytes=width(dtype) * b * h * q * d,
    )


USES = {
    "causal": Use("causal"),
    "window": Use("window"),
    "4 heads share": Use("", 4),
    "8 heads share": Use("", 8),
}
CUDA_ROWS = {
    "causal": (row("causal 2k", "4x16x2048x2048x128", "causal"), row("causal 8k", "1x16x8192x8192x128", "causal")),
    "window": (row("window 2k", "4x16x2048x2048x128", "window"), row("window 8k", "1x16x8192x8192x128", "window")),
    "4 heads share": (
        row("decode 1x8k", "1x32x1x8192x128", "4 heads share"),
        row("decode 32x4k", "32x32x1x4096x128", "4 heads share"),
        row("verify 8x4k", "8x32x4x4096x128", "4 heads share"),
    ),
    "8 heads share": (row("decode 1x64k", "1x64x1x65536x128", "8 heads share"),),
}
CPU_ROWS = {
    "causal": (row("causal, small", "1x4x256x256x64", "causal", "float32"),),
    "window": (row("window, small", "1x2x1024x1024x64", "window", "float32"),),
    "4 heads share": (row("decode, small", "1x8x1x2048x64", "4 heads share", "float32"),),
}
USE_OF = {one.name: use for rows in (CUDA_ROWS, CPU_ROWS) for use, found in rows.items() for one in found}


@cache
def fused(use: str) -> Any:
    """Attention of a use, derived once."""
    q, k = ra.axes("q k")
    masks = {"": None, "causal": k <= q, "window": (k <= q) & (k > q - WINDOW)}
    return attention(mask=masks[USES[use].mask], groups=USES[use].groups)


@final
class Uses(Family):
    """See the module."""

    name, title = "uses", "attention as it is used, beside FlashAttention-2 and cuDNN"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        table = CUDA_ROWS if device.type == "cuda" else CPU_ROWS
        return tuple(one for rows in table.values() for one in rows)

    def fused(self, row: Row) -> Any:
        return fused(USE_OF[row.name])

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        use = USES[USE_OF[row.name]]
        if device.type != "cuda":
            return {"SDPA": sdpa(use, row, None)}
        names = {"FlashAttention-2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
        if use.mask == "window":  # neither takes a window through PyTorch: what takes a boolean mask
            names = {"memory-efficient": SDPBackend.EFFICIENT_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
        return {name: sdpa(use, row, backend) for name, backend in names.items()}

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[row.dtypes["Q"]]

    def error(self, row: Row, out: Any, inputs: Tensors) -> float:
        """On the first and the last group of heads."""
        return max(self._error(row, out, inputs, batch, group) for batch, group in {(0, 0), (-1, -1)})

    def _error(self, row: Row, out: torch.Tensor, inputs: Tensors, batch: int, group: int) -> float:
        use = USES[USE_OF[row.name]]
        Q = inputs["Q"][batch].unflatten(0, (-1, use.groups))[group].double()
        K, V = (inputs[name][batch, group].double() for name in "KV")
        score = Q @ K.mT / Q.shape[-1] ** 0.5
        allowed = mask(use, row, out.device)
        score = score if allowed is None else score.masked_fill(~allowed, -torch.inf)
        wanted = torch.softmax(score, -1) @ V
        made = out[batch].unflatten(0, (-1, use.groups))[group].double()
        return float((made - wanted).abs().max() / wanted.abs().max())


def mask(use: Use, row: Row, device: torch.device) -> torch.Tensor | None:
    """The boolean mask of a use."""
    if not use.mask:
        return None
    i = torch.arange(row.sizes["q"], device=device)[:, None]
    j = torch.arange(row.sizes["k"], device=device)[None]
    return (j <= i) & (j > i - WINDOW) if use.mask == "window" else j <= i


def sdpa(use: Use, row: Row, backend: SDPBackend | None) -> Contestant:
    """PyTorch's attention, held to one of its backends."""
    allowed: dict[torch.device, torch.Tensor | None] = {}

    def call(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        if use.mask == "window" and Q.device not in allowed:
            allowed[Q.device] = mask(use, row, Q.device)
        options: dict[str, Any] = {"is_causal": use.mask == "causal", "enable_gqa": use.groups > 1}
        if backend is None:
            return scaled_dot_product_attention(Q, K, V, allowed.get(Q.device), **options)
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(Q, K, V, allowed.get(Q.device), **options)

    return call
