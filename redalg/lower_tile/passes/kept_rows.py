"""Ask the L2 cache to drop last what a kernel reads, where it writes as much.

x = load row;  v = Σ_j x[j];  out[j] = f(v, x[j])   →   keep row in L2;  x = load row;  …
x = load part of a row;  out = f(x)                 →   keep part in L2;  x = load part of a row;  …

It changes no value. Rows that are read once need no cache. But what they displace there is what was written before:
that goes to memory at once, in long stretches, and not when a line is wanted for something else. Root mean squares of
8192 x 8192 elements in bfloat16 take 0.97 of the time, of 16384 x 4096 0.965, layer norms of 4096 x 16384 0.975, with a
residual 0.97, gradients of variances, which reduce nothing, 0.985 (H200; of 4 GB as of 268 MB). To have the rows read
dropped first, which seems natural, takes 1.05.

Where inputs and outputs are far larger than the cache, as much is written as is read, and blocks are narrow: tensors of
134 MB take 1.007 of the time, gradients of softmaxes (two inputs, one output) 1.008, softmaxes of 16384 elements by 512
threads 1.035.
"""

from __future__ import annotations

from dataclasses import replace

from redalg.lower_tile.ir.cache_lines import is_part_of_lines
from redalg.lower_tile.ir.mentions import reduces_nothing
from redalg.lower_tile.ir.program import Copy, Keep, Kernel, Parallel, Parameter, Region, Statement, TileProgram
from redalg.lower_tile.ir.runtime_sizes import bytes_of_parameter
from redalg.strategies.plan import Plan

LARGE_BYTES = 200_000_000
"""Of inputs and outputs: four times the L2 cache of an H100 or H200."""
WIDEST = 256
"""Threads of a block that waits for few others."""


def keep_large_rows(program: TileProgram, plan: Plan) -> TileProgram:
    """The program whose kernels of rows, and those that reduce nothing, ask for what they read."""
    parameters = {one.name: one for one in program.parameters}
    kernels = (_in_kernel(one, one.plan or plan, parameters) for one in program.kernels)
    return replace(program, kernels=tuple(kernels))


def _in_kernel(kernel: Kernel, plan: Plan, parameters: dict[str, Parameter]) -> Kernel:
    """A kernel of a row a block, or of a part of a row, if it writes as much as it reads."""
    alone = plan.block_row == 1 and (plan.level == "row" or reduces_nothing(kernel))
    if not alone or plan.threads > WIDEST or plan.device.target == "c" or kernel.blocks:
        return kernel
    sources = [one.source for one in kernel.body if isinstance(one, Copy) and isinstance(one.source, Region)]
    read = {one.name for one in sources if is_of_lines(one, parameters)}
    loops = [one for one in kernel.body if isinstance(one, Parallel) and len(one.indices) > 1]
    written = {store.target for loop in loops for store in loop.body if store.target in parameters}
    written |= {one.target.name for one in kernel.body if isinstance(one, Copy) and isinstance(one.target, Region)}
    into, out = (sum(bytes_of_parameter(parameters[one]) for one in names) for names in (read, written & {*parameters}))
    if not isinstance(into + out, int) or into + out < LARGE_BYTES or out < into:
        return kernel
    body = list[Statement]()
    for statement in kernel.body:
        source = statement.source if isinstance(statement, Copy) else None
        if isinstance(source, Region) and is_of_lines(source, parameters):
            body.append(Keep(source))
        body.append(statement)
    return replace(kernel, body=tuple(body))


def is_of_lines(region: Region, parameters: dict[str, Parameter]) -> bool:
    """Tell if a region is a row of a parameter of several, or one of equal parts of a row, of whole lines."""
    source = parameters.get(region.name)
    if source is None or not isinstance(source.shape[-1], int):
        return False
    *others, (start, length) = (one if isinstance(one, tuple) else (one, 1) for one in region.place)
    alone = all(count == 1 for _, count in others) and (bool(others) or length < source.shape[-1])
    return alone and is_part_of_lines(start, length, source)
