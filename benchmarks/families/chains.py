"""Products of products, (A B) D, beside PyTorch's two calls of cuBLAS.

Shapes G1 to G12 are those that MCFuser publishes (Table II), in bfloat16: a computed operand is rounded to its
partner's dtype where that has the arithmetic's range. C1 and C2 are small ones for machines without a GPU.
"""

from functools import cache
from typing import Any, final

import torch

from benchmarks.family import Contestant, Family, Row, width
from redalg.library import chained_product

TOLERANCE = {"float32": 1e-5, "bfloat16": 4e-2}


def row(name: str, size: str, dtype: str = "bfloat16") -> Row:
    """One row of batch x m x n x k x h: A[b,m,k], B[b,k,n] and D[b,n,h]."""
    b, m, n, k, h = map(int, size.split("x"))
    return Row(
        name,
        sizes={"b": b, "m": m, "n": n, "k": k, "h": h},
        shapes={"A": (b, m, k), "B": (b, k, n), "D": (b, n, h)},
        dtypes=dict.fromkeys("ABD", dtype),
        flops=2 * b * m * n * (k + h),
        out_bytes=width(dtype) * b * m * h,
    )


CUDA_ROWS = tuple(
    row(f"G{number}", size)
    for number, size in enumerate(
        ("1x512x256x64x64", "1x512x256x64x128", "1x512x256x64x256", "1x512x512x256x256", "1x512x512x512x256",
         "1x512x512x1024x256", "1x512x512x128x128", "1x1024x512x128x128", "1x2048x512x128x128",
         "1x1024x1024x128x128", "4x1024x1024x128x128", "8x1024x1024x128x128"), 1)
)  # fmt: skip
CPU_ROWS = (row("C1", "1x64x64x32x32", "float32"), row("C2", "2x33x77x600x40", "float32"))


@cache
def fused() -> Any:
    """The chain, derived once."""
    return chained_product()


@final
class Chains(Family):
    """See the module."""

    name, title = "chains", "products of products, beside two calls of cuBLAS"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        return CUDA_ROWS if device.type == "cuda" else CPU_ROWS

    def fused(self, row: Row) -> Any:
        return fused()

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        return {"cuBLAS" if device.type == "cuda" else "eager": eager}

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[row.dtypes["A"]]


def eager(A: torch.Tensor, B: torch.Tensor, D: torch.Tensor) -> torch.Tensor:
    """One product, then the other."""
    return (A @ B) @ D
