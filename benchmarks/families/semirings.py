"""Products of matrices over other semirings than (+, ×), float32, beside PyTorch.

A row is named after its operation, its rows, its columns and what it sums over: `log_product-512x1024x1024`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

import redalg as ra
from benchmarks.families.pairs import OfPairs
from benchmarks.family import Row
from redalg import library

SIZES = {
    "log_product": ((512, 1024, 1024), (4096, 512, 512)),
    "max_plus": ((1024, 1024, 1024),),
    "distances": ((2048, 2048, 256),),
}
SMALL = ((30, 130, 70),)
CHECKED = 64
"""Rows whose results are checked."""
k = ra.axes("k")
x, y = ra.tensors("x[i,k] y[k,j]")
FORMS: dict[str, Callable[[], ra.Fused]] = {
    "log_product": library.log_product,
    "max_plus": lambda: ra.fuse(ra.max(x + y, k), axes="i j"),
    "distances": library.manhattan_distances,
}
PEERS: dict[str, Callable[..., torch.Tensor]] = {
    "log_product": lambda x, y: torch.logsumexp(x[:, :, None] + y, 1),
    "max_plus": lambda x, y: (x[:, :, None] + y).amax(1),
    "distances": lambda x, z: (x[:, None] - z).abs().sum(2),
}


@cache
def derived(operation: str) -> Any:
    """The operation, derived once."""
    return FORMS[operation]()


def row(operation: str, rows: int, columns: int, length: int) -> Row:
    """One row: an operation on x[i,k], and on y[k,j] or z[j,k]."""
    known = {"x": (rows, length), "y": (length, columns), "z": (columns, length)}
    shapes = {name: known[name] for name in sorted(derived(operation).cascade.inputs())}
    return Row(f"{operation}-{rows}x{columns}x{length}", {"i": rows, "j": columns, "k": length}, shapes,
               dict.fromkeys(shapes, "float32"), out_bytes=4 * rows * columns, use=operation)  # fmt: skip


TITLE = "products over other semirings beside eager PyTorch and torch.compile"
SEMIRINGS = OfPairs("semirings", TITLE, SIZES, SMALL, row, derived, PEERS, CHECKED)
