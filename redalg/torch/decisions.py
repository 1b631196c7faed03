"""Decisions on regions, and the files that keep them for other processes."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import final

import torch

from redalg.torch.regions import Region
from redalg.version import VERSION

FORMAT = "redalg decision, 2"


@final
@dataclass(frozen=True)
class Decision:
    """The decision on a group.

    Attributes:
        is_put: true if the group is put into the graph.
        fused_us, plain_us: the time of its region with it and without (µs); None if that was not measured.
        fused_host_us, plain_host_us: the host's time for a call of it (µs); None if it has no part in it.
        reason: why it is left out, if not for its time.
        lasts: false if another time it may be another one, as where memory lacked; then it is not kept.
    """

    is_put: bool
    fused_us: float | None = None
    plain_us: float | None = None
    fused_host_us: float | None = None
    plain_host_us: float | None = None
    reason: str = ""
    lasts: bool = True

    def __str__(self) -> str:
        if self.fused_us is None or self.plain_us is None:
            return f"left to Inductor: {self.reason}" if self.reason else "put, not measured"
        said = "put" if self.is_put else "left to Inductor"
        times = f"{said}: {self.fused_us:.1f} µs with it, {self.plain_us:.1f} µs without"
        if self.fused_host_us is None or self.plain_host_us is None:
            return times
        return f"{times}; a call takes the host {self.fused_host_us:.0f} and {self.plain_host_us:.0f} µs"


def digest_of(region: Region, device: torch.device, gate: str) -> str:
    """The digest of what a decision depends on; `gate` is the word by which it is made."""
    return sha256("\n".join((*environment_of(device), gate, region.text)).encode()).hexdigest()


def environment_of(device: torch.device) -> tuple[str, ...]:
    """The versions and the device on which decisions depend."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} {os.cpu_count()}"
    return FORMAT, torch.__version__, VERSION, name


@cache
def sources_digest() -> str:
    """The digest of redalg's sources and its tuned plans."""
    root = Path(__file__).parents[1]
    files = sorted(path for path in root.rglob("*") if path.suffix in (".py", ".json"))
    digest = sha256()
    for path in files:
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def read_decision(path: Path) -> Decision | None:
    """The decision of a file that this user owns; None if there is none that can be read."""
    text = read_own_text(path)
    return None if text is None else decision_of_text(text)


def write_decision(path: Path, decision: Decision) -> None:
    """Keep a decision for other processes, if the folder can be written."""
    write_own_text(path, text_of_decision(decision))


def read_own_text(path: Path) -> str | None:
    """The text of a file that this user owns; None if there is none that can be read."""
    try:
        if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            return None
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def write_own_text(path: Path, text: str) -> None:
    """Keep a text for other processes, if the folder can be written."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = path.with_suffix(f".{os.getpid()}")
        own.write_text(text)
        own.replace(path)


def text_of_decision(decision: Decision) -> str:
    """A decision as JSON."""
    fields = {name: value for name, value in asdict(decision).items() if name != "lasts"}
    return json.dumps({"format": FORMAT, **fields})


def decision_of_text(text: str) -> Decision | None:
    """The decision of its JSON; None if it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    times = dict.fromkeys(("fused_us", "plain_us", "fused_host_us", "plain_host_us"), (float, type(None)))
    kinds: dict[str, tuple[type, ...]] = {"is_put": (bool,), **times, "reason": (str,)}
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT or found.keys() != kinds.keys():
        return None
    return Decision(**found) if all(isinstance(found[name], kind) for name, kind in kinds.items()) else None
