"""A benchmark's document: written and read as JSON, shown as a table. The table is made from the document alone."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from benchmarks.compete import OWN, Measurement, Result
from benchmarks.markdown import Table as Markdown
from redalg.strategies.table import Table

Document = dict[str, Any]
WIDTH = 120
"""Columns of a line of JSON."""


def document(benchmark: str, environment: dict[str, object], results: Sequence[Result]) -> Document:
    """Everything that was measured, and where: the only thing that tables and plots are made from."""
    return {"benchmark": benchmark, "environment": environment, "rows": [row(result) for result in results]}


def row(result: Result) -> dict[str, Any]:
    return {
        "name": result.row.name,
        "sizes": dict(result.row.sizes),
        "dtypes": dict(result.row.dtypes),
        "flops": result.row.flops,
        "bytes": result.row.in_bytes + result.row.out_bytes,
        "timed": result.timed,
        "source_sha256": result.source_sha256,
        "contestants": {name: contestant(one) for name, one in result.measurements.items()},
    }


def contestant(measurement: Measurement) -> dict[str, Any]:
    timing = measurement.timing
    figures = {} if timing is None else {"median_us": timing.median_us, **asdict(timing)}
    peak = {} if measurement.peak_bytes is None else {"peak_bytes": measurement.peak_bytes}
    return {"error": measurement.error, "failure": measurement.failure, **peak, **figures}


def save(path: Path, content: Document) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(content) + "\n", encoding="utf-8")


def text_of(value: Any, depth: int = 0) -> str:
    r"""JSON of few lines: a list of numbers, and whatever is short, stands in one.

    >>> print(text_of({"name": "H1", "samples_us": [float(place) for place in range(40)], "error": 0.0}).count("\n"))
    4
    """
    line = json.dumps(value, ensure_ascii=False)
    samples = isinstance(value, list) and all(isinstance(item, int | float) for item in value)
    if samples or not isinstance(value, dict | list) or depth + len(line) <= WIDTH:
        return line
    pad, (begin, end) = " " * (depth + 1), "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, dict):
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {text_of(item, depth + 1)}" for name, item in value.items()]
    else:
        parts = [text_of(item, depth + 1) for item in value]
    return f"{begin}\n{pad}" + f",\n{pad}".join(parts) + f"\n{pad[1:]}{end}"


class WrongFileError(ValueError):
    """A file that holds no document of a benchmark: the message has its path, what it should hold, and what it does."""


def load(path: Path) -> Document:
    content: Document = json.loads(path.read_text(encoding="utf-8"))
    return content


def load_named(path: Path, *, of: str = "") -> Document:
    """The document in a file that a user names.

    Args:
        path: of the file.
        of: the benchmark that it should be of; empty for any.

    Raises:
        WrongFileError: there is no such file, or it is no such document.
    """
    needs = f"a document of `python -m benchmarks`, a JSON object whose `benchmark` is {of or 'a name'}"
    try:
        content = load(path)
    except OSError as failure:
        raise WrongFileError(f"{path}: there should be {needs}; it cannot be read ({failure.strerror}).") from None
    except ValueError as failure:
        raise WrongFileError(f"{path}: it should be {needs}; it is no JSON ({failure}).") from None
    if not isinstance(content, dict):
        raise WrongFileError(f"{path}: it should be {needs}; it is a JSON {type(content).__name__}.")
    if not isinstance(content.get("benchmark"), str):
        keys = ", ".join(list(content)[:6]) or "nothing"
        raise WrongFileError(f"{path}: it should be {needs}; it has {keys}. `python -m benchmarks run … --out DIR` "
                             "writes such documents.")  # fmt: skip
    if of and content["benchmark"] != of:
        raise WrongFileError(f"{path}: it should be {needs}; it is {content['benchmark']}.")
    return content


def table(content: Document, stale: Collection[str] = ()) -> Table:
    """One line a row, the ratios first: redalg's time over each peer's (below 1 it is faster), its time and error."""
    names = contestants_of(content)
    rows = tuple(short_cells(line, names, stale) for line in content["rows"])
    columns = ("row", *names[1:], f"{names[0]}, ms", "error")
    lines = [f"{names[0]}'s time over each peer's: below 1 it is faster; more: --full, --markdown"]
    lines += ["*: the emitted source has changed since"] if stale else []
    return Table(heading(content), columns, rows, "\n".join(lines), figures_last=True)


def short_cells(line: dict[str, Any], names: Sequence[str], stale: Collection[str]) -> tuple[str, ...]:
    """The cells of a row: a peer that has no ratio says why in a word."""
    own, *peers = (line["contestants"].get(name, ABSENT) for name in names)
    beside = [ratio(own, peer).strip(" ()") or milliseconds(peer).replace("-", "") or "-" for peer in peers]
    error = "-" if own["error"] is None else f"{own['error']:.0e}"
    return (line["name"] + "*" * (line["name"] in stale), *beside, milliseconds(own), error)


def full_table(content: Document, stale: Collection[str] = ()) -> Table:
    """One line a row with all that is known: rates, every contestant's time, error and memory."""
    names = contestants_of(content)
    beside = [f"{name}, ms (ratio)" for name in names[1:]]
    more = (*memory_header(content), *exploration_header(content))
    columns = ("row", "sizes", f"{names[0]}, ms", "TFLOP/s", "TB/s", *beside, "max error", *more, "method")
    rows = []
    for line in content["rows"]:
        name, *figures, method = cells(line, names)
        found = (*memory_cells(content, line, names), *exploration_cells(content, line, names))
        rows.append((name + "*" * (name in stale), *figures, *found, method))
    return Table(heading(content), columns, tuple(rows), "*: the emitted source has changed since" if stale else "")


