"""Time that a search takes (MCFuser, Table IV), of the searches among the training data.

Of a row: the wall time of it all, compiling included; how many candidates ran; the time of the plan that the rules
give, and of the fastest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from benchmarks.ablations.ablation import Derived, Document
from benchmarks.markdown import Table
from benchmarks.training import TUNED, family_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUBLISHED_S = {"GEMM chains": 35, "self attention": 39}
"""MCFuser on an A100 (SC '24, Table IV)."""


@final
class Tuning(Derived):
    """See the module."""

    name, title = "tuning", "Time of a search (MCFuser, Table IV)"

    def of(self, documents: list[Document]) -> Document:
        searches = [content for content in documents if content["taken"] == TUNED]
        rows = [{"family": family_of(content), **told(line)} for content in searches for line in content["rows"]]
        return {"measured on": [content["environment"] for content in searches], "rows": rows}

    def picture(self, content: Document) -> Figure:
        from benchmarks.plots.figure import SERIES, canvas, legend

        rows = content["rows"]
        figure, axes = canvas("Search, compiling included", "", "seconds", min(16.0, 2 + 0.3 * len(rows)), 3.6)
        axes.bar(range(len(rows)), [line["wall_s"] for line in rows], color=SERIES[0])
        for place, (name, seconds) in enumerate(PUBLISHED_S.items(), 1):
            axes.axhline(seconds, color=SERIES[place], linewidth=0.9, label=f"MCFuser, {name}")
        axes.set_xticks(range(len(rows)), [line["name"] for line in rows], rotation=90)
        legend(axes)
        return figure

    def table(self, content: Document) -> Table:
        return Table(("row", "search, s", "measured", "rules' plan, µs", "found, µs"), [
            (f"{line['family']} {line['name']}", f"{line['wall_s']:.1f}", str(line["measured"]),
             time(line["rules_us"]), time(line["best_us"])) for line in content["rows"]
        ])  # fmt: skip


def told(line: dict[str, Any]) -> dict[str, Any]:
    """A row's search in figures; None where nothing ran."""
    ran = [one for one in line["trials"] if not one["failure"]]
    ruled = [one["measured_us"] for one in ran if line["rules"].items() <= one.items()]
    return {"name": line["name"], "wall_s": line["wall_s"], "measured": len(ran),
            "rules_us": ruled[0] if ruled else None,
            "best_us": min((one["measured_us"] for one in ran), default=None)}  # fmt: skip


def time(time_us: float | None) -> str:
    return "-" if time_us is None else f"{time_us:.1f}"
