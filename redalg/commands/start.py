"""`redalg demo`: it compares with PyTorch, so PyTorch and TileLang must be there."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module

from rich.console import Console

from redalg.optional import need_packages


def run_demo(console: Console, options: Namespace) -> int:
    """Attention, derived and run beside PyTorch."""
    need_packages("the demo", "redalg[tilelang]", "torch", "tilelang")
    tour = import_module("redalg.demo.tour")
    return int(tour.tour(console, tour.Options(options.length, options.heads, options.kernel, options.full)))
