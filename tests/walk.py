"""Walks of values through the package, counted: `python -m tests.walk`.

    calls       of functions in files of the package; comprehensions and generators are left out
    files       in which such a function is called
    files →     changes of file between consecutive calls; packages →: of first-level package
    engine →    changes of package, calls of `expression` left out: its words are read everywhere, as SymPy's are

Attention from its expression to its text with a schedule given; from its form, with the schedule that rules and model
choose; and the second call of a variance on arrays.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import redalg
from redalg.strategies.levels import on_axis

PACKAGE = str(Path(redalg.__file__).parent) + os.sep
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")
SIZES = {"b": 4, "h": 16, "q": 4096, "k": 4096, "d": 128, "e": 128}
DTYPES = dict.fromkeys("QKV", "float16")


@dataclass
class Walk:
    """The calls of a walk, each by its file and function."""

    calls: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name not in COMPREHENSIONS:
            self.calls.append((code.co_filename.removeprefix(PACKAGE), code.co_name))

    @property
    def files(self) -> int:
        """Files in which a function is called."""
        return len({file for file, _ in self.calls})

    def changes(self, depth: int | None, *, without: str = "") -> int:
        """Changes of file between consecutive calls, or of the first `depth` folders; `without` a package's calls."""
        parts = [Path(file).parts for file, _ in self.calls]
        places = [one[:depth] for one in parts if one[0] != without]
        return sum(before != after for before, after in pairwise(places))


def walked(action: Callable[[], object]) -> Walk:
    """The walk of an action."""
    walk = Walk()
    sys.setprofile(walk)
    try:
        action()
    finally:
        sys.setprofile(None)
    return walk


def walks() -> dict[str, Walk]:
    """Every walk, by its name."""
    os.environ["REDALG_TUNED"] = "off"
    plan = written("").lower("H200", SIZES, DTYPES).plan  # all is imported now
    names = {name + "_": size for name, size in SIZES.items()}
    form = written("_")
    fresh = walked(lambda: written("_").source(target="H200", sizes=names, dtypes=DTYPES, plan=renamed(plan)))
    chosen = walked(lambda: form.source(target="H200", sizes=names, dtypes=DTYPES))
    return {"attention, from its expression, schedule given": fresh, "attention, rules and model": chosen,
            "variance again, arrays": variance()}  # fmt: skip


def written(suffix: str) -> redalg.Fused:
    """Attention over axes of their own, which no cache knows."""
    import redalg as ra

    b, h, q, k, d, e = (name + suffix for name in "bhqkde")
    k_axis, d_axis = ra.axes(f"{k} {d}")
    Q, K, V = ra.tensors(f"Q[{b},{h},{q},{d}] K[{b},{h},{k},{d}] V[{b},{h},{k},{e}]")
    score = ra.sum(Q * K, d_axis) / ra.axes(d).extent ** 0.5
    return ra.fuse(ra.sum(ra.softmax(score, k_axis) * V, k_axis), axes=f"{b} {h} {q} {e}")


def renamed(plan: redalg.Schedule) -> redalg.Schedule:
    """The schedule over the axes with an underscore."""
    return redalg.Schedule(*(on_axis(level, f"{level.axis}_") if hasattr(level, "axis") else level
                             for level in plan.levels))  # fmt: skip


def variance() -> Walk:
    """The walk of a second call."""
    import numpy as np

    import redalg as ra

    form = ra.fuse(ra.var(ra.tensor("x[b,n]"), ra.axes("n")))
    x = np.random.default_rng(0).standard_normal((64, 300))
    form(x=x, backend="numpy")
    return walked(lambda: form(x=x, backend="numpy"))


def table(found: dict[str, Walk]) -> Table:
    """The table of the walks."""
    drawn = Table("walk", "calls", "files", "files →", "packages →", "engine →")
    for name, walk in found.items():
        drawn.add_row(name, *map(str, (len(walk.calls), walk.files, walk.changes(None), walk.changes(1),
                                  walk.changes(1, without="expression"))))  # fmt: skip
    return drawn


if __name__ == "__main__":
    Console().print(table(walks()))
