"""The best plan of each kind: those predicted fastest of a kind are compiled, checked and measured as a sweep's are."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from benchmarks.environment import target
from benchmarks.family import Family, Row
from benchmarks.sweep import Draws, compile_all, run
from redalg.errors import RedalgError
from redalg.pipeline import write_source
from redalg.runtime.lowered import Lowered
from redalg.strategies.schedule import Schedule
from redalg.strategies.search.space import Space

COMPILE_S = 240.0
Kind = Callable[[Space, Schedule], Hashable]


def predicted_us(space: Space, plan: Schedule) -> float:
    """The model's prediction; the C target has no model: plans stay in order."""
    return 0.0 if plan.device.target == "c" else space.predict(plan).time_us


def by_kind(space: Space, plans: Iterable[Schedule], kind: Kind, tries: int) -> dict[Any, list[Lowered]]:
    """The programs of the first plans of every kind that can be built, as the model orders them."""
    groups: dict[Any, list[Schedule]] = {}
    for plan in plans:
        groups.setdefault(kind(space, plan), []).append(plan)
    groups.pop(None, None)
    return {name: first_built(space, sorted(found, key=lambda plan: predicted_us(space, plan)), tries)
            for name, found in groups.items()}  # fmt: skip


def first_built(space: Space, plans: Iterable[Schedule], tries: int) -> list[Lowered]:
    """The first few that can be built."""
    found: list[Lowered] = []
    for plan in plans:
        if len(found) == tries:
            break
        try:
            found.append(write_source(space.stages, [plan], space.problem))
        except RedalgError:
            continue
    return found


def measured(family: Family, jobs: list[tuple[Row, dict[Any, list[Lowered]]]]) -> list[dict[Any, list[dict[str, Any]]]]:
    """Compile everything at once; then for every row, by kind, each plan with its time or what failed."""
    wanted = [one for _, groups in jobs for found in groups.values() for one in found]
    failures = iter(compile_all(wanted, COMPILE_S) if target() != "c" else [""] * len(wanted))
    results: list[dict[Any, list[dict[str, Any]]]] = []
    for row, groups in jobs:
        draws = Draws(row, lowered=[one for found in groups.values() for one in found])
        run(family, draws, [next(failures) for _ in draws.lowered])
        made = iter(draws.lines)
        results.append({kind: [next(made) for _ in found] for kind, found in groups.items()})
    return results


def best(lines: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The fastest of those that ran."""
    timed = [one for one in lines if "median_us" in one]
    return min(timed, key=lambda one: float(one["median_us"])) if timed else None
