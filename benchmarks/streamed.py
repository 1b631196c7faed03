"""Statistics of a Parquet file that is larger than the memory of the process that reads it.

    write_file       two columns of float64 about 1e8, drawn from a seed, a group of rows after the other
    expected         their variance, correlation and means by pyarrow.compute, about 1e8, summed exactly over batches
    read_limited     the same by redalg, in a process of two cores that gets no more memory than a limit

The limit is that of the kernel on private writable memory (`RLIMIT_DATA`): of it come NumPy's arrays, Arrow's buffers
and the stacks of threads. Beyond it an allocation fails. The peak of resident memory is read at the end beside it.

    python -m benchmarks.streamed FILE LIMIT_BYTES      reads in this process, and prints what it found as JSON
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from math import fsum, sqrt
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import redalg as ra
from redalg.instruments.memory import resident_bytes

ROOT = Path(__file__).parent.parent
COLUMNS = ("x", "y")
OFFSET = 1e8
GROUP_ROWS, BATCH_ROWS = 1 << 20, 1 << 16
ROW_BYTES = 8 * len(COLUMNS)
LIMIT_BYTES, CORES = 2 << 30, 2
TOLERANCE = 1e-9
"""Of the largest relative difference from what is expected: numbers at 1e8 are multiples of 1.5e-8 there."""


def statistics() -> ra.Fused:
    """The function of the columns: several outputs in one pass."""
    n = ra.axes("n")
    x, y = ra.tensors("x[n] y[n]")
    correlation = ra.covariance(x, y, n) / (ra.std(x, n) * ra.std(y, n))
    return ra.fuse({"variance": ra.var(x, n), "correlation": correlation, "mean": ra.mean(y, n), "most": ra.max(x, n)})


# ---- the file --------------------------------------------------------------------------------------------------------


def write_file(path: Path, rows: int, seed: int = 0) -> Iterator[int]:
    """Write a file of so many rows; yield the rows that were written, group after group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(seed)
    schema = pa.schema([(name, pa.float64()) for name in COLUMNS])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for first, stop in pairwise([*range(0, rows, GROUP_ROWS), rows]):
            x = generator.standard_normal(stop - first)
            y = 0.5 * x + generator.standard_normal(stop - first)
            writer.write_table(pa.table([x + OFFSET, y + OFFSET], schema=schema))
            yield stop


def expected(path: Path) -> dict[str, float]:
    """The statistics by pyarrow.compute: sums about the offset, which is subtracted exactly, added up exactly."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    sums: dict[str, list[float]] = {name: [] for name in ("x", "y", "xx", "yy", "xy")}
    most, number = -np.inf, 0
    for batch in pq.ParquetFile(path).iter_batches(batch_size=BATCH_ROWS, columns=list(COLUMNS)):
        x, y = (pc.subtract(batch.column(name), OFFSET) for name in COLUMNS)
        parts = (x, y, pc.multiply(x, x), pc.multiply(y, y), pc.multiply(x, y))
        for name, part in zip(sums, parts, strict=True):
            sums[name].append(pc.sum(part).as_py())
        most, number = max(most, pc.max(batch.column("x")).as_py()), number + batch.num_rows
    x, y, xx, yy, xy = (fsum(terms) / number for terms in sums.values())
    spread, other = xx - x * x, yy - y * y
    correlation = (xy - x * y) / sqrt(spread * other)
    return {"variance": spread, "correlation": correlation, "mean": OFFSET + y, "most": most}


def largest_difference(found: Mapping[str, float], wanted: Mapping[str, float]) -> float:
    """The largest relative difference of any statistic."""
    return max(abs(found[name] - wanted[name]) / abs(wanted[name]) for name in wanted)


# ---- the process that reads ------------------------------------------------------------------------------------------


def read_limited(path: Path, limit_bytes: int = LIMIT_BYTES, stderr: Any = None) -> dict[str, Any]:
    """What a process of `CORES` cores and of a limited memory found in a file; its progress bar goes to `stderr`.

    Raises:
        subprocess.CalledProcessError: it failed, for instance as it needed more memory.
    """
    command = [sys.executable, "-m", "benchmarks.streamed", str(path), str(limit_bytes)]
    variables = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": str(CORES)}
    done = subprocess.run(command, cwd=ROOT, env=variables, check=True, stdout=subprocess.PIPE, stderr=stderr,
                          text=True, preexec_fn=partial(limit_process, limit_bytes))  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def limit_process(limit_bytes: int) -> None:
    """Limit this process's private memory, and the cores that it runs on."""
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


def is_limited(limit_bytes: int) -> bool:
    """Tell if this process gets no more memory than the limit: it asks for as much, and writes to it."""
    try:
        np.ones(limit_bytes, np.uint8)
    except MemoryError:
        return True
    return False


def read_here(path: Path, limit_bytes: int) -> dict[str, Any]:
    """The statistics by redalg, the time that they took, and the most memory that the process had."""
    if not is_limited(limit_bytes):
        raise MemoryError(f"this system does not hold a process to {limit_bytes} bytes")
    import pyarrow as pa

    fused = statistics()
    begun, cpu_begun = perf_counter(), process_time()
    state = ra.data.arrow.state_of(fused, path)
    outputs = fused.finish(state)
    seconds, cpu_seconds = perf_counter() - begun, process_time() - cpu_begun
    [(first, stop)] = [state.covers or (0, 0)]
    return {
        "rows": stop - first,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "found": {name: float(value) for name, value in outputs._asdict().items()},
        "peak_bytes": resident_bytes("VmHWM"),
        "limit_bytes": resource.getrlimit(resource.RLIMIT_DATA)[0],
        "cores": len(os.sched_getaffinity(0)),
        "pyarrow": pa.__version__,
    }


if __name__ == "__main__":
    print(json.dumps(read_here(Path(sys.argv[1]), int(sys.argv[2]))))
