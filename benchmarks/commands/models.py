"""Measure whole models: torch.compile(model, backend="redalg") beside torch.compile, and PyTorch as it is.

models                  every model, with random weights, at batches of 1 and of 32, 16 or 8
models NAME …           some of them
models … --out DIR      written into DIR/models.json after each, and not measured again if they stand there
models … --max-autotune   BERT, GPT-2, Llama, T5, ViT and Swin beside Inductor's longest search too
models … --cold         first calls of processes with empty caches, and of a second process, beside each row
models … --ncu          launches and bytes of a call by Nsight Compute, beside each row
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import report
from benchmarks.compete import OWN
from benchmarks.environment import device, environment
from benchmarks.family import Row
from benchmarks.first_calls import first_calls
from benchmarks.models import MODELS, NAME, Model, contestants_of, measure_model, models_of, rows_of
from benchmarks.report import Document
from benchmarks.traffic import TABLES, profile_row, reason_against_profiler
from redalg.runtime.known.tuned import SWITCH

PARTS = "first_calls", "profile"
"""Parts of a row that processes of their own measure: they stay if the row is measured again."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}; none: all")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"write {NAME}.json into this folder")
    parser.add_argument("--batches", nargs="+", type=int, default=[], metavar="N", help="some batches alone")
    parser.add_argument("--max-autotune", action="store_true", help="Inductor's longest search as a contestant")
    parser.add_argument("--cold", action="store_true", help="first calls of processes of their own")
    parser.add_argument("--ncu", action="store_true", help="launches and bytes by Nsight Compute")


def main(options: argparse.Namespace) -> int:
    """Measure, write and show; 1 where redalg failed or is wrong, or where something that is asked for is not here."""
    os.environ.setdefault(SWITCH, "pack")  # what ships is measured, not what this machine has tuned
    where = device()
    models, dtype = models_of(where)
    unknown = sorted({*options.names} - models.keys())
    reason = f"{', '.join(unknown)} is none of {', '.join(models)}" if unknown else ""
    reason = reason or (reason_against_profiler() if options.ncu else "")
    if reason:
        Console().print(f"models: {reason}", style="red", highlight=False)
        return 1
    path = options.out / f"{NAME}.json" if options.out else None
    content = report.load(path) if path and path.exists() else report.document(NAME, environment(), [])
    chosen = {name: model for name, model in models.items() if name in (options.names or models)}
    for row, model in rows_of(chosen, dtype):
        if not options.batches or row.shapes["x"][0] in options.batches:
            for _ in parts_of_row(content, row, model, options):
                if path:
                    report.save(path, content)
    show(content)
    return int(any(line["contestants"].get(OWN, {}).get("failure") for line in content["rows"]))


def parts_of_row(content: Document, row: Row, model: Model, options: argparse.Namespace) -> Iterator[str]:
    """Measure what a document lacks of a row, in place; yield the name of each part when it is there."""
    rows: list[dict[str, Any]] = content["rows"]
    place = next((place for place, line in enumerate(rows) if line["name"] == row.name), len(rows))
    wanted = contestants_of(model, autotuned=options.max_autotune).keys()
    is_measured = place < len(rows) and wanted <= rows[place]["contestants"].keys()
    if not is_measured:
        kept = {part: line[part] for line in rows[place : place + 1] for part in PARTS if part in line}
        rows[place : place + 1] = [measured_line(row, model, autotuned=options.max_autotune) | kept]
        yield "times"
    line = rows[place]
    first, profile = PARTS
    if options.cold and first not in line:
        line[first] = first_calls(row.name, model) | place_told()
        yield first
    if options.ncu and profile not in line:
        line[profile] = profile_row(row.name, model, are_warm=not is_measured) | place_told()
        yield profile


def measured_line(row: Row, model: Model, *, autotuned: bool) -> dict[str, Any]:
    """The document's line of a row: a file may be made in several sessions, and on several cards."""
    result, told = measure_model(row, model, device(), autotuned=autotuned)
    line = report.row(result) | place_told()
    for name, each in told.items():
        line["contestants"][name] |= each
    return line


def place_told() -> dict[str, object]:
    """The commit and the device of what is measured now."""
    own = environment()
    return {"commit": own["commit"], "device": own["device"]}


def show(content: Document, style: str = "") -> None:
    """Print a document's tables."""
    report.show(content, style=style)
    for title, table_of in TABLES.items():
        table = table_of(content)
        if table is not None:
            print(table.shown(title))
