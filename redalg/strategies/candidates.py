"""The plans of a space with their predicted times, best first; and which of them are beside each other.

    candidate    plan, predicted time, the term that bounds it, its tiling expression as MCFuser (SC '24) writes it
    neighbours   candidates that differ in one choice, a tile length, stages, threads … (Algorithm 1, `mutate`)

What follows from the other choices (`block_merged`) is no choice of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import final, overload

from redalg.strategies.cost import Prediction
from redalg.strategies.plan import CHOICES, Plan
from redalg.strategies.space import Space
from redalg.strategies.table import Table
from redalg.strategies.traffic import Traffic

VARIED = tuple(name for name in CHOICES if name != "block_merged")
LINES = 12
"""Rows that `str` prints."""


@final
@dataclass(frozen=True)
class Candidate:
    """A plan and what the model says of it.

    Attributes:
        plan: pass it on as `plan=` of a call.
        predicted_us: predicted time in microseconds.
        bound: the term that takes longest: `memory`, `L2`, `tensor cores`, `special functions`, `latency` …
        expression: its tiling expression, `bhqek(d)`: blocks, rows and columns, the streamed loop, then inner ones.
        smem_bytes: shared memory of a block, estimated; those that exceed the device's are listed last.
    """

    plan: Plan
    predicted_us: float
    bound: str
    expression: str
    smem_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.predicted_us:.2f} µs, bound by {self.bound}: {self.expression}: {self.plan}"


@final
@dataclass(frozen=True, repr=False)
class Candidates(Sequence[Candidate]):
    """Candidates, best first by predicted time; printed as a table of the first ones."""

    found: tuple[Candidate, ...]
    title: str = ""

    @overload
    def __getitem__(self, place: int) -> Candidate: ...
    @overload
    def __getitem__(self, place: slice) -> Candidates: ...
    def __getitem__(self, place: int | slice) -> Candidate | Candidates:
        return Candidates(self.found[place], self.title) if isinstance(place, slice) else self.found[place]

    def __len__(self) -> int:
        return len(self.found)

    def table(self, most: int | None = LINES) -> Table:
        """The first `most` of them, None for all."""
        shown = self.found if most is None else self.found[:most]
        rows = tuple((str(place), f"{one.predicted_us:.2f}", one.bound, one.expression, str(one.plan))
                     for place, one in enumerate(shown))  # fmt: skip
        note = f"the first {len(shown)} of {len(self)} candidates" if len(shown) < len(self) else ""
        return Table(self.title, ("", "predicted µs", "bound", "expression", "plan"), rows, note)

    def __str__(self) -> str:
        return str(self.table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def ranked(space: Space, others: Iterable[Candidate] = ()) -> Candidates:
    """Every plan of a space, and others that are no kernels, best first by predicted time."""
    found = [*(candidate(space, plan, said) for said, plan in space.ranked()), *others]
    found.sort(key=lambda one: (one.smem_bytes > space.device.smem_bytes, one.predicted_us))
    return Candidates(tuple(found), f"plans for {space.device.part}, predicted")


def candidate(space: Space, plan: Plan, said: Prediction) -> Candidate:
    """A plan with what the model says of it."""
    return Candidate(plan, said.time_us, said.bound, str(Traffic(space.outline, plan).nest), said.smem_bytes)


@final
@dataclass(frozen=True)
class Neighbourhood:
    """Plans by all of their choices but one: those under one key are neighbours."""

    groups: dict[Hashable, list[Plan]] = field(default_factory=lambda: defaultdict(list))

    @staticmethod
    def of(plans: Iterable[Plan]) -> Neighbourhood:
        """The neighbourhood of a space's plans."""
        made = Neighbourhood()
        for plan in plans:
            for key in keys(plan):
                made.groups[key].append(plan)
        return made

    def beside(self, plan: Plan) -> list[Plan]:
        """The plans that differ from one in one choice, in the space's order."""
        return [one for key in keys(plan) for one in self.groups.get(key, ()) if one != plan]


def keys(plan: Plan) -> Iterator[Hashable]:
    """All choices but one, for each that may be left out."""
    chosen = tuple(getattr(plan, name) for name in VARIED)
    return ((place, chosen[:place], chosen[place + 1 :]) for place in range(len(VARIED)))
