"""`redalg demo`: a derivation, then runs beside PyTorch, for which PyTorch and TileLang must be there."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module

from rich.console import Console

from redalg.demo.derivation import begin_tour
from redalg.errors import BackendError
from redalg.library import attention
from redalg.optional import need_packages


def run_demo(console: Console, options: Namespace) -> int:
    """Attention, derived and run beside PyTorch; where a package is missing, derived, and the error that names it."""
    try:
        need_packages("the rest of the demo", "redalg[tilelang]", "torch", "tilelang")
    except BackendError:
        begin_tour(console, attention(), full=options.full)
        raise
    tour = import_module("redalg.demo.tour")
    return int(tour.tour(console, tour.Options(options.length, options.heads, options.kernel, options.full)))
