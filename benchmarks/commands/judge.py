"""Judge errors: redalg's and its peers' against float64, of every family, of attention's uses and of large tensors.

    judge [FAMILY …]        run, judge, show; all families if none is named
    judge --from FILE …     judge what earlier runs wrote

The bound and the kinds of inputs stand in `benchmarks.accuracy`. The exit status says whether every case is right.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from os import cpu_count
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from benchmarks import report as documents
from benchmarks.accuracy import attended, large, published
from benchmarks.accuracy.case import Case, Result, run
from benchmarks.accuracy.report import document, failures, table
from benchmarks.compete import texts_sha256
from benchmarks.environment import environment, target
from benchmarks.families import FAMILIES
from benchmarks.family import Problem

NAME = "accuracy"
"""The benchmark of the document that holds the errors of every family."""
NAMES = (*FAMILIES, "attention", "large")
Compiled = dict[Hashable, "Future[str]"]


def cases(name: str, device: torch.device) -> Iterator[Case]:
    """Those of a family; of attention's uses; of tensors that are large."""
    if name in ("attention", "large"):
        return (attended if name == "attention" else large).cases(device)
    return published.cases(name, device)


def compiling(wanted: Sequence[Case], chip: str, device: torch.device) -> Compiled:
    """All kernels at once: the compilers are processes of their own, so threads suffice."""
    kernels: Compiled = {}
    with ThreadPoolExecutor(1 if chip == "c" else cpu_count()) as pool:
        for case in wanted:
            tensors = shapes_of(case, device)
            if key_of(case, tensors) not in kernels:
                kernels[key_of(case, tensors)] = pool.submit(compiled, case, tensors, chip)
    return kernels


def shapes_of(case: Case, device: torch.device) -> dict[str, Any]:
    """Tensors as the case draws them, without their memory: kept are shapes and dtypes."""
    return {name: torch.empty(one.shape, dtype=one.dtype, device="meta") for name, one in case.drawn(device).items()}


def key_of(case: Case, tensors: dict[str, Any]) -> Hashable:
    """Everything that a kernel is compiled for."""
    shapes = tuple((name, tuple(one.shape), str(one.dtype)) for name, one in tensors.items())
    return (id(case.fused()), tuple(case.row.sizes.items()), shapes, case.options.get("empty"))


def compiled(case: Case, tensors: dict[str, Any], chip: str) -> str:
    """The hash of what was emitted and compiled, of all functions, without comments and docstrings."""
    dtypes = {name: str(one.dtype).removeprefix("torch.") for name, one in tensors.items()}
    shapes = {name: tuple(one.shape) for name, one in tensors.items()}
    options = {"empty": case.options["empty"]} if "empty" in case.options else {}
    problems = case.problems(Problem(case.fused(), dict(case.row.sizes), dtypes, shapes))
    kernels = [function.compile(chip, sizes=sizes, dtypes=dtypes, shapes=shapes, **options)
               for function, sizes, dtypes, shapes in problems]  # fmt: skip
    return texts_sha256(kernel.source.text for kernel in kernels)


def hash_of(case: Case, kernels: Compiled, device: torch.device) -> str | None:
    """The hash of a case's kernel; None where it was not compiled."""
    found = kernels.get(key_of(case, shapes_of(case, device)))
    return None if found is None or found.exception() else found.result()


def judged(case: Case, device: torch.device) -> Result:
    """Run a case; what stops it is recorded."""
    start = time.perf_counter()
    try:
        result = run(case, device)
    except Exception as failure:  # noqa: BLE001 - one row never ends the run
        result = Result(case, {}, {}, {}, {"the case": f"{type(failure).__name__}: {str(failure)[:300]}"})
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return replace(result, seconds=time.perf_counter() - start)


def measure(name: str, options: argparse.Namespace, device: torch.device) -> bool:
    """One family: compiled, run, written, shown; whether all of it is right."""
    chip = target() if device.type == "cuda" else "c"
    wanted = [one for one in cases(name, device) if not options.kinds or one.kind in options.kinds]
    start = time.perf_counter()
    kernels = compiling(wanted, chip, device)
    seconds = {"compiling": time.perf_counter() - start}
    start = time.perf_counter()
    shown = track(wanted, description=name, console=Console(stderr=True))
    results = [judged(one, device) for one in shown]
    seconds["running"] = time.perf_counter() - start
    hashes = [hash_of(one, kernels, device) for one in wanted]
    content = document(name, environment() | {"target": chip}, results, hashes, seconds)
    if options.out:
        keep(options.out / "accuracy.json", name, content)
    show(content)
    return all(one.ok for one in results)


def keep(path: Path, name: str, content: dict[str, Any]) -> None:
    """One file for all families, written after each, so that a run that is cut short leaves what it has."""
    known: dict[str, Any] = {"benchmark": NAME, "families": {}}
    known = documents.load(path) if path.exists() else known
    documents.save(path, known | {"families": known["families"] | {name: content}})


def show(content: dict[str, Any]) -> None:
    print(table(content))
    console = Console()
    for line in failures(content):
        console.print(line, style="red" if line.startswith("NOT OK") else "yellow", markup=False)


def shown(files: Sequence[Path], out: Path | None) -> int:
    """Tables of what earlier runs wrote, gathered in one file where a folder is named; 1 where a case is not ok."""
    families = [each for file in files for each in documents.load_named(file, of=NAME)["families"].items()]
    for name, content in families:
        show(content)
        if out:
            keep(out / "accuracy.json", name, content)
    return int(not all(case["ok"] for _, content in families for case in content["cases"]))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(NAMES)}; all if none is named")
    parser.add_argument("--kinds", nargs="+", default=[], metavar="KIND", help="some kinds of inputs, such as normal")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write every error into accuracy.json in this folder")
    parser.add_argument("--from", dest="files", nargs="+", type=Path, default=[], metavar="FILE",
                        help="judge what earlier runs wrote instead")  # fmt: skip


def main(options: argparse.Namespace) -> int:
    if options.files:
        return shown(options.files, options.out)
    unknown = [name for name in options.families if name not in NAMES]
    if unknown:
        sys.exit(f"no family {', '.join(unknown)}; there are {', '.join(NAMES)}")
    right = [measure(name, options, torch.device(options.device)) for name in options.families or NAMES]
    return int(not all(right))
