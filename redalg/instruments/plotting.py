"""Figures of Matplotlib, which is imported when one is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from redalg.optional import need_packages

RED, GREY = "#c1121f", "#6c757d"
"""Of redalg, and of what stands beside it."""
LEAST = 1e-18
"""The place where an error is drawn that is less, or 0."""
ROW_INCHES = 0.34


def empty_figure(title: str, across: str, rows: int) -> tuple[Any, Any]:
    """A figure of one plot with a line for each row, the first on top; and its axes.

    Raises:
        BackendError: Matplotlib is not installed.
    """
    need_packages("plot", "redalg[plot]", "matplotlib")
    from matplotlib.figure import Figure

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
    """Errors by row, redalg's beside the naive formula's: (label, redalg's, naive's); none where one is NaN."""
    figure, axes = empty_figure(title, "error: max|out − ref| / max|ref|", len(rows))
    top = 100 * max((1.0, *(each for _, *errors in rows for each in errors if math.isfinite(each))))
    for place, (_, own, naive) in enumerate(rows):
        axes.plot([drawn_error(each, top) for each in (own, naive)], [place, place], color="#cccccc", zorder=1)
    for number, name in enumerate(("redalg", "naive formula")):
        places = [drawn_error(errors[number], top) for _, *errors in rows]
        style = {"color": RED, "s": 26, "zorder": 3} if name == "redalg" else {"color": GREY, "s": 80, "zorder": 2}
        axes.scatter(places, range(len(rows)), label=name, **style)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [label for label, *_ in rows])
    if any(math.isinf(each) for _, *errors in rows for each in errors):
        axes.axvline(top, color="#bbbbbb", linestyle=":", linewidth=1)
        axes.text(top, -0.5, "not finite", ha="center", va="bottom", fontsize=7, color="#555555")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    return figure


def drawn_error(error: float, top: float) -> float:
    """The place of an error on a logarithmic axis.

    >>> drawn_error(0.0, 10.0), drawn_error(0.5, 10.0), drawn_error(math.inf, 10.0)
    (1e-18, 0.5, 10.0)
    """
    return top if math.isinf(error) else error if math.isnan(error) else max(error, LEAST)


def draw_bars(title: str, across: str, rows: Sequence[tuple[str, float, str]]) -> Any:
    """A bar for each row, (label, number, text); those of redalg are red. What has no number has no bar."""
    figure, axes = empty_figure(title, across, len(rows))
    for place, (label, number, text) in enumerate(rows):
        if math.isfinite(number):
            axes.barh(place, number, color=RED if label.startswith("redalg") else GREY, height=0.6)
            axes.text(number, place, f" {text}", va="center", fontsize=8)
        else:
            axes.text(0, place, f" {text}", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [label for label, *_ in rows])
    axes.margins(x=0.2)
    return figure
