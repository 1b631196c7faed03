"""`python -m benchmarks mha [--rows H1 H2] [--out file.json]` measures; `python -m benchmarks show file.json` shows."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks import mha, report
from benchmarks.environment import device, environment, target
from benchmarks.workloads import MHA_CPU, MHA_CUDA, Mha
from benchmarks.workloads import mha as fused_mha


def choose(names: Sequence[str]) -> list[Mha]:
    """The rows named, or all that this device is meant for."""
    fit = MHA_CUDA if device().type == "cuda" else MHA_CPU
    rows = {row.name: row for row in fit}
    unknown = [name for name in names if name not in rows]
    if unknown:
        sys.exit(f"no row {', '.join(unknown)} for {device().type}; there are {', '.join(rows)}")
    return [rows[name] for name in names] or list(fit)


def progress(rows: Sequence[Mha]) -> Iterable[Mha]:
    return track(rows, description="mha", console=Console(stderr=True))


def measure(names: Sequence[str], out: Path | None) -> int:
    """Run the rows, write the JSON, show the table; 1 if redalg failed on a row."""
    results = mha.bench(choose(names), target(), device(), progress)
    content = report.document("mha", environment(), results)
    if out:
        report.save(out, content)
    show(content)
    return int(any(result.measurements["redalg"].failure for result in results))


def show(content: report.Document, stale: Iterable[str] = ()) -> None:
    console = Console()
    console.print(report.table(content, set(stale)))
    for line in report.failures(content):
        console.print(line, style="red", markup=False)


def stale_rows(content: report.Document) -> list[str]:
    """The rows whose source is emitted differently now."""
    fused, chip = fused_mha(), content["environment"]["target"]
    rows = {row.name: row for row in MHA_CUDA + MHA_CPU}
    known = [line for line in content["rows"] if line["name"] in rows]
    return [
        line["name"] for line in known if mha.source_sha256(fused, rows[line["name"]], chip) != line["source_sha256"]
    ]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("mha", help="multi-head attention beside FlashAttention-2 and cuDNN")
    run.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="some rows instead of all, e.g. H1 H2")
    run.add_argument("--out", type=Path, help="write every sample to this JSON file")
    commands.add_parser("show", help="the table of a JSON file").add_argument("file", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.command == "mha":
        return measure(options.rows, options.out)
    content = report.load(options.file)
    show(content, stale_rows(content))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
