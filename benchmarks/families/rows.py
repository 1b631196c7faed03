"""Normalisations and losses of the rows of a matrix, bfloat16, beside PyTorch.

A row is named after its operation, which is its use, and its sizes: `softmax-8192x8192`. Beside operations whose output
is as large as their input stands PyTorch's copy of the matrix: what memory allows.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, final

import torch
from torch.nn import functional

from benchmarks.family import Contestant, Family, Row, Tensors, beforehand, eager_and_compiled, normal, width
from redalg import library

SIZES = ((4096, 1024), (4096, 4096), (4096, 16384), (32, 131072), (8192, 8192))
SMALL = ((16, 2048),)
TOLERANCE = {"bfloat16": 1.6e-2, "float32": 2e-6}
WHOLE = ("softmax", "log_softmax", "layer_norm", "rms_norm")
"""Operations whose output is as large as the input."""
COPY = "copy alone"
"""The contestant that copies the matrix, and has no gradient."""
PEERS: dict[str, Callable[..., torch.Tensor]] = {
    "softmax": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "layer_norm": lambda x, weight, bias: functional.layer_norm(x, x.shape[1:], weight, bias),
    "rms_norm": lambda x, weight: functional.rms_norm(x, x.shape[1:], weight, 1e-5),
    "logsumexp": lambda x: torch.logsumexp(x.float(), 1),
    "cross_entropy": lambda x, target: functional.cross_entropy(x.float(), target, reduction="none"),
}
EXTRA = {"layer_norm": ("weight", "bias"), "rms_norm": ("weight",)}


def row(operation: str, b: int, n: int, dtype: str) -> Row:
    """One row: an operation on x[b,n]."""
    shapes: dict[str, tuple[int, ...]] = {"x": (b, n), **dict.fromkeys(EXTRA.get(operation, ()), (n,))}
    dtypes = dict.fromkeys(shapes, dtype)
    if operation == "cross_entropy":
        shapes["target"], dtypes["target"] = (b,), "int64"
    out = width(dtype) * b * n if operation in WHOLE else 4 * b
    return Row(f"{operation}-{b}x{n}", {"b": b, "n": n}, shapes, dtypes, out_bytes=out, use=operation)


@cache
def derived(operation: str) -> Any:
    """The library's function of that name, derived once."""
    return getattr(library, operation)()


@final
class Rows(Family):
    """See the module."""

    name, title = "rows", "normalisations of rows beside eager PyTorch and torch.compile"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        sizes, dtype = (SIZES, "bfloat16") if device.type == "cuda" else (SMALL, "float32")
        return tuple(row(operation, *size, dtype) for operation in PEERS for size in sizes)

    def fused(self, row: Row) -> Any:
        return derived(row.use)

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        peers = eager_and_compiled(PEERS[row.use], device)
        bound = {COPY: copy_alone(PEERS[row.use])} if device.type == "cuda" and row.use in WHOLE else {}
        return peers | bound

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[row.dtypes["x"]]

    def inputs(self, row: Row, generator: torch.Generator) -> Tensors:
        """Standard normal numbers, and targets within the row."""
        made = {name: normal(shape, row.dtypes[name], generator)
                for name, shape in row.shapes.items() if name != "target"}  # fmt: skip
        if "target" in row.shapes:
            drawn = torch.randint(0, row.sizes["n"], row.shapes["target"], generator=generator, device=generator.device)
            made["target"] = drawn
        return made


def copy_alone(whole: Contestant) -> Contestant:
    """A copy of the matrix; what it returns was made beforehand."""

    def copy(result: Any, tensors: Tensors) -> Any:
        _ = tensors["x"].clone()
        return result

    return beforehand(lambda tensors: whole(**tensors), copy)
