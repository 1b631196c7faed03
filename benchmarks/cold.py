"""Time to the first result, and of a call on the host: `python -m benchmarks run cold`.

cold     a fresh process with empty caches: from `fuse` to the result on the host, TileLang's import and all compilation
second   a fresh process that finds the kernel on disk: the same steps
steady   a call of a known kind on so few numbers that the kernel is nothing: host time until it returns

On a GPU each is held to its limit, and the exit status says whether all are kept (the C target's kernels are loaded by
TileLang itself, whose import alone takes longer than a second). Beside them stand what imports take and the whole
process from outside, which no limit is set for. Python's bytecode is compiled beforehand, as an installer does.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from statistics import median
from typing import Any

from benchmarks.calls import steady
from benchmarks.environment import device, environment, target
from benchmarks.report import save
from redalg.strategies.table import Table

COLD_S, SECOND_S, STEADY_US = 10.0, 1.0, 30.0
PROCESSES = 5
"""Second processes, of which the median counts."""
SHAPES = {"attention": (2, 8, 512, 512), "causal": (2, 8, 512, 512), "one query": (4, 16, 1, 4096)}
"""Batch, heads, queries and keys, of width 64."""
PROCESS = """
import json, sys, time
now = time.perf_counter
start = now()
import torch
where, dtype, causal, b, h, q, k = *sys.argv[1:3], sys.argv[3] == "causal", *map(int, sys.argv[4:])
given = {name: torch.randn(b, h, n, 64).to(getattr(torch, dtype)).to(where) for name, n in zip("QKV", (q, k, k))}
begin = now()
import redalg as ra
from redalg.library import attention
imported = now()
keys, queries = ra.axes("k q")
fused = attention(mask=keys <= queries) if causal else attention()
derived = now()
result = fused(**given, backend="tilelang").cpu()
end = now()
wanted = torch.nn.functional.scaled_dot_product_attention(*(one.double() for one in given.values()), is_causal=causal)
error = float((result.double() - wanted.cpu()).abs().max() / wanted.abs().max())
print(json.dumps({"torch": begin - start, "import redalg": imported - begin, "fuse": derived - imported,
                  "first call": end - derived, "fuse to result": end - imported, "import to result": end - begin,
                  "loads TileLang": "tilelang" in sys.modules, "error": error}))
"""


def processes(name: str) -> dict[str, Any]:
    """Seconds by step: of a process with empty caches, and of those after it."""
    dtype = "float16" if target() != "c" else "float32"
    command = [sys.executable, "-c", PROCESS, device().type, dtype, name, *map(str, SHAPES[name])]
    with tempfile.TemporaryDirectory() as folder:
        known = {**os.environ, "REDALG_CACHE_DIR": folder, "TILELANG_CACHE_DIR": f"{folder}/tilelang"} | bytecode()
        cold, *later = (process(command, known) for _ in range(1 + PROCESSES))
    return {"cold": cold, "second": sorted(later, key=lambda one: float(one["fuse to result"]))[len(later) // 2],
            "all later": later}  # fmt: skip


@cache
def bytecode() -> dict[str, str]:
    """Variables of a process whose modules are compiled already: those that a first process has imported."""
    folder = tempfile.mkdtemp(prefix="redalg-bytecode-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    known = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
    imports = "import torch, redalg.library, redalg.runtime.call.kernels, redalg.runtime.known.tuned, tilelang"
    subprocess.run([sys.executable, "-c", imports], env={**os.environ, **known}, capture_output=True, check=False)
    return known


def process(command: list[str], known: dict[str, str]) -> dict[str, Any]:
    """One process, and how long it took from outside."""
    start = time.perf_counter()
    done = subprocess.run(command, env=known, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"the process failed:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures | {"process": seconds}


def verdicts(content: dict[str, Any]) -> list[tuple[str, str, float, float, str]]:
    """(what, of what, figure, limit, unit)."""
    found = []
    for name, process in content["processes"].items():
        found.append(("cold, fuse to result", name, process["cold"]["fuse to result"], COLD_S, "s"))
        found.append(("second, fuse to result", name, process["second"]["fuse to result"], SECOND_S, "s"))
    own = {name: us for name, us in content["steady"].items() if not name.startswith("torch")}
    return [*found, *(("steady call, host", name, us, STEADY_US, "µs") for name, us in own.items())]


def show(content: dict[str, Any]) -> bool:
    """A line a figure with its limit; whether all are kept."""
    rows, asked = verdicts(content), content["environment"]["target"] != "c"
    cells = tuple((f"{what}: {name}", f"{figure:.3g} {unit}", f"{limit:g} {unit}",
                   "ok" if figure < limit else "MISSED" if asked else "not asked here")
                  for what, name, figure, limit, unit in rows)  # fmt: skip
    title = f"first results and calls on {content['environment']['device']}"
    print(Table(title, ("of", "figure", "limit", "verdict"), cells))
    for name, process in content["processes"].items():
        for kind in ("cold", "second"):
            steps = ", ".join(f"{key} {value:.3g}" for key, value in process[kind].items() if key != "loads TileLang")
            print(f"{name}, {kind}: {steps}; TileLang loaded: {process[kind]['loads TileLang']}")
    peers = ", ".join(f"{name} {us:.3g}" for name, us in content["steady"].items())
    print(f"host µs a call: {peers}")
    return not asked or all(figure < limit for _, _, figure, limit, _ in rows)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", choices=SHAPES, default=list(SHAPES), help="of cold: some functions")


def run(options: argparse.Namespace) -> bool:
    """Measure, write and show; whether every limit is kept."""
    content: dict[str, Any] = {"benchmark": "cold", "environment": environment()}
    content["processes"] = {name: processes(name) for name in options.only}
    runs = [steady() for _ in range(3)]
    content["steady"] = {name: median(one[name] for one in runs) for name in runs[0]}
    if options.out:
        save(options.out / "cold.json", content)
    return show(content)
