"""Small kernels of every kind under compute-sanitizer: `python -m tests.sanitize [--tools memcheck …] [--out folder]`.

    warm    one process compiles every kernel into the cache on disk, several at once
    tool    processes under the tool find them there and launch each once; between the launches they say where they are
    table   kinds x tools: errors that the tool reported between a kind's marks, and whether the results are right

Inputs are drawn on the CPU and results are compared there, without PyTorch's caching allocator: every kernel that the
tool sees is redalg's, and an access beyond a tensor leaves what was allocated for it. Without a GPU or the tool nothing
is checked, and a line says so; `--dry` runs the same launches without a tool, on the CPU through the C target too.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.environment import environment, target
from benchmarks.report import save
from redalg.runtime.call.kernels import kernel_for
from tests.cases.kernels import problem, worst_error
from tests.cases.small_kernels import BFLOAT, DOUBLE, HALF, SINGLE, Small, given, plan_of, smalls

TOOLS = ("memcheck", "racecheck")
OPTIONS = {"memcheck": ("--report-api-errors", "no"), "racecheck": ("--racecheck-report", "analysis")}
BOUNDS = {DOUBLE: 1e-6, SINGLE: 1e-4, HALF: 1e-2, BFLOAT: 5e-2}
"""Of relative errors: that a kernel ran, not how near it is (`python -m benchmarks judge` says that)."""
BEGIN, DONE = "### begin ", "### done "
PROBLEM = re.compile(r"^=+ (?!.*SUMMARY)(?:Invalid|Error|Warning|Race|Potential|Program hit|Address|Uninitialized)")
SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: (\d+)")


# ---- one launch ------------------------------------------------------------------------------------------------------


def warm(one: Small, chip: str) -> str:
    """Compile what a launch takes; gives back what went wrong."""
    try:
        tensors = given(one)
        known = problem(one.form(), tensors, one.sizes)
        one.form().compile(chip, **known, empty=one.empty, plan=plan_of(one, tensors, chip))
        if one.kind == "run-time sizes":
            kernel_for(one.form().lower(chip, **known, varying=("h", "q")))
    except Exception as failure:  # noqa: BLE001 - met again by the launch itself
        return f"{one.kind}, {one.name}: {type(failure).__name__}: {failure}"[:300]
    return ""


def launch(one: Small, device: str, chip: str) -> str:
    """Run once; gives back what is wrong with the result, or that it is right."""
    try:
        tensors, form = given(one), one.form()
        there = {name: array.to(device) for name, array in tensors.items()}
        made = form(**there, backend="tilelang", plan=plan_of(one, tensors, chip), empty=one.empty, sizes=one.sizes)
        if device == "cuda":
            torch.cuda.synchronize()
        made = made.cpu() if isinstance(made, torch.Tensor) else type(made)(*(part.cpu() for part in made))
        wanted = form.reference(**tensors, sizes=one.sizes)
        bound = 0.1 if one.kind == "8-bit floats" else BOUNDS[one.dtype]
        error = worst_error(made, wanted, one.empty)
    except Exception as failure:  # noqa: BLE001 - one launch never ends the run
        return f"{type(failure).__name__}: {' '.join(str(failure).split())[:200]}"
    return "right" if error <= bound else f"wrong by {error:.1e}"


def launches(device: str, chip: str, listed: Sequence[Small], share: slice) -> None:
    """What runs under the tool: a share of the launches between two marks each, kernels found on disk beforehand."""
    own = [*enumerate(listed)][share]
    for _, one in own:
        warm(one, chip)
    for place, one in own:
        say(f"{BEGIN}{place}")
        say(f"{DONE}{place} {launch(one, device, chip)}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


# ---- the runs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """One launch under one tool: how many errors were reported, and what came of the result (empty: it never ran)."""

    errors: int = 0
    result: str = ""


def read(text: str, number: int) -> tuple[list[Outcome], int, int]:
    """(outcomes of launches, errors reported outside of all, the tool's own total: -1 where it gave none)."""
    made, outside, total, here = [Outcome()] * number, 0, -1, None
    for line in text.splitlines():
        if line.startswith(BEGIN):
            here = int(line.removeprefix(BEGIN))
        elif line.startswith(DONE):
            place, result = line.removeprefix(DONE).split(" ", 1)
            made[int(place)] = replace(made[int(place)], result=result)
            here = None
        elif found := SUMMARY.search(line):
            total = int(found[2])
        elif PROBLEM.search(line) and here is None:
            outside += 1
        elif PROBLEM.search(line) and here is not None:
            made[here] = replace(made[here], errors=made[here].errors + 1)
    return made, outside, total


def read_all(texts: Sequence[str], number: int) -> tuple[list[Outcome], int, int]:
    """What `read` finds in the texts of processes that share the launches; the total is −1 where one gave none."""
    outcomes, outside, totals = zip(*(read(text, number) for text in texts), strict=True)
    together = [Outcome(sum(one.errors for one in shared), "".join(one.result for one in shared))
                for shared in zip(*outcomes, strict=True)]  # fmt: skip
    return together, sum(outside), -1 if min(totals) < 0 else sum(totals)


def sanitizer() -> str | None:
    """The tool's path."""
    folders = [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders += [Path("/usr/local/cuda/bin"), *Path(torch.__file__).parents[1].glob("nvidia/*/bin")]
    found = (shutil.which("compute-sanitizer", path=str(one)) for one in folders)
    return shutil.which("compute-sanitizer") or next((one for one in found if one), None)


def run(command: Sequence[str], seconds: int) -> str:
    """Everything that a process says, also when it is stopped."""
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "TILELANG_PRINT_ON_COMPILATION": "0"}
    try:
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds,
                              check=False)  # fmt: skip
        return done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(errors="replace") + f"\nstopped after {seconds} s\n"


