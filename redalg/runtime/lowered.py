"""The result of lowering one pass: its stages, its plan, its tile program and its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from redalg.incremental.form import FusedForm
from redalg.incremental.stages import Stages

if TYPE_CHECKING:
    from redalg.lower_tile.ir.program import TileProgram
    from redalg.lower_tile.text.emit import Source
    from redalg.strategies.plan import Problem
    from redalg.strategies.schedule import Schedule


@final
@dataclass(frozen=True)
class Lowered:
    """The last stages of one problem.

    Attributes:
        stages, problem, plan, program, source: the stages of lowering; the plan is a schedule.
        results: the dtype in which a call returns each output.
    """

    stages: Stages
    problem: Problem
    plan: Schedule
    program: TileProgram
    source: Source
    results: Mapping[str, str]

    @property
    def form(self) -> FusedForm:
        """The form of the loop, which the plan is for."""
        return self.stages.loop
