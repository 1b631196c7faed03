"""Twelve workloads from statistics, physics, learning and signal processing, beside PyTorch.

They were chosen and written before any schedule was made for them. A row is named after its workload. Workloads of
pairs are checked at some rows of `x`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from math import prod
from typing import Any

import torch
from sympy import Rational, sqrt
from torch.nn.functional import group_norm

import redalg as ra
from benchmarks.family import (
    Contestant,
    Family,
    Row,
    Tensors,
    eager_and_compiled,
    outputs,
    picks,
    relative_error,
    width,
)
from redalg import library

CHECKED = 256
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 2e-2}
b, c, d, e, g, i, j, n, s, v = ra.axes("b c d e g i j n s v")


@dataclass(frozen=True)
class Workload:
    """A cascade, the same in PyTorch, and its sizes.

    Attributes:
        form: what is run, of the library where it has it.
        axes: of an output; of several, with a comma between.
        written: the same in PyTorch, on tensors of the same names.
        inputs: name -> the names of its axes, such as `i d`.
        sizes, small: axis name -> extent, on a GPU and on a CPU.
        dtype: of the inputs.
        positive: the tensors whose numbers are made positive.
        products: the axes of the sizes that a contraction multiplies; "" where it is bounded by bytes.
        checked: the axis of `x` at some places of which the result is checked; "" for the whole.
        exact: the same in more digits, for inputs of float64; it gives float64. None if float64 is enough.
    """

    form: Callable[[], ra.Fused]
    axes: str
    written: Callable[..., Any]
    inputs: Mapping[str, str]
    sizes: Mapping[str, int]
    small: Mapping[str, int]
    dtype: str = "float32"
    positive: tuple[str, ...] = field(default=())
    products: str = ""
    checked: str = ""
    exact: Callable[..., Any] | None = None


def wide(x: torch.Tensor) -> torch.Tensor:
    """Numbers of 16 bits in float32; others as they are."""
    return x if x.dtype == torch.float64 else x.float()


def kurtosis() -> ra.Fused:
    """The kurtosis of every column."""
    [x] = ra.tensors("x[n,c]")
    centred = x - ra.mean(x, n)
    return ra.fuse(ra.mean(centred**4, n) / ra.mean(centred**2, n) ** 2, axes="c")


def kurtosis_in_torch(x: torch.Tensor) -> torch.Tensor:
    """See `kurtosis`."""
    centred = x - x.mean(0)
    return (centred**4).mean(0) / (centred**2).mean(0) ** 2


def correlation_in_torch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Pearson's correlation of the rows of two matrices."""
    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    return (x * y).sum(1) / ((x * x).sum(1) * (y * y).sum(1)).sqrt()


def score_in_torch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """See `library.density_score`."""
    weight = torch.softmax(-((x[:, None] - y) ** 2).sum(2) / 2, 1)
    return (weight[:, :, None] * (y - x[:, None])).sum(1)


def lennard_jones_in_torch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """See `library.lennard_jones`."""
    square = ((x[:, None] - y) ** 2).sum(2)
    sixth = 1 / square**3
    return torch.where((square < 6.25) & (square > 0.25), 2 * (sixth * sixth - sixth), 0).sum(1)


