"""Reductions of dask arrays beside dask's own, on threads: many small chunks, whose cost is the host's, and few large.

    python -m benchmarks run engines [--out DIR]

Both sides take turns in one process, and each is compared with NumPy before it is timed.
"""

import argparse
import os
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import redalg as ra
from benchmarks import report
from benchmarks.environment import environment, installed
from benchmarks.markdown import Table
from benchmarks.parquet import processor

NAME = "engines"
TURNS = 7
CASES: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "variance, 1,000 chunks of 400 numbers": ((4, 100_000), (4, 100)),
    "variance, 16 chunks of 4 million numbers": ((16, 4_000_000), (4, 1_000_000)),
}
"""Name -> the shape of the array, and of its chunks."""


def measured(name: str) -> dict[str, Any]:
    """One row of the document: the seconds of every turn, and the error of both."""
    import dask.array as da

    shape, chunks = CASES[name]
    n = ra.axes("n")
    variance = ra.fuse(ra.var(ra.tensor("x[b,n]"), n))
    data = np.random.default_rng(0).standard_normal(shape)
    chunked, wanted = da.from_array(data, chunks=chunks), data.var(1)
    sides: dict[str, Callable[[], Any]] = {
        "redalg": lambda: ra.data.dask.reduction(variance, chunked).compute(),
        "dask": lambda: chunked.var(1).compute(),
    }
    errors = {side: float(abs(call() / wanted - 1).max()) for side, call in sides.items()}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(TURNS):
        for side, call in sides.items():
            begun = perf_counter()
            call()
            seconds[side].append(perf_counter() - begun)
    return {"name": name, "shape": list(shape), "chunks": list(chunks), "seconds": seconds, "errors": errors,
            "load": os.getloadavg()[0], "machine": processor(), "dask": installed("dask")}  # fmt: skip


def run(options: argparse.Namespace) -> bool:
    """Measure every case, write the document, show it."""
    content: report.Document = {"benchmark": NAME, "environment": environment()}
    content["rows"] = [measured(name) for name in CASES]
    if options.out:
        report.save(options.out / f"{NAME}.json", content)
    print(table(content).shown("Reductions of dask arrays on threads, graph and all"))
    return all(error < 1e-9 for row in content["rows"] for error in row["errors"].values())


def table(content: report.Document) -> Table:
    """A row a case: medians."""
    lines = []
    for row in content["rows"]:
        own, other = (median(row["seconds"][side]) for side in ("redalg", "dask"))
        lines.append([row["name"], f"{own:.3f}", f"{other:.3f}", f"{own / other:.2f}"])
    return Table(["case", "redalg, s", "dask's own, s", "ratio"], lines)
