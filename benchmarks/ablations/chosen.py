"""The best plan of each kind: those predicted fastest of a kind are compiled, checked and measured as a sweep's are."""

from collections.abc import Callable, Hashable, Iterable, Sequence
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
    """For every row, by kind, each plan with its time or what failed."""
    drawn = [Draws(row, lowered=[one for found in groups.values() for one in found]) for row, groups in jobs]
    measure_draws([(family, draws) for draws in drawn], COMPILE_S)
    results: list[dict[Any, list[dict[str, Any]]]] = []
    for draws, (_, groups) in zip(drawn, jobs, strict=True):
        made = iter(draws.lines)
        results.append({kind: [next(made) for _ in found] for kind, found in groups.items()})
    return results


def measure_draws(wanted: Sequence[tuple[Family, Draws]], seconds: float) -> None:
    """Compile the plans of all draws at once, within some seconds; then measure each."""
    everything = [one for _, draws in wanted for one in draws.lowered]
    failures = iter(compile_all(everything, seconds) if target() != "c" else [""] * len(everything))
    for family, draws in wanted:
        run(family, draws, [next(failures) for _ in draws.lowered])


def beside_fastest(family: Family, found: Draws, chosen: str) -> dict[str, Any]:
    """A row of a document: the fastest plan that was measured, and the one that is taken."""
    times = {line["plan"]: line["median_us"] for line in found.lines if "median_us" in line}
    best = min(times, key=lambda name: times[name])
    return {"family": family.name, "name": found.row.name, "listed": found.listed, "measured": len(times),
            "best": best, "best_us": times[best], "chosen": chosen, "chosen_us": times.get(chosen)}  # fmt: skip


def best(lines: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The fastest of those that ran."""
    timed = [one for one in lines if "median_us" in one]
    return min(timed, key=lambda one: float(one["median_us"])) if timed else None
