"""Sums over pairs of points in space, float32, beside PyTorch: forces, kernel sums, nearest neighbours.

A row is named after its operation, which is its use, its targets and its sources: `forces-20000x20000`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

import redalg as ra
from benchmarks.family import Contestant, Family, Row, Tensors, eager_and_compiled, outputs, picks, relative_error
from redalg import library

SIZES = {
    "forces": ((20000, 20000), (4096, 65536)),
    "gaussian_sum": ((30000, 30000),),
    "kernel_regression": ((16384, 16384),),
    "log_density": ((16384, 16384),),
    "nearest": ((65536, 4096),),
}
SMALL = ((130, 70),)
COMPONENTS, SOFTENING, CHECKED = 3, 0.01, 512
"""Dimensions of space; what is added to a squared distance of a force; targets whose results are checked."""
TOLERANCE = 5e-6
FORMS: dict[str, Callable[[], ra.Fused]] = {
    "forces": library.gravity,
    "gaussian_sum": library.gaussian_sum,
    "kernel_regression": library.kernel_regression,
    "log_density": library.log_density,
    "nearest": library.nearest_distance,
}


def squares(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Squared distances of all pairs, from direct differences."""
    return ((x[:, None] - y[None]) ** 2).sum(2)


def forces(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The softened force of every source on every target."""
    scale = w * (squares(x, y) + SOFTENING) ** -1.5
    return (scale[:, :, None] * (y[None] - x[:, None])).sum(1)


def kernel_regression(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The mean of the sources' values, weighted by a Gaussian kernel."""
    kernel = torch.exp(-squares(x, y))
    return (kernel * w).sum(1) / kernel.sum(1)


PEERS: dict[str, Callable[..., torch.Tensor]] = {
    "forces": forces,
    "gaussian_sum": lambda x, y, w: (torch.exp(-squares(x, y)) * w).sum(1),
    "kernel_regression": kernel_regression,
    "log_density": lambda x, y: torch.logsumexp(-squares(x, y) / 2, 1),
    "nearest": lambda x, y: squares(x, y).amin(1),
}


def row(operation: str, targets: int, sources: int) -> Row:
    """One row: an operation on x[i,d], y[j,d] and perhaps w[j]."""
    sizes = {"i": targets, "j": sources, "d": COMPONENTS} | ({"e": COMPONENTS} if operation == "forces" else {})
    shapes: dict[str, tuple[int, ...]] = {"x": (targets, COMPONENTS), "y": (sources, COMPONENTS)}
    shapes |= {"w": (sources,)} if "w" in derived(operation).cascade.inputs() else {}
    out = 4 * targets * (COMPONENTS if operation == "forces" else 1)
    return Row(f"{operation}-{targets}x{sources}", sizes, shapes, dict.fromkeys(shapes, "float32"), out_bytes=out,
               use=operation)  # fmt: skip


@cache
def derived(operation: str) -> Any:
    """The operation, derived once."""
    return FORMS[operation]()


@dataclass(frozen=True)
class OfPairs(Family):
    """Operations whose definition stores a number for every pair: their results are checked at some rows of x.

    Attributes:
        name, title: as of a family.
        sizes, small: operation -> the sizes of its rows on a GPU; those on a CPU.
        row_of: the row of an operation and its sizes.
        derived: operation -> the operation, derived.
        written: operation -> the operation in PyTorch.
        checked: how many rows are checked.
    """

    name: str
    title: str
    sizes: Mapping[str, tuple[tuple[int, ...], ...]]
    small: tuple[tuple[int, ...], ...]
    row_of: Callable[..., Row]
    derived: Callable[[str], Any]
    written: Mapping[str, Callable[..., torch.Tensor]]
    checked: int

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        on_gpu = device.type == "cuda"
        return tuple(self.row_of(use, *size) for use, sizes in self.sizes.items()
                     for size in (sizes if on_gpu else self.small))  # fmt: skip

    def fused(self, row: Row) -> Any:
        return self.derived(row.use)

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        return eager_and_compiled(self.written[row.use], device)

    def tolerance(self, row: Row) -> float:
        return TOLERANCE

    def error(self, row: Row, out: Any, inputs: Tensors) -> float:
        """The error at some rows."""
        [result], chosen = outputs(out), picks(row.sizes["i"], self.checked)
        reference = self.fused(row).reference(**{**inputs, "x": inputs["x"][chosen]})
        return relative_error(result[chosen], reference)


PAIRS = OfPairs("pairs", "sums over pairs of points in space beside eager PyTorch and torch.compile", SIZES, SMALL, row,
                derived, PEERS, CHECKED)  # fmt: skip
