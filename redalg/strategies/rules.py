"""The fixed rules that choose a plan without search: Single-Segment, Multi-Segment, and their tiles.

The figures behind the rules were measured on an H200 and are kept as data in `benchmarks/`; search and tuning come
later, and replace no rule silently.
"""

from __future__ import annotations

from dataclasses import replace

from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding, bind_axes
from redalg.strategies.device import DeviceSpec, device_for
from redalg.strategies.plan import Plan, Problem

TENSOR_CORE_DTYPES = ("float16", "bfloat16")


def choose(form: FusedForm, problem: Problem, target: str) -> Plan:
    """The plan of a form for a target."""
    device, binding = device_for(target), bind_axes(form, problem.sizes)
    rule = contraction_rule if binding.contracted or form.cascade.producers else rows_rule
    plan = rule(form, problem, device, binding)
    plan = replace(plan, segments=segments(plan, problem))
    plan.verify()
    return plan


def contraction_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Plan:
    """Tiles of rows x streamed elements, whose contractions use tensor cores where the dtype allows."""
    rows = problem.sizes[binding.row.name] if binding.row else 1
    columns = problem.sizes[binding.column.name] if binding.column else 1
    inner = [problem.sizes[one.cascade.axis.name] for one in form.cascade.producers]
    width = padded(max([columns, *inner]), 16)
    cores = tensor_cores(form, problem, device)
    row, streamed, stages, threads, special = tiles(device, rows, width, cores, problem)
    return Plan(device, binding, row, streamed, padded(columns, 16), stages, threads, 1, special, cores)


def tensor_cores(form: FusedForm, problem: Problem, device: DeviceSpec) -> bool:
    """Whether every contraction's operands are 16-bit (or TF32 is allowed)."""
    if device.target == "c":
        return False
    floats = {dtype for dtype in problem.dtypes.values() if dtype.startswith(("float", "bfloat"))}
    return floats <= set(TENSOR_CORE_DTYPES) or (problem.precision == "tf32" and "float64" not in floats)


def tiles(device: DeviceSpec, rows: int, width: int, cores: bool, problem: Problem) -> tuple[int, int, int, int, bool]:
    """(rows, streamed, stages, threads, warp specialisation) by the widest operand."""
    if device.target == "c":
        return min(32, padded(rows, 1)), 32, 0, 1, False
    if not cores:
        return (64, 64, 0, 128, False) if width <= 64 else (64, 32, 0, 128, False)
    if not device.wgmma:
        return (64, 64, 1, 128, False) if width <= 128 else (64, 32, 1, 128, False)
    if rows <= 64:
        return (64, 128, 2, 128, True) if width <= 128 else (64, 64, 2, 128, True)
    if width <= 96:
        return 64, 128, 1, 128, False
    return (128, 128, 2, 256, True) if width <= 128 else (64, 64, 2, 128, True)


def rows_rule(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> Plan:
    """Elementwise terms: tiles as wide as the streamed axis allows, and few rows."""
    length = max(1, problem.sizes[binding.streamed.name])
    rows = max(1, problem.sizes[binding.row.name] if binding.row else 1)
    if device.target == "c":
        return Plan(device, binding, min(4, rows), min(256, padded(length, 1)), 1, 0, 1, 1, False, False)
    streamed = min(2048, power_of_two(max(length, 128)))
    row = 1 if streamed >= 1024 else min(power_of_two(rows), 1024 // streamed)
    return Plan(device, binding, row, streamed, 1, 0, 128, 1, False, False)


def segments(plan: Plan, problem: Problem) -> int:
    """Parts of the streamed axis: enough that the grid fills the chip, each of at least four tiles."""
    if plan.device.target == "c":
        return 1
    blocks = 1
    for axis in plan.binding.grid:
        blocks *= max(1, problem.sizes[axis.name])
    if plan.binding.row:
        blocks *= -(-max(1, problem.sizes[plan.binding.row.name]) // plan.block_row)
    tiles_along = -(-max(1, problem.sizes[plan.binding.streamed.name]) // plan.block_streamed)
    if 2 * blocks > plan.device.multiprocessors:
        return 1
    return max(1, min(plan.device.multiprocessors // blocks, tiles_along // 4, 64))


def padded(length: int, step: int) -> int:
    """The length rounded up to a multiple of `step`, at least one step.

    >>> padded(77, 16)
    80
    """
    return max(step, -(-length // step) * step)


def power_of_two(length: int) -> int:
    """The least power of two that is not below `length`."""
    return 1 << max(0, length - 1).bit_length()
