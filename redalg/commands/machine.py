"""This machine: what redalg finds on it, what that allows, and what it keeps on disk."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import final

from rich.console import Console
from rich.text import Text

from redalg.demo.printing import print_text
from redalg.runtime.compile.cache import VARIABLE, folder
from redalg.strategies.device import ARCHITECTURES, card_of
from redalg.version import VERSION

PACKAGES = {  # package: what it gives, and the requirement that installs it
    "torch": ("tensors, gradients, torch.compile", "redalg[torch]"),
    "tilelang": ("generated kernels", "redalg[tilelang]"),
    "matplotlib": ("plots", "redalg[plot]"),
    "ipykernel": ("notebooks", "redalg[notebook]"),
    "dask": ("states in dask arrays", "redalg[dask]"),
    "pyarrow": ("states in Arrow and Parquet", "redalg[arrow]"),
    "datafusion": ("states in SQL", "redalg[datafusion]"),
    "ray": ("states in Ray Data", "redalg[ray]"),
    "sphinx": ("the documentation's site", "redalg[docs]"),
    "transformers": ("attention of its models", "transformers"),
}
NEEDED = ("sympy", "numpy")
TIMEOUT_S = 20
NVCC_WORDS = "Cuda compilation tools, "


@final
@dataclass(frozen=True)
class Finding:
    """One thing that was looked for.

    Attributes:
        name: what it is.
        found: its version or place; empty if it is missing.
        gives: what it is good for.
        remedy: what to do where it is missing.
    """

    name: str
    found: str
    gives: str = ""
    remedy: str = ""


# ---- doctor ----------------------------------------------------------------------------------------------------------


def print_findings(console: Console, _: Namespace) -> int:
    """`redalg doctor`: what is here, what works, what to install."""
    findings = [*python_findings(), *package_findings(), *tool_findings()]
    for finding in findings:
        mark, style = ("✓", "green") if finding.found else ("–", "yellow")
        line = f"{finding.name:<13} {finding.found or 'not found'}"
        console.print(Text(f"{mark} ", style=style) + Text(line), soft_wrap=True)
        if not finding.found and finding.remedy:
            console.print(Text(f"    {finding.gives}: {finding.remedy}", style="dim"), soft_wrap=True)
    cards = card_lines()
    for line in cards:
        print_text(console, line)
    print_text(console, f"cache         {folder()}, {size_text(bytes_in(folder()))}")
    console.print()
    missing = {one.name for one in findings if not one.found}
    for line in conclusions(missing, on_gpu=any("sm_" in line for line in cards)):
        print_text(console, line)
    return 0


def python_findings() -> list[Finding]:
    """Python, the system, redalg, and what it cannot do without."""
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    made = [Finding("redalg", VERSION), Finding("Python", f"{platform.python_version()} on {system}")]
    return made + [Finding(name, package_version(name)) for name in NEEDED]


def package_findings() -> list[Finding]:
    """The packages of the extras."""
    return [Finding(name, package_version(name), gives, f"pip install '{requirement}'")
            for name, (gives, requirement) in PACKAGES.items()]  # fmt: skip


def tool_findings() -> list[Finding]:
    """The compilers."""
    compiler = os.environ.get("CXX") or next((one for one in ("g++", "clang++") if shutil.which(one)), "")
    return [
        Finding("C++ compiler", tool_version(compiler), "kernels on the CPU", "install g++, or set CXX"),
        Finding("nvcc", tool_version(nvcc_path()), "kernels on a GPU", "install NVIDIA's CUDA toolkit"),
    ]


def package_version(name: str) -> str:
    """The version of an installed package; empty if there is none."""
    if find_spec(name) is None:
        return ""
    try:
        return version(name)
    except PackageNotFoundError:
        return "of an unknown version"


def nvcc_path() -> str:
    """CUDA's compiler, on the path or in CUDA_HOME; empty if there is none."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    places = [str(Path(home) / "bin" / "nvcc")] if home else []
    return next((found for one in [*places, "nvcc"] if (found := shutil.which(one))), "")


