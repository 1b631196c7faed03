"""Factors by which redalg is faster than each peer, row by row: bars that start at 1 on a logarithmic axis."""

from typing import Any

from matplotlib.figure import Figure

from benchmarks.compete import OWN
from benchmarks.plots.figure import COLOURS, canvas, legend, logarithmic

Document = dict[str, Any]


def speedups(content: Document) -> dict[str, dict[str, float]]:
    """By peer, by row: the peer's median time divided by redalg's; of rows where both have one."""
    found: dict[str, dict[str, float]] = {}
    for line in content["rows"]:
        own = line["contestants"][OWN].get("median_us")
        for name, contestant in line["contestants"].items():
            if name != OWN and own and "median_us" in contestant:
                found.setdefault(name, {})[line["name"]] = contestant["median_us"] / own
    return found


def bars(content: Document) -> Figure:
    """The picture of a family's document."""
    found, names = speedups(content), [line["name"] for line in content["rows"]]
    long = max(map(len, names), default=0) > 6
    width = min(16.0, max(6.0, 2.0 + 0.22 * len(names) * (1 + len(found))))
    title = f"{content['benchmark']} on {content['environment']['device']}: redalg against each peer"
    figure, axes = canvas(title, "", "times as fast", width, 4.4 if long else 3.4)
    thick = 0.8 / max(1, len(found))
    for place, (name, by_row) in enumerate(found.items()):
        left = [names.index(row) + (place - (len(found) - 1) / 2) * thick for row in by_row]
        axes.bar(
            left, [value - 1 for value in by_row.values()], thick, bottom=1, color=COLOURS[name], label=name.lstrip("_")
        )
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log", base=2)
    logarithmic(axes.yaxis, factors=True)
    axes.set_xticks(range(len(names)), names, rotation=90 if long else 0)
    axes.grid(visible=False, axis="x")
    legend(axes)
    return figure
