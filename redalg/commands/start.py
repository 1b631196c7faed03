"""`redalg demo`: it compares with PyTorch, so PyTorch and TileLang must be there."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module
from importlib.util import find_spec

from rich.console import Console

from redalg import BackendError

NEEDED = ("torch", "tilelang")


def need_packages(caller: str) -> None:
    """Refuse what runs kernels where their packages are missing."""
    for package in NEEDED:
        if find_spec(package) is None:
            raise BackendError(f"{caller} needs {package}, which is not installed. Run: pip install 'redalg[tilelang]'")


def run_demo(console: Console, options: Namespace) -> int:
    """Attention, derived and run beside PyTorch."""
    need_packages("the demo")
    tour = import_module("redalg.demo.tour")
    return int(tour.tour(console, tour.Options(options.length, options.heads, options.kernel, options.full)))
