"""`python -m benchmarks.tune FAMILY … [--rows H1] [--budget-s 35] [--seed 0] --out folder`: rows tuned, winners packed.

Every row is tuned as a user would, by `fused.tune`. The JSON, one a family, holds where, every candidate that was
measured or failed, and the wall time. The winners (the fastest kernel, and the unfused form's time beside it where it
was measured) go into a pack (`--pack`; by default the card's that ships with
redalg), each in place of the one before it. `--from sweep.json …` takes the winners of sweeps instead, without a GPU.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.environment import device, environment
from benchmarks.families import FAMILIES
from benchmarks.family import Family, Row
from benchmarks.report import Document, load, save
from benchmarks.spaces import plan_of, space_of
from redalg.runtime.known.tuned import Entry, add_entries, key_sizes, pack_file, problem_key
from redalg.runtime.tune.tuner import Tuned
from redalg.runtime.unfused.unfused import admitted
from redalg.strategies.device import card_of
from redalg.strategies.plan import UNFUSED, Plan
from redalg.strategies.search.search import Trial
from redalg.strategies.search.space import Space


def tune(family: Family, row: Row, budget_s: float, seed: int) -> Tuned:
    """Tune one row on inputs of its own."""
    generator = torch.Generator(device()).manual_seed(0)
    made: Tuned = family.fused(row).tune(**family.inputs(row, generator), budget_s=budget_s, seed=seed)
    return made


def line_of(row: Row, made: Tuned) -> dict[str, Any]:
    """A row of the JSON."""
    return {"name": row.name, "sizes": dict(row.sizes), "dtypes": dict(row.dtypes), "listed": made.found.listed,
            "stopped": made.found.stopped, "wall_s": made.wall_s, "rules": made.rules.choices(),
            "trials": [trial_of(one) for one in made.trials]}  # fmt: skip


def trial_of(one: Trial[Plan]) -> dict[str, Any]:
    """A candidate of a row."""
    return {"plan": str(one.candidate), **one.candidate.choices(), "predicted_us": one.predicted_us,
            "measured_us": one.measured_us, "failure": one.failure, "round": one.turn}  # fmt: skip


# ---- packs -----------------------------------------------------------------------------------------------------------


def entries_of(content: Document) -> Iterator[Entry]:
    """The winners of a document, of a sweep or of tuning, with the versions that they were measured with."""
    family = FAMILIES[content["benchmark"].split("-", 1)[1]]
    where = content["environment"]
    versions, chip = where["versions"], chip_of(where["device"], where["target"])
    rows = {row.name: row for row in family.rows(device(where["target"]))}
    for line in content["rows"]:
        if line["name"] not in rows or dict(rows[line["name"]].sizes) != line["sizes"]:
            continue
        fused, row = family.fused(rows[line["name"]]), rows[line["name"]]
        space = space_of(family, row, chip)
        key = replace(problem_key(fused.form, space.problem, space.device), redalg=versions["redalg"],
                      tilelang=versions["tilelang"] or "")  # fmt: skip
        for best in winners(line):
            plan, predicted_us = packed_plan(fused, space, best)
            yield Entry(key, key_sizes(fused.form, space.problem), plan.choices(), time_of(best), predicted_us)


def packed_plan(fused: Any, space: Space, line: dict[str, Any]) -> tuple[Plan, float]:
    """A plan as a document has it, and its predicted time."""
    if line.get("form") == UNFUSED:
        plain = admitted(fused.form, space)
        return plain.plan, plain.said.time_us
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


def chip_of(name: str, target: str) -> str:
    """The card that a document was measured on.

    >>> chip_of("NVIDIA H200", "sm_90a"), chip_of("CPU x86_64", "c")
    ('H200', 'c')
    """
    if target == "c":
        return "c"
    digits = target.removeprefix("sm_").rstrip("a")
    return card_of(name, (int(digits[:-1]), int(digits[-1]))) or target


def packed(contents: Iterable[Document], pack: Path | None) -> list[Path]:
    """Merge documents' winners into a pack, of several for one problem the fastest; the files that were written."""
    found: dict[str, Entry] = {}
    for one in (entry for content in contents for entry in entries_of(content)):
        known = found.setdefault(one.name, one)
        if one.measured_us < known.measured_us:
            found[one.name] = one
    places = {one.key.card: pack or pack_file(one.key.card) for one in found.values()}
    return [
        add_entries(place, [one for one in found.values() if one.key.card == name]) for name, place in places.items()
    ]


# ---- the command -----------------------------------------------------------------------------------------------------


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--rows", nargs="+", default=[])
    parser.add_argument("--budget-s", type=float, default=35.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of the JSON")
    parser.add_argument("--pack", type=Path, help="a pack of its own instead of the one that ships with redalg")
    parser.add_argument("--from", dest="documents", nargs="+", type=Path, default=[], metavar="JSON")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.families if name not in FAMILIES]
    if unknown or bool(options.families) == bool(options.documents) or (options.families and not options.out):
        parser.error(f"give families of {', '.join(FAMILIES)} and --out, or --from and JSON files")
    return options


def main(arguments: Sequence[str]) -> int:
    options, console = parse(arguments), Console()
    documents = [load(one) for one in options.documents]
    for name in options.families:
        family = FAMILIES[name]
        lines = []
        for row in family.rows(device()):
            if options.rows and row.name not in options.rows:
                continue
            made = tune(family, row, options.budget_s, options.seed)
            console.print(f"{row.name}: {made.table(most=4)}", markup=False, highlight=False)
            lines.append(line_of(row, made))
        documents.append({"benchmark": f"tune-{name}", "budget_s": options.budget_s, "seed": options.seed,
                          "environment": environment(), "rows": lines})  # fmt: skip
        save(options.out / f"tune-{name}.json", documents[-1])
    for path in packed(documents, options.pack):
        console.print(f"winners → {path}", markup=False, highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
