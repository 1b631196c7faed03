"""Variance and moment of inertia of rows, float32, beside PyTorch.

Shapes V1 to V8 and I1 to I8 are those that RedFuser publishes (appendix A.5); C1 is for machines without a GPU.
"""

from functools import cache
from typing import Any, final

import torch

from benchmarks.family import Contestant, Family, Row, Tensors, compiled, normal, width
from redalg import library

SIZES = tuple((b, n) for b in (1, 128, 512, 1024) for n in (8192, 32768))
DTYPE, TOLERANCE = "float32", 2e-6


def row(name: str, b: int, n: int, dtype: str = DTYPE, **shapes: tuple[int, ...]) -> Row:
    """One row of b rows of n elements."""
    return Row(name, {"b": b, "n": n}, shapes, dtypes=dict.fromkeys(shapes, dtype), out_bytes=width(DTYPE) * b)


def variance_row(name: str, b: int, n: int, dtype: str = DTYPE) -> Row:
    """Of x[b,n]."""
    return row(name, b, n, dtype, x=(b, n))


def inertia_row(name: str, b: int, n: int) -> Row:
    """Of the masses m[b,n] at the positions r[b,n,i]."""
    return row(name, b, n, m=(b, n), r=(b, n, 3))


@cache
def variance() -> Any:
    """Derived once."""
    return library.variance()


@cache
def inertia() -> Any:
    """Derived once."""
    return library.inertia()


def formula(x: torch.Tensor) -> torch.Tensor:
    """The definition: a mean first, then what is taken about it."""
    return ((x - x.mean(1, keepdim=True)) ** 2).mean(1)


def inertia_formula(m: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """The definition: the centre of mass first."""
    centre = (m[:, :, None] * r).sum(1) / m.sum(1)[:, None]
    return (m * ((r - centre[:, None]) ** 2).sum(2)).sum(1)


@final
class Variance(Family):
    """See the module."""

    name, title = "variance", "variance of rows beside torch.var and torch.compile"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        if device.type != "cuda":
            return (variance_row("C1", 16, 4096),)
        return tuple(variance_row(f"V{place + 1}", *size) for place, size in enumerate(SIZES))

    def fused(self, row: Row) -> Any:
        return variance()

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        peers: dict[str, Contestant] = {"eager": formula, "torch.var": lambda x: x.var(1, correction=0)}
        return peers | ({"torch.compile": compiled(formula)} if device.type == "cuda" else {})

    def tolerance(self, row: Row) -> float:
        return TOLERANCE


@final
class Inertia(Family):
    """See the module."""

    name, title = "inertia", "moment of inertia beside eager PyTorch and torch.compile"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        if device.type != "cuda":
            return (inertia_row("C1", 16, 4096),)
        return tuple(inertia_row(f"I{place + 1}", *size) for place, size in enumerate(SIZES))

    def fused(self, row: Row) -> Any:
        return inertia()

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        peers: dict[str, Contestant] = {"eager": inertia_formula}
        return peers | ({"torch.compile": compiled(inertia_formula)} if device.type == "cuda" else {})

    def tolerance(self, row: Row) -> float:
        return TOLERANCE

    def inputs(self, row: Row, generator: torch.Generator) -> Tensors:
        """Positive masses."""
        made = {name: normal(shape, row.dtypes[name], generator) for name, shape in row.shapes.items()}
        return made | {"m": made["m"].abs() + 0.1}