def table(listed: Sequence[Small], runs: Mapping[str, list[Outcome]]) -> Table:
    """A line a kind: for each tool its errors, and launches whose result is right."""
    made = Table(title="small kernels of every kind")
    made.add_column("kind")
    made.add_column("launches", justify="right")
    for tool in runs:
        made.add_column(f"{tool}: errors", justify="right")
        made.add_column("right", justify="right")
    for kind in dict.fromkeys(one.kind for one in listed):
        places = [place for place, one in enumerate(listed) if one.kind == kind]
        figures = []
        for outcomes in runs.values():
            here = [outcomes[place] for place in places]
            figures += [str(sum(one.errors for one in here)), str(sum(one.result == "right" for one in here))]
        made.add_row(kind, str(len(places)), *figures)
    return made


def problems(listed: Sequence[Small], tool: str, outcomes: list[Outcome]) -> list[str]:
    """Launches that are not clean, with what is known."""
    return [
        f"{tool}: {one.kind}, {one.name}: {outcome.errors} errors; {outcome.result or 'it did not run to its end'}"
        for one, outcome in zip(listed, outcomes, strict=True)
        if outcome.errors or outcome.result != "right"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sanitize", description=__doc__)
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument(
        "--kinds", nargs="+", default=[], metavar="WORD", help="those whose names have one of the words"
    )
    parser.add_argument("--dry", action="store_true", help="launch without a tool")
    parser.add_argument("--seconds", type=int, default=270, help="after which a tool is stopped")
    parser.add_argument("--out", type=Path, help="the folder that sanitize.json and the tools' words are written into")
    parser.add_argument("--workers", type=int, default=1, help="how many processes under a tool share the launches")
    parser.add_argument("--launch", type=int, metavar="FIRST", help=argparse.SUPPRESS)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.launch is not None:
        launches(device, target(), smalls(options.kinds), slice(options.launch, None, options.workers))
        return 0
    tool = sanitizer()
    if not options.dry and (device == "cpu" or tool is None):
        missing = "no CUDA device" if device == "cpu" else "no compute-sanitizer (it comes with the CUDA toolkit)"
        say(f"skipped: there is {missing} here, so nothing was checked. `--dry` launches the kernels without a tool.")
        return 0
    return checked([None] if options.dry else options.tools, tool, options)


def checked(tools: Sequence[str | None], tool: str | None, options: argparse.Namespace) -> int:
    """Warm, run, show, write; 1 where anything is not clean."""
    console = Console() if sys.stdout.isatty() else Console(width=120)
    listed = smalls(options.kinds)
    with ThreadPoolExecutor(1 if target() == "c" else os.cpu_count()) as pool:
        for line in filter(None, pool.map(lambda one: warm(one, target()), listed)):
            console.print(f"not compiled: {line}", markup=False)
    kinds = ["--kinds", *options.kinds] if options.kinds else []
    own = [sys.executable, "-m", "tests.sanitize", "--workers", str(options.workers), *kinds, "--launch"]
    runs, wrong, words = dict[str, list[Outcome]](), list[str](), dict[str, str]()
    for name in tools:
        shown = name or "no tool"
        command = own if name is None else [str(tool), "--tool", name, *OPTIONS[name], "--print-limit", "1000", *own]
        commands = [[*command, str(first)] for first in range(options.workers)]
        with ThreadPoolExecutor(options.workers) as pool:
            texts = list(pool.map(lambda one: run(one, options.seconds), commands))
        words[shown] = "".join(texts)
        runs[shown], outside, total = read_all(texts, len(listed))
        wrong += problems(listed, shown, runs[shown])
        if name is not None and total != 0:
            said = f"{total} in all" if total > 0 else "no summary: " + words[shown][-300:]
            wrong.append(f"{shown}: {outside} errors outside of all launches; {said}")
    console.print(table(listed, runs))
    for line in wrong:
        console.print(line, style="red", markup=False)
    write(options.out, listed, runs, wrong, words)
    return int(bool(wrong))


def write(
    out: Path | None, listed: Sequence[Small], runs: Mapping[str, list[Outcome]], wrong: list[str],
    words: Mapping[str, str],
) -> None:  # fmt: skip
    """The outcomes as JSON, and what each tool said."""
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    rows = [{"kind": one.kind, "name": one.name, "dtype": str(one.dtype).removeprefix("torch."),
             "plan": dict(one.plan), "tools": {tool: asdict(found[place]) for tool, found in runs.items()}}
            for place, one in enumerate(listed)]  # fmt: skip
    content = {"benchmark": "sanitize", "environment": environment(), "rows": rows, "wrong": wrong}
    save(out / "sanitize.json", content)
    for tool, text in words.items():
        (out / f"sanitize_{tool.replace(' ', '_')}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
