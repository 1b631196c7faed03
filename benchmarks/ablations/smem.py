"""Shared memory estimated before anything is built, counted on the program, and allotted by nvcc (MCFuser, Fig. 10).

A plan is judged rightly where the estimate and what the compiler allots say the same of whether a block can hold it.
`redalg.lower_tile.fit` counts tiles of the built program; nvcc takes seconds a plan, so a seeded few are compiled, and
the count stands for the others.
"""

import argparse
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, final

from matplotlib.figure import Figure

from benchmarks.ablations.ablation import Ablation, Document
from benchmarks.ablations.funnel import CHIP, rows_of
from benchmarks.markdown import Table
from benchmarks.plots.scatter import scatter
from benchmarks.sweep import space_of
from redalg.errors import RedalgError
from redalg.lower_tile.build import build
from redalg.lower_tile.compile import compile_only
from redalg.lower_tile.fit import smem_bytes
from redalg.lower_tile.flatten import flattened
from redalg.lower_tile.program import TileProgram
from redalg.runtime.arrays import output_dtype
from redalg.runtime.lowering import built, kernel_dtype
from redalg.strategies import Plan, Space, with_symbols
from redalg.strategies.traffic import Traffic


def program_of(space: Space, plan: Plan) -> TileProgram:
    """What a plan builds, whether a block can hold it or not."""
    form, problem = flattened(space.form, space.problem)
    dtypes = {one.name: kernel_dtype(output_dtype(one, space.form, problem.result), plan.device.target)
              for one in space.form.outputs}  # fmt: skip
    return build(form, plan, with_symbols(problem, form), dtypes)


def judged(space: Space, plan: Plan) -> dict[str, Any] | None:
    """Estimate and count of a plan, in bytes; None where none is built."""
    try:
        program = program_of(space, plan)
    except RedalgError:
        return None
    counted = max(smem_bytes(kernel, plan) for kernel in program.kernels)
    return {"plan": str(plan), "estimated": Traffic(space.outline, plan).smem_bytes, "counted": counted}


def allotted(space: Space, plan: Plan) -> dict[str, Any]:
    """What nvcc allots to a plan that fits by its count; what it says where it refuses."""
    try:
        made = compile_only(built(space.form, [plan], space.problem).source)
    except Exception as failure:  # noqa: BLE001 - a plan that does not compile is a result
        return {"refused": f"{type(failure).__name__}: {failure}"[:200]}
    return {"allotted": max(one.smem_bytes for one in made)}


def sampled(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every drawn plan of every row, a few of each family compiled."""
    spent: dict[str, int] = {}
    for family, row in rows_of(options.families):
        space = space_of(family, row, CHIP)
        plans, drawn = list(space.plans()), Random(options.seed)
        for plan in drawn.sample(plans, min(options.sample, len(plans))):
            line = judged(space, plan)
            if line is None:
                continue
            if spent.get(family.name, 0) < options.compiled and drawn.random() < 0.1:
                spent[family.name] = spent.get(family.name, 0) + 1
                line |= allotted(space, plan)
            yield {"family": family.name, "row": row.name, "limit": plan.device.smem_bytes, **line}


def right(line: dict[str, Any]) -> bool:
    """Whether the estimate says what the compiler (or else the count) says of a plan."""
    return bool((line["estimated"] <= line["limit"]) == (actual(line) <= line["limit"]))


def actual(line: dict[str, Any]) -> int:
    """What the compiler allots, or else the count."""
    return int(line.get("allotted", line["counted"]))


def share_of(lines: Sequence[dict[str, Any]]) -> float:
    """The share judged rightly."""
    return sum(map(right, lines)) / max(1, len(lines))


@final
class SharedMemory(Ablation):
    """See the module."""

    name, title = "smem", "Shared memory: estimated against actual (MCFuser, Fig. 10)"

    def run(self, options: argparse.Namespace) -> Document:
        return {"chip": CHIP, "seed": options.seed, "plans": list(sampled(options))}

    def picture(self, content: Document) -> Figure:
        pairs: dict[str, list[tuple[float, float]]] = {}
        for one in content["plans"]:
            pairs.setdefault(one["family"], []).append((one["estimated"] / 1024, actual(one) / 1024))
        share = share_of(content["plans"])
        figure = scatter(
            pairs, f"Shared memory of a block: {share:.1%} judged rightly", "estimated, KiB", "actual, KiB"
        )
        (axes,) = figure.axes
        limit = content["plans"][0]["limit"] / 1024
        axes.axvline(limit, color="black", linewidth=0.6, linestyle=":")
        axes.axhline(limit, color="black", linewidth=0.6, linestyle=":")
        axes.set_xscale("symlog", base=2, linthresh=1)
        axes.set_yscale("symlog", base=2, linthresh=1)
        return figure

    def table(self, content: Document) -> Table:
        families: dict[str, list[dict[str, Any]]] = {}
        for one in content["plans"]:
            families.setdefault(one["family"], []).append(one)
        return Table(("family", "plans", "judged rightly", "do not fit", "compiled", "count as allotted"),
                     [counts(name, found) for name, found in families.items()])  # fmt: skip

    def said(self, content: Document) -> str:
        plans, beyond = content["plans"], {one["family"] for one in content["plans"] if actual(one) > one["limit"]}
        some = [one for one in plans if one["family"] in beyond]
        return (f"{share_of(plans):.1%} of {len(plans)} plans are judged rightly, before anything is built; "
                f"{share_of(some):.1%} of the {len(some)} of families in which some plans do not fit.")  # fmt: skip


def counts(name: str, found: list[dict[str, Any]]) -> tuple[str, ...]:
    """A family's cells."""
    compiled = [one for one in found if "allotted" in one]
    same = sum((one["counted"] <= one["limit"]) == (one["allotted"] <= one["limit"]) for one in compiled)
    beyond = sum(actual(one) > one["limit"] for one in found)
    return (name, str(len(found)), f"{share_of(found):.1%}", str(beyond), str(len(compiled)),
            f"{same} of {len(compiled)}")  # fmt: skip
