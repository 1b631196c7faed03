"""Measure random plans of families' rows: `python -m benchmarks fit draw FAMILY … --out DIR`.

Plans are drawn uniformly from a row's space (`redalg.strategies.search.space`), the rules' own first; those that a
block cannot hold are counted and left out. Blocks that stay are another space, drawn from with `--persistent`. With
`--best`, the unfused form is measured too, where it is admitted. All are compiled in parallel (`--compile-only` ends
there), each checked against the first one's result (which the family checks against the definition) before it is timed.
The JSON holds every draw: what the model is judged by.
"""

import argparse
import multiprocessing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os import cpu_count
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import torch

from benchmarks.environment import device, environment, target
from benchmarks.families import FAMILIES
from benchmarks.family import Family, Row, outputs, relative_error
from benchmarks.report import save
from benchmarks.spaces import space_of
from benchmarks.timing import input_sets, measure
from benchmarks.training import BEST, SWEEP, UNIFORM
from redalg.errors import RedalgError
from redalg.lower_tile.text.emit import Source
from redalg.pipeline import write_source
from redalg.runtime.compile.compile import compile_source, is_kept
from redalg.runtime.lowered import Lowered
from redalg.runtime.unfused.unfused import offer_unfused
from redalg.strategies.schedule import AnySchedule, Schedule, choices_of, numbers_of, with_choices
from redalg.strategies.search.choice import preferred_schedule
from redalg.strategies.search.space import Space

SAMPLES = 7


@dataclass
class Draws:
    """A row's plans that fit, what became of each, and how many of those drawn did not fit or were refused.

    `plain` is a plan of no kernel alone, the unfused form's say, which is measured after the kernels.
    """

    row: Row
    listed: int = 0
    lowered: list[Lowered] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    unfit: dict[str, int] = field(default_factory=dict)
    plain: AnySchedule | None = None


@dataclass(frozen=True)
class Wish:
    """The plans that are wished for of a row, beside the rules'.

    Attributes:
        count: of them.
        seed: of the draw.
        best: those that the model takes for the best, not random ones.
        persistent: of those whose blocks stay.
        skip: of those drawn, how many another run measures.
    """

    count: int
    seed: int = 0
    best: bool = False
    persistent: bool = False
    skip: int = 0


def draw(family: Family, row: Row, chip: str, wish: Wish) -> Draws:
    """The rules' plan, and others."""
    space, found = space_of(family, row, chip), Draws(row)
    first = next(space.plans())
    others = listed(space, wish, first)
    found.listed = 1 + len(others)
    if wish.best:
        others = [plan for plan in dict.fromkeys([preferred_schedule(space), *different(others)]) if plan != first]
        plain = offer_unfused(family.fused(row).form, space)
        found.plain = None if plain is None else plain.plan
    else:
        Random(wish.seed).shuffle(others)
    for plan in (first, *others):
        if len(found.lowered) > wish.count:
            break
        try:
            found.lowered.append(write_source(space.stages, [replace(plan, origin="given")], space.problem))
        except RedalgError as refusal:
            said = "shared memory" if "shared memory for kernel" in str(refusal) else str(refusal)[-160:]
            found.unfit[said] = found.unfit.get(said, 0) + 1
    del found.lowered[1 : 1 + wish.skip]
    return found


def listed(space: Space, wish: Wish, ruled: Schedule) -> list[Schedule]:
    """Plans to draw from, beside the rules' plan; by predicted time where the best are wished for."""
    stay = wish.persistent
    plans = (plan for _, plan in space.rank(persistent=stay)) if wish.best else space.plans(persistent=stay)
    return [plan for plan in plans if plan != ruled and bool(numbers_of(plan).persistent) == stay]


def drawn_by_name(family: str, row: str, chip: str, wish: Wish) -> Draws:
    """Draw in a process of its own."""
    known = {one.name: one for one in FAMILIES[family].rows(device(chip))}
    return draw(FAMILIES[family], known[row], chip, wish)


def different(plans: Iterable[Schedule]) -> list[Schedule]:
    """The first of plans that differ in nothing but stages."""
    found: dict[Schedule, Schedule] = {}
    for plan in plans:
        found.setdefault(with_choices(plan, stages=0, warp_specialized=False), plan)
    return list(found.values())


def compiled(source: Source) -> str:
    """Compile into the cache on disk; gives back what went wrong, if anything."""
    try:
        compile_source(source)
    except Exception as failure:  # noqa: BLE001 - a plan that does not compile is a result
        return f"{type(failure).__name__}: {failure}"[:300]
    return ""


