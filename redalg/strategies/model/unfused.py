"""Predict the time of the definition as operations of PyTorch, with which a kernel is compared.

    t = operations · launch + Σ_products max(bytes / memory, flops / (peak · share · busy)) + others' bytes / memory

A product's tiles of 64 x 64 results keep min(1, tiles / multiprocessors) of the chip busy. Every other operation
passes once over the largest tensor, to read it and to write it.

The constants were fitted to cuBLAS's pairs of products on an H200 (benchmarks/results/chains.json), which they predict
within 12 %, and to its products of 8 bits (rows Q1 to Q10), within 16 %. Tensor cores multiply 16 bits, and 8 at
twice the rate: float32 is multiplied at the rate of CUDA cores.
"""

from __future__ import annotations

from math import prod

from redalg.expression.dtypes import DTYPES
from redalg.incremental.form import FusedForm
from redalg.strategies.device import DeviceSpec
from redalg.strategies.model.chain import Block, chain_of
from redalg.strategies.model.cost import CLOCKS_US, H200, LANES, Prediction
from redalg.strategies.plan import Problem

OPERATION_US, SHARE, TILE = 3.0, {1: 0.75, 2: 0.5}, 64 * 64
"""Launch and latency of a graph's operation; the share of its peak that a product reaches, by bytes of an element (of
more than 2 bytes: as of 2); results of a tile."""


def predict_unfused(
    form: FusedForm, problem: Problem, device: DeviceSpec, operations: int, largest_bytes: int
) -> Prediction:
    """Predict the time of a definition, from the number of its operations and the bytes of its largest tensor."""
    blocks = [one for one in chain_of(form).blocks if is_product(one)]
    width = min(DTYPES[dtype].bytes for dtype in problem.dtypes.values())
    rate = device.memory_gb_s * 1e3 * H200.memory
    traffic = [width * sum(elements(one.loops, problem) for one in (block.output, *block.inputs)) for block in blocks]
    memory = [one / rate for one in traffic]
    compute = [product_us(one, problem, device, width) for one in blocks]
    others = max(0, operations - len(blocks)) * 2 * largest_bytes / rate
    launch = operations * OPERATION_US
    total = launch + others + sum(map(max, memory, compute))
    unit = "tensor cores" if width <= 2 else "arithmetic"
    return Prediction(total, {"memory": sum(memory) + others, unit: sum(compute), "launch": launch})


def is_product(block: Block) -> bool:
    """Tell if a block sums a product of several tensors."""
    return bool(block.reduced) and len(block.inputs) > 1


def product_us(block: Block, problem: Problem, device: DeviceSpec, width: int) -> float:
    """The time of a product, if only its multiplications limit it."""
    cores = device.multiprocessors * LANES * CLOCKS_US * 2
    peak = device.product_tflops * 1e6 * 2 / width if width <= 2 else cores
    tiles = max(1.0, elements(block.output.loops, problem) / TILE)
    return 2 * elements(block.loops, problem) / (peak * SHARE[min(2, width)] * min(1.0, tiles / device.multiprocessors))


def elements(loops: tuple[str, ...], problem: Problem) -> int:
    """The number of elements of a tensor over loops."""
    return prod(problem.sizes[loop] for loop in loops)


def expression(form: FusedForm) -> str:
    """The tiling expression of a definition: the loops of one operation after another, each a nest of its own."""
    return ", ".join("".join(block.loops) for block in chain_of(form).blocks)
