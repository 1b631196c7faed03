"""Tables as values: written into documents as Markdown, shown in a terminal within its columns."""

from collections.abc import Sequence
from dataclasses import dataclass

from redalg.strategies.table import Table as Shown
from redalg.strategies.table import markdown_line

LONGEST = 40
"""Letters of a figure, at most."""


@dataclass(frozen=True)
class Table:
    """Cells as text; the first column is a name, the others are figures.

    >>> print(Table(("row", "time"), (("H1", "3.0"),)))
    | row | time |
    |---|--:|
    | H1 | 3.0 |
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        rule = "|---" + "|--:" * (len(self.header) - 1) + "|"
        return "\n".join([markdown_line(self.header), rule, *map(markdown_line, self.rows)])

    def shown(self, title: str, note: str = "") -> Shown:
        """For a terminal, with a note below; a last column that holds long texts is folded."""
        has_text = any(len(row[-1]) > LONGEST for row in self.rows)
        return Shown(title, tuple(self.header), tuple(map(tuple, self.rows)), note, figures_last=not has_text)
