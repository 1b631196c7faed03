"""The pictures of a document."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.ablations import ABLATIONS
from benchmarks.agreement import agreement
from benchmarks.drawn import by_row, drawn, is_sweep
from benchmarks.families import FAMILIES
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
    """The names of a document's pictures: of families, of ablations and of sweeps, and of no other."""
    name = content["benchmark"]
    if is_sweep(content) or "ablation" in content:
        return [name]
    return [f"{name}-{kind}" for kind in PICTURES] if name in FAMILIES else []


def pictures(content: Document) -> Iterator[tuple[str, Figure]]:
    """(name, figure) of a document's pictures."""
    names = picture_names(content)
    if is_sweep(content):
        yield names[0], sweep(content)
    elif "ablation" in content:
        yield names[0], ABLATIONS[content["ablation"]].picture(content)
    else:
        yield from ((name, make(content)) for name, make in zip(names, PICTURES.values(), strict=False))


def plot(content: Document, folder: Path) -> list[Path]:
    """Write a document's pictures into a folder."""
    return [save(figure, folder / f"{name}.svg") for name, figure in pictures(content)]
