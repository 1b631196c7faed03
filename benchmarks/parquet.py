"""A Parquet file larger than memory, reduced by a process of two cores and 2 GiB: speed, peak, and the error.

    python -m benchmarks run parquet --gib 10 [--folder DIR] [--out DIR]

The file is written first, and removed at the end; `benchmarks.streamed` has how, and what the limit is.
"""

import argparse
import os
import platform
import shutil
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn

from benchmarks import report
from benchmarks.environment import environment
from benchmarks.markdown import Table
from benchmarks.streamed import ROW_BYTES, TOLERANCE, expected, largest_difference, read_limited, write_file

NAME = "parquet"
GIB = 1 << 30


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gib", type=float, default=1.0, help="of parquet: the size of the file, in GiB")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="of parquet: where the file lies; a temporary one")


def run(options: argparse.Namespace) -> bool:
    """Write the file, read it, compare; write the document beside rows of other sizes. Whether the result is right."""
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        row = measured(folder / "columns.parquet", round(options.gib * GIB / ROW_BYTES))
    finally:
        shutil.rmtree(folder)
    content: report.Document = {"benchmark": NAME, "environment": environment(), "rows": [row]}
    if options.out:
        place = options.out / f"{NAME}.json"
        earlier = report.load(place)["rows"] if place.exists() else []
        content["rows"] = sorted(
            [*(one for one in earlier if one["name"] != row["name"]), row], key=lambda one: one["rows"]
        )
        report.save(place, content)
    print(table(content).shown("Variance, correlation, mean and maximum of a Parquet file"))
    return bool(row["error"] <= TOLERANCE)


def measured(path: Path, rows: int) -> dict[str, Any]:
    """One row of the document."""
    with Progress("writing", BarColumn(), TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("rows", total=rows)
        for stop in write_file(path, rows):
            bar.update(task, completed=stop)
    size = path.stat().st_size
    found = read_limited(path)
    begun = perf_counter()
    error = largest_difference(found["found"], expected(path))
    known = environment()
    return {
        "name": f"{size / GIB:.3g} GiB", "bytes": size, **found, "rows_per_s": found["rows"] / found["seconds"],
        "bytes_per_s": size / found["seconds"], "error": error, "expected_seconds": perf_counter() - begun,
        "load": os.getloadavg()[0], "machine": processor(), "commit": known["commit"], "dirty": known["dirty"],
    }  # fmt: skip


def processor() -> str:
    """The processor, and its cores that this process may use."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def table(content: report.Document) -> Table:
    """A row a file."""
    lines = [
        [row["name"], f"{row['rows']:,}", f"{row['seconds']:.1f}", f"{row['cpu_seconds']:.1f}",
         f"{row['rows_per_s'] / 1e6:.2f}", f"{row['bytes_per_s'] / 1e6:.0f}", f"{row['peak_bytes'] / 1e6:.0f}",
         f"{row['error']:.1e}"]
        for row in content["rows"]
    ]  # fmt: skip
    return Table(["file", "rows", "s", "of a core, s", "10⁶ rows/s", "MB/s", "peak, MB", "error"], lines)
