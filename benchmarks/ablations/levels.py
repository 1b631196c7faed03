"""At what level of the chip a row's tiles become one state (RedFuser, Fig. 6a): safe softmax of rows of 1K to 8K.

intra-thread    every lane keeps a state of its own, merged once                    level "thread"
intra-warp      each tile is reduced by one warp                                    level "warp"
intra-block     each tile is reduced by all threads                                 level "block"
inter-block     segments of a row in blocks of their own, merged by a second kernel any level, several segments
whole row       one tile holds the row: nothing is merged                           level "row"

Times are relative to the unfused definition: a maximum, an exponential, a sum and a quotient, each a kernel of PyTorch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch

from benchmarks.ablations.ablation import Document, Measured
from benchmarks.ablations.chosen import best, by_kind, measured
from benchmarks.environment import device, target
from benchmarks.families.rows import Rows, row
from benchmarks.family import Row
from benchmarks.markdown import Table
from benchmarks.spaces import space_of
from benchmarks.timing import input_sets, measure
from redalg.strategies.schedule import Schedule, numbers_of, with_choices
from redalg.strategies.search.space import Space

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"thread": "intra-thread", "warp": "intra-warp", "block": "intra-block", "row": "whole row"}
WARP = 32
ROWS, LENGTHS, SMALL = 512, (1024, 2048, 4096, 8192), (4, (64, 256))


def level(_: Space, plan: Schedule) -> str:
    """RedFuser's name of a schedule: a block of one warp reduces within it."""
    numbers = numbers_of(plan)
    if numbers.segments > 1:
        return "inter-block"
    return NAMES["warp" if numbers.level == "block" and numbers.threads == WARP else numbers.level]


def sizes() -> list[Row]:
    """Rows of this device."""
    if target() == "c":
        return [row("softmax", SMALL[0], n, "float32") for n in SMALL[1]]
    return [row("softmax", ROWS, n, "bfloat16") for n in LENGTHS]


def plans_of(space: Space) -> Iterable[Schedule]:
    """The space; on the C target, which has one plan, that one at every level."""
    if space.device.target != "c":
        return space.plans(("kernel",), persistent=False)
    (ruled,), length = space.plans(), int(space.extent(space.binding.streamed))
    tile = max(1, length // 4)
    tiles = {"thread": tile, "block": tile, "row": length}
    cut = with_choices(ruled, block_streamed=tile, segments=2)
    return [*(with_choices(ruled, level=name, block_row=1, block_streamed=along) for name, along in tiles.items()), cut]


def unfused(x: torch.Tensor) -> torch.Tensor:
    """The definition, a kernel a step."""
    weights = torch.exp(x - x.amax(1, keepdim=True))
    return weights / weights.sum(1, keepdim=True)


def time_unfused(asked: Row) -> float:
    """Microseconds of the definition."""
    where = device()
    generator = torch.Generator(where).manual_seed(0)
    inputs = [Rows().inputs(asked, generator) for _ in range(input_sets(asked.in_bytes, where))]
    return measure([partial(unfused, **given) for given in inputs], where).median_us


@final
class Levels(Measured):
    """See the module."""

    name, title = "levels", "Fusion level of safe softmax (RedFuser, Fig. 6a)"

    def run(self, options: argparse.Namespace) -> Document:
        family, found = Rows(), []
        for asked in sizes():
            space = space_of(family, asked, target())
            found.append((asked, by_kind(space, plans_of(space), level, options.tries)))
        rows = [{"n": asked.sizes["n"], "b": asked.sizes["b"], "unfused_us": time_unfused(asked), "levels": levels}
                for (asked, _), levels in zip(found, measured(family, found), strict=True)]  # fmt: skip
        return {"rows": rows}

    def picture(self, content: Document) -> Figure:
        from benchmarks.plots.lines import lines

        found: dict[str, list[tuple[float, float]]] = {}
        for line in content["rows"]:
            for name, value in relative(line).items():
                found.setdefault(name, []).append((line["n"], value))
        title = f"Safe softmax on {content['environment']['device']}"
        return lines(dict(sorted(found.items())), title, "elements of a row", "time / unfused")

    def table(self, content: Document) -> Table:
        names = sorted({name for line in content["rows"] for name in line["levels"]})
        return Table(("rows × elements", "unfused, µs", *(f"{name}, µs" for name in names)), [
            (f"{line['b']} × {line['n']}", f"{line['unfused_us']:.1f}",
             *(cell(line["levels"].get(name, [])) for name in names)) for line in content["rows"]
        ])  # fmt: skip


def relative(line: dict[str, Any]) -> dict[str, float]:
    """Every level's best time over the unfused one."""
    fastest = {name: best(found) for name, found in line["levels"].items()}
    return {name: one["median_us"] / line["unfused_us"] for name, one in fastest.items() if one}


def cell(found: list[dict[str, Any]]) -> str:
    fastest = best(found)
    return f"{fastest['median_us']:.1f}" if fastest else "-"
