"""`python -m benchmarks FAMILY … [--rows H1 H2] [--out DIR]` measures families of workloads beside their peers.

python -m benchmarks show FILE …             tables in the terminal
python -m benchmarks plot FILE … --out DIR   pictures, as SVG
python -m benchmarks readme                  README's tables, docs/BENCHMARKS.md and its pictures, from results/
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import track

from benchmarks import report
from benchmarks.compete import OWN, bench, source_sha256
from benchmarks.environment import ROOT, device, environment, target
from benchmarks.families import FAMILIES
from benchmarks.family import Family, Row
from redalg.runtime.known.tuned import SWITCH


def choose(family: Family, names: Sequence[str]) -> list[Row]:
    """The family's rows for this device, or those of them that are named."""
    rows = family.rows(device())
    return [row for row in rows if not names or row.name in names]


def check_names(families: Sequence[Family], names: Sequence[str]) -> None:
    """Stop at a row that no family has."""
    known = [row.name for family in families for row in family.rows(device())]
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no row {', '.join(unknown)} for {device().type}; there are {', '.join(known)}")


def measure(family: Family, names: Sequence[str], out: Path | None) -> bool:
    """Run the rows, write the JSON, show the table; whether redalg ran on every row."""

    def progress(rows: Sequence[Row]) -> Iterable[Row]:
        return track(rows, description=family.name, console=Console(stderr=True))

    results = bench(family, choose(family, names), target(), device(), progress)
    content = report.document(family.name, environment(), results)
    if out:
        report.save(out / f"{family.name}.json", content)
    show(content)
    return not any(result.measurements[OWN].failure for result in results)


def show(content: report.Document, stale: Iterable[str] = ()) -> None:
    console = Console()
    console.print(report.table(content, set(stale)))
    for line in report.failures(content):
        console.print(line, style="red", markup=False)


def stale_rows(content: report.Document) -> list[str]:
    """The rows whose source is emitted differently now, by what ships with redalg: not by what is tuned here."""
    family, chip = FAMILIES[content["benchmark"]], content["environment"]["target"]
    rows = {row.name: row for row in family.rows(device(chip))}
    known = [line for line in content["rows"] if line["name"] in rows]
    with as_shipped():
        return [line["name"] for line in known
                if source_sha256(family, rows[line["name"]], chip) != line["source_sha256"]]  # fmt: skip


@contextmanager
def as_shipped() -> Iterator[None]:
    """Tuned plans are those of the pack alone, whatever this machine's cache holds or the environment asks for."""
    before = {name: os.environ.pop(name, None) for name in ("REDALG_TUNED", "REDALG_CACHE_DIR")}
    with TemporaryDirectory() as folder:
        os.environ["REDALG_CACHE_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["REDALG_CACHE_DIR"]
            os.environ.update({name: value for name, value in before.items() if value is not None})


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument(
        "what", nargs="+", metavar="FAMILY", help=f"{', '.join(FAMILIES)}, all; or {', '.join(COMMANDS)}"
    )
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="some rows instead of all, e.g. H1 H2")
    parser.add_argument("--out", type=Path, help="write every sample into this folder, a JSON file a family")
    return parser.parse_args(arguments)


def show_files(files: Sequence[str], _: argparse.Namespace) -> None:
    for file in files:
        content = report.load(Path(file))
        show(content, stale_rows(content))


def plot_files(files: Sequence[str], options: argparse.Namespace) -> None:
    from benchmarks.plot import plot  # Matplotlib is for pictures alone

    if options.out is None:
        sys.exit("plot needs a folder: --out DIR")
    for file in files:
        for path in plot(report.load(Path(file)), options.out):
            Console().print(path, highlight=False)


def make_documents(_: Sequence[str], __: argparse.Namespace) -> None:
    from benchmarks.documents import read, write

    write(ROOT, read(ROOT / "benchmarks" / "results", stale_rows))


COMMANDS: dict[str, Callable[[Sequence[str], argparse.Namespace], None]] = {
    "show": show_files, "plot": plot_files, "readme": make_documents,
}  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    os.environ.setdefault(SWITCH, "pack")  # what ships is measured, not what this machine has tuned
    options = parse(arguments)
    if options.what[0] in COMMANDS:
        COMMANDS[options.what[0]](options.what[1:], options)
        return 0
    unknown = [name for name in options.what if name not in (*FAMILIES, "all")]
    if unknown:
        sys.exit(f"no family {', '.join(unknown)}; there are {', '.join(FAMILIES)}, all")
    families = [family for name, family in FAMILIES.items() if name in options.what or "all" in options.what]
    check_names(families, options.rows)
    ran = [measure(family, options.rows, options.out) for family in families]
    return int(not all(ran))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
