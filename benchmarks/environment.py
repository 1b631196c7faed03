"""The place of a benchmark: device, versions, commit."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from redalg.runtime.known.tuned import PLANNER
from redalg.strategies.device import card_of
from redalg.version import VERSION

ROOT = Path(__file__).parent.parent


def environment() -> dict[str, object]:
    """Everything that the JSON records beside the figures."""
    return {"device": device_name(), "target": target(), "versions": versions(), **commit()}


def device(chip: str = "") -> torch.device:
    """This machine's device; that of a target's kind where one is named."""
    cuda = chip.startswith("sm_") if chip else torch.cuda.is_available()
    return torch.device("cuda" if cuda else "cpu")


def device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU {platform.machine()}"


def chip_of(name: str, target: str) -> str:
    """The card that a document was measured on.

    >>> chip_of("NVIDIA H200", "sm_90a"), chip_of("CPU x86_64", "c")
    ('H200', 'c')
    """
    if target == "c":
        return "c"
    digits = target.removeprefix("sm_").rstrip("a")
    return card_of(name, (int(digits[:-1]), int(digits[-1]))) or target


def target() -> str:
    """The compilation target of this device, as `Fused.source` takes it."""
    if not torch.cuda.is_available():
        return "c"
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def versions() -> dict[str, str | int | None]:
    return {
        "redalg": VERSION,
        "planner": PLANNER,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "tilelang": installed("tilelang"),
        "sympy": installed("sympy"),
    }


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> dict[str, str | bool | None]:
    """The checkout's commit and whether files differ from it; REDALG_COMMIT tells it of a copy without its history."""
    if "REDALG_COMMIT" in os.environ:
        return {"commit": os.environ["REDALG_COMMIT"], "dirty": None}
    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()
