"""The result of lowering one pass: its stages, its plan, its tile program and its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from redalg.display import Displayed, Printed
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import Stages

if TYPE_CHECKING:
    from redalg.lower_tile.ir.program import TileProgram
    from redalg.lower_tile.text.emit import Source
    from redalg.strategies.plan import Problem
    from redalg.strategies.schedule import Schedule


@final
@dataclass(frozen=True, repr=False)
class Lowered(Displayed):
    """The last stages of one problem.

    Attributes:
        stages, problem, plan, program, source: the stages of lowering; the plan is a schedule.
        results: the dtype in which a call returns each output.

    >>> import redalg as ra
    >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
    >>> lowered = total.lower("c", {"b": 4, "n": 64}, "float32")
    >>> lowered.form.kind, str(lowered.plan)
    ('online', 'Grid(b, 4) Loop(n, 64) Lanes(n, 1); c')
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

    def listing(self) -> str:
        """The loop nest, the predicted time, and the kernel: every line numbered, with the slots that it serves.

        The numbers of slots are those of `explain(section="state")`; a legend tells the lines that write each.

        >>> import redalg as ra
        >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
        >>> lowered = total.lower("c", {"b": 4, "n": 64}, "float32")
        >>> print(next(line for line in lowered.listing().splitlines() if line.startswith("  1 ")))
          1 sum_0  sum of x[b,n]  [...]
        """
        return Printed(self._view.text(self))

    def __str__(self) -> str:
        return str(self.source)
