"""Routing of tokens to experts: product, softmax and top-k, beside PyTorch's three and the product alone.

Shapes R1 to R8 are those that RedFuser publishes (appendix A.5); C1 and C2 are small ones for machines without a GPU.
Weights are as small as a router's, so that scores are about 1: in float16 PyTorch rounds them before the softmax.
"""

from functools import cache
from typing import Any, final

import torch

from benchmarks.family import Contestant, Family, Row, Tensors, beforehand, compiled, normal, outputs, relative_error
from redalg.library import routing

TOLERANCE = {"float32": 1e-5, "float16": 1e-2}


def row(name: str, size: str, k: int, dtype: str = "float16") -> Row:
    """One row of tokens x inner x experts: x[t,c] and W[c,n], of which k experts a token are chosen."""
    t, c, n = map(int, size.split("x"))
    return Row(
        name,
        sizes={"t": t, "c": c, "n": n, "j": k},
        shapes={"x": (t, c), "W": (c, n)},
        dtypes={"x": dtype, "W": dtype},
        flops=2 * t * c * n,
        out_bytes=t * k * (2 + 8),
    )


CUDA_ROWS = (
    row("R1", "2048x768x128", 1),
    row("R2", "2048x1024x128", 1),
    row("R3", "2048x4096x128", 1),
    row("R4", "2048x2560x64", 6),
    row("R5", "2048x8192x64", 8),
    row("R6", "2048x2048x64", 6),
    row("R7", "2048x2048x128", 8),
    row("R8", "2048x4096x128", 8),
)
CPU_ROWS = (row("C1", "64x256x64", 2, "float32"), row("C2", "33x1030x40", 8, "float32"))


@cache
def fused(k: int) -> Any:
    """The routing to k experts, derived once."""
    return routing(k)


@final
class Moe(Family):
    """See the module."""

    name, title = "moe", "routing of tokens to experts, beside PyTorch and the product alone"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        return CUDA_ROWS if device.type == "cuda" else CPU_ROWS

    def fused(self, row: Row) -> Any:
        return fused(row.sizes["j"])

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        eager = chosen(row.sizes["j"])
        if device.type != "cuda":
            return {"eager": eager}
        return {"eager": eager, "torch.compile": compiled(eager), "product alone": product_alone(eager)}

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[row.dtypes["x"]]

    def inputs(self, row: Row, generator: torch.Generator) -> Tensors:
        small = normal(row.shapes["W"], "float32", generator) / row.sizes["c"] ** 0.5
        return {
            "x": normal(row.shapes["x"], row.dtypes["x"], generator),
            "W": small.to(getattr(torch, row.dtypes["W"])),
        }

    def error(self, row: Row, out: Any, inputs: Tensors) -> float:
        """Of the probabilities given, and of those of the experts chosen: equally good experts are equally right."""
        gates, experts = outputs(out)
        exact = torch.softmax(inputs["x"].double() @ inputs["W"].double(), -1)
        best = exact.topk(row.sizes["j"], -1).values
        return max(relative_error(gates, best), relative_error(exact.gather(-1, experts), best))


def chosen(k: int) -> Contestant:
    """PyTorch's routing."""

    def call(x: torch.Tensor, W: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, indices = torch.topk(torch.softmax(x @ W, -1), k)
        return values, indices

    return call


def product_alone(whole: Contestant) -> Contestant:
    """The product, of the whole work; what it returns was made beforehand."""

    def product(result: Any, tensors: Tensors) -> Any:
        _ = tensors["x"] @ tensors["W"]
        return result

    return beforehand(lambda tensors: whole(**tensors), product)
