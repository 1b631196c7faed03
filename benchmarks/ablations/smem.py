"""Shared memory estimated before anything is built, counted on the program, and allotted by nvcc (MCFuser, Fig. 10).

A plan is judged rightly where the estimate and what the compiler allots say the same of whether a block can hold it.
`redalg.lower_tile.check.fit` counts tiles of the built program; nvcc takes seconds a plan, so a seeded few are
compiled, whether they fit or not, and the count stands for the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, final

from benchmarks.ablations.ablation import Document, Measured
from benchmarks.ablations.funnel import CHIP, rows_of
from benchmarks.families import FAMILIES
from benchmarks.family import Family, Row
from benchmarks.markdown import Table
from benchmarks.spaces import space_of
from redalg.errors import RedalgError
from redalg.incremental.arrange.order import REWRITES_AFTER_PLANNING, rewrite_stages
from redalg.lower_tile.check.fit import smem_bytes
from redalg.lower_tile.ir.program import TileProgram
from redalg.lower_tile.ir.runtime_sizes import sizes_in
from redalg.lower_tile.place.build import build
from redalg.lower_tile.text.emit import emit
from redalg.lower_tile.text.header import header, self_check
from redalg.runtime.compile.compile import compile_only
from redalg.runtime.lowering import kernel_dtype, results
from redalg.strategies.model.traffic import Traffic
from redalg.strategies.schedule import Schedule, numbers_of
from redalg.strategies.search.space import Space
from redalg.strategies.varying import with_symbols

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Judged:
    """A plan, its program, and the bytes of shared memory that were estimated and counted."""

    space: Space
    plan: Schedule
    program: TileProgram
    estimated: int
    counted: int


def program_of(space: Space, plan: Schedule) -> TileProgram:
    """The program that a plan builds, whether a block can hold it or not."""
    stages, problem = rewrite_stages(REWRITES_AFTER_PLANNING, space.stages, space.problem)
    dtypes = {name: kernel_dtype(dtype, plan.device.target) for name, dtype in results(stages, problem).items()}
    return build(stages, numbers_of(plan), with_symbols(problem, stages.loop), dtypes)


def judged(space: Space, plan: Schedule) -> Judged | None:
    """Estimate and count of a plan, in bytes; None where none is built."""
    try:
        program = program_of(space, plan)
    except RedalgError:
        return None
    counted = max(smem_bytes(kernel, numbers_of(plan)) for kernel in program.kernels)
    return Judged(space, plan, program, Traffic(space.outline, numbers_of(plan)).smem_bytes, counted)


def allotted(draw: Judged) -> dict[str, Any]:
    """Bytes that nvcc allots to a plan; its words where it refuses."""
    try:
        check = self_check(draw.program, sizes_in(draw.program.parameters, draw.space.problem.shapes))
        head = header(draw.space.stages, draw.plan, draw.space.problem)
        kernels = compile_only(emit(draw.program, numbers_of(draw.plan), head, check))
    except Exception as failure:  # noqa: BLE001 - a plan that does not compile is a result
        return {"refused": f"{type(failure).__name__}: {failure}"[:200]}
    return {"allotted": max(kernel.smem_bytes for kernel in kernels)}


def drawn(family: Family, options: argparse.Namespace) -> Iterator[tuple[Row, Judged]]:
    """Seeded plans of every row."""
    for _, row in rows_of([family.name]):
        space = space_of(family, row, CHIP)
        plans = list(space.plans())
        for plan in Random(options.seed).sample(plans, min(options.sample, len(plans))):
            found = judged(space, plan)
            if found is not None:
                yield row, found


def sampled(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every drawn plan, a few of each family compiled; what is not judged rightly is named."""
    for name in options.families or FAMILIES:
        found = list(drawn(FAMILIES[name], options))
        few = Random(options.seed).sample(range(len(found)), min(options.compiled, len(found)))
        for place, (row, draw) in enumerate(found):
            line = {"family": name, "row": row.name, "limit": draw.plan.device.smem_bytes, "estimated": draw.estimated,
                    "counted": draw.counted, **(allotted(draw) if place in few else {})}  # fmt: skip
            yield line if right(line) else {**line, "plan": str(draw.plan)}


def right(line: dict[str, Any]) -> bool:
    """True where the estimate says of a plan what the compiler (or else the count) says."""
    return bool((line["estimated"] <= line["limit"]) == (actual(line) <= line["limit"]))


def actual(line: dict[str, Any]) -> int:
    """Bytes that the compiler allots, or else the count."""
    return int(line.get("allotted", line["counted"]))


def share_of(lines: Sequence[dict[str, Any]]) -> float:
    """The share judged rightly."""
    return sum(map(right, lines)) / max(1, len(lines))


@final
class SharedMemory(Measured):
    """See the module."""

    name, title = "smem", "Shared memory: estimated against actual (MCFuser, Fig. 10)"

    def run(self, options: argparse.Namespace) -> Document:
        return {"chip": CHIP, "seed": options.seed, "plans": list(sampled(options))}

    def picture(self, content: Document) -> Figure:
        from benchmarks.plots.scatter import scatter

        pairs: dict[str, dict[tuple[float, float], None]] = {}  # many plans share a point
        for plan in content["plans"]:
            pairs.setdefault(plan["family"], {})[plan["estimated"] / 1024, actual(plan) / 1024] = None
        share = share_of(content["plans"])
        figure = scatter(
            {name: list(points) for name, points in pairs.items()},
            f"Shared memory of a block: {share:.1%} judged rightly",
            "estimated, KiB",
            "actual, KiB",
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
        for plan in content["plans"]:
            families.setdefault(plan["family"], []).append(plan)
        return Table(("family", "plans", "judged rightly", "do not fit", "compiled", "allotted / counted"),
                     [counts(name, found) for name, found in families.items()])  # fmt: skip

    def said(self, content: Document) -> str:
        plans, beyond = content["plans"], {one["family"] for one in content["plans"] if actual(one) > one["limit"]}
        some = [one for one in plans if one["family"] in beyond]
        return (f"{share_of(plans):.1%} of {len(plans)} plans are judged rightly, before anything is built; "
                f"{share_of(some):.1%} of the {len(some)} of families in which some plans do not fit.")  # fmt: skip


def counts(name: str, found: list[dict[str, Any]]) -> tuple[str, ...]:
    """A family's cells."""
    compiled = [one for one in found if "allotted" in one]
    ratios = [one["allotted"] / one["counted"] for one in compiled if one["counted"]]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "-"
    beyond = sum(actual(one) > one["limit"] for one in found)
    return (name, str(len(found)), f"{share_of(found):.1%}", str(beyond), str(len(compiled)), spread)
