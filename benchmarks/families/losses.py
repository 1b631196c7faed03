"""Losses of the scores h·W over a large vocabulary, whose scores no kernel stores, beside PyTorch.

A row is named after its loss, which is its use, its tokens, words and width, and the dtype:
`cross_entropy-4096x32000x2048-bfloat16`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, final

import torch
from sympy import Eq, Expr, tanh
from torch.nn import functional

import redalg as ra
from benchmarks.family import Contestant, Family, Row, Tensors, eager_and_compiled, normal

SIZES = (
    ("cross_entropy", 4096, 32000, 2048, "bfloat16"), ("z_loss", 4096, 32000, 2048, "bfloat16"),
    ("softcap", 4096, 32000, 2048, "bfloat16"), ("smoothed", 4096, 32000, 2048, "bfloat16"),
    ("cross_entropy", 2048, 128256, 4096, "bfloat16"), ("cross_entropy", 8192, 50257, 768, "bfloat16"),
    ("cross_entropy", 4096, 32000, 2048, "float32"),
)  # fmt: skip
SMALL = (("cross_entropy", 64, 512, 64, "float32"),)
TOLERANCE = {"bfloat16": 1.6e-2, "float32": 1e-5}
CAP, SMOOTHING, Z = 30.0, 0.1, 1e-4
i, v, d = ra.axes("i v d")
SCORES, TARGET = ra.sum(ra.tensor("h[i,d]") * ra.tensor("w[v,d]"), d), ra.tensor("target[i]")


def log_loss(scores: Expr) -> Expr:
    """log Σ exp(scores) - the target's score."""
    return ra.logsumexp(scores, v) - ra.sum(ra.where(Eq(v, TARGET), scores, 0), v)


DEFINITIONS: dict[str, Callable[[], Expr]] = {
    "cross_entropy": lambda: log_loss(SCORES),
    "z_loss": lambda: log_loss(SCORES) + Z * ra.logsumexp(SCORES, v) ** 2,
    "softcap": lambda: log_loss(CAP * tanh(SCORES / CAP)),
    "smoothed": lambda: (1 - SMOOTHING) * log_loss(SCORES) + SMOOTHING * (ra.logsumexp(SCORES, v) - ra.mean(SCORES, v)),
}


def cross_entropy(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """PyTorch's."""
    return functional.cross_entropy(scores, target, reduction="none")


PEERS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cross_entropy": cross_entropy,
    "z_loss": lambda scores, target: cross_entropy(scores, target) + Z * torch.logsumexp(scores, 1).square(),
    "softcap": lambda scores, target: cross_entropy(CAP * torch.tanh(scores / CAP), target),
    "smoothed": lambda scores, target: functional.cross_entropy(
        scores, target, reduction="none", label_smoothing=SMOOTHING
    ),
}
"""PyTorch's losses, of scores in float32 or wider."""


def row(use: str, tokens: int, words: int, width: int, dtype: str) -> Row:
    """One row: a loss of h[i,d] and w[v,d]."""
    shapes = {"h": (tokens, width), "w": (words, width), "target": (tokens,)}
    dtypes = {"h": dtype, "w": dtype, "target": "int64"}
    flops = 2.0 * tokens * words * width
    return Row(f"{use}-{tokens}x{words}x{width}-{dtype}", {"i": tokens, "v": words, "d": width}, shapes, dtypes, flops,
               4 * tokens, use)  # fmt: skip


@cache
def derived(use: str) -> Any:
    """The function of a loss, derived once."""
    return ra.fuse(DEFINITIONS[use](), axes="i")


@final
class Losses(Family):
    """See the module."""

    name = "losses"
    title = "losses of the scores of a large vocabulary beside eager PyTorch and torch.compile"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        return tuple(row(*one) for one in (SIZES if device.type == "cuda" else SMALL))

    def fused(self, row: Row) -> Any:
        return derived(row.use)

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        loss = PEERS[row.use]
        return eager_and_compiled(lambda h, w, target: loss((h @ w.mT).float(), target), device)

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[row.dtypes["h"]]

    def inputs(self, row: Row, generator: torch.Generator) -> Tensors:
        """Standard normal numbers, weights of scores of variance 1, and targets of the vocabulary."""
        h = normal(row.shapes["h"], row.dtypes["h"], generator)
        w = normal(row.shapes["w"], row.dtypes["w"], generator) / row.sizes["d"] ** 0.5
        drawn = torch.randint(0, row.sizes["v"], row.shapes["target"], generator=generator, device=generator.device)
        return {"h": h, "w": w, "target": drawn}
