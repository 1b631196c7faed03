"""Products of matrices over other semirings than (+, ×), float32, beside PyTorch.

A row is named after its operation, its rows, its columns and what it sums over: `log_product-512x1024x1024`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from sympy import Abs, Expr

import redalg as ra
from benchmarks.families.pairs import OfPairs
from benchmarks.family import Row

SIZES = {
    "log_product": ((512, 1024, 1024), (4096, 512, 512)),
    "max_plus": ((1024, 1024, 1024),),
    "distances": ((2048, 2048, 256),),
}
SMALL = ((30, 130, 70),)
CHECKED = 64
"""Rows whose results are checked."""
i, j, k = ra.axes("i j k")
x, y, z = ra.tensors("x[i,k] y[k,j] z[j,k]")
EXPRESSIONS: dict[str, Expr] = {
    "log_product": ra.logsumexp(x + y, k),
    "max_plus": ra.max(x + y, k),
    "distances": ra.sum(Abs(x - z), k),
}
PEERS: dict[str, Callable[..., torch.Tensor]] = {
    "log_product": lambda x, y: torch.logsumexp(x[:, :, None] + y, 1),
    "max_plus": lambda x, y: (x[:, :, None] + y).amax(1),
    "distances": lambda x, z: (x[:, None] - z).abs().sum(2),
}


@cache
def derived(operation: str) -> Any:
    """The operation, derived once."""
    return ra.fuse(EXPRESSIONS[operation], axes="i j")


def row(operation: str, rows: int, columns: int, length: int) -> Row:
    """One row: an operation on x[i,k], and on y[k,j] or z[j,k]."""
    known = {"x": (rows, length), "y": (length, columns), "z": (columns, length)}
    shapes = {name: known[name] for name in sorted(derived(operation).cascade.inputs())}
    return Row(f"{operation}-{rows}x{columns}x{length}", {"i": rows, "j": columns, "k": length}, shapes,
               dict.fromkeys(shapes, "float32"), out_bytes=4 * rows * columns, use=operation)  # fmt: skip


TITLE = "products over other semirings beside eager PyTorch and torch.compile"
SEMIRINGS = OfPairs("semirings", TITLE, SIZES, SMALL, row, derived, PEERS, CHECKED)
