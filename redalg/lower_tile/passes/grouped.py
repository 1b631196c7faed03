"""Give each thread groups of adjacent rows of a product that CUDA cores add up, as many as one load of a factor brings.

s[e, i] += y[j, e]·x[j, i]          a thread's e: e₀, e₀ + 4, e₀ + 8 …      16 loads of one number of y
                                →   a thread's e: e₀ … e₀ + 3, then 16 on    4 loads of four

Exact: only the threads that compute the elements change. Covariances of 64 columns take 0.90 of the time (H200): with
64 products a thread, shared memory was read as long as they took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.mentions import names_in
from redalg.lower_tile.ir.program import Buffer, Fill, Kernel, Last, Loop, Parallel, Statement, nested_statements
from redalg.strategies.device import LOAD_BYTES
from redalg.strategies.plan import Plan

ACROSS = 16
"""Threads of a row."""


def group_rows(kernel: Kernel, plan: Plan) -> Kernel:
    """The kernel whose sums of products lie in groups of adjacent rows, where nothing else says how they lie."""
    if plan.device.target == "c" or not (plan.is_serial and plan.binding.contracted):
        return kernel
    registers = {one.name: one.shape for one in kernel.buffers if one.scope == "fragment"}
    leaves = [one for one in nested_statements(kernel.body) if not isinstance(one, Loop | Last)]

    def is_free(buffer: Buffer) -> bool:
        naming = [one for one in leaves if buffer.name in names_in(one)]
        divides = buffer.name in registers and divides_in_groups(buffer, plan.threads)
        return divides and all(leaves_open(one, registers) for one in naming)

    return replace(kernel, buffers=tuple(replace(one, grouped=is_free(one)) for one in kernel.buffers))


def divides_in_groups(buffer: Buffer, threads: int) -> bool:
    """Tell if a tile divides into groups for so many threads."""
    wide = LOAD_BYTES // DTYPES[buffer.dtype].bytes
    if len(buffer.shape) != 2 or threads % ACROSS or wide < 2:
        return False
    rows, columns = buffer.shape
    return rows % (wide * (threads // ACROSS)) == 0 and columns % (wide * ACROSS) == 0


def leaves_open(statement: Statement, registers: Mapping[str, tuple[int, ...]]) -> bool:
    """Tell if a statement takes tiles element by element, and names none of another shape that lies in registers."""
    shapes = {registers[name] for name in names_in(statement) & registers.keys()}
    return len(shapes) == 1 and isinstance(statement, Parallel | Fill)
