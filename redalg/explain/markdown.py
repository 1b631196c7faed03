"""Markdown: headings, tables, and LaTeX between dollars, as code hosts and notebooks render them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redalg.explain.latex import WRITER, equations_latex, matrices_latex
from redalg.explain.model import Code, Derivation, Equations, Line, Matrices, Notice, Part, Section, Sentence, Table

SPECIAL = frozenset("\\`*_[]<>|#")
"""Characters that Markdown reads as marks."""


def render_markdown(content: Derivation) -> str:
    """The heading, the summary, and every section under a heading of its own."""
    lines = [f"### {prose_markdown(content.heading)}", "", prose_markdown(content.summary.parts)]
    for number, section in enumerate(content.sections, 1):
        lines += ["", f"#### {number}. {escape_markdown(section.title)}", *section_markdown(section)]
    return "\n".join(lines)


def section_markdown(section: Section) -> Iterator[str]:
    """The lines of a section, sentences as a list."""
    for line in section.lines:
        yield from line_markdown(line)


def line_markdown(line: Line) -> Iterator[str]:
    """One line of the model, after an empty line."""
    if isinstance(line, Sentence):
        yield from ("", f"- {prose_markdown(line.parts)}")
    elif isinstance(line, Table):
        yield from ("", *table_markdown(line))
    elif isinstance(line, Matrices):
        yield from ("", prose_markdown(line.title), "", "$$", matrices_latex(line), "$$")
    else:
        yield from ("", *equations_markdown(line))


def equations_markdown(line: Equations) -> Iterator[str]:
    """The title with its source, then displayed equations."""
    source = f" *({escape_markdown(line.source)})*" if line.source else ""
    yield from (prose_markdown(line.title) + source, "", "$$", equations_latex(line), "$$")


def table_markdown(table: Table) -> Iterator[str]:
    """A table; one without a header has an empty one, which Markdown asks for."""
    columns = len(table.cells[0])
    yield row_markdown([escape_markdown(one) for one in table.header] or [""] * columns)
    yield row_markdown(["---"] * columns)
    yield from (row_markdown([prose_markdown(cell) for cell in row]) for row in table.cells)


def row_markdown(cells: Sequence[str]) -> str:
    """A row between bars."""
    return "| " + " | ".join(cells) + " |"


def notice_markdown(notice: Notice) -> str:
    """The heading, and the entries under their labels."""
    entries = (f"- **{label}**: {prose_markdown(one.parts)}" for label, one in notice.entries)
    return "\n".join([f"### {escape_markdown(notice.heading)}", "", *entries])


def prose_markdown(parts: Sequence[Part]) -> str:
    """Prose with mathematics in it. A bar within a formula is written so that no table ends there."""
    return "".join(map(part_markdown, parts))


def part_markdown(piece: Part) -> str:
    """One part of prose."""
    if isinstance(piece, Code):
        return f"`{piece}`".replace("|", "\\|")
    if isinstance(piece, str):
        return escape_markdown(piece)
    return f"${WRITER.write(piece)}$".replace("\\left|", "\\left\\vert ").replace("\\right|", "\\right\\vert ")


def escape_markdown(text: str) -> str:
    r"""Escape the characters of a text that are marks in Markdown.

    >>> print(escape_markdown("sum_0 * x"))
    sum\_0 \* x
    """
    return "".join("\\" + one if one in SPECIAL else one for one in text)
