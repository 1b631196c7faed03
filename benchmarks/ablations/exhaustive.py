"""Choosing and tuning beside every plan that is listed (MCFuser's search in 35 seconds, Table IV).

Of a row: each plan of its space is compiled, checked and timed as a sweep's are; so is the one that a search of 35
seconds finds with nothing known before. The plan that is taken without measuring is one of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, final

from benchmarks.ablations.ablation import Document, Measured
from benchmarks.ablations.chosen import beside_fastest, measure_draws
from benchmarks.environment import device, target
from benchmarks.families import FAMILIES
from benchmarks.family import Family, Row
from benchmarks.markdown import Table
from benchmarks.spaces import space_of
from benchmarks.stale import as_shipped
from benchmarks.sweep import Draws, Wish, draw
from benchmarks.tune import tune
from redalg.strategies.schedule import Schedule
from redalg.strategies.search.choice import preferred_schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS: Mapping[str, tuple[str, ...]] = {
    "semirings": ("log_product-512x1024x1024", "distances-2048x2048x256"),
    "rows": ("layer_norm-4096x16384", "logsumexp-8192x8192"),
    "covariances": ("covariance-1000000x64",),
    "workloads": ("heat capacity",),
}
"""Rows whose spaces have some dozens of plans: all of them run in minutes."""
SMALL = {"rows": ("softmax-16x2048",)}
BUDGETS_S = {"cuda": 35.0, "cpu": 20.0}
COMPILE_S = 420.0
EVERY = 1 << 20


def rows() -> list[tuple[Family, Row]]:
    """The rows of this device."""
    wanted = SMALL if target() == "c" else ROWS
    return [(FAMILIES[name], row) for name, names in wanted.items() for row in FAMILIES[name].rows(device())
            if row.name in names]  # fmt: skip


def searched(family: Family, row: Row) -> dict[str, Any]:
    """The plan that a search finds, None if none ran in its time; and the time that it took."""
    with as_shipped():
        result = tune(family, row, BUDGETS_S[device().type], 0)
    times = {one.candidate: one.measured_us for one in result.trials if one.measured_us is not None}
    plan = min(times, key=lambda candidate: times[candidate], default=None)
    return {"plan": plan, "wall_s": result.wall_s, "trials": len(result.trials)}


def every_plan(family: Family, row: Row) -> Draws:
    """Every plan of a row's space that can be built, blocks that stay among them."""
    found = draw(family, row, target(), Wish(EVERY))
    staying = draw(family, row, target(), Wish(EVERY, persistent=True))
    found.listed += staying.listed - 1
    found.lowered += staying.lowered[1:]
    return found


def line_of(family: Family, found: Draws, search: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the document."""
    times = {line["plan"]: line["median_us"] for line in found.lines if "median_us" in line}
    chosen, tuned = str(preferred_schedule(space_of(family, found.row, target()))), str(search["plan"])
    return beside_fastest(family, found, chosen) | {
        "tuned": tuned,
        "tuned_us": times.get(tuned),
        "wall_s": search["wall_s"],
        "trials": search["trials"],
    }


@final
class Exhaustive(Measured):
    """See the module."""

    name, title = "exhaustive", "Choosing and tuning beside every listed plan"

    def run(self, _: argparse.Namespace) -> Document:
        wanted = rows()
        searches = [searched(family, row) for family, row in wanted]
        drawn = [every_plan(family, row) for family, row in wanted]
        for draws, search in zip(drawn, searches, strict=True):
            draws.plain = None if isinstance(search["plan"], Schedule) else search["plan"]
        families = [family for family, _ in wanted]
        measure_draws([*zip(families, drawn, strict=True)], COMPILE_S)
        return {"rows": [*map(line_of, families, drawn, searches)]}

    def said(self, content: Document) -> str:
        lines = content["rows"]
        return (f"Of {len(lines)} rows, the plan that is taken without measuring is within 10 % of the fastest on "
                f"{within(lines, 'chosen', 1.1)}, the one that a search finds within 5 % on "
                f"{within(lines, 'tuned', 1.05)}.")  # fmt: skip

    def picture(self, content: Document) -> Figure:
        from benchmarks.plots.figure import SERIES, canvas, legend

        names = [line["name"] for line in content["rows"]]
        figure, axes = canvas("Beside the fastest of all plans", "", "time / fastest", 2 + 1.2 * len(names), 3.6)
        for place, kind in enumerate(("chosen", "tuned")):
            values = [ratio(line, kind) or 0.0 for line in content["rows"]]
            axes.bar([at + 0.4 * place - 0.2 for at in range(len(names))], values, 0.4, label=kind, color=SERIES[place])
        axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
        legend(axes)
        return figure

    def table(self, content: Document) -> Table:
        head = ("row", "plans", "fastest, µs", "chosen / fastest", "tuned / fastest", "search, s")
        return Table(head, [
            (f"{line['family']} {line['name']}", f"{line['measured']} of {line['listed']}", f"{line['best_us']:.1f}",
             shown(ratio(line, "chosen")), shown(ratio(line, "tuned")), f"{line['wall_s']:.0f}")
            for line in content["rows"]
        ])  # fmt: skip


def ratio(line: Mapping[str, Any], kind: str) -> float | None:
    """The time of the chosen or the tuned plan over the fastest; None if it was not measured."""
    found = line[f"{kind}_us"]
    return None if found is None else float(found / line["best_us"])


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def within(lines: Iterable[Mapping[str, Any]], kind: str, most: float) -> int:
    """The number of rows whose plan is within a factor of the fastest."""
    return sum((found := ratio(line, kind)) is not None and found <= most for line in lines)
