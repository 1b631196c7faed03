"""The schedules that the rules give for the stages of a call, the preferred one first."""

from __future__ import annotations

from collections.abc import Iterator

from redalg.incremental.stages import Stages
from redalg.strategies.binding import bind_axes
from redalg.strategies.device import DeviceSpec
from redalg.strategies.plan import Problem
from redalg.strategies.rules.rules import RULES_IN_REGISTERS, choose_schedule, smaller
from redalg.strategies.rules.whole_rows import whole_rows_schedule
from redalg.strategies.schedule import Schedule, numbers_of, with_choices


def schedules_by_rules(stages: Stages, problem: Problem, device: DeviceSpec) -> Iterator[Schedule]:
    """Yield tiles of whole rows, if a stage ahead is made of them, and smaller ones; then the loop's own schedules.

    These have no loading warps where such warps would take the pipeline from another stage. Behind rows in shared
    memory come those in registers, for kernels that have no program of the first.
    """
    whole = whole_rows_schedule(stages, problem, device, bind_axes(stages.loop, problem.sizes))
    if whole is not None:
        yield from smaller(whole, cut=False)
    schedule = choose_schedule(stages.loop, problem, device)
    loads = stages.multiplies_apart and numbers_of(schedule).warp_specialized
    yield from smaller(with_choices(schedule, warp_specialized=False) if loads else schedule)
    if numbers_of(schedule).fetches_rows:
        yield from smaller(choose_schedule(stages.loop, problem, device, RULES_IN_REGISTERS))
