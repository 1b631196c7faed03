"""A table that prints: the same cells in a terminal and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import final

WIDTH = 200
"""Columns of a terminal that cells are not wrapped within."""


@final
@dataclass(frozen=True)
class Table:
    """Cells as text, the first column and the last to the left, the figures between them to the right.

    >>> print(Table("sizes", ("axis", "extent", "role"), (("k", "512", "streamed"),), "one axis"))
    sizes
     axis   extent   role
    ──────────────────────────
     k         512   streamed
    one axis
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def __str__(self) -> str:
        from rich import box
        from rich.console import Console
        from rich.table import Table as Drawn
        from rich.text import Text

        drawn = Drawn(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1))
        for place, name in enumerate(self.columns):
            drawn.add_column(name, justify="left" if place in (0, len(self.columns) - 1) else "right")
        for row in self.rows:
            drawn.add_row(*map(Text, row))
        console = Console(file=StringIO(), width=WIDTH, color_system=None)
        with console.capture() as captured:
            console.print(drawn)
        lines = [self.title, *captured.get().splitlines(), self.note]
        return "\n".join(line.rstrip() for line in lines if line.strip())

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<table><caption>{escape(self.title)}</caption><tr>{head}</tr>{body}</table>{note}"
