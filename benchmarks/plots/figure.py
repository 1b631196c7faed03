"""One style for all pictures, one colour for every contestant, and files that are the same every time.

A picture in a repository must change only when what it shows does: no date, no version, ids hashed from a fixed salt,
text as text (so that fonts of a machine do not enter).
"""

from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

STYLE: Any = {
    "svg.hashsalt": "redalg", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True,
}  # fmt: skip
COLOURS = {
    "redalg": "#c1121f", "redalg, online": "#e07a5f", "redalg, power of two": "#f2b5a7",
    "eager": "#6c757d", "torch.compile": "#1d3557", "torch.var": "#4f9dcf", "FlashAttention-2": "#e9a820",
    "cuDNN": "#4b9c6a", "cuBLAS": "#76b041", "SDPA": "#b08968", "memory-efficient": "#9d6b9e",
    "FlexAttention": "#3d405b", "product alone": "#adb5bd", "_scaled_mm alone": "#8fb8a8",
    "float16 product alone": "#ced4da", "copy alone": "#dee2e6",
}  # fmt: skip
"""By contestant: the same in every picture."""
SERIES = ("#1d3557", "#c1121f", "#e9a820", "#4b9c6a", "#4f9dcf", "#9d6b9e", "#6c757d", "#b08968", "#e07a5f", "#76b041",
          "#3d405b", "#8fb8a8")  # fmt: skip
"""For what is no contestant, in order."""


def canvas(title: str, across: str, up: str, width: float = 7.0, height: float = 3.6) -> tuple[Figure, Axes]:
    """An empty figure of one plot, in inches."""
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
    figure.suptitle(title, fontsize=10)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    return figure, axes


def save(figure: Figure, path: Path) -> Path:
    """Write the figure as SVG, the same text on every processor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        round_places(figure)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    return path


def round_places(figure: Figure) -> None:
    """Round the limits of the axes, and where they lie: logarithms differ in their last digit among processors."""
    for axes in figure.axes:
        axes.set_xlim(*(float(f"{limit:.6g}") for limit in axes.get_xlim()))
        axes.set_ylim(*(float(f"{limit:.6g}") for limit in axes.get_ylim()))
    figure.savefig(BytesIO(), format="svg")  # lays them out
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = (round(float(edge), 4) for edge in axes.get_position().bounds)
        axes.set_position((left, bottom, width, height))


def legend(axes: Axes) -> None:
    """Right of the plot, where anything has a name."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)


def logarithmic(axis: Axis, *, factors: bool = False) -> None:
    """Numbers as people write them at 1, 2 and 5 of each decade; factors at powers of two, and halfway where few."""
    low, high = axis.get_view_interval()
    if factors:
        axis.set_major_locator(LogLocator(base=2, subs=(1.0, 1.5) if high / low < 6 else (1.0,), numticks=20))
    else:
        axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0) if high / low < 100 else (1.0,), numticks=20))
    axis.set_major_formatter(FuncFormatter(times if factors else plain))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def plain(value: float, _: object = None) -> str:
    """A tick of a logarithmic axis.

    >>> plain(0.02), plain(500.0), plain(2e6)
    ('0.02', '500', '2e+06')
    """
    return f"{value:g}"


def times(value: float, _: object = None) -> str:
    """A tick of an axis of factors.

    >>> times(0.5), times(16.0)
    ('0.5×', '16×')
    """
    return f"{value:g}×"
