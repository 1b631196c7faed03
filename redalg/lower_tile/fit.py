"""Whether a program fits its device: shared memory of a block, counted before anything is compiled."""

from __future__ import annotations

from math import prod

from redalg.errors import PlanError
from redalg.lower_tile.program import Contract, Copy, Kernel, Loop, Region, TileProgram, statements
from redalg.strategies import Plan

BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "uint8": 1, "int8": 1}


def fits(program: TileProgram, plan: Plan) -> bool:
    """Whether every kernel's shared memory is within what a block has."""
    return all(smem_bytes(kernel, plan) <= plan.device.smem_bytes for kernel in program.kernels)


def check_fit(program: TileProgram, plan: Plan) -> None:
    """Refuse a plan whose tiles need more shared memory than a block has, saying both."""
    for kernel in program.kernels:
        needed = smem_bytes(kernel, plan)
        if needed > plan.device.smem_bytes:
            raise PlanError(
                f"plan `{plan}` needs {needed} bytes of shared memory for kernel `{kernel.title}`; a block of "
                f"{plan.device.target} ({plan.device.part}) has {plan.device.smem_bytes}. "
                "Use smaller tiles or fewer stages."
            )


def check_operands(program: TileProgram, plan: Plan, precision: str) -> None:
    """Refuse float32 operands on tensor cores, which would take them as TF32 in silence."""
    for kernel in program.kernels:
        dtypes = {one.name: one.dtype for one in kernel.buffers}
        for one in statements(kernel.body):
            if isinstance(one, Contract) and plan.tensor_cores and dtypes[one.a] == "float32" and precision != "tf32":
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
    total = 0
    for buffer in kernel.buffers:
        if buffer.scope == "shared" or plan.device.target == "c":
            total += prod(buffer.shape) * BYTES[buffer.dtype] * depths.get(buffer.name, 1)
    return total + turned_bytes(kernel, plan)


def turned_bytes(kernel: Kernel, plan: Plan) -> int:
    """What a transposed contraction on CUDA cores takes to turn its operand (see `bindings`)."""
    if plan.tensor_cores or plan.device.target == "c":
        return 0
    shapes = {one.name: one for one in kernel.buffers}
    turned = [one for one in statements(kernel.body) if isinstance(one, Contract) and one.transposed]
    return sum(prod(shapes[one.b].shape) * BYTES[shapes[one.c].dtype] for one in turned)
