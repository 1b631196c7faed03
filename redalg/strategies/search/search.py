"""Search for the fastest candidate with few measurements: MCFuser's Algorithm 1 (SC '24, section IV-B).

    population ← N candidates drawn from the space, beside those that are given to start with
    repeat
        estimate every one; measure the n best not measured yet
        stop when the best has stopped improving by ε, when the time is over, or when nothing is left
        population ← N parents drawn with weights 1 / estimate, one choice of each changed, beside the best N so far
                     (several times: Ansor evolves by estimates between measurements)

Generic over candidates: the caller gives the functions that estimate, measure and list neighbours. The same
measurements and the same seed give the same result. A candidate that fails, or is wrong, is reported with its reason:
it is never chosen and has no descendants. The starts are measured first, so the result is never slower than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Generic, TypeVar, final

from redalg.strategies.table import Table

C = TypeVar("C")
"""A candidate: anything that can be hashed and printed."""
COLUMNS = ("round", "predicted µs", "measured µs", "of best", "candidate, or why it failed")
LINES = 16
"""Rows of a result that `str` prints."""


@final
@dataclass(frozen=True)
class Outcome:
    """The result of measuring a candidate: a time in microseconds, or the reason why there is none."""

    measured_us: float | None = None
    failure: str = ""


@final
@dataclass(frozen=True)
class Trial(Generic[C]):
    """A candidate that was measured, or tried to be.

    Attributes:
        candidate: the candidate.
        predicted_us, measured_us: its times in microseconds; `measured_us` is None if it failed.
        failure: the reason, in words; empty if it was measured.
        turn: the round of the search, from 1.
    """

    candidate: C
    predicted_us: float
    measured_us: float | None
    failure: str
    turn: int


@final
@dataclass(frozen=True)
class Limits:
    """The parameters of Algorithm 1.

    Attributes:
        population: candidates of a generation (N).
        batch: candidates measured in a round (n).
        least: relative improvement of a round that counts (ε).
        patience: rounds without one after which the search stops.
        generations: the number of times that a population is changed between rounds, by estimates alone.
    """

    population: int = 256
    batch: int = 8
    least: float = 0.01
    patience: int = 2
    generations: int = 3


@final
@dataclass(frozen=True)
class Found(Generic[C]):
    """The result of a search: every trial, in the order in which they were made, and the reason why it stopped.

    Attributes:
        trials: the candidates that were measured or failed.
        listed: candidates of the space.
        stopped: `converged`, `budget` or `exhausted`.
    """

    trials: tuple[Trial[C], ...]
    listed: int
    stopped: str

    @property
    def best(self) -> Trial[C] | None:
        """The fastest trial, the earliest of equals; None if none was measured."""
        return min((one for one in self.trials if one.measured_us is not None), key=time_of, default=None)

    @property
    def failures(self) -> tuple[Trial[C], ...]:
        """The trials that have no time."""
        return tuple(one for one in self.trials if one.measured_us is None)

    def table(self, title: str = "", most: int | None = LINES) -> Table:
        """The table of the `most` fastest trials, the fastest first (MCFuser, Table IV and Fig. 11, in one)."""
        best, turns = self.best, max((one.turn for one in self.trials), default=0)
        trials = sorted(self.trials, key=time_of)
        best_trials = trials if most is None else trials[:most]
        rows = tuple(cells(one, best) for one in best_trials)
        rest = f"; {len(trials) - len(best_trials)} more" if len(best_trials) < len(trials) else ""
        note = (f"{len(self.trials)} of {self.listed} candidates in {turns} rounds, {len(self.failures)} failed; "
                f"stopped: {self.stopped}{rest}")  # fmt: skip
        return Table(title, COLUMNS, rows, note)

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def time_of(trial: Trial[C]) -> float:
    """The measured time; ∞ if there is none."""
    return inf if trial.measured_us is None else trial.measured_us


def cells(trial: Trial[C], best: Trial[C] | None) -> tuple[str, ...]:
    """A row of the table."""
    head = (str(trial.turn), f"{trial.predicted_us:.2f}")
    if trial.measured_us is None or best is None or best.measured_us is None:
        return (*head, "-", "-", f"{trial.candidate}: {trial.failure}")
    return (*head, f"{trial.measured_us:.2f}", f"{trial.measured_us / best.measured_us:.2f}", str(trial.candidate))


def search(
    space: Sequence[C],
    estimate: Callable[[C], float],
    measure: Callable[[Sequence[C]], Sequence[Outcome]],
    neighbours: Callable[[C], Sequence[C]],
    *,
    starts: Sequence[C] = (),
    seed: int = 0,
    over: Callable[[], bool] = lambda: False,
    limits: Limits = Limits(),
) -> Found[C]:
    """Search by Algorithm 1.

    Args:
        space: every candidate, in a fixed order.
        estimate: predicted time in microseconds; ∞ for a candidate that is known to fail, which is not measured.
        measure: outcomes of a batch, in its order.
        neighbours: the candidates that differ from a candidate in one choice.
        starts: measured first, whatever their estimates.
        seed: the seed of the draws.
        over: tells if the time is over; asked between rounds.
        limits: N, n, ε and the patience.

    Returns:
        Every trial, and the reason why the search stopped.

    >>> found = search(range(100), lambda x: abs(x - 40) + 9, lambda xs: [Outcome(abs(x - 42) + 9.0) for x in xs],
    ...                lambda x: [x - 1, x + 1])
    >>> found.best.candidate, found.stopped
    (42, 'converged')
    """
    state = State(space, estimate, neighbours, Random(seed), limits)
    population, best, stale = state.first(starts), inf, 0
    while True:
        batch = state.batch(population, starts if not state.tried else ())
        if not batch:
            return state.result("exhausted")
        fastest = state.record(batch, measure(batch))
        stale = 0 if fastest < best * (1 - limits.least) else stale + 1
        best = min(best, fastest)
        if stale >= limits.patience and best < inf:
            return state.result("converged")
        if over():
            return state.result("budget")
        for _ in range(limits.generations):
            population = state.next(population)


@final
@dataclass(frozen=True)
class State(Generic[C]):
    """The knowledge of a search: estimates are made once, trials are kept in order."""

    space: Sequence[C]
    estimate: Callable[[C], float]
    neighbours: Callable[[C], Sequence[C]]
    random: Random
    limits: Limits
    estimates: dict[C, float] = field(default_factory=dict)
    tried: dict[C, Trial[C]] = field(default_factory=dict)

    def estimate_of(self, candidate: C) -> float:
        """The estimate of a candidate."""
        if candidate not in self.estimates:
            self.estimates[candidate] = self.estimate(candidate)
        return self.estimates[candidate]

    def draw(self, count: int) -> list[C]:
        """Draw candidates from the space, all different."""
        return self.random.sample(self.space, min(count, len(self.space)))

    def first(self, starts: Sequence[C]) -> list[C]:
        """The first generation: the starts, and candidates drawn from the space."""
        return list(dict.fromkeys([*starts, *self.draw(self.limits.population)]))

    def batch(self, population: Sequence[C], starts: Sequence[C]) -> list[C]:
        """The starts, then the n best of a generation that were not tried yet; of the whole space if it has none."""
        fresh = self.fresh(population) or self.fresh(self.space)
        order = [*dict.fromkeys([*starts, *sorted(fresh, key=self.estimate_of)])]
        return order[: max(self.limits.batch, len(starts))]

    def fresh(self, among: Sequence[C]) -> list[C]:
        """The candidates that were not tried, and may work."""
        return [one for one in among if one not in self.tried and self.estimate_of(one) < inf]

    def record(self, batch: Sequence[C], outcomes: Sequence[Outcome]) -> float:
        """Keep the outcomes; return the time of the fastest."""
        turn = 1 + max((one.turn for one in self.tried.values()), default=0)
        trials = [Trial(candidate, self.estimate_of(candidate), outcome.measured_us, outcome.failure, turn)
                  for candidate, outcome in zip(batch, outcomes, strict=True)]  # fmt: skip
        self.tried.update({one.candidate: one for one in trials})
        return min(map(time_of, trials))

    def next(self, population: Sequence[C]) -> list[C]:
        """The next generation: N parents, each with one choice changed, and the best N of those before them."""
        candidates = dict.fromkeys([*population, *self.tried])
        survivors = sorted((one for one in candidates if self.works(one)), key=self.estimate_of)[
            : self.limits.population
        ]
        if not survivors:
            return self.draw(self.limits.population)
        weights = [1e-9 + 1 / max(self.estimate_of(one), 1e-9) for one in survivors]
        parents = self.random.choices(survivors, weights, k=self.limits.population)
        return list(dict.fromkeys([*self.mutate(parents), *survivors]))

    def works(self, candidate: C) -> bool:
        """Tell if a candidate is not known to fail."""
        return candidate not in self.tried or self.tried[candidate].measured_us is not None

    def mutate(self, parents: Sequence[C]) -> Iterator[C]:
        """Yield each parent with one choice changed; the parent itself if it has no neighbour."""
        for parent in parents:
            beside = self.neighbours(parent)
            yield self.random.choice(beside) if beside else parent

    def result(self, reason: str) -> Found[C]:
        """The result of the search, and the reason why it stopped."""
        return Found(tuple(self.tried.values()), len(self.space), reason)
