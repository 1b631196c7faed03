"""TileLang source -> kernel. The only module of `lower_tile` that loads TileLang."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, final

from redalg.errors import BackendError
from redalg.lower_tile.emit import Source


@final
@dataclass(frozen=True)
class Kernel:
    """A compiled kernel: call `run` with torch tensors for every parameter, in order."""

    source: Source
    run: Any


def compile_source(source: Source) -> Kernel:
    """Compile a text for its target (TileLang keeps its own cache of compiled kernels on disk)."""
    module = load(source)
    return Kernel(source, module["compiled"]())


def load(source: Source) -> dict[str, Any]:
    """Execute a text as a module; `inspect` must find its lines, so they are registered under a name of their own."""
    try:
        import tilelang  # noqa: F401
    except ModuleNotFoundError as missing:
        raise BackendError('backend="tilelang" needs TileLang, which is not installed. Install it '
                           '(`pip install tilelang`), or pass backend="torch".') from missing  # fmt: skip
    name = f"<redalg {source.program.name} {sha256(source.text.encode()).hexdigest()[:12]}>"
    linecache.cache[name] = (len(source.text), None, source.text.splitlines(keepends=True), name)
    module: dict[str, Any] = {"__name__": name, "__file__": name}
    exec(compile(source.text, name, "exec"), module)  # noqa: S102 - the text is our own
    return module
