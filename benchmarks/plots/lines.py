"""A quantity along a few sizes, a line for each choice."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from benchmarks.plots.figure import SERIES, canvas, legend, plain

Points = Sequence[tuple[float, float]]


def lines(found: Mapping[str, Points], title: str, across: str, up: str) -> Figure:
    """Lines over an axis of powers of two."""
    figure, axes = canvas(title, across, up, 6.4, 3.8)
    for place, (name, points) in enumerate(found.items()):
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, color=SERIES[place % len(SERIES)], label=name)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(bottom=0)
    legend(axes)
    return figure
