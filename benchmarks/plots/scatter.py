"""Two quantities of many candidates, logarithmic on both axes, with the line on which they are equal."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from benchmarks.plots.figure import SERIES, canvas, legend

Pairs = Mapping[str, Sequence[tuple[float, float]]]


def scatter(pairs: Pairs, title: str, across: str, up: str) -> Figure:
    """Points by what they belong to, each (across, up)."""
    figure, axes = canvas(title, across, up, 5.6, 4.4)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for place, (name, points) in enumerate(pairs.items()):
        one, other = zip(*points, strict=True)
        axes.scatter(one, other, s=10, color=SERIES[place % len(SERIES)], alpha=0.7, label=name)
    every = [value for points in pairs.values() for point in points for value in point]
    ends = min(every), max(every)
    axes.plot(ends, ends, color="black", linewidth=0.8)
    legend(axes)
    return figure
