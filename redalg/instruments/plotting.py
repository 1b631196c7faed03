"""Figures of Matplotlib, which is imported when one is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from redalg.errors import BackendError

RED, GREY = "#c1121f", "#6c757d"
"""Of redalg, and of what stands beside it."""
TOP = 10.0
"""The height at which an error is drawn that is not finite."""
ROW_INCHES = 0.34


def empty_figure(title: str, across: str, rows: int) -> tuple[Any, Any]:
    """A figure of one plot with a line for each row, the first on top; and its axes.

    Raises:
        BackendError: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as missing:
        text = 'plot needs Matplotlib, which is not installed. Run: pip install "redalg[plot]"'
        raise BackendError(text) from missing
    figure = Figure(figsize=(7.0, 1.4 + ROW_INCHES * rows), layout="constrained")
    axes: Any = figure.subplots()
    figure.suptitle(title, fontsize=9)
    axes.set_xlabel(across)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_ylim(rows - 0.5, -0.5)
    return figure, axes


def draw_errors(title: str, rows: Sequence[tuple[str, float, float]]) -> Any:
    """Errors by row, redalg's beside the naive formula's: (label, redalg's, naive's)."""
    figure, axes = empty_figure(title, "error: max|out − ref| / max|ref|", len(rows))
    least = min((each for _, *errors in rows for each in errors if 0 < each < math.inf), default=1e-16) / 10
    for place, (_, own, naive) in enumerate(rows):
        ends = [drawn_error(each, least) for each in (own, naive)]
        axes.plot(ends, [place, place], color="#cccccc", zorder=1)
    for number, (name, colour) in enumerate((("redalg", RED), ("naive formula", GREY))):
        heights = [drawn_error(errors[number], least) for _, *errors in rows]
        axes.scatter(heights, range(len(rows)), color=colour, label=name, zorder=2 + (number == 0))
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [label for label, *_ in rows])
    axes.axvline(TOP, color="#bbbbbb", linestyle=":", linewidth=1)
    axes.text(TOP, -0.5, "not finite", ha="center", va="bottom", fontsize=7, color="#555555")
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    return figure


def drawn_error(error: float, least: float) -> float:
    """The place of an error on a logarithmic axis."""
    return TOP if not math.isfinite(error) else max(error, least)


def draw_bars(title: str, across: str, rows: Sequence[tuple[str, float]]) -> Any:
    """A bar for each row with its number; those of redalg are red. What has no number has no bar."""
    figure, axes = empty_figure(title, across, len(rows))
    for place, (label, number) in enumerate(rows):
        if math.isfinite(number):
            axes.barh(place, number, color=RED if label.startswith("redalg") else GREY, height=0.6)
            axes.text(number, place, f" {number:.4g}", va="center", fontsize=8)
        else:
            axes.text(0, place, " failed", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.margins(x=0.15)
    return figure
