"""Correlations by group over Arrow columns, beside DataFusion's own `corr`: time, and the largest error of a group.

    python -m benchmarks.groups [rows] [groups] [threads]

Both have as many threads, and take turns; the best counts. The reference is computed about the mean of each group, of
the columns before the offset is added.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import redalg as ra
from benchmarks.markdown import Table
from redalg.data.arrow import state_of

TURNS = 4
OFFSETS = (0.0, 1e6, 1e8)
n = ra.axes("n")
x, y = ra.tensors("x[n] y[n]")
CORRELATION = ra.fuse(ra.covariance(x, y, n) / (ra.std(x, n) * ra.std(y, n)))
Columns = dict[str, np.ndarray[Any, Any]]


def drawn_columns(rows: int, groups: int) -> Columns:
    """Two columns that are correlated, and the keys."""
    generator = np.random.default_rng(0)
    first = generator.normal(size=rows)
    second = 0.5 * first + generator.normal(size=rows)
    return {"key": generator.integers(0, groups, rows), "x": first, "y": second}


def reference(columns: Columns, groups: int) -> np.ndarray[Any, Any]:
    """The correlation of every group, about its means."""
    key = columns["key"]
    counts = np.bincount(key, minlength=groups)
    u, v = (columns[name] - (np.bincount(key, columns[name], groups) / counts)[key] for name in ("x", "y"))
    across = np.bincount(key, u * v, groups)
    result: np.ndarray[Any, Any] = across / np.sqrt(np.bincount(key, u * u, groups) * np.bincount(key, v * v, groups))
    return result


def contenders(data: Any, groups: int, threads: int) -> dict[str, Callable[[], np.ndarray[Any, Any]]]:
    """What makes the correlations of all groups of a table, by name."""
    import datafusion

    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(threads))
    batches = data.to_batches(max_chunksize=1 << 17)
    context.register_record_batches("data", [batches[part::threads] for part in range(threads)])

    def by_datafusion() -> np.ndarray[Any, Any]:
        answer = context.sql("SELECT key, corr(x, y) AS r FROM data GROUP BY key").to_arrow_table()
        found = np.full(groups, np.nan)
        found[answer["key"].to_numpy()] = answer["r"].to_numpy()
        return found

    def by_redalg(backend: str) -> np.ndarray[Any, Any]:
        state = state_of(CORRELATION, data, by="key", groups=groups, backend=backend, progress=False)
        found: np.ndarray[Any, Any] = CORRELATION.finish(state)
        return found

    return {
        "DataFusion corr": by_datafusion,
        "redalg, kernels": lambda: by_redalg("tilelang"),
        "redalg, NumPy": lambda: by_redalg("library"),
    }


def main(rows: int = 10_000_000, groups: int = 10_000, threads: int = 1) -> None:
    """Print a row for every offset and contender."""
    import pyarrow as pa
    import torch

    torch.set_num_threads(threads)
    columns = drawn_columns(rows, groups)
    want, lines = reference(columns, groups), list[list[str]]()
    for offset in OFFSETS:
        data = pa.table({"key": columns["key"], "x": columns["x"] + offset, "y": columns["y"] + offset})
        runs = contenders(data, groups, threads)
        found = {name: run() for name, run in runs.items()}  # kernels are compiled
        best = dict.fromkeys(runs, np.inf)
        for name in list(runs) * TURNS:
            begun = perf_counter()
            runs[name]()
            best[name] = min(best[name], perf_counter() - begun)
        for name, result in found.items():
            error, absent = np.nanmax(np.abs(result - want)), int(np.isnan(result).sum())
            times = best[name] / best["DataFusion corr"]
            lines.append([f"{offset:g}", name, f"{best[name]:.3f}", f"{times:.2f}", f"{error:.1e}", str(absent)])
    print(Table(["offset", "by", "s", "of DataFusion's", "largest error", "NaN"], lines))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
