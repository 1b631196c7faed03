"""How long a search takes (MCFuser, Table IV), from the documents of benchmarks.tune (`tune-FAMILY.json`).

Of a row of such a document: `name`, `wall_s` (all of it, compiling included), `measured` (candidates), `first_us` (the
plan chosen without measuring) and `best_us` (the plan found), in microseconds.
"""

import argparse
from typing import Any, final

from matplotlib.figure import Figure

from benchmarks import report
from benchmarks.ablations.ablation import Ablation, Document
from benchmarks.markdown import Table
from benchmarks.plots.figure import SERIES, canvas, legend

PREFIX = "tune-"
FIELDS = ("name", "wall_s", "measured", "first_us", "best_us")
PUBLISHED_S = {"GEMM chains": 35, "self attention": 39}
"""MCFuser on an A100 (SC '24, Table IV)."""


@final
class Tuning(Ablation):
    """See the module."""

    name, title = "tuning", "Time of a search (MCFuser, Table IV)"

    def run(self, options: argparse.Namespace) -> Document:
        documents = [report.load(path) for path in sorted(options.results.glob(f"{PREFIX}*.json"))]
        rows: list[dict[str, Any]] = [
            {"family": content["benchmark"].removeprefix(PREFIX), **{field: line[field] for field in FIELDS}}
            for content in documents for line in content["rows"]
        ]  # fmt: skip
        return {"measured on": [content["environment"] for content in documents], "rows": rows}

    def picture(self, content: Document) -> Figure:
        rows = content["rows"]
        figure, axes = canvas("Search, compiling included", "", "seconds", min(16.0, 2 + 0.3 * len(rows)), 3.6)
        axes.bar(range(len(rows)), [line["wall_s"] for line in rows], color=SERIES[0])
        for place, (name, seconds) in enumerate(PUBLISHED_S.items(), 1):
            axes.axhline(seconds, color=SERIES[place], linewidth=0.9, label=f"MCFuser, {name}")
        axes.set_xticks(range(len(rows)), [line["name"] for line in rows], rotation=90)
        legend(axes)
        return figure

    def table(self, content: Document) -> Table:
        return Table(("row", "search, s", "measured", "first, µs", "found, µs"), [
            (f"{line['family']} {line['name']}", f"{line['wall_s']:.1f}", str(line["measured"]),
             f"{line['first_us']:.1f}", f"{line['best_us']:.1f}") for line in content["rows"]
        ])  # fmt: skip
