"""Tensors of more than 2^31 elements, whose indices need 64 bits; the reference is of seeded rows, ends among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch

from benchmarks.accuracy import attended
from benchmarks.accuracy.attended import Use
from benchmarks.accuracy.case import Case, Outputs, picks
from benchmarks.families import rows, statistics
from benchmarks.family import Tensors
from redalg import library

SIZES = {"cuda": (70_000, 32_768), "cpu": (70, 327)}
USES = {
    "cuda": (Use("decode", "130x8x1x16384x128x128"), Use("decode, lengths", "260x8x1x16384x64x64", "lengths")),
    "cpu": (Use("decode", "3x2x1x163x32x32", dtype="float32"),),
}
KEPT = 32
PEERS: dict[str, Callable[..., torch.Tensor]] = {
    "variance": lambda x: x.var(1, correction=0),
    "softmax": rows.PEERS["softmax"],
    "rms_norm": rows.PEERS["rms_norm"],
    "logsumexp": lambda x: torch.logsumexp(x, 1).float(),
}
DOUBLE: dict[str, Callable[..., torch.Tensor]] = PEERS | {
    "variance": statistics.formula, "logsumexp": lambda x: torch.logsumexp(x, 1),
}  # fmt: skip


def cases(device: torch.device) -> Iterator[Case]:
    """Rows of matrices, and caches of keys and values."""
    for operation in PEERS:
        yield of_rows(operation, *SIZES[device.type], "bfloat16" if device.type == "cuda" else "float32")
    for use in USES[device.type]:
        peers = attended.peers(use, device) | {"eager": partial(sampled_eager, use)}
        yield Case(
            "large", use.name, "normal", attended.case(use, "normal", device).fused, use.sizes, partial(drawn, use),
            partial(attended.reference, use), partial(outputs, use), peers, {"empty": use.empty},
            scores=partial(attended.largest_score, use),
        )  # fmt: skip


@cache
def fused(operation: str) -> Any:
    """The library's function, derived once."""
    return getattr(library, operation)()


def of_rows(operation: str, b: int, n: int, dtype: str) -> Case:
    """One operation on x[b,n]."""
    kept = picks(b, KEPT)

    def inputs(generator: torch.Generator) -> Tensors:
        x = torch.empty(b, n, dtype=getattr(torch, dtype), device=generator.device).normal_(generator=generator)
        return {"x": x} | ({"weight": x[0] + 1} if operation == "rms_norm" else {})

    def reference(tensors: Tensors) -> Outputs:
        wide = {name: (one[kept] if name == "x" else one).double() for name, one in tensors.items()}
        return {"out": DOUBLE[operation](**wide)}

    return Case(
        "large", operation, "normal", partial(fused, operation), {"b": b, "n": n}, inputs, reference,
        lambda out, _: {"out": out[kept] if out.shape[0] == b else out}, {"eager": in_rows(operation, kept)},
    )  # fmt: skip


def in_rows(operation: str, kept: list[int]) -> Callable[..., torch.Tensor]:
    """PyTorch's operation on the rows that are compared: rows are independent, and its own temporaries are large."""
    return lambda x, **other: PEERS[operation](x[kept], **other)


def drawn(use: Use, generator: torch.Generator) -> Tensors:
    """Drawn in place: a copy in float32 would be twice as large."""
    b, h, q, k, d, e = use.sizes.values()
    shapes = {"Q": (b, h, q, d), "K": (b, h, k, d), "V": (b, h, k, e)}
    made = {name: torch.empty(shape, dtype=getattr(torch, use.dtype), device=generator.device).normal_(
        generator=generator) for name, shape in shapes.items()}  # fmt: skip
    return made | attended.more(use, generator)


def sampled_eager(use: Use, **tensors: torch.Tensor) -> list[torch.Tensor]:
    """PyTorch's unfused attention in the inputs' dtype, on the sampled batches and heads alone."""
    return attended.unfused(use, **attended.sample(use, tensors, *attended.sampled(use)))


def outputs(use: Use, made: Any, tensors: Tensors) -> Outputs:
    """The sample of a whole output; a list is the sample already."""
    return {"out": made[0]} if isinstance(made, list) else attended.outputs(use, made, tensors)
