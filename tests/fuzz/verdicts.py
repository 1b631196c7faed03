"""Verdicts of random cascades: how many of each kind, why, how long they take, and which end in a raw error."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from time import thread_time
from typing import Any, final

import redalg as ra
from redalg.errors import RedalgError
from tests.fuzz.case import Case
from tests.fuzz.spell import line

UNREADABLE = "ExpressionError"
RAW = "raw error"


@final
@dataclass(frozen=True)
class Decision:
    """The verdict on a case.

    Attributes:
        kind: `Exact`, `Approximate`, `Refused by a theorem`, `Refused by samples`, `Undecided`, `ExpressionError`, or
            `raw error`.
        reason: why, where it is no yes.
        time_ms: how much processor time it took.
        verdict: as `analyze` gives it (None where it raises).
    """

    case: Case
    kind: str
    reason: str
    time_ms: float
    verdict: Any = field(repr=False, default=None)


def decide(case: Case) -> Decision:
    """The verdict on a case, and the form of a yes."""
    begin = thread_time()
    verdict: Any = None
    error: Exception | None = None
    try:
        verdict = ra.analyze(dict(case.outputs))
    except Exception as raised:  # noqa: BLE001 - a raw error is a finding
        error = raised
    taken = 1e3 * (thread_time() - begin)
    if error is None and hasattr(verdict, "fused"):
        try:
            verdict.fused.form  # noqa: B018 - derived here
        except Exception as raised:  # noqa: BLE001 - a raw error is a finding
            error = raised
    if error is not None:
        said = isinstance(error, RedalgError)
        return Decision(case, UNREADABLE if said else RAW, f"{type(error).__name__}: {error}", taken)
    kind = type(verdict).__name__
    if kind == "Refused":
        kind += " by a theorem" if getattr(verdict, "certificate", False) else " by samples"
    return Decision(case, kind, getattr(verdict, "reason", ""), taken, verdict)


def pattern(reason: str) -> str:
    """A reason without the expressions and numbers of its case, so that alike ones are counted together."""
    return re.sub(r"\d+", "#", re.sub(r"`[^`]*`", "`…`", reason))[:160]


@final
@dataclass
class Tally:
    """What the verdicts of many cases were."""

    kinds: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)
    examples: dict[tuple[str, str], Decision] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    raw: list[Decision] = field(default_factory=list)

    def counts_alone(self, kind: str, reason: str) -> bool:
        """Tells whether a verdict of this kind and reason has its example, and is no raw error."""
        return kind != RAW and (not reason or (kind, pattern(reason)) in self.examples)

    def count(self, kind: str, reason: str, time_ms: float) -> None:
        """Count a verdict."""
        self.kinds[kind] += 1
        self.times.setdefault(kind, []).append(time_ms)
        if reason:
            self.reasons.setdefault(kind, Counter())[pattern(reason)] += 1

    def add(self, one: Decision) -> None:
        """Count a verdict, and keep it as the example of its reason where it is the shortest."""
        self.count(one.kind, one.reason, one.time_ms)
        if one.reason:
            said = pattern(one.reason)
            known = self.examples.get((one.kind, said))
            if known is None or size(one.case) < size(known.case):
                self.examples[one.kind, said] = one
        if one.kind == RAW:
            self.raw.append(one)

    @property
    def read(self) -> int:
        """How many cases were read as cascades."""
        return self.kinds.total() - self.kinds[UNREADABLE]

    def document(self) -> dict[str, Any]:
        """The figures, as JSON."""
        share = self.kinds["Undecided"] / max(self.read, 1)
        times = {kind: {"median_ms": round(median(one), 2), "worst_ms": round(max(one), 1)}
                 for kind, one in sorted(self.times.items())}  # fmt: skip
        return {"cases": self.kinds.total(), "verdicts": dict(self.kinds.most_common()),
                "undecided_share": round(share, 4), "times": times, "raw_errors": len(self.raw)}  # fmt: skip

    def text(self, most: int = 12) -> Iterator[str]:
        """The figures as lines, with the commonest reasons and the shortest example of each."""
        made = self.document()
        yield f"{made['cases']} verdicts; Undecided {100 * made['undecided_share']:.1f} % of {self.read} cascades"
        for kind, number in made["verdicts"].items():
            time = made["times"][kind]
            yield f"  {number:7} {kind:22} median {time['median_ms']:7.2f} ms, worst {time['worst_ms']:7.1f} ms"
        for kind in ("Undecided", UNREADABLE, "Refused by samples", RAW):
            for said, number in self.reasons.get(kind, Counter()).most_common(most):
                example = self.examples[kind, said]
                yield f"{number:5} {kind}: {said}"
                yield f"      {example.case.name}: {line(example.case.outputs)}"


def size(case: Case) -> int:
    """The length of a case's text."""
    return sum(len(str(expr)) for expr, _ in case.outputs.values())