def tool_version(command: str) -> str:
    """The line of `command --version` that has a number, after the command; empty if it does not run."""
    if not command or shutil.which(command) is None:
        return ""
    try:
        done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = [line.strip() for line in done.stdout.splitlines() if any(one.isdigit() for one in line)]
    release = [line for line in lines if "release" in line] or lines
    return f"{command}: {release[0].removeprefix(NVCC_WORDS)}" if release else command


def card_lines() -> list[str]:
    """A line for every GPU that PyTorch sees."""
    if not package_version("torch"):
        return []
    import torch

    if not torch.cuda.is_available():
        return [f"GPU           none that PyTorch {torch.__version__} sees"]
    lines = []
    for place in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(place)
        capability = torch.cuda.get_device_capability(place)
        target = next((one.target for one in ARCHITECTURES.values() if one.capability == capability), None)
        known = card_of(properties.name, capability)
        told = f"target {target}, planned for as {known}" if target else "no target: kernels are not generated for it"
        memory = size_text(properties.total_memory)
        lines.append(
            f"GPU {place}         {properties.name}, {memory}, capability {capability[0]}.{capability[1]}: {told}"
        )
    return lines


def conclusions(missing: set[str], *, on_gpu: bool) -> list[str]:
    """The sentences on what works and what does not.

    >>> conclusions({"nvcc"}, on_gpu=False)[1]
    'Kernels on the CPU: yes.'
    """
    torch, kernels = "torch" not in missing, "tilelang" not in missing
    absent = [name for name in ("tilelang", "C++ compiler") if name in missing]
    on_cpu = "yes" if not absent else f"no, for want of {' and '.join(absent)}"
    lacks = [name for name in ("tilelang", "nvcc") if name in missing]
    why = "there is no GPU with a target" if not on_gpu else f"for want of {' and '.join(lacks)}"
    gpu = "yes" if on_gpu and kernels and not lacks else f"no, {why}"
    return [
        "Derivations, kernels as text, predicted plans: yes, they need nothing more.",
        f"Kernels on the CPU: {on_cpu}.",
        f"Kernels on a GPU: {gpu}.",
        f"Calls on {'torch tensors and NumPy arrays' if torch else 'NumPy arrays (backend=numpy)'}: yes.",
    ]


# ---- cache -----------------------------------------------------------------------------------------------------------


def print_cache(console: Console, options: Namespace) -> int:
    """`redalg cache`: where kernels and tuned plans are kept, and how much; `--clear` removes them."""
    place = folder()
    rows = (
        [(entry.name, bytes_in(entry), files_in(entry)) for entry in sorted(place.iterdir())] if place.is_dir() else []
    )
    print_text(console, f"{place} ({'set by' if os.environ.get(VARIABLE) else 'changed by'} {VARIABLE})")
    for name, size, files in rows:
        print_text(console, f"  {name:<24} {size_text(size):>10}  {files} files")
    if not rows:
        print_text(console, "  empty")
    if options.clear and rows:
        if not (
            options.yes or confirm(console, f"Remove {size_text(sum(row[1] for row in rows))}?", sys.stdin.readline)
        ):
            print_text(console, "Nothing was removed.")
            return 1
        for entry in place.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        print_text(console, "Removed; what is called again is compiled again.")
    return 0


def confirm(console: Console, question: str, read: Callable[[], str]) -> bool:
    """True if the answer is yes; without an answer no."""
    console.print(f"{question} [y/N] ", end="", markup=False, highlight=False)
    return read().strip().lower() in ("y", "yes")


def bytes_in(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 if there is none."""
    files = [path] if path.is_file() else path.rglob("*") if path.is_dir() else []
    return sum(one.lstat().st_size for one in files if one.is_file())


def files_in(path: Path) -> int:
    """The number of files."""
    return sum(one.is_file() for one in path.rglob("*")) if path.is_dir() else 1


def size_text(size: float) -> str:
    """Bytes in a unit that suits them.

    >>> size_text(512), size_text(3 * 2**20)
    ('512 B', '3.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
