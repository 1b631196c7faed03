"""The folder of compiled kernels on disk for the next process: `REDALG_CACHE_DIR`, or the user's cache folder.

TileLang keeps its compiled kernels by the program's text. This module says where, and lets one process at a time
compile a text: others that want it find it made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redalg.errors import BackendError

VARIABLE = "REDALG_CACHE_DIR"


def folder() -> Path:
    """The cache folder."""
    path = os.environ.get(VARIABLE)
    if path:
        return Path(path).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("redalg")


def point_tilelang_here() -> None:
    """Let TileLang keep its kernels here, unless its own variable says otherwise. Call this before its import."""
    os.environ.setdefault("TILELANG_CACHE_DIR", str(folder() / "tilelang"))


@contextmanager
def one_at_a_time(digest: str) -> Iterator[None]:
    """Hold a text's lock while it is looked up or compiled."""
    from filelock import FileLock

    locks = folder() / "locks"
    try:
        locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(locks / f"{digest}.lock")
        lock.acquire()
    except OSError as cause:
        raise BackendError(
            f"the cache folder {folder()} cannot be written ({cause.strerror}). Set {VARIABLE} to a folder that can."
        ) from cause
    try:
        yield
    finally:
        lock.release()