def contestants_of(content: Document) -> list[str]:
    """The contestants of all rows, redalg first."""
    return list(dict.fromkeys((OWN, *(name for line in content["rows"] for name in line["contestants"]))))


def heading(content: Document) -> str:
    """The benchmark and where it was measured."""
    where = content["environment"]
    return f"{content['benchmark']} on {where['device']}, torch {where['versions']['torch']}"


ABSENT: dict[str, Any] = {"error": None, "failure": "no contestant of this row"}


def cells(line: dict[str, Any], names: Sequence[str]) -> list[str]:
    own, *peers = (line["contestants"].get(name, ABSENT) for name in names)
    sizes = "×".join(str(size) for size in line["sizes"].values())
    rates = [rate(line.get("flops"), own), rate(line.get("bytes"), own)]
    beside = [milliseconds(peer) + ratio(own, peer) for peer in peers]
    errors = " ".join("-" if one["error"] is None else f"{one['error']:.0e}" for one in (own, *peers))
    return [line["name"], sizes, milliseconds(own), *rates, *beside, errors, own.get("method", "-")]


def memory_header(content: Document) -> list[str]:
    """The column of peak memory above the inputs, where a document has it of some contestant."""
    known = any("peak_bytes" in one for line in content["rows"] for one in line["contestants"].values())
    return ["peak memory, MiB"] if known else []


def memory_cells(content: Document, line: dict[str, Any], names: Sequence[str]) -> list[str]:
    """The peaks of a row's contestants, in their order."""
    known = [line["contestants"].get(name, ABSENT).get("peak_bytes") for name in names]
    return [" ".join("-" if one is None else f"{one / 2**20:.0f}" for one in known) for _ in memory_header(content)]


def exploration_header(content: Document) -> list[str]:
    """The column of the seconds in which groups were found, where a document has them of some contestant."""
    known = any("explored_s" in one for line in content["rows"] for one in line["contestants"].values())
    return ["groups found in, s"] if known else []


def exploration_cells(content: Document, line: dict[str, Any], names: Sequence[str]) -> list[str]:
    """The seconds in which the groups of a row's graphs were found, all together."""
    found = [line["contestants"].get(name, ABSENT).get("explored_s") for name in names]
    known = [sum(one) for one in found if one]
    return ["-" if not known else f"{sum(known):.1f}" for _ in exploration_header(content)]


def rate(amount: float | None, entry: dict[str, Any]) -> str:
    """FLOPs or bytes in millions a microsecond: tera a second."""
    return f"{amount / entry['median_us'] / 1e6:.3g}" if amount and "median_us" in entry else "-"


def milliseconds(entry: dict[str, Any]) -> str:
    if "samples_us" in entry:
        return f"{median(entry['samples_us']) / 1e3:.4f}"
    return "-" if entry is ABSENT else "failed"


def ratio(own: dict[str, Any], peer: dict[str, Any]) -> str:
    return f" ({own['median_us'] / peer['median_us']:.2f})" if "median_us" in own and "median_us" in peer else ""


def failures(content: Document) -> list[str]:
    """Each contestant that has no time, and why."""
    return [
        f"{line['name']} {name}: {entry['failure']}"
        for line in content["rows"]
        for name, entry in line["contestants"].items()
        if entry["failure"]
    ]


def show(content: Document, stale: Collection[str] = (), style: str = "") -> None:
    """Print a document's table (`full`: with all columns, `markdown`: so too, as Markdown), and what failed."""
    made = full_table(content, stale) if style else table(content, stale)
    print(Markdown(made.columns, made.rows) if style == "markdown" else made)
    console = Console()
    for line in failures(content):
        console.print(line, style="red", markup=False)
