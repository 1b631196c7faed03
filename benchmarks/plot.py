"""The pictures of a document."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.ablations import ABLATIONS
from benchmarks.agreement import agreement
from benchmarks.drawn import by_row, drawn, is_sweep
from benchmarks.plots.bars import bars
from benchmarks.plots.figure import save
from benchmarks.plots.roofline import roofline
from benchmarks.plots.scatter import scatter

Document = dict[str, Any]
PICTURES: dict[str, Callable[[Document], Figure]] = {"speedup": bars, "roofline": roofline}
"""Of a family's document, by name."""


def sweep(content: Document) -> Figure:
    """Predicted against measured times of a sweep's draws."""
    pairs = by_row(drawn(content))
    said = (
        f"{content['benchmark']} on {content['environment']['device']}: correlation {agreement(pairs).correlation:.3f}"
    )
    return scatter(pairs, said, "measured, µs", "predicted, µs")


def picture_names(content: Document) -> list[str]:
    """The names of a document's pictures."""
    name = content["benchmark"]
    return [name] if is_sweep(content) or "ablation" in content else [f"{name}-{kind}" for kind in PICTURES]


def pictures(content: Document) -> Iterator[tuple[str, Figure]]:
    """(name, figure) of a document's pictures."""
    name = content["benchmark"]
    if is_sweep(content):
        yield name, sweep(content)
    elif "ablation" in content:
        yield name, ABLATIONS[content["ablation"]].picture(content)
    else:
        yield from zip(picture_names(content), (make(content) for make in PICTURES.values()), strict=True)


def plot(content: Document, folder: Path) -> list[Path]:
    """Write a document's pictures into a folder."""
    return [save(figure, folder / f"{name}.svg") for name, figure in pictures(content)]