def structure_factor_in_torch(x: torch.Tensor, y: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """See `library.structure_factor`."""
    phase = x @ y.T
    return (q * phase.cos()).sum(1) ** 2 + (q * phase.sin()).sum(1) ** 2


def heat_capacity_in_torch(x: torch.Tensor) -> torch.Tensor:
    """See `library.heat_capacity`."""
    weight = torch.softmax(-x, 1)
    return (weight * (x - (weight * x).sum(1, keepdim=True)) ** 2).sum(1)


def contrastive() -> ra.Fused:
    """The log of the sum of similarities at a temperature of 0.07 (InfoNCE's denominator)."""
    x, y = ra.tensors("x[i,d] y[j,d]")
    return ra.fuse(ra.logsumexp(ra.sum(x * y, d) * Rational(1, 16) / Rational(7, 100), j), axes="i")


def contrastive_in_torch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """See `contrastive`."""
    return torch.logsumexp(wide(x @ y.T) / 16 / 0.07, 1)


def distillation_in_torch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """See `library.kl_divergence`."""
    student, teacher = torch.log_softmax(wide(x) / 2, 1), torch.log_softmax(wide(y) / 2, 1)
    return (teacher.exp() * (teacher - student)).sum(1).to(x.dtype)


def groups_norm() -> ra.Fused:
    """Group normalisation over the channels of a group and over space."""
    x, gain, shift = ra.tensors("x[b,g,c,s] w[g,c] y[g,c]")
    mean = ra.mean(x, (c, s))
    scaled = (x - mean) / sqrt(ra.mean((x - mean) ** 2, (c, s)) + Rational(1, 100000))
    return ra.fuse(scaled * gain + shift, axes="b g c s")


def groups_norm_in_torch(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """See `groups_norm`."""
    return group_norm(x.flatten(1, 2), x.shape[1], w.flatten(), y.flatten()).view(x.shape)


def sinkhorn_in_torch(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """See `library.sinkhorn_step`."""
    return -torch.logsumexp(10 * (w - ((x[:, None] - y) ** 2).sum(2) / 2), 1) / 10


def flatness_in_torch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See `library.spectral_flatness`."""
    mean = x.mean(1)
    return x.log().mean(1).exp() / mean, x.abs().amax(1) / mean


POINTS = {"x": "i d", "y": "j d"}
WORKLOADS = {
    "kurtosis of columns": Workload(
        kurtosis, "c", kurtosis_in_torch, {"x": "n c"}, {"n": 262144, "c": 256}, {"n": 300, "c": 70}),
    "correlation of rows": Workload(
        library.correlation, "b", correlation_in_torch, {"x": "b n", "y": "b n"}, {"b": 8192, "n": 8192},
        {"b": 9, "n": 700}),
    "energy distance": Workload(
        library.energy_distance, "i", lambda x, y: ((x[:, None] - y) ** 2).sum(2).sqrt().mean(1), POINTS,
        {"i": 16384, "j": 16384, "d": 8}, {"i": 130, "j": 70, "d": 8}, checked="i"),
    "score of a density": Workload(
        library.density_score, "i e", score_in_torch, POINTS, {"i": 8192, "j": 8192, "d": 16, "e": 16},
        {"i": 130, "j": 70, "d": 16, "e": 16}, checked="i"),
    "lennard-jones": Workload(
        library.lennard_jones, "i", lennard_jones_in_torch, POINTS, {"i": 16384, "j": 16384, "d": 3},
        {"i": 130, "j": 70, "d": 3}, checked="i"),
    "structure factor": Workload(
        library.structure_factor, "i", structure_factor_in_torch, {**POINTS, "q": "j"}, {"i": 4096, "j": 65536, "d": 3},
        {"i": 130, "j": 70, "d": 3}, checked="i"),
    "heat capacity": Workload(
        library.heat_capacity, "b", heat_capacity_in_torch, {"x": "b n"}, {"b": 4096, "n": 16384}, {"b": 9, "n": 700}),
    "contrastive loss": Workload(
        contrastive, "i", contrastive_in_torch, POINTS, {"i": 8192, "j": 8192, "d": 256},
        {"i": 130, "j": 70, "d": 64}, "float16", products="i j d", checked="i"),
    "distillation": Workload(
        partial(library.kl_divergence, 2), "b", distillation_in_torch, {"x": "b v", "y": "b v"},
        {"b": 4096, "v": 32000}, {"b": 9, "v": 700}, "bfloat16"),
    "group norm": Workload(
        groups_norm, "b g c s", groups_norm_in_torch, {"x": "b g c s", "w": "g c", "y": "g c"},
        {"b": 32, "g": 32, "c": 10, "s": 1024}, {"b": 2, "g": 3, "c": 5, "s": 49}, "float16"),
    "sinkhorn step": Workload(
        library.sinkhorn_step, "i", sinkhorn_in_torch, {**POINTS, "w": "j"}, {"i": 16384, "j": 16384, "d": 3},
        {"i": 130, "j": 70, "d": 3}, checked="i"),
    "spectral flatness": Workload(
        library.spectral_flatness, "b", flatness_in_torch, {"x": "b n"}, {"b": 65536, "n": 1025},
        {"b": 9, "n": 257}, positive=("x",)),
}  # fmt: skip


@cache
def derived(form: Callable[[], ra.Fused]) -> ra.Fused:
    """What is run of a workload, derived once."""
    return form()


class Workloads(Family):
    """A table of workloads, a row each."""

    def __init__(self, name: str, title: str, table: Mapping[str, Workload]) -> None:
        self.name, self.title, self.table = name, title, table

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        on_gpu = device.type == "cuda"
        return tuple(_row(name, one, one.sizes if on_gpu else one.small) for name, one in self.table.items())

    def fused(self, row: Row) -> Any:
        return derived(self.table[row.name].form)

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        return eager_and_compiled(self.table[row.name].written, device)

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[self.table[row.name].dtype]

    def inputs(self, row: Row, generator: torch.Generator) -> Tensors:
        positive, drawn = self.table[row.name].positive, super().inputs(row, generator)
        return {name: one**2 + 0.01 if name in positive else one for name, one in drawn.items()}

    def error(self, row: Row, out: Any, inputs: Tensors) -> float:
        axis = self.table[row.name].checked
        if not axis:
            return super().error(row, out, inputs)
        chosen = picks(row.sizes[axis], CHECKED)
        reference = outputs(self.fused(row).reference(**{**inputs, "x": inputs["x"][chosen]}))
        pairs = zip(outputs(out), reference, strict=True)
        return max(relative_error(one[chosen], wanted) for one, wanted in pairs)


def _row(name: str, one: Workload, sizes: Mapping[str, int]) -> Row:
    shapes = {tensor: tuple(sizes[axis] for axis in axes.split()) for tensor, axes in one.inputs.items()}
    out = sum(prod(sizes[axis] for axis in axes.split()) for axes in one.axes.split(","))
    flops = 2 * prod(sizes[axis] for axis in one.products.split()) if one.products else 0
    return Row(name, sizes, shapes, dict.fromkeys(shapes, one.dtype), flops=flops, out_bytes=width(one.dtype) * out)


WORKLOADS_OF_OTHERS = Workloads(
    "workloads", "twelve workloads of other fields beside eager PyTorch and torch.compile", WORKLOADS
)
