"""Predicted against measured times (MCFuser, Fig. 11), of the plans that benchmarks.sweep took and measured.

Correlations are those of plans drawn uniformly (`sweep-*.json`); MCFuser's own model
(`redalg.strategies.model.cost.mcfuser`) stands beside redalg's. What a choice costs is judged over these and those that
a model took for the best (`best-*.json`): the first is what a search that measures nothing takes, of the first eight
the best is what Algorithm 1 has after one round.
"""

import argparse
from typing import Any, final

from matplotlib.figure import Figure

from benchmarks import report
from benchmarks.ablations.ablation import Ablation, Document
from benchmarks.agreement import GOOD, NEAR, TOP, Pairs, agreement
from benchmarks.drawn import PREFIX, Drawn, drawn
from benchmarks.markdown import Table
from benchmarks.plots.scatter import scatter
from redalg.strategies.model.cost import mcfuser

BEST = "best-"
"""What files of plans that a model took for the best begin with."""


def line(one: Drawn, how: str) -> dict[str, Any]:
    """A plan's times, in microseconds, and how it was taken."""
    made = one.predicted()
    by_mcfuser = mcfuser(one.space.outline, one.plan).time_us
    return {"row": one.row, "plan": str(one.plan), "measured_us": one.time_us, "predicted_us": made.time_us,
            "bound": made.bound, "mcfuser_us": by_mcfuser, "taken": how}  # fmt: skip


def uniform(plans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that were drawn uniformly; all, where none were."""
    return [one for one in plans if one["taken"] == "uniform"] or plans


def pairs_of(plans: list[dict[str, Any]], by: str = "predicted_us") -> Pairs:
    """(measured, predicted) by row."""
    found: dict[str, list[tuple[float, float]]] = {}
    for one in plans:
        found.setdefault(one["row"], []).append((one["measured_us"], one[by]))
    return found


@final
class Model(Ablation):
    """See the module."""

    name, title = "model", "Predicted against measured times (MCFuser, Fig. 11)"

    def run(self, options: argparse.Namespace) -> Document:
        families: dict[str, list[dict[str, Any]]] = {}
        measured_on = []
        for start, how in ((PREFIX, "uniform"), (BEST, "best")):
            for content in map(report.load, sorted(options.results.glob(f"{start}*.json"))):
                known = families.setdefault(content["benchmark"].removeprefix(PREFIX), [])
                known += [line(one, how) for one in drawn(content)]
                measured_on.append(content["environment"])
        return {"measured on": measured_on, "families": {name: plans for name, plans in families.items() if plans}}

    def picture(self, content: Document) -> Figure:
        drawn_of = {name: pairs_of(uniform(plans)) for name, plans in content["families"].items()}
        pairs = {f"{name} {agreement(one).correlation:.2f}": flat(one) for name, one in drawn_of.items()}
        devices = ", ".join(sorted({str(one["device"]) for one in content["measured on"]}))
        return scatter(pairs, f"Times of drawn plans on {devices}, with correlations", "measured, µs", "predicted, µs")

    def table(self, content: Document) -> Table:
        header = ("family", "drawn, all", "correlation", "of logs", "MCFuser's model", "factor off", f"first ≤ {GOOD}",
                  "worst first", "worst of top 8")  # fmt: skip
        return Table(header, [cells(name, plans) for name, plans in content["families"].items()])

    def said(self, content: Document) -> str:
        found = [agreement(pairs_of(plans)) for plans in content["families"].values()]
        first = [value for one in found for value in one.first.values()]
        top = [value for one in found for value in one.top.values()]
        good, each = sum(value <= GOOD for value in first), sum(one.count for one in found) / max(1, len(first))
        near = sum(value <= NEAR for value in top)
        return (
            "Pearson correlations over a family's rows together, of plans that were drawn uniformly. Of "
            f"{each:.0f} plans a row, the one that is predicted fastest is within {GOOD - 1:.0%} of the fastest on "
            f"{good} of {len(first)} rows, and the best of the first {TOP} within {NEAR - 1:.0%} on {near}."
        )


def flat(pairs: Pairs) -> list[tuple[float, float]]:
    return [one for row in pairs.values() for one in row]


def cells(name: str, plans: list[dict[str, Any]]) -> tuple[str, ...]:
    """A family's cells."""
    own, chosen = agreement(pairs_of(plans)), uniform(plans)
    of_drawn = agreement(pairs_of(chosen))
    plain = agreement(pairs_of(chosen, "mcfuser_us")) if all(one["mcfuser_us"] > 0 for one in chosen) else None
    good = sum(value <= GOOD for value in own.first.values())
    return (name, f"{of_drawn.count}, {own.count}", f"{of_drawn.correlation:.3f}",
            f"{of_drawn.correlation_of_logs:.3f}", f"{plain.correlation:.3f}" if plain else "-",
            f"{of_drawn.typical:.2f}", f"{good} of {len(own.first)}",
            f"{max(own.first.values()):.2f}", f"{max(own.top.values()):.2f}")  # fmt: skip
