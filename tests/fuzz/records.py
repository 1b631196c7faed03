"""Cases of the generators, and what became of each as plain data that one process hands to another."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, takewhile
from typing import final

from redalg.errors import ExpressionError
from tests.fuzz import one_axis, two_axes
from tests.fuzz.case import Case
from tests.fuzz.data import Data
from tests.fuzz.executions import Executions, Finding, data_of, execute
from tests.fuzz.verdicts import Decision, Tally, decide

GENERATORS = {"one_axis": one_axis.case, "two_axes": two_axes.case}


@final
@dataclass(frozen=True)
class Record:
    """What became of a case.

    Attributes:
        generator, seed: what drew it.
        kind, reason, time_ms: its verdict, as `Decision` has it.
        cascades, ran, left_aside: its executions, as `Executions` has them.
        findings: (data, way, kind, what was said) of each.
    """

    generator: str
    seed: int
    kind: str
    reason: str
    time_ms: float
    cascades: int
    ran: int
    left_aside: dict[str, int]
    findings: tuple[tuple[Data, str, str, str], ...]

    @classmethod
    def of(cls, decision: Decision, executions: Executions) -> Record:
        """The record of a decision and of the executions that followed."""
        case = decision.case
        findings = tuple((one.data, one.way, one.kind, one.said) for one in executions.findings)
        return cls(case.generator, case.seed, decision.kind, decision.reason, decision.time_ms, executions.cascades,
                   executions.ran, executions.left_aside, findings)  # fmt: skip

    @property
    def case(self) -> Case:
        """What it is about, drawn again."""
        return GENERATORS[self.generator](self.seed)

    def add_to(self, verdicts: Tally, executions: Executions) -> None:
        """Count it; its case is drawn again only where it serves as an example."""
        if verdicts.counts_alone(self.kind, self.reason):
            verdicts.count(self.kind, self.reason, self.time_ms)
        else:
            verdicts.add(Decision(self.case, self.kind, self.reason, self.time_ms))
        executions.cascades += self.cascades
        executions.ran += self.ran
        for why, number in self.left_aside.items():
            executions.left_aside[why] = executions.left_aside.get(why, 0) + number
        if self.findings:
            outputs = self.case.outputs
            executions.findings += [Finding(outputs, *one) for one in self.findings]


def cases(seed: int, names: list[str]) -> Iterator[Case]:
    """The cases of every seed from `seed` on, of each generator; seeds that draw no expression are passed over."""
    for number in count(seed):
        for name in names:
            try:
                yield GENERATORS[name](number)
            except ExpressionError:
                continue


def records(first: int, number: int, names: list[str], data: int) -> list[Record]:
    """What became of the cases of some seeds, each run on so many sets of data."""
    warnings.simplefilter("ignore")
    made = []
    for case in takewhile(lambda one: one.seed < first + number, cases(first, names)):
        decision, executions = decide(case), Executions()
        if decision.kind == "Exact" and data:
            execute(case.outputs, decision.verdict.fused, data_of(case.seed, data), executions)
        made.append(Record.of(decision, executions))
    return made
