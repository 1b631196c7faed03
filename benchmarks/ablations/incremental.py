"""Merging in the loop or not, over blocks a multiprocessor (RedFuser, Fig. 6b).

A fixed problem is cut into segments, a block each. Non-incremental: one tile holds a block's whole segment, so that
nothing is merged within a block. Incremental: a block streams its segment in several tiles. Both merge segments in a
second kernel. Two problems: the logsumexp of long rows, and attention of BERT's size (what RedFuser measures).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, final

from benchmarks.ablations.ablation import Document, Measured
from benchmarks.ablations.chosen import best, by_kind, measured
from benchmarks.environment import device, target
from benchmarks.families import attention_small, rows
from benchmarks.family import Family, Row
from benchmarks.markdown import Table
from benchmarks.spaces import space_of
from redalg.strategies.model.traffic import Traffic
from redalg.strategies.schedule import Schedule, numbers_of, with_choices
from redalg.strategies.search.space import Space

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WAYS = ("incremental", "non-incremental")
SEGMENTS_ON_C = (1, 2, 4)


def problems() -> list[tuple[Family, Row]]:
    """Problems that are cut, on this device."""
    small = attention_small.SMALL
    if target() == "c":
        return [(rows.Rows(), rows.row("logsumexp", 4, 256, "float32"))]
    return [(rows.Rows(), rows.row("logsumexp", 128, 32768, "bfloat16")), (small, small.rows(device())[1])]


def way(space: Space, plan: Schedule) -> tuple[int, str] | None:
    """(segments, whether a block merges tiles); None for what is neither: parts of contractions."""
    if numbers_of(plan).splits > 1:
        return None
    steps = Traffic(space.outline, numbers_of(plan)).steps
    return numbers_of(plan).segments, WAYS[steps == 1]


def plans_of(space: Space) -> Iterable[Schedule]:
    """The space; on the C target, which has one plan, that one with one tile or four in every segment."""
    if space.device.target != "c":
        return space.plans(("kernel",), persistent=False)
    (ruled,), length = space.plans(), int(space.extent(space.binding.streamed))
    return [with_choices(ruled, segments=parts, block_streamed=length // parts // tiles)
            for parts in SEGMENTS_ON_C for tiles in (1, 4)]  # fmt: skip


def blocks_of(space: Space, plan: Schedule) -> float:
    """Blocks a multiprocessor."""
    return Traffic(space.outline, numbers_of(plan)).grid / plan.device.multiprocessors


def cut(family: Family, row: Row, tries: int) -> list[dict[str, Any]]:
    """Each number of segments both ways, with the fastest plan of each."""
    space = space_of(family, row, target())
    groups = by_kind(space, plans_of(space), way, tries)
    blocks = {str(found.plan): blocks_of(space, found.plan) for group in groups.values() for found in group}
    (made,) = measured(family, [(row, groups)])
    return [{"segments": segments, "way": kind, "tried": found, "best": fastest,
             "blocks": blocks[fastest["plan"]] if fastest else None}
            for (segments, kind), found in sorted(made.items()) for fastest in (best(found),)]  # fmt: skip


@final
class Incremental(Measured):
    """See the module."""

    name, title = "incremental", "Merged in the loop or not, over blocks a multiprocessor (RedFuser, Fig. 6b)"

    def run(self, options: argparse.Namespace) -> Document:
        return {"rows": [{"family": family.name, "name": row.name, "sizes": dict(row.sizes),
                          "cuts": cut(family, row, options.tries)} for family, row in problems()]}  # fmt: skip

    def picture(self, content: Document) -> Figure:
        from benchmarks.plots.lines import lines

        found: dict[str, list[tuple[float, float]]] = {}
        for line in content["rows"]:
            ran = [one for one in line["cuts"] if one["best"]]
            slowest = max(one["best"]["median_us"] for one in ran)
            for trial in ran:
                point = trial["blocks"], trial["best"]["median_us"] / slowest
                found.setdefault(f"{line['name']}, {trial['way']}", []).append(point)
        title = f"One problem in more and more blocks, on {content['environment']['device']}"
        return lines({name: sorted(points) for name, points in found.items()}, title, "blocks a multiprocessor",
                     "time / slowest")  # fmt: skip

    def table(self, content: Document) -> Table:
        return Table(("problem", "segments", *(f"{name}, µs (blocks a multiprocessor)" for name in WAYS)), [
            (line["name"], str(parts), *(cell(line, parts, name) for name in WAYS))
            for line in content["rows"] for parts in sorted({one["segments"] for one in line["cuts"]})
        ])  # fmt: skip


def cell(line: dict[str, Any], segments: int, name: str) -> str:
    """The time of a cut."""
    found = [one for one in line["cuts"] if one["segments"] == segments and one["way"] == name and one["best"]]
    return f"{found[0]['best']['median_us']:.1f} ({found[0]['blocks']:.1f})" if found else "-"
