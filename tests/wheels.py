"""The wheel and the source archive in clean environments: `python -m tests.wheels [EXTRA …]`, or `make wheels`.

    build     both archives, which `twine check --strict` takes
    install   the wheel with an extra, into an environment of its own, which is removed afterwards
    try       the command, a program for what the extra gives, `mypy --strict` on a file that uses the surface
    table     extra, seconds, size, checks, result; the exit code is 1 if a check failed

`dev` and `integration` are not among the extras: `make test` and `make integration` install them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from tests.house.source import ROOT

START = """\
import numpy as np, redalg as ra
n = ra.axes("n")
variance = ra.fuse(ra.var(ra.tensor("x[b,n]"), n))
data = np.array([[1.0, 3.0], [2.0, 2.0]])
"""
PROGRAMS = {
    "numpy": 'assert variance(x=data, backend="numpy").tolist() == [1.0, 0.0]',
    "verdict": "",  # the block of README that needs no torch
    "missing": """\
from redalg.data import arrow, dask, datafusion, ray
import redalg.torch
accuracy = variance.accuracy(families=["ordinary"], sizes={"b": 1, "n": 8})
calls = {
    "redalg[torch]": lambda: variance(x=data, backend="torch"), "redalg[tilelang]": lambda: variance.tune(x=data),
    "redalg[plot]": accuracy.plot, "redalg[dask]": lambda: dask.reduction(variance, data, axis=n),
    "redalg[arrow]": lambda: arrow.state_of(variance, []), "redalg[datafusion]": lambda: datafusion.udaf(variance),
    "redalg[ray]": lambda: ray.aggregation(variance),
}
for install, call in calls.items():
    try:
        call()
    except ra.BackendError as error:
        assert f'pip install "{install}"' in str(error), error
    else:
        raise AssertionError(install)
""",
    "readme": "",  # all blocks of README
    "compile backend": """\
import torch
from torch._dynamo import list_backends
assert "redalg" in list_backends(exclude_tags=())
x = torch.tensor(data, requires_grad=True)
variance(x=x).sum().backward()
assert x.grad.tolist() == [[-1.0, 1.0], [0.0, 0.0]]
""",
    "kernel": """\
import subprocess, sys, torch
assert variance(x=torch.tensor(data), backend="tilelang").tolist() == [1.0, 0.0]
place = variance.save("saved.py", sizes={"b": 2, "n": 2}, dtypes="float64", target="c")
subprocess.run([sys.executable, str(place)], check=True)
""",
    "plot": """\
variance.accuracy(families=["ordinary"], sizes={"b": 1, "n": 8}).plot().savefig("figure.png")
""",
    "notebook": """\
import nbformat
from nbclient import NotebookClient
code = "import redalg as ra\\nn = ra.axes('n')\\nra.fuse(ra.var(ra.tensor('x[b,n]'), n))"
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
[output] = NotebookClient(notebook, kernel_name="python3").execute().cells[0].outputs
assert "<details>" in output.data["text/html"]
""",
    "dask": """\
import dask.array as da
from redalg.data.dask import reduction
assert reduction(variance, da.from_array(data, chunks=(1, 1)), axis=n).compute().tolist() == [1.0, 0.0]
""",
    "arrow": """\
import pyarrow as pa
from redalg.data.arrow import state_of
total = ra.fuse(ra.var(ra.tensor("y[n]"), n))
table = pa.table({"y": [1.0, 3.0]})
assert float(total.finish(state_of(total, table))) == 1.0
""",
    "datafusion": """\
import pyarrow as pa
from datafusion import SessionContext
from redalg.data.datafusion import udaf
context = SessionContext()
context.from_arrow(pa.table({"y": [1.0, 3.0]}), "readings")
context.register_udaf(udaf(ra.fuse(ra.var(ra.tensor("y[n]"), n)), "spread"))
assert context.sql("SELECT spread(y) AS s FROM readings").to_pydict() == {"s": [1.0]}
""",
    "ray": """\
