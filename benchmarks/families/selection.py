"""The best elements of rows with their places, beside PyTorch.

A row is named after the number of the best, the rows' number and length, and the dtype: `top64-1024x50257-float32`.
"""

from functools import cache, partial
from typing import Any, final

import torch

import redalg as ra
from benchmarks.family import Contestant, Family, Row, eager_and_compiled, relative_error

SIZES = (
    (64, 1024, 50257, "float32"), (8, 1024, 50257, "float32"), (64, 1024, 50257, "bfloat16"),
    (32, 8192, 8192, "float32"), (8, 32768, 4096, "float32"), (64, 132, 50257, "float32"),
    (64, 16, 1_000_000, "float32"), (8, 64, 262_144, "float32"), (64, 1, 4_000_000, "float32"),
    (256, 1024, 50257, "float32"),
)  # fmt: skip
SMALL = ((8, 16, 3000, "float32"),)
b, n = ra.axes("b n")
x = ra.tensor("x[b,n]")


@cache
def derived(k: int) -> Any:
    """The best k, derived once."""
    values, places = ra.topk(x, n, ra.axis("k", size=k))
    return ra.fuse({"values": (values, "b k"), "places": (places, "b k")})


def row(k: int, rows: int, length: int, dtype: str) -> Row:
    """One row: the best k of x[b,n]."""
    name = f"top{k}-{rows}x{length}-{dtype}"
    width = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    return Row(name, {"b": rows, "n": length}, {"x": (rows, length)}, {"x": dtype}, 0, rows * k * (width + 8), k)


def best(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's values and places."""
    values, places = torch.topk(x, k, 1)
    return values, places


@final
class Selection(Family):
    """See the module."""

    name = "selection"
    title = "the best of rows and their places beside torch.topk and torch.compile"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        return tuple(row(*one) for one in (SIZES if device.type == "cuda" else SMALL))

    def fused(self, row: Row) -> Any:
        return derived(row.use)

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        return eager_and_compiled(partial(best, k=row.use), device)

    def tolerance(self, row: Row) -> float:
        return 0.0

    def error(self, row: Row, out: Any, inputs: dict[str, torch.Tensor]) -> float:
        """The larger error of the values, and of the elements that lie at the places: PyTorch's differ among equals."""
        values, places = out
        wanted = inputs["x"].sort(1, descending=True).values[:, : row.use]
        there = inputs["x"].gather(1, places)
        distinct = places.sort(1).values.diff(dim=1).min() > 0
        return max(relative_error(values, wanted), relative_error(there, wanted)) if distinct else float("inf")
