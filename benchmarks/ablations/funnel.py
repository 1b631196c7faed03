"""Candidates that each pruning rule leaves (MCFuser, Fig. 7): of its own example, of its chains, and of every family.

Expressions and tiles are counted by `redalg.strategies.search.pruning`; "plans" are what a search lists for the H200
(`redalg.strategies.search.space`): tiles of the one nest that kernels have, times schedules and parts.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, final

from benchmarks.ablations.ablation import Document, Measured
from benchmarks.environment import device
from benchmarks.families import FAMILIES
from benchmarks.family import Family, Row
from benchmarks.markdown import Table
from benchmarks.spaces import space_of
from redalg.expression.dtypes import DTYPES
from redalg.strategies.device import device_for
from redalg.strategies.model.chain import Block, Chain, Tensor, chain_of, products
from redalg.strategies.search.pruning import Funnel, funnel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHIP, PAPERS_CHIP = "H200", "A100"
EXAMPLE = {"m": 1024, "n": 1024, "k": 512, "h": 512}
HALF, STATE = 2, 4
"""Bytes of an element of MCFuser's chains; of a value that a cascade computes."""


def example() -> Funnel:
    """MCFuser's example, on its card."""
    widths = dict.fromkeys("ABCDE", HALF)
    return funnel(products("m", "k", "n", "h"), EXAMPLE, widths, device_for(PAPERS_CHIP).smem_bytes)


def of_one_block(chain: Chain, grid: Collection[str]) -> Chain:
    """The chain without the loops that kernels always give to blocks (a batch, heads), as MCFuser writes its own."""

    def tensor(operand: Tensor) -> Tensor:
        return Tensor(operand.name, tuple(loop for loop in operand.loops if loop not in grid))

    return Chain(tuple(Block(tensor(one.output), tuple(map(tensor, one.inputs)), one.reduced) for one in chain.blocks))


def counted(found: Funnel) -> list[dict[str, Any]]:
    """A funnel as data."""
    return [{"rule": one.rule, "expressions": len(one.nests), "candidates": one.candidates} for one in found.stages]


def of_row(family: Family, row: Row) -> dict[str, Any]:
    """The funnel of a row's cascade, and how many plans a search lists in how long."""
    space = space_of(family, row, CHIP)
    grid, sizes = set(map(str, space.binding.grid)), space.sized_problem.sizes
    chain = of_one_block(chain_of(space.form), grid)
    dtypes = space.problem.dtypes
    widths = {one.name: DTYPES[dtypes[one.name]].bytes if one.name in dtypes else STATE for one in chain.tensors()}
    found = funnel(chain, {loop: sizes[loop] for loop in chain.loops}, widths, space.device.smem_bytes)
    start = perf_counter()
    plans = sum(1 for _ in space.plans())
    return {"family": family.name, "row": row.name, "stages": counted(found), "plans": plans,
            "listing_s": perf_counter() - start}  # fmt: skip


def rows_of(names: list[str]) -> Iterator[tuple[Family, Row]]:
    """The families' rows on a GPU."""
    for name in names or FAMILIES:
        yield from ((FAMILIES[name], row) for row in FAMILIES[name].rows(device(device_for(CHIP).target)))


@final
class Pruning(Measured):
    """See the module."""

    name, title = "funnel", "Candidates that each pruning rule leaves (MCFuser, Fig. 7)"

    def run(self, options: argparse.Namespace) -> Document:
        rows = [of_row(family, row) for family, row in rows_of(options.families)]
        own = {"family": "MCFuser", "row": "M=N=1024, K=H=512", "stages": counted(example())}
        return {"chip": CHIP, "rows": [own, *rows]}

    def picture(self, content: Document) -> Figure:
        from benchmarks.plots.lines import lines

        found = {f"{one['family']} {one['row']}": list(enumerate(steps(one), 1)) for one in largest(content)}
        figure = lines(found, self.title, "all, then what rules 1 to 4 leave, then plans", "candidates")
        (axes,) = figure.axes
        axes.set_xscale("linear")
        axes.set_yscale("log")
        axes.set_xticks(range(1, 7), ["all", "1", "2", "3", "4", "plans"])
        axes.autoscale(axis="y")
        return figure

    def table(self, content: Document) -> Table:
        rules = [one["rule"].split(":")[0] for one in content["rows"][0]["stages"]]
        return Table(("cascade", *rules, "plans", "listed in, s"), [
            (f"{line['family']} {line['row']}", *map(tilings, line["stages"]), str(line.get("plans", "")),
             seconds(line)) for line in largest(content)
        ])  # fmt: skip

    def said(self, content: Document) -> str:
        listed = [one for one in content["rows"] if "plans" in one]
        slowest = max((one["listing_s"] for one in listed), default=0.0)
        return (f"Expressions × tilings, of the row of each family that has most; of all {len(listed)} rows, the "
                f"longest listing takes {slowest:.2f} s.")  # fmt: skip


def largest(content: Document) -> list[dict[str, Any]]:
    """The row of each family that has most candidates."""
    found: dict[str, dict[str, Any]] = {}
    for line in content["rows"]:
        known = found.setdefault(line["family"], line)
        if line["stages"][0]["candidates"] > known["stages"][0]["candidates"]:
            found[line["family"]] = line
    return list(found.values())


def steps(line: dict[str, Any]) -> list[int]:
    """Candidates after every rule, and the plans."""
    return [*(one["candidates"] for one in line["stages"]), *([line["plans"]] if "plans" in line else [])]


def seconds(line: dict[str, Any]) -> str:
    return f"{line['listing_s']:.2f}" if "listing_s" in line else ""


def tilings(stage: dict[str, Any]) -> str:
    """Expressions times tilings of each."""
    return f"{stage['expressions']} × {stage['candidates'] // max(1, stage['expressions']):,}"
