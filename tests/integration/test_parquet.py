"""A Parquet file of 1 GiB, read by a process of two cores that gets half a gigabyte."""

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from benchmarks.streamed import (
    CORES,
    LIMIT_BYTES,
    ROW_BYTES,
    TOLERANCE,
    expected,
    largest_difference,
    read_limited,
    write_file,
)

GIB = 1 << 30


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("parquet") / "columns.parquet"
    *_, rows = write_file(path, GIB // ROW_BYTES)
    assert rows == GIB // ROW_BYTES
    assert path.stat().st_size >= GIB
    yield path
    path.unlink()


@contextmanager
def terminal() -> Iterator[tuple[int, list[str]]]:
    """A terminal for another process: its end, and the texts that were written to it, all of them when it is closed."""
    own, other = pty.openpty()
    texts = list[str]()

    def read() -> None:
        with suppress(OSError):  # of Linux, when the other end is closed
            while data := os.read(own, 1 << 16):
                texts.append(data.decode())

    reader = Thread(target=read, daemon=True)
    reader.start()
    try:
        yield other, texts
    finally:
        os.close(other)
        reader.join(timeout=10)
        os.close(own)


def test_a_file_larger_than_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with terminal() as (end, texts):
        told = read_limited(file, LIMIT_BYTES // 4, end)
    assert told["rows"] == GIB // ROW_BYTES
    assert (told["limit_bytes"], told["cores"]) == (LIMIT_BYTES // 4, min(CORES, len(os.sched_getaffinity(0))))
    assert told["peak_bytes"] < GIB
    assert largest_difference(told["found"], expected(file)) <= TOLERANCE
    bars = re.findall(rf"rows .*?([\d,]+) of {told['rows']:,}", "".join(texts))
    assert len(set(bars)) > 1


def test_too_little_memory_is_an_error(file: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        read_limited(file, 1 << 24, subprocess.DEVNULL)


def test_a_difference_is_told() -> None:
    assert largest_difference({"a": 1.0, "b": 2.5}, {"a": 1.0, "b": 2.0}) == 0.25
    assert np.isnan(largest_difference({"a": np.nan}, {"a": 1.0}))
