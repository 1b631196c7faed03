"""Latent attention of one query a head, beside PyTorch.

Shapes L1 to L9 are those that RedFuser publishes (appendix A.5): 128 heads, latent 512, rope 64; C1 and C2 are small
ones for machines without a GPU.
"""

from functools import cache
from typing import Any, final

import torch

from benchmarks.family import Contestant, Family, Row, compiled, width
from redalg.library import mla_decode

TOLERANCE = {"float32": 1e-5, "float16": 5e-3}


def row(name: str, size: str, heads: int = 128, wide: tuple[int, int] = (512, 64), dtype: str = "float16") -> Row:
    """One row of batch x keys: q[b,h,c], q_rope[b,h,r], latent[b,k,c] and k_rope[b,k,r]."""
    (b, k), (c, r) = map(int, size.split("x")), wide
    shapes = {"q": (b, heads, c), "q_rope": (b, heads, r), "latent": (b, k, c), "k_rope": (b, k, r)}
    return Row(
        name,
        sizes={"b": b, "h": heads, "k": k, "c": c, "r": r, "e": c},
        shapes=shapes,
        dtypes=dict.fromkeys(shapes, dtype),
        flops=2 * b * heads * k * (2 * c + r),
        out_bytes=width(dtype) * b * heads * c,
    )


CUDA_ROWS = tuple(
    row(f"L{number}", size)
    for number, size in enumerate(
        ("32x1024", "32x2048", "32x4096", "16x1024", "16x2048", "16x4096", "1x1024", "1x2048", "1x4096"), 1
    )
)
CPU_ROWS = (row("C1", "2x77", 16, (64, 16), "float32"), row("C2", "1x1000", 8, (128, 32), "float32"))


@cache
def fused() -> Any:
    """Latent attention, derived once."""
    return mla_decode()


@final
class Mla(Family):
    """See the module."""

    name, title = "mla", "latent attention of one query a head, beside PyTorch"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        return CUDA_ROWS if device.type == "cuda" else CPU_ROWS

    def fused(self, row: Row) -> Any:
        return fused()

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        return {"eager": eager} | ({"torch.compile": compiled(eager)} if device.type == "cuda" else {})

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[row.dtypes["q"]]


def eager(q: torch.Tensor, q_rope: torch.Tensor, latent: torch.Tensor, k_rope: torch.Tensor) -> torch.Tensor:
    """PyTorch's, step by step."""
    scores = (q @ latent.mT + q_rope @ k_rope.mT) / (q.shape[-1] + q_rope.shape[-1]) ** 0.5
    return torch.softmax(scores, -1) @ latent
