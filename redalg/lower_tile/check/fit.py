"""Check that a program fits its device: the shared memory of a block is counted before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from redalg.errors import PlanError
from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.mentions import names_in
from redalg.lower_tile.ir.program import (
    Buffer,
    Contract,
    Copy,
    JoinBest,
    Kernel,
    Loop,
    Parallel,
    ReduceTile,
    Region,
    Statement,
    TileProgram,
    nested_statements,
)
from redalg.strategies.device import REGISTERS, WARP
from redalg.strategies.plan import Plan, levels_of

REGISTERS_OF_THREAD = 255
"""The most registers of a thread (CUDA)."""


def fits(program: TileProgram, plan: Plan) -> bool:
    """Tell if every kernel needs at most the shared memory that a block has."""
    return all(smem_bytes(kernel, kernel.plan or plan) <= plan.device.smem_bytes for kernel in program.kernels)


def check_fit(program: TileProgram, plan: Plan) -> None:
    """Raise `PlanError` if tiles need more shared memory than a block has; the message states both numbers."""
    for kernel in program.kernels:
        own = kernel.plan or plan
        need = smem_bytes(kernel, own)
        if need > plan.device.smem_bytes:
            raise PlanError(
                f"plan `{own}` needs {need} bytes of shared memory for kernel `{kernel.title}`; a block of "
                f"{plan.device.target} ({plan.device.part}) has {plan.device.smem_bytes}. "
                "Use smaller tiles or fewer stages."
            )


def check_registers(program: TileProgram, plan: Plan) -> None:
    """Raise `PlanError` if a thread's share of one tile in registers exceeds all registers that it may have.

    The compiler would keep such a tile in memory. The message names the level that gives the tile its longest side.
    Kernels with plans of their own are left out, since the rules wrote these.
    """
    threads, most = plan.threads, min(REGISTERS_OF_THREAD, REGISTERS // plan.threads)
    for kernel in program.kernels if plan.device.target != "c" else ():
        if kernel.plan is not None:
            continue
        tile = max((one for one in kernel.buffers if one.scope == "fragment"), key=elements_in, default=None)
        if tile is None or elements_in(tile) <= most * threads:
            continue
        longest = max(tile.shape)
        rest = elements_in(tile) // longest
        levels = [one for one in levels_of(plan) if longest in (getattr(one, "tile", 0), getattr(one, "rows", 0))]
        at_most = 1 << (most * threads // rest).bit_length() >> 1
        advice = f"Lower the {longest} of {levels[0]}" if levels else "Use smaller tiles, or more threads"
        raise PlanError(
            f"schedule `{plan}` gives a thread {elements_in(tile) // threads} numbers of the tile "
            f"`{tile.name}{list(tile.shape)}` in kernel `{kernel.title}`; {threads} threads have registers for {most} "
            f"each. {advice}{f' to at most {at_most}' if levels and at_most else ''}."
        )


def elements_in(buffer: Buffer) -> int:
    """The number of elements of a buffer."""
    return prod(buffer.shape)


def check_operands(program: TileProgram, plan: Plan, precision: str) -> None:
    """Raise `PlanError` for float32 operands on tensor cores, unless `precision` allows TF32.

    Tensor cores would round them to TF32 without a warning.
    """
    for kernel in program.kernels:
        dtypes = {one.name: one.dtype for one in kernel.buffers}
        for statement in nested_statements(kernel.body):
            cores = (kernel.plan or plan).tensor_cores
            if isinstance(statement, Contract) and cores and dtypes[statement.a] == "float32" and precision != "tf32":
                raise PlanError(
                    f"plan `{plan}` multiplies the float32 tiles `{statement.a}` and `{statement.b}` on tensor cores, "
                    'which would round them to TF32. Allow it by precision="tf32", or plan with tensor_cores=False.'
                )


def smem_bytes(kernel: Kernel, plan: Plan) -> int:
    """Bytes of shared memory of all shared tiles; a tile that a pipelined loop loads counts once for every stage."""
    depths = {
        copy.target: max(1, loop.stages)
        for loop in nested_statements(kernel.body)
        if isinstance(loop, Loop) and loop.pipelined
        for copy in loop.body
        if isinstance(copy, Copy) and isinstance(copy.source, Region) and isinstance(copy.target, str)
    }
    if plan.warp_specialized:  # tiles that the consumers compute are kept for every stage too
        loops = [one for one in nested_statements(kernel.body) if isinstance(one, Loop) and one.pipelined]
        pairs = [(loop, one) for loop in loops for one in loop.body if isinstance(one, Parallel)]
        depths |= {store.target: max(1, loop.stages) for loop, one in pairs for store in one.body}
    sizes = {
        buffer.name: prod(buffer.shape) * DTYPES[buffer.dtype].bytes * depths.get(buffer.name, 1)
        for buffer in kernel.buffers
        if buffer.scope == "shared" or plan.device.target == "c"
    }
    if plan.device.target == "c":
        return sum(sizes.values())
    scratch = [scratch_bytes(one, kernel, plan) for one in kernel.body]
    if kernel.blocks:  # the next turn uses the same buffers
        together = sum(sizes.values()) + max(scratch, default=0)
    else:
        together = largest_together(kernel, sizes, scratch)
    return together + turned_bytes(kernel, plan)


def largest_together(kernel: Kernel, sizes: Mapping[str, int], scratch: Sequence[int]) -> int:
    """The most bytes that live at once: a buffer lives from the first statement that names it to the last one, and a
    statement's scratch while it runs."""
    mentions = [set(sizes) & names_in(one) for one in kernel.body]
    spans = {}
    for name in sizes:
        places = [place for place, names in enumerate(mentions) if name in names]
        spans[name] = (places[0], places[-1]) if places else (0, 0)
    alive = (
        [name for name, (first, last) in spans.items() if first <= place <= last] for place in range(len(mentions))
    )
    return max((own + sum(sizes[name] for name in names) for own, names in zip(scratch, alive, strict=True)), default=0)


