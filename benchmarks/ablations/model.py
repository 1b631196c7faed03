"""Predicted against measured times (MCFuser, Fig. 11), of the plans that benchmarks.sweep drew and measured.

MCFuser's own model (`redalg.strategies.cost.mcfuser`) stands beside redalg's. The first row's choice is what a search
that measures nothing takes; the best of the first eight is what Algorithm 1 measures first.
"""

import argparse
from typing import Any, final

from matplotlib.figure import Figure

from benchmarks import report
from benchmarks.ablations.ablation import Ablation, Document
from benchmarks.agreement import GOOD, Agreement, Pairs, agreement
from benchmarks.drawn import PREFIX, Drawn, drawn
from benchmarks.markdown import Table
from benchmarks.plots.scatter import scatter
from redalg.strategies.cost import mcfuser


def line(one: Drawn) -> dict[str, Any]:
    """A draw's times, in microseconds."""
    made = one.predicted()
    by_mcfuser = mcfuser(one.space.outline, one.plan).time_us
    return {"row": one.row, "plan": str(one.plan), "measured_us": one.time_us, "predicted_us": made.time_us,
            "bound": made.bound, "mcfuser_us": by_mcfuser}  # fmt: skip


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
        files = sorted(options.results.glob(f"{PREFIX}*.json"))
        families, measured_on = {}, []
        for content in map(report.load, files):
            families[content["benchmark"].removeprefix(PREFIX)] = [line(one) for one in drawn(content)]
            measured_on.append(content["environment"])
        return {"measured on": measured_on, "families": families}

    def picture(self, content: Document) -> Figure:
        pairs = {f"{name} {agreement(pairs_of(plans)).correlation:.2f}": flat(pairs_of(plans))
                 for name, plans in content["families"].items()}  # fmt: skip
        devices = ", ".join(sorted({str(one["device"]) for one in content["measured on"]}))
        return scatter(pairs, f"Times of drawn plans on {devices}, with correlations", "measured, µs", "predicted, µs")

    def table(self, content: Document) -> Table:
        header = ("family", "plans", "correlation", "of logs", "MCFuser's model", "factor off", f"first ≤ {GOOD}",
                  "worst first", "worst of top 8")  # fmt: skip
        return Table(header, [cells(name, plans) for name, plans in content["families"].items()])

    def said(self, content: Document) -> str:
        found = [agreement(pairs_of(plans)) for plans in content["families"].values()]
        first = [value for one in found for value in one.first.values()]
        good, each = sum(value <= GOOD for value in first), sum(one.count for one in found) / max(1, len(first))
        return (f"Pearson correlations over a family's rows together. The plan that is predicted fastest is within "
                f"{GOOD - 1:.0%} of the fastest drawn on {good} of {len(first)} rows, of {each:.0f} plans a "
                "row.")  # fmt: skip


def flat(pairs: Pairs) -> list[tuple[float, float]]:
    return [one for row in pairs.values() for one in row]


def cells(name: str, plans: list[dict[str, Any]]) -> tuple[str, ...]:
    """A family's cells."""
    own: Agreement = agreement(pairs_of(plans))
    plain = agreement(pairs_of(plans, "mcfuser_us")) if all(one["mcfuser_us"] > 0 for one in plans) else None
    good = sum(value <= GOOD for value in own.first.values())
    return (name, str(own.count), f"{own.correlation:.3f}", f"{own.correlation_of_logs:.3f}",
            f"{plain.correlation:.3f}" if plain else "-", f"{own.typical:.2f}", f"{good} of {len(own.first)}",
            f"{max(own.first.values()):.2f}", f"{max(own.top.values()):.2f}")  # fmt: skip
