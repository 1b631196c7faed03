"""Matrices of second moments of tall data, float32, beside PyTorch.

A row is named after its operation, its elements and its columns: `covariance-1000000x64`. Data have a mean of 5.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, final

import torch
from sympy import Expr, sqrt

import redalg as ra
from benchmarks.family import Contestant, Family, Row, Tensors, eager_and_compiled, normal, outputs, relative_error

MEAN, TOLERANCE = 5.0, 1e-4
SIZES = {
    "covariance": ((1_000_000, 64), (2_000_000, 48), (200_000, 128)),
    "correlation": ((1_000_000, 64),),
    "weighted_covariance": ((1_000_000, 64),),
}
SMALL = ((3000, 24),)
a, b, n = ra.axes("a b n")
w = ra.tensor("w[n]")
xa, xb = ra.Tensor("x")[n, a], ra.Tensor("x")[n, b]


def about_mean(x: Expr, weight: Expr | None = None) -> Expr:
    """x less its mean over n, weighted if a weight is given."""
    return x - (ra.sum(x, n) / n.extent if weight is None else ra.sum(weight * x, n) / ra.sum(weight, n))


COVARIANCE = ra.sum(about_mean(xa) * about_mean(xb), n) / (n.extent - 1)
EXPRESSIONS: dict[str, Expr] = {
    "covariance": COVARIANCE,
    "correlation": COVARIANCE / sqrt(ra.var(xa, n, correction=1) * ra.var(xb, n, correction=1)),
    "weighted_covariance": ra.sum(w * about_mean(xa, w) * about_mean(xb, w), n) / ra.sum(w, n),
}


def weighted_covariance(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Σ w·(x − m)·(x − m)ᵀ / Σ w about the weighted mean m."""
    centred = x - (w[:, None] * x).sum(0) / w.sum()
    return (w[:, None] * centred).T @ centred / w.sum()


PEERS: dict[str, Callable[..., torch.Tensor]] = {
    "covariance": lambda x: torch.cov(x.T),
    "correlation": lambda x: torch.corrcoef(x.T),
    "weighted_covariance": weighted_covariance,
}


@cache
def derived(operation: str) -> Any:
    """The operation, derived once."""
    return ra.fuse(EXPRESSIONS[operation], axes="a b")


def row(operation: str, elements: int, columns: int) -> Row:
    """One row: an operation on x[n,a], and perhaps on the weights w[n]."""
    shapes: dict[str, tuple[int, ...]] = {"x": (elements, columns)}
    shapes |= {"w": (elements,)} if operation == "weighted_covariance" else {}
    return Row(f"{operation}-{elements}x{columns}", {"a": columns, "b": columns, "n": elements}, shapes,
               dict.fromkeys(shapes, "float32"), 2.0 * elements * columns**2, 4 * columns**2, operation)  # fmt: skip


@final
class Covariances(Family):
    """See the module."""

    name = "covariances"
    title = "second moments of tall data beside torch.cov, torch.corrcoef and torch.compile"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        on_gpu = device.type == "cuda"
        return tuple(row(use, *size) for use, sizes in SIZES.items() for size in (sizes if on_gpu else SMALL))

    def fused(self, row: Row) -> Any:
        return derived(row.use)

    def inputs(self, row: Row, generator: torch.Generator) -> Tensors:
        drawn = {name: normal(shape, row.dtypes[name], generator) for name, shape in row.shapes.items()}
        return {name: one.abs() if name == "w" else one + MEAN for name, one in drawn.items()}

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        return eager_and_compiled(PEERS[row.use], device)

    def tolerance(self, row: Row) -> float:
        return TOLERANCE

    def error(self, row: Row, out: Any, inputs: Tensors) -> float:
        """The error beside PyTorch in float64: the definition stores a number for every pair of columns and element."""
        [result] = outputs(out)
        return relative_error(result, PEERS[row.use](**{name: one.double() for name, one in inputs.items()}))
