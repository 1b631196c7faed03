"""Multi-head attention: redalg beside PyTorch's FlashAttention-2 and cuDNN kernels, each checked before it is timed."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from os import cpu_count
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.timing import Timing, input_sets, measure
from benchmarks.workloads import Mha, mha

Tensors = dict[str, torch.Tensor]
Contestant = Callable[..., torch.Tensor]
CHECKED_HEADS = 8
TOLERANCE = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}  # of max|out - ref| / max|ref|


@dataclass(frozen=True)
class Measurement:
    """One contestant on one row: its error, and its time unless it is wrong or does not run."""

    error: float | None
    timing: Timing | None
    failure: str = ""


@dataclass(frozen=True)
class Result:
    """One row: what was emitted for it, and every contestant's measurement."""

    row: Mha
    source_sha256: str
    measurements: dict[str, Measurement]


def contestants(fused: Any, device: torch.device) -> dict[str, Contestant]:
    """redalg first, then its peers on this device."""
    if device.type != "cuda":
        return {"redalg": fused, "SDPA": peer(None)}
    peers = {"FlashAttention-2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
    return {"redalg": fused, **{name: peer(backend) for name, backend in peers.items()}}


def peer(backend: SDPBackend | None) -> Contestant:
    """PyTorch's attention, held to one of its backends."""

    def call(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        if backend is None:
            return scaled_dot_product_attention(Q, K, V)
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(Q, K, V)

    return call


def make_inputs(row: Mha, device: torch.device, sets: int) -> list[Tensors]:
    generator = torch.Generator(device).manual_seed(0)
    dtype = getattr(torch, row.dtype)

    def draw(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device, dtype=dtype)

    return [{name: draw(shape) for name, shape in row.shapes.items()} for _ in range(sets)]


def relative_error(out: torch.Tensor, inputs: Tensors) -> float:
    """max|out - ref| / max|ref| against float64, on a few heads spread over the batch."""
    batch, heads = out.shape[:2]
    flat = torch.linspace(0, batch * heads - 1, min(CHECKED_HEADS, batch * heads)).long().tolist()
    pick = [list(pair) for pair in zip(*(divmod(i, heads) for i in flat), strict=True)]
    Q, K, V = (inputs[name][pick[0], pick[1]].double() for name in "QKV")
    reference = torch.softmax(Q @ K.mT / Q.shape[-1] ** 0.5, -1) @ V
    return float((out[pick[0], pick[1]].double() - reference).abs().max() / reference.abs().max())


def compile_all(fused: Any, rows: Iterable[Mha], target: str) -> None:
    """Compile the kernels of all rows at once: the compilers are processes of their own, so threads suffice."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        jobs = [pool.submit(fused.compile, sizes=row.sizes, dtypes=row.dtypes, target=target) for row in rows]
        for job in jobs:
            job.result()


def source_sha256(fused: Any, row: Mha, target: str) -> str:
    text = fused.source(target=target, sizes=row.sizes, dtypes=row.dtypes)
    return hashlib.sha256(text.encode()).hexdigest()


def compete(call: Contestant, inputs: Sequence[Tensors], device: torch.device, tolerance: float) -> Measurement:
    """Check one contestant, then time it; what it raises is recorded, not raised, so that the others still run."""
    try:
        error = relative_error(call(**inputs[0]), inputs[0])
        if not error <= tolerance:
            return Measurement(error, None, f"wrong: error {error:.1e}, allowed {tolerance:.1e}")
        return Measurement(error, measure([partial(call, **one) for one in inputs], device))
    except Exception as failure:  # noqa: BLE001 - a peer's failure is a result
        return Measurement(None, None, f"{type(failure).__name__}: {failure}")


def run(row: Mha, fused: Any, target: str, device: torch.device) -> Result:
    """Measure one row; the inputs of all sets stay on the device for every contestant."""
    size = torch.empty(0, dtype=getattr(torch, row.dtype)).element_size()
    bytes_of_one = size * sum(torch.Size(shape).numel() for shape in row.shapes.values())
    inputs = make_inputs(row, device, input_sets(bytes_of_one, device))
    calls = contestants(fused, device).items()
    measured = {name: compete(call, inputs, device, TOLERANCE[row.dtype]) for name, call in calls}
    return Result(row, source_sha256(fused, row, target), measured)


def bench(
    rows: Sequence[Mha], target: str, device: torch.device, track: Callable[[Sequence[Mha]], Iterable[Mha]]
) -> list[Result]:
    """Measure the rows; `track` wraps them to show progress."""
    fused = mha()
    if hasattr(fused, "compile"):
        compile_all(fused, rows, target)
    return [run(row, fused, target, device) for row in track(rows)]
