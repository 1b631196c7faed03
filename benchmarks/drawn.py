"""Draws of a document as plans again, with the time that each took and the one that is predicted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.environment import chip_of, device
from benchmarks.families import FAMILIES
from benchmarks.spaces import plan_of, space_of
from benchmarks.training import SWEEP
from redalg.strategies.model.cost import H200, Constants, Prediction, predict
from redalg.strategies.schedule import UNFUSED, Schedule, numbers_of
from redalg.strategies.search.space import Space

Document = dict[str, Any]


@dataclass(frozen=True)
class Drawn:
    """A plan that was drawn and ran: its row, the space that it is from, its median time."""

    family: str
    row: str
    space: Space
    plan: Schedule
    time_us: float

    def predicted(self, constants: Constants = H200) -> Prediction:
        """Predict it by some constants."""
        return predict(self.space.outline, numbers_of(self.plan), constants)


def is_sweep(content: Document) -> bool:
    return str(content["benchmark"]).startswith(SWEEP)


def drawn(content: Document) -> Iterator[Drawn]:
    """Every draw of a kernel that has a time, of those that the space still holds."""
    name, chip = content["benchmark"].removeprefix(SWEEP), content["environment"]["target"]
    family = FAMILIES[name]
    card = chip_of(content["environment"]["device"], chip)
    rows = {row.name: row for row in family.rows(device(chip))}
    for line in content["rows"]:
        if line["name"] not in rows:
            continue
        space = space_of(family, rows[line["name"]], card)
        first = next(space.plans())
        for choices in line["plans"]:
            if "median_us" in choices and choices.get("form") != UNFUSED:
                plan = plan_of(choices, first)
                if plan == first or space.admits(plan):
                    yield Drawn(name, line["name"], space, plan, choices["median_us"])


def by_row(draws: Iterable[Drawn], constants: Constants = H200) -> dict[str, list[tuple[float, float]]]:
    """(measured, predicted) in microseconds, by row."""
    found: dict[str, list[tuple[float, float]]] = {}
    for draw in draws:
        found.setdefault(draw.row, []).append((draw.time_us, draw.predicted(constants).time_us))
    return found
