"""Pieces of HTML for notebooks: what folds, what scrolls, tables, text; legible on a light page and on a dark one.

No script, no style sheet, nothing from outside: colours are the page's own (`currentColor`), or of middle lightness.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

SCROLLS = 'style="overflow-x:auto;overflow-y:hidden;max-width:100%;padding:.2em 0"'
"""What is wider than the page scrolls by itself."""
LEFT = 'style="text-align:left;vertical-align:top;padding:.15em 1em .15em 0"'
"""Notebooks align cells to the right unless told otherwise."""
SUMMARY = 'style="cursor:pointer"'
PLAIN = 'style="overflow-x:auto;max-width:100%;margin:.4em 0;line-height:1.35;background:transparent;color:inherit"'
INSIDE = 'style="margin:.2em 0 .6em .6em;padding-left:.8em;border-left:1px solid;border-color:rgba(128,128,128,.5)"'


def fold(summary: str, body: str, *, is_open: bool = False) -> str:
    """A line of HTML that opens to a body."""
    return (f"<details{' open' if is_open else ''}><summary {SUMMARY}>{summary}</summary>\n<div {INSIDE}>{body}</div>"
            "</details>")  # fmt: skip


def text_block(text: str) -> str:
    """Text as it stands, in letters of one width."""
    return f"<pre {PLAIN}>{escape(text)}</pre>"


def scroll(body: str) -> str:
    """HTML that scrolls by itself if it is too wide."""
    return f"<div {SCROLLS}>{body}</div>"


def cell_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells of HTML, aligned to the left."""
    lines = ["<table>"]
    if header:
        lines.append("<tr>" + "".join(f"<th {LEFT}>{escape(one)}</th>" for one in header) + "</tr>")
    lines += ["<tr>" + "".join(f"<td {LEFT}>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    return scroll("\n".join([*lines, "</table>"]))


def closed_line(kind: str, line: str) -> str:
    """The line of a stage that is closed: its kind, then what it is."""
    return f"<strong>{escape(kind)}</strong> {escape(line)}"
