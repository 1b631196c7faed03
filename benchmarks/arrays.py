"""The array backends on the CPU: time and peak memory of calls, beside those of another commit.

Run this commit and the other one on one machine, one after the other, from a worktree each:

    python -m benchmarks run arrays --out DIR [--beside OTHER/arrays.json]
"""

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

import redalg as ra
from benchmarks import report
from benchmarks.environment import environment
from benchmarks.markdown import Table
from redalg.library import attention, variance

NAME = "arrays"
BACKENDS = ("numpy", "torch")
SECONDS = 1.0
"""Time that the calls of one case take."""
n, k, q = ra.axes("n k q")
j = ra.axis("j", size=5)
x, w = ra.tensors("x[b,n] w[b,n]")
FORMS: Mapping[str, Callable[[], ra.Fused]] = {
    "variance": variance,
    "attention": attention,
    "causal attention": lambda: attention(mask=k <= q),
    "topk": lambda: ra.fuse(ra.topk(x, n, j)[0], axes="b j"),
    "logsumexp": lambda: ra.fuse(ra.logsumexp(x, n)),
    "softmax": lambda: ra.fuse(ra.softmax(x, n)),
    "weighted variance": lambda: ra.fuse(ra.sum(w * (x - ra.sum(w * x, n) / ra.sum(w, n)) ** 2, n) / ra.sum(w, n)),
}


@final
@dataclass(frozen=True)
class Case:
    """A form at sizes, in float32."""

    form: str
    sizes: Mapping[str, int]

    @property
    def name(self) -> str:
        """The form and its sizes."""
        return f"{self.form}, {', '.join(f'{axis} {size}' for axis, size in self.sizes.items())}"

    def data(self, fused: ra.Fused) -> dict[str, np.ndarray]:
        """Normal numbers; weights are their squares."""
        rng = np.random.default_rng(0)
        shapes = {one.name: [self.sizes[str(axis)] for axis in one.indices] for one in fused.cascade.elements()}
        drawn = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
        return {name: array**2 if name == "w" else array for name, array in drawn.items()}


def attended(q: int, k: int) -> dict[str, int]:
    return {"b": 1, "h": 4, "q": q, "k": k, "d": 64, "e": 64}


CASES = (
    Case("variance", {"b": 64, "n": 300}),
    Case("variance", {"b": 256, "n": 65536}),
    Case("attention", attended(64, 64)),
    Case("attention", attended(1024, 2048)),
    Case("causal attention", attended(1024, 1024)),
    Case("topk", {"b": 8, "n": 256}),
    Case("topk", {"b": 64, "n": 65536}),
    Case("logsumexp", {"b": 256, "n": 65536}),
    Case("softmax", {"b": 256, "n": 16384}),
    Case("weighted variance", {"b": 256, "n": 32768}),
)


def best_ms(call: Callable[[], Any]) -> float:
    """The shortest processor time of a call, in milliseconds, after two calls that warm up."""
    call(), call()
    times, until = list[float](), time.perf_counter() + SECONDS
    while len(times) < 5 or time.perf_counter() < until:
        begun = time.process_time()
        call()
        times.append(time.process_time() - begun)
    return min(times) * 1e3


def peak_bytes(call: Callable[[], Any], backend: str) -> int:
    """The most bytes that a call has allocated at one time."""
    if backend == "numpy":
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    held = peak = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def measured(case: Case, backend: str) -> dict[str, Any]:
    """One row of the document."""
    fused = FORMS[case.form]()
    data: dict[str, Any] = case.data(fused)
    if backend == "torch":
        data = {name: torch.from_numpy(array) for name, array in data.items()}

    def call() -> Any:
        return fused(**data, backend=backend)

    sizes = dict(case.sizes)
    return {"name": case.name, "sizes": sizes, "dtype": "float32", "backend": backend, "ms": best_ms(call),
            "peak_bytes": peak_bytes(call, backend)}  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--beside", type=Path, metavar="JSON", help="of arrays: the document of another commit")


def run(options: argparse.Namespace) -> bool:
    """Measure every case, write the document, show it beside that of another commit."""
    torch.set_num_threads(1)
    content: report.Document = {"benchmark": NAME, "environment": environment()}
    content["rows"] = [measured(case, backend) for case in CASES for backend in BACKENDS]
    if options.beside:
        other = json.loads(options.beside.read_text(encoding="utf-8"))
        content["beside"] = {key: other[key] for key in ("environment", "rows")}
    if options.out:
        report.save(options.out / f"{NAME}.json", content)
    print(table(content).shown("Array backends on the CPU, one thread"))
    return True


def table(content: report.Document) -> Table:
    """A row a case and backend; the shares of the other commit where there is one."""
    others = content.get("beside", {}).get("rows", [])
    known = {(row["name"], row["backend"]): row for row in others}
    lines = []
    for row in content["rows"]:
        before = known.get((row["name"], row["backend"]))
        shares = [f"{row[key] / before[key]:.2f}" for key in ("ms", "peak_bytes")] if before else ["", ""]
        lines.append([row["name"], row["backend"], f"{row['ms']:.2f}", f"{row['peak_bytes'] / 1e6:.2f}", *shares])
    return Table(["case", "backend", "ms", "peak, MB", "time, share", "peak, share"], lines)