import ray
from redalg.data.ray import aggregation
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
total = ra.fuse(ra.var(ra.tensor("y[n]"), n))
assert ray.data.from_items([{"y": 1.0}, {"y": 3.0}]).aggregate(aggregation(total, "spread")) == {"spread": 1.0}
""",
}
"""Check -> the program after `START`."""
LIGHT = ("command", "numpy", "verdict", "mypy")
ENGINES = ("dask", "arrow", "datafusion")
CHECKS = {
    "": (*LIGHT, "missing"), "sdist": (*LIGHT, "missing"),
    "torch": (*LIGHT, "readme", "compile backend"),
    "tilelang": (*LIGHT, "readme", "kernel", "kernels by command"),
    "plot": (*LIGHT, "plot"), "notebook": (*LIGHT, "notebook"), "dask": (*LIGHT, "dask"), "arrow": (*LIGHT, "arrow"),
    "datafusion": (*LIGHT, "datafusion"), "ray": (*LIGHT, "ray"), "docs": (*LIGHT, "site"),
    "all": (*LIGHT, "readme", "kernel", "kernels by command", "plot", "notebook", *ENGINES),
}  # fmt: skip
"""Extra -> its checks. The empty one is the bare wheel, and `sdist` the bare source archive."""
COMMANDS = (
    "--help", "list statistics", "show variance --target c", "explain variance", "plans variance --device H100",
    "source variance --target c", "cache", "doctor",
)  # fmt: skip
KERNEL_COMMANDS = ("bench variance --sizes 'b=4 n=64' --device cpu", "demo --length 128 --heads 2")
TYPED = """\
import numpy as np
import redalg as ra
from redalg.library import attention
from sympy import exp  # type: ignore[import-untyped]

k, n = ra.axes("k n")
x, y = ra.tensors("x[b,n] y[b,n]")
score = ra.let("score", x * y)
fused: ra.Fused = ra.fuse({"total": ra.sum(exp(score), n), "spread": ra.var(x, n)}, axes="b")
verdict = ra.analyze(ra.max(score, n))
if isinstance(verdict, ra.Exact):
    found: ra.Fused = verdict.fused
elif not isinstance(verdict, ra.Approximate):
    reason: str = verdict.reason
data = np.ones((2, 3))
state: ra.State = fused.merge(fused.leaf({"x": data, "y": data}), fused.leaf({"x": data, "y": data}))
outputs = fused.finish(state)
text: str = attention().explain(width=80)
program: str = fused.source("c", sizes={"b": 2, "n": 3})
schedule: ra.Schedule | ra.Definition | ra.LibraryProduct = fused.plans(sizes={"b": 2, "n": 3})[0].plan
wrong: int = fused.explain()
"""
"""A user's file: its last line is wrong, and no other."""


@dataclass(frozen=True)
class Trial:
    """An extra that was tried.

    Attributes:
        name: the extra.
        install_s, mebibytes: the time of its installation, and the size of what pip put there.
        failures: check -> the end of what it printed.
    """

    name: str
    install_s: float
    mebibytes: float
    failures: dict[str, str]


