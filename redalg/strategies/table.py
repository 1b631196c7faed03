"""A table that prints: the same cells in a terminal and in a notebook, never cut off."""

from __future__ import annotations

import json
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Any, final

GAP = "   "
PIPE_COLUMNS = 80
"""Columns where the output is no terminal and `COLUMNS` says nothing."""
LEAST_TEXT = 14
"""Columns of a text that is folded, at least."""
NAME = 26
"""Columns of a name in the first column beyond which it may be folded, at hyphens too."""
HARD_SPACE = "\xa0"
BAR = r"\|"
"""A bar within a cell, in Markdown."""


@final
@dataclass(frozen=True)
class Table:
    """Cells as text, the first column and the last to the left, the figures between them to the right.

    Where the terminal is too narrow, headings and names take several lines; then the last column does, if it holds
    text; or else columns go into further tables below, the first column beside each.

    Attributes:
        title, note: lines above and below.
        columns: headings.
        rows: cells, as many as columns.
        figures_last: the last column holds figures too.

    >>> print(Table("sizes", ("axis", "extent", "role"), (("k", "512", "streamed"),), "one axis"))
    sizes
     axis   extent   role
    ──────────────────────────
     k         512   streamed
    one axis
    >>> print(Table("", ("", "one", "two"), (("a", "0.123", "0.456"),), figures_last=True).text(14))
           one
    ───────────
     a   0.123
    <BLANKLINE>
           two
    ───────────
     a   0.456
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    figures_last: bool = False

    def __str__(self) -> str:
        return self.text(output_columns())

    def text(self, width: int) -> str:
        """The table in so many columns."""
        blocks = ["\n".join(self._block(list(block), width)) for block in self._blocks(width)]
        title, note = (lines_within(text, width) for text in (self.title, self.note))
        return "\n".join(part for part in (title, "\n\n".join(blocks), note) if part.strip())

    def to_json(self) -> str:
        """The title, the rows by their headings, and the note, as JSON.

        >>> print(Table("sizes", ("axis", "extent"), (("k", "512"),)).to_json())
        {
         "title": "sizes",
         "rows": [
          {
           "axis": "k",
           "extent": "512"
          }
         ],
         "note": ""
        }
        """
        headings = [heading or "row" for heading in self.columns]
        rows = [dict(zip(headings, row, strict=True)) for row in self.rows]
        return json.dumps({"title": self.title, "rows": rows, "note": self.note}, ensure_ascii=False, indent=1)

    def to_markdown(self) -> str:
        """The table as Markdown.

        >>> print(Table("", ("axis", "extent", "role"), (("k", "512", "streamed"),)).to_markdown())
        | axis | extent | role |
        |---|--:|---|
        | k | 512 | streamed |
        """
        sides = "|".join("--:" if self._is_right(place) else "---" for place in range(len(self.columns)))
        table = "\n".join([markdown_line(self.columns), f"|{sides}|", *map(markdown_line, self.rows)])
        return "\n\n".join(part for part in (self.title, table, self.note) if part.strip())

    def _column(self, place: int) -> list[str]:
        return [row[place] for row in self.rows]

    def _least(self, place: int) -> int:
        """The width of a column whose heading may take several lines; a name may, too."""
        words = self.columns[place].split() or [""]
        least = max(map(len, (*words, *self._column(place))))
        return min(least, NAME) if place == 0 else least

    def _is_right(self, place: int) -> bool:
        return place > 0 and (self.figures_last or place < len(self.columns) - 1)

    def _blocks(self, width: int) -> list[tuple[int, ...]]:
        """The columns that stand side by side, by their places."""
        places = tuple(range(len(self.columns)))
        if self._fit(places, width) is not None:
            return [places]
        blocks, block = list[tuple[int, ...]](), places[:1]
        for place in places[1:]:
            if len(block) > 1 and self._fit((*block, place), width) is None:
                blocks.append(block)
                block = places[:1]
            block = (*block, place)
        return [*blocks, block]

    def _fit(self, places: Sequence[int], width: int) -> list[int] | None:
        """The widths of columns side by side; None if they do not fit."""
        room = width - len(GAP) * (len(places) - 1) - 2
        natural = [max(map(len, (self.columns[place], *self._column(place)))) for place in places]
        if sum(natural) <= room:
            return natural
        least = [self._least(place) for place in places]
        if sum(least) <= room:
            return _widen(least, natural, room)
        is_text = not self._is_right(places[-1]) and places[-1] == len(self.columns) - 1
        for widths in (natural[:-1], least[:-1]):
            if is_text and room - sum(widths) >= LEAST_TEXT:
                return [*widths, room - sum(widths)]
        return None

    def _block(self, places: list[int], width: int) -> list[str]:
        """The lines of columns side by side; what fits nowhere is folded."""
        room = width - len(GAP) * (len(places) - 1) - 2
        widths = self._fit(places, width) or [min(self._least(place), room) for place in places]
        rights = [self._is_right(place) for place in places]
        head = _lines([self.columns[place] for place in places], widths, rights, is_head=True)
        body = [line for row in self.rows for line in _lines([row[place] for place in places], widths, rights)]
        rule = "─" * (sum(widths) + len(GAP) * (len(places) - 1) + 2)
        return [line for line in head if line.strip()] + [rule] + body

    def __rich__(self) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        shown = RichTable(box=SIMPLE_HEAD, header_style="bold", show_edge=False)
        for place, heading in enumerate(self.columns):
            is_right = self._is_right(place) and not any(cell[:1].isalpha() for cell in self._column(place))
            shown.add_column(Text(heading), justify="right" if is_right else "left", overflow="fold")
        for name, *cells in self.rows:
            shown.add_row(Text(name, "cyan"), *map(Text, cells))
        return Group(*[Text(self.title, "bold")] * bool(self.title), shown, *[Text(self.note)] * bool(self.note))

    def _repr_html_(self) -> str:
        sides = ["right" if self._is_right(place) else "left" for place in range(len(self.columns))]
        rows = [("th", self.columns), *(("td", row) for row in self.rows)]
        head, *body = (
            "".join(f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
                    for side, cell in zip(sides, cells, strict=True)) for tag, cells in rows)  # fmt: skip
        note = f"<p>{'<br>'.join(map(escape, self.note.splitlines()))}</p>" if self.note else ""
        lines = "".join(f"<tr>{row}</tr>" for row in body)
        return f"<table><caption>{escape(self.title)}</caption><tr>{head}</tr>{lines}</table>{note}"


class Tabled(ABC):
    """A value that shows as tables: in a terminal, in a notebook, and where Rich prints."""

    @abstractmethod
    def tables(self) -> list[Table]:
        """The tables, in order."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables())

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(*self.tables())


