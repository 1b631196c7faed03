"""A bar on the terminal while plans or groups are measured: how much of the time is over, and what was found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

Tell = Callable[[float | None, int], None]
"""Takes the best time so far (µs), None where there is none, and how many were measured."""


@contextmanager
def progress_bar(budget_s: float, label: str, *, enabled: bool) -> Iterator[Tell]:
    """A bar with a label on the standard error, which is a terminal; else nothing. It is gone when all is done."""
    if not enabled or sys.stderr is None or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(label), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    start = monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("compiling", total=budget_s)

        def tell(best: float | None, count: int) -> None:
            suffix = "" if best is None else f", best {best:.2f} µs"
            bar.update(task, completed=min(monotonic() - start, budget_s), description=f"{count} measured{suffix}")

        yield tell
