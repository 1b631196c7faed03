"""The folder of compiled kernels on disk for the next process: `REDALG_CACHE_DIR`, or the user's cache folder.

TileLang keeps its compiled kernels by the program's text. This module says where, and lets one process at a time
compile a text: others that want it find it made. Readers take no lock, as what is kept is put there whole, by a rename.

    the folder                       the lock of a text
    takes locks                      lies in it, for all processes that see the folder: of other machines too, over NFS
    takes none (ENOLCK, ENOSYS, …)   lies in this machine's temporary folder: each machine compiles for itself
    cannot be written                none: what it holds is read, and what it lacks is a `BackendError`

The lock is the operating system's (`flock`), so that it is free as soon as its holder ends, however that ends.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from redalg.errors import BackendError
from redalg.progress import progress_bar

if TYPE_CHECKING:
    from filelock import BaseFileLock

VARIABLE = "REDALG_CACHE_DIR"
PATIENCE_S = 600.0
"""Seconds for which a process waits for a lock: the slowest kernel that is known takes a tenth of it to compile."""
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
"""The errors of file systems that take no locks, as some network ones."""


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
def one_at_a_time(name: str, doing: str) -> Iterator[bool]:
    """Hold a lock while something is looked up and made; give False if another process still holds it after
    `PATIENCE_S`.

    `doing`: what the other process does, after "another process", for the line that is shown meanwhile.

    Raises:
        BackendError: the cache folder cannot be written.
    """
    try:
        lock = take_lock(folder() / "locks", name, doing)
    except (OSError, NotImplementedError) as cause:  # filelock has no number where `flock` is missing
        if getattr(cause, "errno", errno.ENOSYS) not in NO_LOCKS:
            raise BackendError(
                f"the cache folder {folder()} cannot be written ({getattr(cause, 'strerror', cause)}). Set {VARIABLE} "
                "to a folder that can."
            ) from cause
        user = os.getuid() if hasattr(os, "getuid") else ""
        lock = take_lock(Path(gettempdir()) / f"redalg-locks-{user}", name, doing)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


def take_lock(locks: Path, name: str, doing: str) -> BaseFileLock | None:
    """The lock of a name, taken; None if it was not free in time."""
    from filelock import FileLock, Timeout

    locks.mkdir(parents=True, exist_ok=True)
    lock = FileLock(locks / f"{name}.lock")
    try:
        lock.acquire(timeout=0)
        return lock
    except Timeout:
        pass
    with progress_bar(f"another process {doing}"):
        try:
            lock.acquire(timeout=PATIENCE_S)
            return lock
        except Timeout:
            return None