def run(family: Family, found: Draws, failures: Sequence[str]) -> None:
    """Measure a row's plans."""
    row, where = found.row, device()
    generator = torch.Generator(where).manual_seed(0)
    inputs = [family.inputs(row, generator) for _ in range(input_sets(row.in_bytes, where))]
    call, wanted = partial(family.fused(row), backend="tilelang"), None
    plans: list[AnySchedule] = [one.plan for one in found.lowered]
    for plan, failure in [*zip(plans, failures, strict=True), *([(found.plain, "")] if found.plain else [])]:
        line = line_of(plan)
        found.lines.append(line)
        if failure:
            line["failure"] = failure
            continue
        try:
            out = outputs(call(**inputs[0], plan=plan))
            first = out[0] if len(out) == 1 else out
            error = family.error(row, first, inputs[0]) if wanted is None else against(out, wanted)
            line["error"] = error
            if not error <= 2 * family.tolerance(row):
                line["failure"] = f"wrong: error {error:.1e}"
                continue
            wanted = wanted or out
            timing = measure([partial(call, **one, plan=plan) for one in inputs], where, samples=SAMPLES)
            line |= {"median_us": timing.median_us, "samples_us": timing.samples_us, "method": timing.method}
        except Exception as wrong:  # noqa: BLE001 - a plan's failure is a result
            line["failure"] = f"{type(wrong).__name__}: {wrong}"[:300]


def line_of(plan: AnySchedule) -> dict[str, Any]:
    """A plan as the JSON has it: the unfused form has no fields of a kernel."""
    return {"plan": str(plan), "form": plan.form} | choices_of(plan)


def against(out: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> float:
    """The largest relative error of the floating-point outputs."""
    return max((relative_error(a, b) for a, b in zip(out, wanted, strict=True) if a.is_floating_point()), default=0.0)


def content_of(family: Family, found: Sequence[Draws], wish: Wish) -> dict[str, Any]:
    rows = [{"name": draws.row.name, "sizes": dict(draws.row.sizes), "dtypes": dict(draws.row.dtypes),
             "listed": draws.listed, "unfit": draws.unfit, "plans": draws.lines} for draws in found]  # fmt: skip
    return {"benchmark": f"{SWEEP}{family.name}", "taken": BEST if wish.best else UNIFORM, "seed": wish.seed,
            "environment": environment(), "rows": rows}  # fmt: skip


def compile_all(wanted: Sequence[Lowered], seconds: float) -> list[str]:
    """Compile in processes of their own until the time is over; for each what went wrong, if anything.

    What an earlier run left on disk costs nothing: handing a program to a process takes as long as a tenth of it.
    """
    end = monotonic() + seconds
    said = {place: "" for place, one in enumerate(wanted) if is_kept(one.source)}
    order = [place for place in range(len(wanted)) if place not in said]
    Random(0).shuffle(order)  # what the time does not suffice for is spread over the rows
    with multiprocessing.get_context("spawn").Pool(cpu_count()) as pool:
        jobs = {place: pool.apply_async(compiled, (wanted[place].source,)) for place in order}
        for place, job in jobs.items():
            try:
                said[place] = job.get(max(0.0, end - monotonic()))
            except multiprocessing.TimeoutError:
                said[place] = f"not compiled within {seconds:g} s of all"
    return [said[place] for place in range(len(wanted))]


def sweep(families: Sequence[Family], options: argparse.Namespace) -> None:
    """Draw and compile everything, then measure family by family, writing each when it is done."""
    chip, wish = target(), Wish(options.draws, options.seed, options.best, options.persistent, options.skip)
    wanted = [(family, row) for family in families for row in family.rows(device())
              if not options.rows or row.name in options.rows]  # fmt: skip
    with multiprocessing.get_context("spawn").Pool(cpu_count()) as pool:
        jobs = [(family.name, row.name, chip, wish) for family, row in wanted]
        found = pool.starmap(drawn_by_name, jobs, chunksize=1)
    failures = iter(compile_all([one for draws in found for one in draws.lowered], options.compile_s))
    if options.compile_only:
        return
    for family in families:
        mine = [draws for (other, _), draws in zip(wanted, found, strict=True) if other is family]
        for draws in mine:
            run(family, draws, [next(failures) for _ in draws.lowered])
            torch.cuda.empty_cache()
        save(options.out / f"{SWEEP}{family.name}.json", content_of(family, mine, wish))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("families", nargs="+", metavar="FAMILY", choices=FAMILIES)
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW")
    parser.add_argument("--draws", type=int, default=20, help="of a row, beside the rules' plan")
    parser.add_argument("--best", action="store_true", help="those that the model takes for the best, not random ones")
    parser.add_argument("--persistent", action="store_true", help="of those whose blocks stay")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first of those draws: another run's")
    parser.add_argument("--compile-s", type=float, default=300.0, help="time for compiling all, in seconds")
    parser.add_argument("--compile-only", action="store_true", help="into the cache on disk; a later run measures")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")


def main(options: argparse.Namespace) -> int:
    sweep([FAMILIES[name] for name in options.families], options)
    return 0
