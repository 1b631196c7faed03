"""Per-token quantization and a product of 8-bit floats, beside PyTorch's own.

Shapes Q1 to Q10 are those that RedFuser publishes (appendix A.5), M = 4096; C1 and C2 are small ones for machines
without a GPU. redalg's is the definition in two passes; its two one-pass forms run beside it, and so do a product whose
input is quantized beforehand and one in float16, neither of which does the whole work. Outputs are bfloat16, which
PyTorch's product wants where every row has a scale.
"""

from functools import cache
from typing import Any, final

import torch

from benchmarks.family import Contestant, Family, Row, Tensors, beforehand, compiled, normal, relative_error, width
from redalg.library import quantized_product

EIGHT_BITS, LARGEST = torch.float8_e4m3fn, 448.0
CHECKED_ROWS = 256
TOLERANCE = 5e-2
"""Of max|out - ref| / max|ref|: one rounding to 3 bits is 6e-2 of an element, and the elements of a sum differ."""


def row(name: str, size: str, result: str = "bfloat16", dtype: str = "float16") -> Row:
    """One row of m x n x k: x[m,k] in `dtype`, W[n,k] of 8 bits, w[n] in float32."""
    m, n, k = map(int, size.split("x"))
    return Row(
        name,
        sizes={"m": m, "n": n, "k": k},
        shapes={"x": (m, k), "W": (n, k), "w": (n,)},
        dtypes={"x": dtype, "W": "float8_e4m3fn", "w": "float32"},
        flops=2 * m * n * k,
        out_bytes=width(result) * m * n,
    )


CUDA_ROWS = tuple(
    row(f"Q{number}", f"4096x{size}")
    for number, size in enumerate(
        ("1536x2560", "2560x1536", "3584x8192", "8192x3584", "7168x2048",
         "2048x7168", "2048x768", "768x2048", "4096x1536", "1536x4096"), 1)
)  # fmt: skip
CPU_ROWS = (row("C1", "64x96x128", dtype="float32"), row("C2", "32x200x300", dtype="float32"))


@cache
def fused(form: str) -> Any:
    """The product of that form, derived once."""
    return quantized_product(exact=form == "two passes", power_of_two=form == "power of two", result="bfloat16")


@final
class Quant(Family):
    """See the module."""

    name, title = "quant", "per-token quantization and a product of 8-bit floats, beside PyTorch"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        return CUDA_ROWS if device.type == "cuda" else CPU_ROWS

    def fused(self, row: Row) -> Any:
        return fused("two passes")

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        own = {"redalg, online": fused("online"), "redalg, power of two": fused("power of two")}
        if device.type != "cuda":
            return {**own, "eager": dequantized}
        return {
            **own,
            "eager": eager,
            "torch.compile": compiled(eager),
            "_scaled_mm alone": beforehand(lambda one: quantized(one["x"]), scaled),
            "float16 product alone": beforehand(lambda one: one["W"].half().T, float16_product),
        }

    def tolerance(self, row: Row) -> float:
        return TOLERANCE

    def inputs(self, row: Row, generator: torch.Generator) -> Tensors:
        numbers = {name: normal(shape, "float32", generator) for name, shape in row.shapes.items()}
        scales = numbers["W"].abs().amax(1) / LARGEST
        return {
            "x": numbers["x"].to(getattr(torch, row.dtypes["x"])),
            "W": (numbers["W"] / scales[:, None]).to(EIGHT_BITS),
            "w": scales,
        }

    def error(self, row: Row, out: Any, inputs: Tensors) -> float:
        """On rows spread over all of them, against the definition in float64."""
        pick = torch.linspace(0, out.shape[0] - 1, min(CHECKED_ROWS, out.shape[0])).long()
        x, W, w = inputs["x"][pick].double(), inputs["W"].double(), inputs["w"].double()
        scale = x.abs().amax(1, keepdim=True) / LARGEST
        reference = (x / scale).to(EIGHT_BITS).double() @ W.T * scale * w
        return relative_error(out[pick], reference)


def quantized(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x of 8 bits, and the scale of every row."""
    scale = x.abs().amax(1, keepdim=True).float().clamp_min(1e-30) / LARGEST
    return (x / scale).clamp(-LARGEST, LARGEST).to(EIGHT_BITS), scale


def scaled(prepared: tuple[torch.Tensor, torch.Tensor], tensors: Tensors) -> torch.Tensor:
    """PyTorch's product of 8-bit floats."""
    q, scale = prepared
    return torch._scaled_mm(
        q, tensors["W"].T, scale_a=scale, scale_b=tensors["w"][None], out_dtype=torch.bfloat16, use_fast_accum=True
    )


def float16_product(prepared: torch.Tensor, tensors: Tensors) -> torch.Tensor:
    """PyTorch's product of 16-bit floats, of weights that were widened beforehand."""
    return tensors["x"] @ prepared * tensors["w"]


def eager(x: torch.Tensor, W: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Both, one after the other."""
    return scaled(quantized(x), {"W": W, "w": w})


def dequantized(x: torch.Tensor, W: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The same in float32, where there is no product of 8-bit floats."""
    q, scale = quantized(x)
    return (q.float() @ W.float().T * scale * w).bfloat16()
