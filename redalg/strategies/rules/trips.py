"""The rule for trips: the steps of a loop over tiles whose loads a lane has in flight at a time.

    for t < n: s = s + x[t]      a load waits until the sum has taken the one before: 16 bytes in flight a thread
    unrolled by 4                four loads, then four sums: 64 bytes, for 12 registers more

A multiprocessor reads at full speed when about 30 KiB are in flight. Where blocks fill one wave only, they hold less.
"""

from __future__ import annotations

from typing import Final

from redalg.expression.dtypes import DTYPES
from redalg.incremental.form import FusedForm
from redalg.strategies.device import REGISTERS
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.rules.parts import blocks, streamed_elements

TOGETHER: Final = 4
"""Trips whose loads are in flight together (H200, means and variances of 64 x 256 x 3136 in float16 over two axes in
0.81 of the time of one trip, six statistics of one row of 2^24 in float32 0.86; two trips 0.87 and 0.88)."""
LEAST_TRIPS: Final = 2 * TOGETHER
"""Trips of a loop that is worth it: the loops of two take 1.15 of their time."""
BLOCKS: Final = 2
"""Blocks of a multiprocessor up to which their loads leave it waiting (of 31 blocks a loop takes 1.05 of its time)."""
MOST_LOADED: Final = 8
"""Registers that a trip loads, up to which others help: with four loads of 16 bytes a trip they take 1.02 to 1.15."""
OTHER_REGISTERS: Final = 16
"""Registers of a thread for places and terms."""


def trips_together(form: FusedForm, plan: Plan, problem: Problem) -> int:
    """The trips of a block's loop whose loads are in flight together; 1 if there is no need, or no registers."""
    if plan.level != "thread" or plan.along_rows or plan.stages or form.cascade.producers or problem.varying:
        return 1
    if plan.device.target == "c":
        return 1
    length = problem.sizes[plan.binding.streamed.name]
    if length < LEAST_TRIPS * plan.block_streamed * plan.segments:
        return 1
    resident = -(-plan.segments * blocks(plan.binding, problem, plan.block_row, 1) // plan.device.multiprocessors)
    if resident > BLOCKS:
        return 1
    lane = plan.block_row * plan.block_streamed // plan.threads
    loaded = sum(DTYPES[problem.dtypes[one.name]].bytes for one in streamed_elements(form, plan.binding)) * lane // 4
    registers = OTHER_REGISTERS + len(form.slots) * lane + TOGETHER * loaded
    return TOGETHER if loaded <= MOST_LOADED and registers * plan.threads * resident <= REGISTERS else 1
