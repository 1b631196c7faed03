"""Predicted against measured times (MCFuser, Fig. 11), of the plans of the training data.

Correlations are those of plans drawn uniformly; MCFuser's own model (`redalg.strategies.model.cost.mcfuser`) stands
beside redalg's. What a choice costs is judged over these and those that a model took for the best: the first is what a
search that measures nothing takes, of the first eight the best is what Algorithm 1 has after one round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from benchmarks.ablations.ablation import Derived, Document
from benchmarks.agreement import GOOD, NEAR, TOP, Pairs, agreement
from benchmarks.drawn import Drawn, drawn
from benchmarks.markdown import Table
from benchmarks.training import TUNED, UNIFORM, family_of
from redalg.strategies.model.cost import mcfuser
from redalg.strategies.schedule import numbers_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def line(draw: Drawn, taken: str) -> dict[str, Any]:
    """A plan's times, in microseconds, and how it was taken."""
    by_mcfuser = mcfuser(draw.space.outline, numbers_of(draw.plan)).time_us
    return {"row": draw.row, "measured_us": draw.time_us, "predicted_us": draw.predicted().time_us,
            "mcfuser_us": by_mcfuser, "taken": taken}  # fmt: skip


def uniform(plans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that were drawn uniformly; all, where none were."""
    return [one for one in plans if one["taken"] == UNIFORM] or plans


def pairs_of(plans: list[dict[str, Any]], by: str = "predicted_us") -> Pairs:
    """(measured, predicted) by row."""
    found: dict[str, list[tuple[float, float]]] = {}
    for plan in plans:
        found.setdefault(plan["row"], []).append((plan["measured_us"], plan[by]))
    return found


@final
class Model(Derived):
    """See the module."""

    name, title = "model", "Predicted against measured times (MCFuser, Fig. 11)"

    def of(self, documents: list[Document]) -> Document:
        families: dict[str, list[dict[str, Any]]] = {}
        contents = [content for content in documents if content["taken"] != TUNED]
        for content in contents:
            known = families.setdefault(family_of(content), [])
            known += [line(draw, content["taken"]) for draw in drawn(content)]
        return {"measured on": [content["environment"] for content in contents],
                "families": {name: plans for name, plans in families.items() if plans}}  # fmt: skip

    def picture(self, content: Document) -> Figure:
        from benchmarks.plots.scatter import cloud

        drawn_of = {name: pairs_of(uniform(plans)) for name, plans in content["families"].items()}
        pairs = {f"{name} {agreement(one).correlation:.2f}": flattened(one) for name, one in drawn_of.items()}
        devices = ", ".join(sorted({str(one["device"]) for one in content["measured on"]}))
        return cloud(pairs, f"Times of drawn plans on {devices}, with correlations", "measured, µs", "predicted, µs")

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


def flattened(pairs: Pairs) -> list[tuple[float, float]]:
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
