"""Kernels that an earlier process compiled, loaded without TileLang: importing it takes longer than all else together.

    <cache>/kernels/<TileLang's version>-<the text's digest>.json      says where TileLang keeps the text's library

TileLang compiles a CUDA kernel to a library of TVM's own format. Loading it takes TVM's runtime, and launching it takes
TileLang's additions (descriptors for the bulk copy engine): one library of TileLang's package brings both.
"""

from __future__ import annotations

import ctypes
import json
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from redalg.runtime.compile.cache import folder

LIBRARY, RUNTIME = "executable.so", "libtilelang.so"
NEEDED = "__tvm_tensormap_create_tiled"
"""The function that kernels call on the host, by its name in TVM's registry."""


def find(digest: str) -> Any:
    """The function that launches the kernel of a text, from disk; None if none was kept."""
    library = library_path(digest)
    if library is None or not runtime_loaded():
        return None
    import tvm_ffi

    return tvm_ffi.load_module(str(library))["main"]


def library_path(digest: str) -> Path | None:
    """The library of a text's kernel; None if none was kept, or if TileLang's own cache was emptied."""
    note = note_of(digest)
    if note is None or not note.is_file():
        return None
    library = Path(json.loads(note.read_text(encoding="utf-8"))["library"])
    return library if library.is_file() else None


def note_library(digest: str, compiled: Any) -> None:
    """Note where the library of a kernel that was just compiled lies, if it is one that TVM's runtime loads."""
    place, note = getattr(compiled, "_tilelang_cache_path", None), note_of(digest)
    if note is None or place is None or not (library := Path(place) / LIBRARY).is_file():
        return
    note.parent.mkdir(parents=True, exist_ok=True)
    fresh = note.with_suffix(".new")
    fresh.write_text(json.dumps({"library": str(library)}) + "\n", encoding="utf-8")
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
