"""Whether a program fits its device: shared memory of a block, counted before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from redalg.errors import PlanError
from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.program import (
    Buffer,
    Contract,
    Copy,
    Kernel,
    Last,
    Loop,
    Parallel,
    ReduceTile,
    Region,
    Statement,
    TileProgram,
    statements,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.plan import Plan

WARP = 32


def fits(program: TileProgram, plan: Plan) -> bool:
    """Whether every kernel's shared memory is within what a block has."""
    return all(smem_bytes(kernel, kernel.plan or plan) <= plan.device.smem_bytes for kernel in program.kernels)


def check_fit(program: TileProgram, plan: Plan) -> None:
    """Refuse a plan whose tiles need more shared memory than a block has, saying both."""
    for kernel in program.kernels:
        own = kernel.plan or plan
        needed = smem_bytes(kernel, own)
        if needed > plan.device.smem_bytes:
            raise PlanError(
                f"plan `{own}` needs {needed} bytes of shared memory for kernel `{kernel.title}`; a block of "
                f"{plan.device.target} ({plan.device.part}) has {plan.device.smem_bytes}. "
                "Use smaller tiles or fewer stages."
            )


def check_operands(program: TileProgram, plan: Plan, precision: str) -> None:
    """Refuse float32 operands on tensor cores, which would take them as TF32 in silence."""
    for kernel in program.kernels:
        dtypes = {one.name: one.dtype for one in kernel.buffers}
        for one in statements(kernel.body):
            cores = (kernel.plan or plan).tensor_cores
            if isinstance(one, Contract) and cores and dtypes[one.a] == "float32" and precision != "tf32":
                raise PlanError(
                    f"plan `{plan}` multiplies the float32 tiles `{one.a}` and `{one.b}` on tensor cores, which would "
                    'round them to TF32. Allow it by precision="tf32", or plan with tensor_cores=False.'
                )


def smem_bytes(kernel: Kernel, plan: Plan) -> int:
    """Bytes of shared memory: every shared tile, those that the pipelined loop loads once for every stage."""
    depths = {
        one.target: max(1, loop.stages)
        for loop in statements(kernel.body)
        if isinstance(loop, Loop) and loop.pipelined
        for one in loop.body
        if isinstance(one, Copy) and isinstance(one.source, Region) and isinstance(one.target, str)
    }
    if plan.warp_specialized:  # what the consumers make for themselves is kept for every stage too
        loops = [one for one in statements(kernel.body) if isinstance(one, Loop) and one.pipelined]
        made = [(loop, one) for loop in loops for one in loop.body if isinstance(one, Parallel)]
        depths |= {store.target: max(1, loop.stages) for loop, one in made for store in one.body}
    sizes = {
        one.name: prod(one.shape) * DTYPES[one.dtype].bytes * depths.get(one.name, 1)
        for one in kernel.buffers
        if one.scope == "shared" or plan.device.target == "c"
    }
    if plan.device.target == "c":
        return sum(sizes.values())
    scratch = [scratch_bytes(one, kernel, plan) for one in kernel.body]
    if kernel.blocks:  # a turn's are the next one's
        together = sum(sizes.values()) + max(scratch, default=0)
    else:
        together = largest_together(kernel, sizes, scratch)
    return together + turned_bytes(kernel, plan)


def largest_together(kernel: Kernel, sizes: Mapping[str, int], scratch: Sequence[int]) -> int:
    """The most bytes that live at once: a buffer lives from the first statement that names it to the last one, and a
    statement's scratch while it runs."""
    named = [set(sizes) & names_in(one) for one in kernel.body]
    spans = {}
    for name in sizes:
        places = [place for place, names in enumerate(named) if name in names]
        spans[name] = (places[0], places[-1]) if places else (0, 0)
    alive = ([name for name, (first, last) in spans.items() if first <= place <= last] for place in range(len(named)))
    return max((own + sum(sizes[name] for name in names) for own, names in zip(scratch, alive, strict=True)), default=0)


def names_in(one: Statement) -> set[str]:
    """Every buffer and parameter that a statement names."""
    if isinstance(one, Loop | Last):
        return {name for inner in one.body for name in names_in(inner)}
    if isinstance(one, Parallel):
        reads = {load.name for store in one.body for load in store.expr.atoms(Load)}
        return reads | {store.target for store in one.body}
    return {str(getattr(side, "name", side)) for side in vars(one).values()}


def scratch_bytes(one: Statement, kernel: Kernel, plan: Plan) -> int:
    """What a statement's reductions pass from warp to warp: a cell of every thread for each, where a row's elements lie
    in several warps. (Those of one loop all live while it runs.)"""
    shapes = {buffer.name: buffer for buffer in kernel.buffers}
    reduced = (shapes[other.source] for other in statements((one,)) if isinstance(other, ReduceTile))
    return sum(plan.threads * DTYPES[tile.dtype].bytes for tile in reduced if spans_warps(tile, kernel, plan))


def spans_warps(tile: Buffer, kernel: Kernel, plan: Plan) -> bool:
    """Whether a row of a register tile lies in several warps: a product's layout by the plan, else by its lanes."""
    if plan.tensor_cores and not kernel.spread:
        return plan.warps == "columns"
    rows, width = prod(tile.shape[:-1]), tile.shape[-1]
    return min(plan.threads // max(1, rows), width) > WARP


def turned_bytes(kernel: Kernel, plan: Plan) -> int:
    """What a transposed contraction on CUDA cores takes to turn its operand (see `bindings`)."""
    if plan.tensor_cores or plan.device.target == "c":
        return 0
    shapes = {one.name: one for one in kernel.buffers}
    turned = [one for one in statements(kernel.body) if isinstance(one, Contract) and one.transposed]
    return sum(prod(shapes[one.b].shape) * DTYPES[shapes[one.c].dtype].bytes for one in turned)
