"""Kernels that an earlier process compiled, loaded without TileLang: importing it takes longer than all else together.

    <cache>/kernels/<TileLang's version>-<the text's digest>.json      says where TileLang keeps the text's library

The place is told from the cache folder if the library lies in it: a folder may be moved, or copied into an image.
TileLang compiles a CUDA kernel to a library of TVM's own format. Loading it takes TVM's runtime, and launching it takes
TileLang's additions (descriptors for the bulk copy engine): one library of TileLang's package brings both.
"""

from __future__ import annotations

import ctypes
import json
import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from socket import gethostname
from typing import Any

from redalg.runtime.compile.cache import folder

LIBRARY, RUNTIME = "executable.so", "libtilelang.so"
FOR_C = "kernel_lib.so"
"""The library of a kernel of the C target, which TileLang itself loads."""
NEEDED = "__tvm_tensormap_create_tiled"
"""The function that kernels call on the host, by its name in TVM's registry."""


def find(digest: str) -> Any:
    """The function that launches the kernel of a text, from disk; None if none was kept."""
    library = library_path(digest)
    if library is None or library.name != LIBRARY or not runtime_loaded():
        return None
    import tvm_ffi

    return tvm_ffi.load_module(str(library))["main"]


def library_path(digest: str) -> Path | None:
    """The library of a text's kernel; None if none was kept, or if TileLang's own cache was emptied."""
    note = note_of(digest)
    if note is None or not note.is_file():
        return None
    library = folder() / json.loads(note.read_text(encoding="utf-8"))["library"]
    return library if library.is_file() else None


def note_library(digest: str, compiled: Any) -> None:
    """Note where the library of a kernel that was just compiled lies, if TileLang kept it."""
    place, note = getattr(compiled, "_tilelang_cache_path", None), note_of(digest)
    if note is None or place is None:
        return
    library = next((one for one in (Path(place) / LIBRARY, Path(place) / FOR_C) if one.is_file()), None)
    if library is None:
        return
    inside = library.is_relative_to(folder())
    note.parent.mkdir(parents=True, exist_ok=True)
    fresh = note.with_suffix(f".{gethostname()}-{os.getpid()}.new")  # another machine may write it too
    fresh.write_text(json.dumps({"library": str(library.relative_to(folder()) if inside else library)}) + "\n",
                     encoding="utf-8")  # fmt: skip
    fresh.replace(note)


def note_of(digest: str) -> Path | None:
    """The file that tells of a text's kernel; None without TileLang."""
    try:
        return folder() / "kernels" / f"{version('tilelang')}-{digest}.json"
    except PackageNotFoundError:
        return None


@cache
def runtime_loaded() -> bool:
    """Load TileLang's library, once; True if that succeeded and the function that kernels call is there."""
    found = find_spec("tilelang")
    if found is None or found.origin is None or find_spec("tvm_ffi") is None:
        return False
    import tvm_ffi  # its library must be there first

    try:
        ctypes.CDLL(str(Path(found.origin).parent / "lib" / RUNTIME), ctypes.RTLD_GLOBAL)
    except OSError:  # another layout of TileLang's package: it is imported then
        return False
    return tvm_ffi.get_global_func(NEEDED, allow_missing=True) is not None
