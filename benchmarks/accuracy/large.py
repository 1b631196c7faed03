"""Tensors of more than 2^31 elements, whose indices need 64 bits; the reference is of seeded rows, ends among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.accuracy import attended
from benchmarks.accuracy.case import Case, Outputs
from benchmarks.families import attention, rows, statistics
from benchmarks.families.attention import Use
from benchmarks.family import Contestant, Row, Tensors, picks

SIZES = {"cuda": (70_000, 32_768), "cpu": (70, 327)}
ATTENDED = {
    "cuda": (
        attention.row("decode", "130x8x1x16384x128x128"),
        attention.row("decode, lengths", "260x8x1x16384x64x64", Use("lengths")),
    ),
    "cpu": (attention.row("decode", "3x2x1x163x32x32", dtype="float32"),),
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
    for row in ATTENDED[device.type]:
        whole = attended.case(row, "normal", device)
        peers: dict[str, Contestant] = {**whole.peers, "eager": partial(sampled_eager, row)}
        yield replace(whole, family="large", inputs=partial(drawn, row), outputs=partial(outputs, row), peers=peers)


def row_of(operation: str, b: int, n: int, dtype: str) -> Row:
    """An operation's row of its family, under the operation's name."""
    if operation == "variance":
        return statistics.variance_row(operation, b, n, dtype)
    return replace(rows.row(operation, b, n, dtype), name=operation)


def of_rows(operation: str, b: int, n: int, dtype: str) -> Case:
    """One operation on x[b,n]."""
    row, kept = row_of(operation, b, n, dtype), picks(b, KEPT)
    family = statistics.Variance() if operation == "variance" else rows.Rows()

    def inputs(generator: torch.Generator) -> Tensors:
        x = torch.empty(b, n, dtype=getattr(torch, dtype), device=generator.device).normal_(generator=generator)
        return {"x": x} | ({"weight": x[0] + 1} if operation == "rms_norm" else {})

    def reference(tensors: Tensors) -> Outputs:
        wide = {name: (one[kept] if name == "x" else one).double() for name, one in tensors.items()}
        return {"out": DOUBLE[operation](**wide)}

    return Case(
        "large", row, "normal", partial(family.fused, row), inputs, reference,
        lambda out, _: {"out": out[kept] if out.shape[0] == b else out}, {"eager": in_rows(operation, kept)},
    )  # fmt: skip


def in_rows(operation: str, kept: list[int]) -> Callable[..., torch.Tensor]:
    """PyTorch's operation on the rows that are compared: rows are independent, and its own temporaries are large."""
    return lambda x, **other: PEERS[operation](x[kept], **other)


def drawn(row: Row, generator: torch.Generator) -> Tensors:
    """Drawn in place: a copy in float32 would be twice as large."""
    tensors = {name: torch.empty(row.shapes[name], dtype=getattr(torch, row.dtypes[name]), device=generator.device)
               for name in "QKV"}  # fmt: skip
    return {name: one.normal_(generator=generator) for name, one in tensors.items()} | attended.more(row, generator)


def sampled_eager(row: Row, **tensors: torch.Tensor) -> list[torch.Tensor]:
    """PyTorch's unfused attention in the inputs' dtype, on the sampled batches and heads alone."""
    return attention.unfused(row.use, **attention.sample(row, tensors, *attention.sampled(row)))


def outputs(row: Row, out: Any, tensors: Tensors) -> Outputs:
    """The sample of a whole output; a list is the sample already."""
    return {"out": out[0]} if isinstance(out, list) else attended.outputs(row, out, tensors)
