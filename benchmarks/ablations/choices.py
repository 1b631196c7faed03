"""The plan that is taken without measuring, beside plans that may be faster.

Of a row: the plan that is taken, the fastest of the training data, and those that the model predicts to be the fastest.
Each is compiled, checked and timed as a sweep's are. The rows are those of which users ask, and some of each family.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, final

from benchmarks import training
from benchmarks.ablations.ablation import Document, Measured
from benchmarks.ablations.chosen import beside_fastest, first_built, measure_draws
from benchmarks.ablations.exhaustive import ratio, shown, within
from benchmarks.environment import device, target
from benchmarks.families import FAMILIES
from benchmarks.family import Family, Row
from benchmarks.markdown import Table
from benchmarks.spaces import plan_of, space_of
from benchmarks.stale import as_shipped
from benchmarks.sweep import Draws, different
from redalg.strategies.schedule import UNFUSED, Schedule
from redalg.strategies.search.choice import preferred_schedule
from redalg.strategies.search.space import Space

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS: Mapping[str, tuple[str, ...]] = {
    "columns": ("variance-columns-65536x1024-float32", "batch-statistics-64x256x3136-float16"),
    "pairs": ("forces-20000x20000", "gaussian_sum-30000x30000"),
    "semirings": ("log_product-512x1024x1024",),
    "covariances": ("covariance-1000000x64",),
    "selection": ("top64-1024x50257-float32",),
    "losses": ("cross_entropy-4096x32000x2048-bfloat16",),
    "beside": ("softmax 511x50257", "residual norm 8192x4096 bfloat16", "assignment 200000x1024x64"),
    "uses": ("full 4k, d 128", "causal 4k, d 128", "full 4k, d 64", "causal 4k, d 64", "grouped causal 8k",
             "full 2k, d 96"),
    "mha": ("H1",),
    "moe": ("R5",),
    "quant": ("Q2",),
    "variance": ("V4",),
    "rows": ("layer_norm-4096x16384",),
    "masks": ("causal-documents-4x16x4096x128",),
    "workloads": ("kurtosis of columns",),
}  # fmt: skip
SMALL = {"rows": ("softmax-16x2048",)}
KNOWN, PREDICTED, COMPILE_S = 2, 5, 400.0
"""Plans of the training data, and of those that the model puts first; seconds for compiling all."""
NEAR = 1.1


def rows() -> list[tuple[Family, Row]]:
    """The rows of this device."""
    wanted = SMALL if target() == "c" else ROWS
    known = {(name, row.name): row for name in wanted for row in FAMILIES[name].rows(device())}
    return [(FAMILIES[family], known[family, name]) for family, names in wanted.items() for name in names]


def fastest_known(family: Family, row: Row, space: Space) -> Iterator[Schedule]:
    """The plans that took the least time of those in the training data, the fastest first."""
    ruled = next(space.plans())
    documents = training.read(training.UNIFORM, training.BEST, family=family.name)
    timed = [plan for content in documents for line in content["rows"] if line["name"] == row.name
             for plan in line["plans"] if "median_us" in plan and plan.get("form") != UNFUSED]  # fmt: skip
    for choices in sorted(timed, key=lambda one: float(one["median_us"])):
        plan = plan_of(choices, ruled)
        if space.admits(plan):
            yield plan


def candidates(family: Family, row: Row) -> Draws:
    """The plan that is taken, first, and others that can be built."""
    space = space_of(family, row, target())
    with as_shipped():
        taken = preferred_schedule(space)
    others = [plan for plan in fastest_known(family, row, space) if plan != taken]
    ranked = [plan for _, plan in space.rank()] if target() != "c" else []
    known = first_built(space, dict.fromkeys(others), KNOWN)
    seen = {taken, *(one.plan for one in known)}
    predicted = first_built(space, [plan for plan in different(ranked) if plan not in seen], PREDICTED)
    found = Draws(row, listed=len(ranked))
    found.lowered = [*first_built(space, [replace(taken, origin="given")], 1), *known, *predicted]
    return found


@final
class Choices(Measured):
    """See the module."""

    name, title = "choices", "The plan taken without measuring, beside others"

    def run(self, _: argparse.Namespace) -> Document:
        drawn = [(family, candidates(family, row)) for family, row in rows()]
        measure_draws(drawn, COMPILE_S)
        return {"rows": [beside_fastest(family, draws, draws.lines[0]["plan"]) for family, draws in drawn]}

    def said(self, content: Document) -> str:
        lines = content["rows"]
        return (f"Of {len(lines)} rows, the plan that is taken without measuring is within 10 % of the fastest on "
                f"{within(lines, 'chosen', NEAR)}.")  # fmt: skip

    def picture(self, content: Document) -> Figure:
        from benchmarks.plots.figure import canvas

        names = [f"{line['family']} {line['name']}" for line in content["rows"]]
        figure, axes = canvas("Beside the fastest of other plans", "time / fastest", "", 8, 1 + 0.25 * len(names))
        axes.barh(names, [ratio(line, "chosen") or 0.0 for line in content["rows"]])
        axes.axvline(NEAR, linestyle="--")
        axes.invert_yaxis()
        return figure

    def table(self, content: Document) -> Table:
        return Table(("row", "plans", "taken, µs", "fastest, µs", "taken / fastest", "fastest plan"), [
            (f"{line['family']} {line['name']}", f"{line['measured']} of {line['listed']}",
             f"{line['chosen_us']:.1f}" if line["chosen_us"] else "-", f"{line['best_us']:.1f}",
             shown(ratio(line, "chosen")), "as taken" if line["best"] == line["chosen"] else line["best"])
            for line in content["rows"]
        ])  # fmt: skip
