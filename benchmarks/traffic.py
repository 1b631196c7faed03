"""Launches and bytes of one call of a model, by Nsight Compute.

Bytes are those that kernels move to and from the device's memory (dram), and to and from its L2 cache. Nsight Compute
runs a process of its own for each contestant (`first_calls`), in which one call is profiled, after some that are not.
Caches are left as the kernel before leaves them: what stays in L2 between two kernels is not counted among the bytes
of memory, but it is among those of L2. What such a process compiles, an earlier one has kept.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import models
from benchmarks.compete import OWN, said
from benchmarks.environment import ROOT
from benchmarks.first_calls import LIMIT_S, command_of, first_calls_table, result_of
from benchmarks.markdown import Table

PROFILER = "ncu"
DRAM, L2 = ("dram__bytes_read.sum", "dram__bytes_write.sum"), ("lts__t_bytes.sum",)
OPTIONS = ("--csv", "--print-units", "base", "--target-processes", "application-only",
           "--profile-from-start", "off", "--cache-control", "none",
           "--clock-control", "none", "--metrics", ",".join((*DRAM, *L2)))  # fmt: skip
LARGEST = 12
"""Kernels that are named, those that move most."""
MEGABYTE = 1e6


class Moved(NamedTuple):
    """The launches of a kernel, and the bytes that they move to and from memory, and to and from L2."""

    launches: int = 0
    dram_bytes: int = 0
    l2_bytes: int = 0


# ---- bytes -----------------------------------------------------------------------------------------------------------


def reason_against_profiler() -> str:
    """The reason why bytes cannot be measured here; empty if they can."""
    if shutil.which(PROFILER):
        return ""
    return f"`{PROFILER}`, the command of Nsight Compute, is not on the PATH: install it, or leave the option out"


def profile_row(row: str, model: models.Model, *, are_warm: bool) -> dict[str, dict[str, Any]]:
    """The launches and bytes of a call of each contestant but PyTorch's operators, by Nsight Compute.

    A process without the profiler comes first, unless caches `are_warm`: what it decides, it measures undisturbed.
    """
    found = dict[str, dict[str, Any]]()
    for name in models.contestants_of(model):
        if name != models.PLAIN:
            first = {} if are_warm else result_of(command_of(row, name), {})
            found[name] = first if "failure" in first else profile_process(command_of(row, name, profiled=True))
    return found


def profile_process(command: list[str]) -> dict[str, Any]:
    """The launches and bytes of what a process shows to the profiler, or the reason why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "profile.csv"
        profiler = [PROFILER, *OPTIONS, "--log-file", str(log), *command]
        try:
            done = subprocess.run(profiler, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S)
            text = log.read_text(encoding="utf-8") if log.exists() else ""
            return read_profile(text) or {"failure": reason_of(f"{text}\n{done.stdout}\n{done.stderr}")}
        except (OSError, ValueError, subprocess.TimeoutExpired) as failure:
            return {"failure": said(failure)}


def reason_of(text: str) -> str:
    r"""The first error that a profiler tells, else the last line of all.

    >>> reason_of("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - no permission\n==WARNING== No kernels")
    'ERR_NVGPUCTRPERM - no permission'
    """
    lines = text.strip().splitlines() or ["the profiler said nothing"]
    return next((line.removeprefix("==ERROR==") for line in lines if line.startswith("==ERROR==")), lines[-1]).strip()


def read_profile(text: str) -> dict[str, Any] | None:
    """The launches, bytes and largest kernels that a profiler's CSV tells; None if no kernel stands in it.

    Raises:
        ValueError: a metric lacks, or is no number of bytes.
    """
    found, launches = defaultdict[str, dict[str, int]](dict), dict[str, str]()
    for line in csv_rows(text):
        launch, metric = line["ID"], line["Metric Name"]
        launches[launch] = line["Kernel Name"]
        if line["Metric Unit"] != "byte":
            raise ValueError(f"{metric} of launch {launch} is told in {line['Metric Unit']!r}, and not in bytes")
        found[launch][metric] = round(float(line["Metric Value"].replace(",", "")))
    if not launches:
        return None
    by_kernel = dict[str, Moved]()
    for launch, name in launches.items():
        if missing := [metric for metric in (*DRAM, *L2) if metric not in found[launch]]:
            raise ValueError(f"launch {launch} of {name} has no {missing[0]}")
        moved = (sum(found[launch][metric] for metric in metrics) for metrics in (DRAM, L2))
        by_kernel[name] = Moved(*map(sum, zip(by_kernel.get(name, Moved()), (1, *moved), strict=True)))
    total = Moved(*map(sum, zip(*by_kernel.values(), strict=True)))
    largest = sorted(by_kernel.items(), key=lambda item: -item[1].dram_bytes)[:LARGEST]
    return {**total._asdict(), "largest": [[name, *moved] for name, moved in largest]}


def csv_rows(text: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a profiler's CSV, which begins after lines of its own."""
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    yield from csv.DictReader(line for line in lines[start:] if line.startswith('"'))


# ---- what is shown of them -------------------------------------------------------------------------------------------


def launches_table(content: Mapping[str, Any]) -> Table | None:
    """The launches and bytes of every row that has some, by contestant; None if none has."""
    names = list(dict.fromkeys(name for line in content["rows"] for name in line["contestants"]))
    rows = [(line["name"], *(kernels_cell(line, name) for name in names),
             *(bytes_cell(line, name, field) for field in FIELDS for name in names[:2]))
            for line in content["rows"] if "profile" in line or is_counted(line)]  # fmt: skip
    kernels = [f"{name}, kernels" for name in names]
    moved = [f"{name}, {title}" for title in FIELDS.values() for name in names[:2]]
    return Table(("row", *kernels, *moved), rows) if rows else None


FIELDS = {"counted_bytes": "MB as Inductor counts", "dram_bytes": "MB of memory", "l2_bytes": "MB of L2"}
"""Bytes of a contestant: those that were counted, and those that Nsight Compute measured."""


def is_counted(line: Mapping[str, Any]) -> bool:
    """Tell if launches or bytes of a row were counted."""
    return any(one.get("launches") or "counted_bytes" in one for one in line["contestants"].values())


def bytes_told(line: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """All that is known of a contestant's bytes."""
    counted = line["contestants"].get(name, {})
    own = {key: counted[key] for key in ("counted_bytes",) if key in counted}
    return {**line.get("profile", {}).get(name, {}), **own}


def kernels_cell(line: Mapping[str, Any], name: str) -> str:
    """The kernels of a contestant, and its copies and fills if there are any."""
    count = line["contestants"].get(name, {}).get("launches")
    copies = f" + {count['copies']}" if count and count["copies"] else ""
    return f"{count['kernels']}{copies}" if count else "-"


def bytes_cell(line: Mapping[str, Any], name: str, field: str) -> str:
    """The megabytes of a contestant; beside those of redalg their share of Inductor's."""
    own = bytes_told(line, name)
    if field not in own:
        return "failed" if "failure" in own and field != "counted_bytes" else "-"
    peer = bytes_told(line, models.PEER).get(field)
    share = f" ({own[field] / peer:.2f})" if name == OWN and peer else ""
    return f"{own[field] / MEGABYTE:.4g}{share}"


TABLES = {"First calls": first_calls_table, "Launches and bytes of a call": launches_table}
"""The tables of whole models beside that of their times: of their document, None if it has no such figure."""
