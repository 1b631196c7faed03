"""Progress on the standard error while something takes longer than a second: a compile, tuning, a measurement, a file.

    shown       on a terminal, or in a notebook that has ipywidgets; a line a task, gone when the task is done
    not shown   where the standard error is a pipe or a file, and where the environment has REDALG_PROGRESS=0

All tasks of the process stand in one display, so that a compile within a measurement is a second line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import RLock, Timer
from typing import Any, final

SWITCH = "REDALG_PROGRESS"
"""The environment variable that turns all of it off where it is 0."""
PATIENCE_S = 1.0
"""Seconds after which a task is shown."""
Tell = Callable[..., None]
"""`tell(completed, text)`: how much is done, in the unit of the total (None: as much as before), and words."""


@contextmanager
def progress_bar(label: str, total: float | None = None, *, enabled: bool = True) -> Iterator[Tell]:
    """A line for one task, from a second after its beginning to its end.

    Args:
        label: the task, in a few words.
        total: the amount of it, in any unit; None where it is not known, and a pulse is shown.
        enabled: False for none.

    >>> with progress_bar("rows", 10) as tell:
    ...     tell(3, "the third")
    """
    if not enabled or not is_shown():
        yield _say_nothing
        return
    task = _Task(label, total)
    timer = Timer(PATIENCE_S, DISPLAY.show, [task])
    timer.daemon = True
    if PATIENCE_S > 0:
        timer.start()
    else:
        DISPLAY.show(task)
    try:
        yield lambda completed=None, text="": DISPLAY.update(task, completed, text)
    finally:
        timer.cancel()
        DISPLAY.remove(task)


def _say_nothing(*_: Any) -> None:
    """Take what is told of a task that is not shown."""


def is_shown() -> bool:
    """Tell if progress is shown here: a person looks at the standard error, and did not turn it off."""
    if os.environ.get(SWITCH) == "0":
        return False
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def in_notebook() -> bool:
    """Tell if this is the kernel of a notebook that can show a display that changes."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell" and find_spec("ipywidgets") is not None


@final
class _Task:
    """A task: what is told of it before it is shown, and its number in the display once it is."""

    def __init__(self, label: str, total: float | None) -> None:
        self.state: dict[str, Any] = {"description": label, "total": total, "completed": 0.0, "text": ""}
        self.number: Any = None
        self.is_over = False


@final
class _Display:
    """The one display of the process. It is there while it has a line."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.bars: Any = None
        self.lines = 0

    def show(self, task: _Task) -> None:
        """Show a task, if it is not over."""
        with self.lock:
            if task.is_over:
                return
            if self.bars is None:
                self.bars = _bars()
                self.bars.start()
            task.number = self.bars.add_task(**task.state)
            self.lines += 1

    def update(self, task: _Task, completed: float | None, text: str) -> None:
        """Take what is told of a task."""
        with self.lock:
            task.state |= {"text": text} | ({} if completed is None else {"completed": completed})
            if task.number is not None:
                changed = {name: task.state[name] for name in ("completed", "text")}
                self.bars.update(task.number, **changed)

    def remove(self, task: _Task) -> None:
        """Take the line of a task away, and the display with the last one."""
        with self.lock:
            task.is_over = True
            if task.number is None:
                return
            self.bars.remove_task(task.number)
            task.number, self.lines = None, self.lines - 1
            if not self.lines:
                self.bars.stop()
                self.bars = None


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), TimeElapsedColumn(),
               TextColumn("{task.fields[text]}", markup=False))  # fmt: skip
    return Progress(*columns, console=Console(stderr=True), transient=True)


DISPLAY = _Display()