def scratch_bytes(statement: Statement, kernel: Kernel, plan: Plan) -> int:
    """Bytes through which a statement's reductions pass values from warp to warp.

    A reduction needs a cell for every thread if a row's elements lie in several warps. (The cells of all reductions in
    a loop live while the loop runs.)
    """
    shapes = {buffer.name: buffer for buffer in kernel.buffers}
    inner = nested_statements((statement,))
    tiles = [(shapes[one.source], one.dim) for one in inner if isinstance(one, ReduceTile)]
    joins = [shapes[one.best].shape[-1] for one in inner if isinstance(one, JoinBest)]
    numbers = sum(4 * width + 3 * plan.threads for width in joins)  # a union, and three reductions
    across = [tile for tile, dim in tiles if spans_warps(tile, dim, kernel, plan)]
    return numbers * DTYPES["int64"].bytes + sum(plan.threads * DTYPES[tile.dtype].bytes for tile in across)


def spans_warps(tile: Buffer, dim: int, kernel: Kernel, plan: Plan) -> bool:
    """Tell if a row of a register tile lies in several warps: by the plan for a product's layout, else by its lanes."""
    if plan.tensor_cores and not kernel.spread:
        return plan.warps == "columns"
    if dim == 0:
        return tile.shape[0] > 1 and plan.threads > WARP
    rows, width = prod(tile.shape[:-1]), tile.shape[-1]
    return min(plan.threads // max(1, rows), width) > WARP


def turned_bytes(kernel: Kernel, plan: Plan) -> int:
    """Bytes in which transposed contractions on CUDA cores turn their operands (see `bindings`)."""
    if plan.tensor_cores or plan.device.target == "c":
        return 0
    shapes = {one.name: one for one in kernel.buffers}
    products = [one for one in nested_statements(kernel.body) if isinstance(one, Contract) and one.transposed]
    return sum(prod(shapes[one.b].shape) * DTYPES[shapes[one.c].dtype].bytes for one in products)
