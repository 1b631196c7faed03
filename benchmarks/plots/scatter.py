"""Two quantities of many candidates, logarithmic on both axes, with the line on which they are equal."""

from collections.abc import Mapping, Sequence
from math import log10

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from benchmarks.plots.figure import SERIES, canvas, legend

Points = Sequence[tuple[float, float]]
Pairs = Mapping[str, Points]
CELLS = 40
"""Of a decade, where thousands of points are drawn: a point a cell, which is narrower than a dot."""
DOT = 10**0.5
"""The diameter of a dot, in points."""


def scatter(pairs: Pairs, title: str, across: str, up: str) -> Figure:
    """Points by what they belong to, each (across, up)."""
    figure, axes = framed(pairs, title, across, up)
    for place, (name, points) in enumerate(pairs.items()):
        across_of, up_of = zip(*points, strict=True)
        axes.scatter(across_of, up_of, s=DOT**2, color=colour(place), alpha=0.7, label=name)
    legend(axes)
    return figure


def cloud(pairs: Pairs, title: str, across: str, up: str) -> Figure:
    """As `scatter`, of thousands of points: those that would cover each other are left out, and the file is small."""
    figure, axes = framed(pairs, title, across, up)
    for place, (name, points) in enumerate(pairs.items()):
        axes.scatter([], [], s=DOT**2, color=colour(place), alpha=0.7, label=name)
        axes.add_patch(dots(thinned(points), colour(place)))
    legend(axes)
    return figure


def framed(pairs: Pairs, title: str, across: str, up: str) -> tuple[Figure, Axes]:
    """Axes with the line, and no points yet."""
    figure, axes = canvas(title, across, up, 5.6, 4.4)
    axes.set_xscale("log")
    axes.set_yscale("log")
    every = [value for points in pairs.values() for point in points for value in point]
    ends = min(every), max(every)
    axes.plot(ends, ends, color="black", linewidth=0.8)
    return figure, axes


def colour(place: int) -> str:
    return SERIES[place % len(SERIES)]


def dots(points: Points, color: str) -> PathPatch:
    """One path for all: lines of no length with round ends."""
    ends = [point for point in points for _ in range(2)]
    path = Path(ends, [Path.MOVETO, Path.LINETO] * len(points))
    path.should_simplify = False  # lines of no length are meant
    return PathPatch(path, edgecolor=color, facecolor="none", capstyle="round", linewidth=DOT, alpha=0.7)


def thinned(points: Points) -> Points:
    """The first point of every cell.

    >>> thinned([(1.0, 10.0), (1.001, 10.0), (2.0, 10.0)])
    [(1.0, 10.0), (2.0, 10.0)]
    """
    cells: dict[tuple[int, int], tuple[float, float]] = {}
    for across, up in points:
        cells.setdefault((round(CELLS * log10(across)), round(CELLS * log10(up))), (across, up))
    return list(cells.values())