def output_of(*command: object, folder: Path) -> str:
    """What a command prints.

    Raises:
        RuntimeError: it ends with another code than 0.
    """
    done = subprocess.run([str(part) for part in command], cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{done.stdout}\n{done.stderr}".strip())
    return done.stdout


def build_archives(folder: Path) -> list[Path]:
    """The source archive and the wheel, made and looked at as the package index does."""
    tools = folder / "tools"
    output_of(sys.executable, "-m", "venv", tools, folder=folder)
    output_of(tools / "bin" / "pip", "install", "--quiet", "build", "twine", "mypy", folder=folder)
    output_of(tools / "bin" / "python", "-m", "build", "--outdir", folder / "dist", ROOT, folder=folder)
    archives = sorted((folder / "dist").iterdir())
    output_of(tools / "bin" / "twine", "check", "--strict", *archives, folder=folder)
    return archives


def readme_blocks() -> list[str]:
    """The blocks of README, in order: the last one needs no torch."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def program_of(check: str) -> str:
    """The program of a check."""
    if check == "readme":
        return "\n".join(readme_blocks())
    if check == "verdict":
        return f"{START}from sympy import Abs\n{readme_blocks()[-1]}"
    return START + PROGRAMS[check]


def run_check(check: str, binaries: Path, source: Path, folder: Path) -> None:
    """Run a check in an environment.

    Args:
        check: its name.
        binaries: the environment's `bin`.
        source: the source archive.
        folder: an empty folder, in which it runs.

    Raises:
        RuntimeError: it fails; the message is what it printed.
    """
    if check in ("command", "kernels by command"):
        for line in COMMANDS if check == "command" else KERNEL_COMMANDS:
            output_of("sh", "-c", f"{binaries / 'redalg'} {line}", folder=folder)
    elif check == "mypy":
        (folder / "mine.py").write_text(TYPED, encoding="utf-8")
        tools = binaries.parents[1] / "tools" / "bin"
        command = [tools / "mypy", "--strict", "--python-executable", binaries / "python", "mine.py"]
        done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        lines = [line.split(":")[1] for line in done.stdout.splitlines() if " error: " in line]
        if lines != [str(len(TYPED.splitlines()))]:
            raise RuntimeError(done.stdout + done.stderr)
    elif check == "site":
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        [checkout] = (path for path in folder.iterdir() if path.is_dir())
        output_of(binaries / "python", "-m", "docs.generate", "check", folder=checkout)
    else:
        (folder / "program.py").write_text(program_of(check), encoding="utf-8")
        output_of(binaries / "python", "program.py", folder=folder)


def try_extra(name: str, wheel: Path, source: Path, folder: Path) -> Trial:
    """An extra in an environment of its own, which is removed."""
    archive = source if name == "sdist" else wheel
    with TemporaryDirectory(dir=folder, prefix=f"{name or 'bare'}-") as place:
        binaries = folder / Path(place).name / "bin"
        output_of(sys.executable, "-m", "venv", place, folder=folder)
        requirement = f"{archive}[{name}]" if name not in ("", "sdist") else str(archive)
        pinned = ["--constraint", ROOT / "constraints.txt"]
        begin = time.monotonic()
        try:
            output_of(binaries / "python", "-m", "pip", "install", "--quiet", *pinned, requirement, folder=folder)
            seconds = time.monotonic() - begin
            output_of(binaries / "python", "-m", "pip", "check", folder=folder)
        except RuntimeError as error:
            return Trial(name, time.monotonic() - begin, 0.0, {"install": str(error)})
        bytes_there = sum(path.stat().st_size for path in Path(place).rglob("*") if path.is_file())
        failures = {}
        for check in CHECKS[name]:
            with TemporaryDirectory(dir=folder) as there:
                try:
                    run_check(check, binaries, source, Path(there))
                except RuntimeError as error:
                    failures[check] = str(error)[-2000:]
        return Trial(name, seconds, bytes_there / 2**20, failures)


def try_extras(names: Sequence[str], folder: Path) -> Iterator[Trial]:
    """Each extra in turn."""
    wheel, source = build_archives(folder)
    for name in names:
        yield try_extra(name, wheel, source, folder)


def table_of(trials: Sequence[Trial]) -> Table:
    """The trials, a row each."""
    table = Table("extra", "install", "size", "checks", "result", title="the wheel in clean environments")
    for trial in trials:
        result = f"fails: {', '.join(trial.failures)}" if trial.failures else "ok"
        cells = (trial.name or "none", f"{trial.install_s:.0f} s", f"{trial.mebibytes:.0f} MiB")
        table.add_row(*cells, ", ".join(CHECKS[trial.name]), result)
    return table


def main() -> int:
    """Try the extras that are asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.wheels", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("extra", nargs="*", help=f"some of {', '.join(filter(None, CHECKS))}, none (default: all)")
    names = ["" if name == "none" else name for name in parser.parse_args().extra] or list(CHECKS)
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        parser.error(f"no such extra: {', '.join(unknown)}")
    console, trials = Console(), []
    with TemporaryDirectory(prefix="redalg-wheels-") as folder:
        for trial in try_extras(names, Path(folder)):
            trials.append(trial)
            result = "fails" if trial.failures else "ok"
            told = f"{trial.name or 'none'}: {trial.install_s:.0f} s, {trial.mebibytes:.0f} MiB, {result}"
            console.print(told, highlight=False)
            for check, text in trial.failures.items():
                console.print(f"{trial.name or 'none'}, {check}:\n{text}", markup=False, highlight=False)
    console.print(table_of(trials))
    return int(any(trial.failures for trial in trials))


if __name__ == "__main__":
    raise SystemExit(main())
