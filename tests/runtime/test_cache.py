"""Processes of one machine compile a kernel once, and none waits for ever: whatever the folder, whoever dies."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import filelock
import pytest

import redalg as ra
from redalg.runtime.compile import cache, stored
from redalg.runtime.compile import compile as compile_module
from redalg.runtime.compile.cache import one_at_a_time

HOLDER = """
import sys, time
from redalg.runtime.compile.cache import one_at_a_time
with one_at_a_time(sys.argv[1], "holds"):
    print(flush=True)
    time.sleep(60)
"""
SOURCE: Any = SimpleNamespace(
    text="a kernel that no cache has", program=SimpleNamespace(name="variance_over_n"),
    plan=SimpleNamespace(device=SimpleNamespace(target="c")),
)  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test's own, a compiler that makes nothing, and little patience."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(compile_module, "load", lambda _: {"compiled": SimpleNamespace})
    monkeypatch.setattr(cache, "PATIENCE_S", 0.1)
    monkeypatch.setattr(compile_module, "PATIENCE_S", 0.1)
    return tmp_path / "cache"


@contextmanager
def holder(name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which holds a lock until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, name], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_lock_of_a_process_that_dies_is_free() -> None:
    name = compile_module.digest(SOURCE)
    with holder(name) as other:
        with one_at_a_time(name, "holds") as held:
            assert not held
        with pytest.warns(RuntimeWarning, match="another process has been compiling `variance_over_n` for c for 0 s"):
            compile_module.compile_source(SOURCE)
        other.kill()
        other.wait()
        with one_at_a_time(name, "holds") as held:
            assert held


def fail(monkeypatch: pytest.MonkeyPatch, folder: Path, number: int) -> None:
    """Let locks in a folder fail as they do where a file system takes none, or no writes."""
    acquire = filelock.FileLock.acquire

    def of_this_machine_alone(lock: Any, *args: Any, **options: Any) -> Any:
        if Path(lock.lock_file).is_relative_to(folder):
            raise OSError(number, os.strerror(number))
        return acquire(lock, *args, **options)

    monkeypatch.setattr(filelock.FileLock, "acquire", of_this_machine_alone)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_locks_in_the_folder_those_of_the_machine_do(
    number: int, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, here, number)
    monkeypatch.setattr(cache, "gettempdir", lambda: str(tmp_path / "machine"))
    with one_at_a_time("text", "compiles") as held:
        assert held
        [lock] = tmp_path.glob("machine/redalg-locks-*/text.lock")
        assert cache.take_lock(lock.parent, "text", "compiles") is None


def test_a_folder_that_cannot_be_written_is_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, here, errno.EROFS)
    with pytest.raises(ra.BackendError, match=r"cannot be written \(Read-only file system\). Set REDALG_CACHE_DIR"):
        compile_module.compile_source(SOURCE)
    entry = here / "tilelang" / "entry"
    entry.mkdir(parents=True)
    (entry / stored.FOR_C).touch()
    stored.note_library(compile_module.digest(SOURCE), SimpleNamespace(_tilelang_cache_path=str(entry)))
    assert compile_module.compile_source(SOURCE).source is SOURCE
    moved = here.rename(here.parent / "moved")  # as into an image
    monkeypatch.setenv(cache.VARIABLE, str(moved))
    assert stored.library_path(compile_module.digest(SOURCE)) == moved / "tilelang" / "entry" / stored.FOR_C


def compilations(length: int) -> int:
    """The kernels that this process compiles for a call."""
    import torch
    from tilelang.jit.kernel import JITKernel

    made, real = [], JITKernel._compile_and_create_adapter

    def counted(*args: Any) -> Any:
        made.append(args)
        return real(*args)

    JITKernel._compile_and_create_adapter = counted
    variance = ra.fuse(ra.var(ra.tensor("x[b,n]"), ra.axes("n")))
    x = torch.randn(4, length)
    torch.testing.assert_close(variance(x=x, backend="tilelang"), x.var(1, correction=0))
    return len(made)


@pytest.mark.slow
def test_processes_compile_a_kernel_once(here: Path) -> None:
    with ProcessPoolExecutor(4, get_context("spawn")) as processes:
        assert sorted(processes.map(compilations, [1000] * 4)) == [0, 0, 0, 1]
    assert len(list(here.glob("kernels/*.json"))) == 1
