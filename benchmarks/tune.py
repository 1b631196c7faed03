"""Tune rows and pack the winners: `python -m benchmarks fit tune FAMILY … --out DIR`, `fit pack FILE …`.

Every row is tuned as a user would, by `fused.tune`. The JSON, one a family, holds where, every candidate that was
measured or failed, and the wall time. The winners (the fastest kernel, and the unfused form's time beside it where it
was measured) go into a pack (`--pack`; by default the card's that ships with redalg), each in place of the one before
it. `fit pack` takes the winners of files that were drawn or tuned, without a GPU; by default of the training data, into
the packs of their cards. A winner counts where the plan that the rules give today was measured beside it.
"""

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.environment import chip_of, device, environment
from benchmarks.families import FAMILIES
from benchmarks.family import Family, Row
from benchmarks.report import Document, load, save
from benchmarks.spaces import plan_of, space_of
from benchmarks.training import TUNE, TUNED, family_of, read
from redalg.runtime.known import stored
from redalg.runtime.known.tuned import Entry, add_entries, key_sizes, pack_file, problem_key
from redalg.runtime.tune.tuner import Tuned
from redalg.runtime.unfused.unfused import admit_unfused
from redalg.strategies.schedule import UNFUSED, AnySchedule, choices_of
from redalg.strategies.search.search import Trial
from redalg.strategies.search.space import Space


def tune(family: Family, row: Row, budget_s: float, seed: int) -> Tuned:
    """Tune one row on inputs of its own."""
    generator = torch.Generator(device()).manual_seed(0)
    result: Tuned = family.fused(row).tune(**family.inputs(row, generator), budget_s=budget_s, seed=seed)
    return result


def line_of(row: Row, result: Tuned) -> dict[str, Any]:
    """A row of the JSON."""
    return {"name": row.name, "sizes": dict(row.sizes), "dtypes": dict(row.dtypes), "listed": result.found.listed,
            "stopped": result.found.stopped, "wall_s": result.wall_s, "rules": choices_of(result.rules),
            "trials": [trial_of(one) for one in result.trials]}  # fmt: skip


def trial_of(trial: Trial[AnySchedule]) -> dict[str, Any]:
    """A candidate of a row."""
    return {"plan": str(trial.candidate), **choices_of(trial.candidate), "predicted_us": trial.predicted_us,
            "measured_us": trial.measured_us, "failure": trial.failure, "round": trial.turn}  # fmt: skip


# ---- packs -----------------------------------------------------------------------------------------------------------


def entries_of(content: Document) -> Iterator[Entry]:
    """The winners of a document, of a sweep or of tuning, with the versions that they were measured with."""
    family = FAMILIES[family_of(content)]
    where = content["environment"]
    versions, chip = where["versions"], chip_of(where["device"], where["target"])
    rows = {row.name: row for row in family.rows(device(where["target"]))}
    for line in content["rows"]:
        if line["name"] not in rows or dict(rows[line["name"]].sizes) != line["sizes"]:
            continue
        fused, row = family.fused(rows[line["name"]]), rows[line["name"]]
        space = space_of(family, row, chip)
        key = replace(problem_key(fused.form, space.problem, space.device), planner=versions.get("planner", 1),
                      tilelang=versions["tilelang"] or "")  # fmt: skip
        for best in winners(line) if holds_ruled(line, space) else ():
            plan, predicted_us = packed_plan(fused, space, best)
            yield Entry(key, key_sizes(fused.form, space.problem), stored.write_line(plan), time_of(best), predicted_us)


def holds_ruled(line: dict[str, Any], space: Space) -> bool:
    """Tell if the plan that the rules give today is among those measured: else nobody knows that it is slower."""
    ruled = space.rules_schedule
    kernels = (one for one in line.get("plans", line.get("trials", ())) if one.get("form") != UNFUSED)
    return ruled in [plan_of(one, ruled) for one in kernels]


def packed_plan(fused: Any, space: Space, line: dict[str, Any]) -> tuple[AnySchedule, float]:
    """A plan as a document has it, and its predicted time."""
    if line.get("form") == UNFUSED:
        plain = admit_unfused(fused.form, space)
        return plain.plan, plain.prediction.time_us
    plan = plan_of(line, next(space.plans()))
    return plan, space.predict(plan).time_us


def winners(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The fastest kernel of a row, and the unfused form."""
    measured = [one for one in line.get("plans", line.get("trials", ())) if not one.get("failure")]
    for plain in (False, True):
        same = [one for one in measured if (one.get("form") == UNFUSED) == plain]
        yield from sorted(same, key=time_of)[:1]


def time_of(plan: dict[str, Any]) -> float:
    """Its time, as sweeps and tuning write it."""
    return float(plan["median_us"] if "median_us" in plan else plan["measured_us"])


def packed(contents: Iterable[Document], pack: Path | None, *, anew: bool = False) -> list[Path]:
    """Merge documents' winners into a pack, of several for one problem the fastest; the files that were written.

    `anew`: the packs lose what they held before.
    """
    found: dict[str, Entry] = {}
    for entry in (entry for content in contents for entry in entries_of(content)):
        known = found.setdefault(entry.name, entry)
        if entry.measured_us < known.measured_us:
            found[entry.name] = entry
    places = {one.key.card: pack or pack_file(one.key.card) for one in found.values()}
    for place in set(places.values()) if anew else ():
        place.unlink(missing_ok=True)
    return [
        add_entries(place, [one for one in found.values() if one.key.card == name]) for name, place in places.items()
    ]


# ---- the command -----------------------------------------------------------------------------------------------------


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("families", nargs="+", metavar="FAMILY", choices=FAMILIES, help=", ".join(FAMILIES))
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW")
    parser.add_argument("--budget-s", type=float, default=35.0, help="of a row, in seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the JSON")
    pack_option(parser)


def pack_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE",
                        help="what `fit draw` or `fit tune` wrote; none: the training data")  # fmt: skip
    pack_option(parser)


def pack_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pack", type=Path, help="a pack of its own instead of the one that ships with redalg")


def main(options: argparse.Namespace) -> int:
    """Tune the rows, write a document a family, pack the winners."""
    documents, console = list[Document](), Console()
    for name in options.families:
        family, lines = FAMILIES[name], []
        for row in family.rows(device()):
            if options.rows and row.name not in options.rows:
                continue
            result = tune(family, row, options.budget_s, options.seed)
            console.print(f"{row.name}: {result.table(most=4)}", markup=False, highlight=False)
            lines.append(line_of(row, result))
        documents.append({"benchmark": f"{TUNE}{name}", "taken": TUNED, "budget_s": options.budget_s,
                          "seed": options.seed, "environment": environment(), "rows": lines})  # fmt: skip
        save(options.out / f"{TUNE}{name}.json", documents[-1])
    return say(packed(documents, options.pack))


def pack(options: argparse.Namespace) -> int:
    """Pack the winners of files; or of the training data, and nothing that the packs held before."""
    return say(packed(list(map(load, options.files)) or read(), options.pack, anew=not options.files))


def say(paths: Iterable[Path]) -> int:
    for path in paths:
        Console().print(f"winners → {path}", markup=False, highlight=False)
    return 0