def output_columns() -> int:
    """The columns of the terminal; those that `COLUMNS` says, or 80, where the output is none."""
    if sys.stdout is not None and sys.stdout.isatty():
        return shutil.get_terminal_size((PIPE_COLUMNS, 24)).columns
    told = os.environ.get("COLUMNS", "")
    return int(told) if told.isdigit() and int(told) else PIPE_COLUMNS


def markdown_line(cells: Sequence[str]) -> str:
    r"""One row of a table in Markdown; a bar within a cell is escaped.

    >>> markdown_line(["|x|", "1"])
    '| \\|x\\| | 1 |'
    """
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


def lines_within(text: str, width: int) -> str:
    """A text with lines that are longer than `width` columns in several."""
    lines = [wrap(line, width, break_on_hyphens=False, break_long_words=False) for line in text.splitlines()]
    return "\n".join(part for line in lines for part in (line or [""]))


def _widen(least: list[int], natural: list[int], room: int) -> list[int]:
    """Widths with as many headings in one line as there is room for, from the left."""
    widths = list(least)
    for place, wanted in enumerate(natural):
        if sum(widths) - widths[place] + wanted <= room:
            widths[place] = wanted
    return widths


def _lines(cells: list[str], widths: list[int], rights: list[bool], *, is_head: bool = False) -> list[str]:
    """A row in as many lines as its longest cell takes; headings stand at the bottom."""
    parts = [_fold(cell, width, is_name=is_head or not place)
             for place, (cell, width) in enumerate(zip(cells, widths, strict=True))]  # fmt: skip
    height = max(map(len, parts))
    parts = [[""] * (height - len(part)) + part if is_head else part + [""] * (height - len(part)) for part in parts]
    made = []
    for line in zip(*parts, strict=True):
        pieces = [text.rjust(width) if right else text.ljust(width)
                  for text, width, right in zip(line, widths, rights, strict=True)]  # fmt: skip
        made.append((" " + GAP.join(pieces)).rstrip())
    return made


def _fold(cell: str, width: int, *, is_name: bool) -> list[str]:
    """A cell in lines; after a comma no line ends, unless it must, but in names."""
    if len(cell) <= width:
        return [cell]
    kept = cell if is_name else cell.replace(", ", f",{HARD_SPACE}")
    return [line.replace(HARD_SPACE, " ") for line in wrap(kept, width, break_on_hyphens=is_name)]
