"""Measure on this device, and write what was measured.

    a family     device time of its rows beside their peers, each checked before it is timed ("all": every family)
    arrays       calls of the array backends on the CPU: time and peak memory (no GPU)
    calls        the host's time for a call, kernels of sizes that change, tensors of more than 2^31 elements
    cold         first results of fresh processes, held to their limits
    funnel       candidates that pruning leaves (no GPU)
    smem         shared memory estimated, counted and allotted (no GPU)
    levels       at what level of the chip rows are fused; incremental: merged in the loop or not
    exhaustive   the plan that is taken, and tuning, beside every listed plan of six rows; choices: of 24 rows, beside
                 the fastest plans known and predicted
    transformations
                 kernels and bytes of models as transformations of graphs are switched on (no GPU); times, on a GPU
    predictions  the model's best plan of every row on other cards (no GPU)
    engines      reductions of dask arrays beside dask's own (no GPU)
    parquet      a file larger than memory, read by two cores with 2 GiB (no GPU)

A document a name is written into `--out`; `python -m benchmarks report` makes tables and pictures of it.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks import arrays, calls, cold, engines, parquet, predict, report
from benchmarks.ablations import ABLATIONS
from benchmarks.ablations.ablation import Measured
from benchmarks.compete import OWN, Result, bench
from benchmarks.environment import device, environment, target
from benchmarks.families import FAMILIES
from benchmarks.family import Family, Row
from redalg.runtime.known.tuned import SWITCH

EVERY = "all"


def ablate(ablation: Measured, options: argparse.Namespace) -> bool:
    """Run an ablation, write its document, show its table."""
    content = ablation.document(environment(), options)
    if options.out:
        report.save(options.out / f"{content['benchmark']}.json", content)
    print(ablation.shown(content))
    return True


OTHERS: dict[str, Callable[[argparse.Namespace], bool]] = {
    arrays.NAME: arrays.run,
    "calls": calls.run,
    "cold": cold.run,
    **{name: partial(ablate, found) for name, found in ABLATIONS.items() if isinstance(found, Measured)},
    predict.NAME: predict.run,
    engines.NAME: engines.run,
    parquet.NAME: parquet.run,
}
"""What is run beside families: whether all of it is as it must be."""


def options(parser: argparse.ArgumentParser) -> None:
    names = f"{', '.join((*FAMILIES, EVERY))}; or {', '.join(OTHERS)}"
    parser.add_argument("names", nargs="+", metavar="NAME", help=names)
    parser.add_argument("--out", type=Path, metavar="DIR", help="write a JSON file a name into this folder")
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="of families: some rows, e.g. H1 H2")
    parser.add_argument("--families", nargs="+", default=[], choices=FAMILIES, metavar="FAMILY",
                        help="of funnel, smem and predictions: some families")  # fmt: skip
    for module in (arrays, calls, cold, parquet, predict):
        module.options(parser)
    parser.add_argument("--sample", type=int, default=40, help="of smem: plans of a row")
    parser.add_argument("--compiled", type=int, default=0, help="of smem: plans of a family compiled with nvcc")
    parser.add_argument("--seed", type=int, default=0, help="of smem")
    parser.add_argument("--models", nargs="+", default=[], metavar="MODEL",
                        help="of transformations: some models, beside those that stand in the file")  # fmt: skip
    parser.add_argument("--tries", type=int, default=3, help="of levels and incremental: plans of each kind")


def choose(family: Family, names: Sequence[str]) -> list[Row]:
    """The family's rows for this device, or those of them that are named."""
    rows = family.rows(device())
    return [row for row in rows if not names or row.name in names]


def check_rows(families: Sequence[Family], names: Sequence[str]) -> None:
    """Stop at a row that no family has."""
    known = [row.name for family in families for row in family.rows(device())]
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no row {', '.join(unknown)} for {device().type}; there are {', '.join(known)}")


def measure(family: Family, options: argparse.Namespace) -> bool:
    """Run the rows, write the JSON after each, show the table; whether redalg ran on every row."""

    def progress(rows: Sequence[Row]) -> Iterable[Row]:
        return track(rows, description=family.name, console=Console(stderr=True))

    told, results, content = environment(), list[Result](), report.document(family.name, {}, [])
    for result in bench(family, choose(family, options.rows), target(), device(), progress):
        results.append(result)
        content = report.document(family.name, told, results)
        if options.out:
            place = options.out / f"{family.name}.json"
            content["rows"] = with_kept_rows(content["rows"], place, told, family)
            report.save(place, content)
    report.show(content)
    return not any(result.measurements[OWN].failure for result in results)


def with_kept_rows(rows: list[dict[str, Any]], place: Path, told: Mapping[str, object],
                   family: Family) -> list[dict[str, Any]]:  # fmt: skip
    """Rows, and those that an earlier run of this commit on this device left; what runs again replaces its own.

    The file itself may have made the checkout dirty.
    """
    earlier = report.load(place) if place.exists() else {"environment": {}, "rows": []}
    same = {**earlier["environment"], "dirty": None} == {**told, "dirty": None}
    known = {row["name"]: row for row in (*(earlier["rows"] if same else ()), *rows)}
    return [known[row.name] for row in family.rows(device()) if row.name in known]


def main(options: argparse.Namespace) -> int:
    os.environ.setdefault(SWITCH, "pack")  # what ships is measured, not what this machine has tuned
    unknown = [name for name in options.names if name not in (*FAMILIES, EVERY, *OTHERS)]
    if unknown:
        sys.exit(f"nothing is named {', '.join(unknown)}; there are {', '.join((*FAMILIES, EVERY, *OTHERS))}")
    families = [family for name, family in FAMILIES.items() if name in options.names or EVERY in options.names]
    check_rows(families, options.rows)
    right = [measure(family, options) for family in families]
    right += [call(options) for name, call in OTHERS.items() if name in options.names]
    return int(not all(right))
