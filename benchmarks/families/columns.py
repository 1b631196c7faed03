"""Statistics along the first and the middle axes of a tensor, beside PyTorch.

A row is named after its statistic, which is its use, and the shape: `variance-columns-65536x1024-float32`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, final

import torch
from sympy import Rational

import redalg as ra
from benchmarks.family import Contestant, Family, Row, eager_and_compiled, width

SIZES = (
    ("variance-columns", (65536, 1024), "float32"), ("variance-columns", (4096, 4096), "float32"),
    ("variance-columns", (1_000_000, 64), "float32"), ("logsumexp-columns", (16384, 4096), "float32"),
    ("batch-statistics", (64, 256, 3136), "float16"), ("batch-statistics", (256, 64, 784), "float32"),
    ("variance-middle", (32, 4096, 512), "float32"), ("logsumexp-middle", (64, 1024, 1024), "bfloat16"),
    ("skewness-columns", (65536, 1024), "float32"),
)  # fmt: skip
SMALL = (("variance-columns", (512, 16), "float32"), ("batch-statistics", (4, 8, 64), "float32"))
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
b, n, c, s = ra.axes("b n c s")
columns, batches, middle = ra.tensor("x[n,c]"), ra.tensor("x[n,c,s]"), ra.tensor("x[b,n,c]")


def moments(x: Any, axes: Any, outputs: str) -> Any:
    """Mean and variance."""
    return ra.fuse({"mean": (ra.mean(x, axes), outputs), "var": (ra.var(x, axes), outputs)})


DEFINITIONS: dict[str, Callable[[], Any]] = {
    "variance-columns": lambda: moments(columns, n, "c"),
    "batch-statistics": lambda: moments(batches, (n, s), "c"),
    "variance-middle": lambda: moments(middle, n, "b c"),
    "logsumexp-columns": lambda: ra.fuse(ra.logsumexp(columns, n), axes="c"),
    "logsumexp-middle": lambda: ra.fuse(ra.logsumexp(middle, n), axes="b c"),
    "skewness-columns": lambda: ra.fuse(
        ra.mean((columns - ra.mean(columns, n)) ** 3, n) / ra.var(columns, n) ** Rational(3, 2), axes="c"
    ),
}
REDUCED = {"columns": (0,), "statistics": (0, 2), "middle": (1,)}
"""The dimensions that are reduced, by the last word of a use."""


def skewness(x: torch.Tensor, along: tuple[int, ...]) -> tuple[torch.Tensor]:
    """The third moment about the mean, over that of the second to 3/2."""
    away = x - x.mean(along, keepdim=True)
    return (away.pow(3).mean(along) / away.square().mean(along).pow(1.5),)


def statistics(x: torch.Tensor, along: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance."""
    variance, mean = torch.var_mean(x, along, correction=0)
    return mean, variance


FORMULAS: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {
    "variance": statistics, "batch": statistics, "skewness": skewness,
    "logsumexp": lambda x, along: (torch.logsumexp(x, along),),
}  # fmt: skip
"""PyTorch's formulas, by the first word of a use; of x in float32 or wider."""


def formula(use: str) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    """PyTorch's formula of a use."""
    first, *_, last = use.split("-")
    return lambda x: FORMULAS[first](x, REDUCED[last])


def row(use: str, shape: tuple[int, ...], dtype: str) -> Row:
    """One row: a statistic of x."""
    names = {"columns": "nc", "statistics": "ncs", "middle": "bnc"}[use.rsplit("-", maxsplit=1)[-1]]
    sizes = dict(zip(names, shape, strict=True))
    name = f"{use}-{'x'.join(map(str, shape))}-{dtype}"
    outputs = sizes["c"] * sizes.get("b", 1) * (1 if use.startswith(("logsumexp", "skewness")) else 2)
    return Row(name, sizes, {"x": shape}, {"x": dtype}, 0, outputs * width(dtype), use)


@cache
def derived(use: str) -> Any:
    """The function of a use, derived once."""
    return DEFINITIONS[use]()


@final
class Columns(Family):
    """See the module."""

    name = "columns"
    title = "statistics along first and middle axes beside eager PyTorch and torch.compile"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        return tuple(row(*one) for one in (SIZES if device.type == "cuda" else SMALL))

    def fused(self, row: Row) -> Any:
        return derived(row.use)

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        wide, dtype = formula(row.use), getattr(torch, row.dtypes["x"])
        dtype = torch.float32 if row.use.startswith("logsumexp") else dtype
        return eager_and_compiled(lambda x: tuple(one.to(dtype) for one in wide(x.float())), device)

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[row.dtypes["x"]]
