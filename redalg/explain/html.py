"""HTML for notebooks: collapsible sections with LaTeX in them, and the text form below in case MathJax is missing.

No script, no style sheet, nothing from outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from redalg.decompose.verdict.verdict import Decomposition
from redalg.explain import text
from redalg.explain.latex import WRITER, equations_latex
from redalg.explain.model import Code, Derivation, Equations, Line, Notice, Part, Section, Sentence, Table
from redalg.explain.sections import derivation
from redalg.incremental.passes import Passes

LEFT = 'style="text-align:left"'
"""Notebooks align cells to the right unless told otherwise."""


def explain_html(decomposition: Decomposition, passes: Passes) -> str:
    """The derivation as HTML, with LaTeX for a notebook's MathJax in it; arguments as of `explain_text`."""
    return render(derivation(decomposition, passes))


def render(content: Derivation) -> str:
    """The heading, the sections, and the text form."""
    lines = ["<article>", f"<h3>{prose_html(content.heading)}</h3>", f"<p>{prose_html(content.summary.parts)}</p>"]
    for number, section in enumerate(content.sections, 1):
        lines += section_html(number, section)
    lines += ["<details><summary>As plain text</summary>", f"<pre>{escape(text.render(content))}</pre>", "</details>"]
    return "\n".join([*lines, "</article>"])


def notice_html(notice: Notice) -> str:
    """The heading, and the entries under their labels."""
    entries = (f"<dt>{escape(label)}</dt><dd {LEFT}>{prose_html(one.parts)}</dd>" for label, one in notice.entries)
    return "\n".join(["<article>", f"<h3>{escape(notice.heading)}</h3>", "<dl>", *entries, "</dl>", "</article>"])


def section_html(number: int, section: Section) -> Iterator[str]:
    """One section, open to begin with."""
    yield f"<details open><summary><strong>{number}. {escape(section.title)}</strong></summary>"
    for line in section.lines:
        yield from line_html(line)
    yield "</details>"


def line_html(line: Line) -> Iterator[str]:
    """One line of the model."""
    if isinstance(line, Sentence):
        yield f"<p>{prose_html(line.parts)}</p>"
    elif isinstance(line, Equations):
        source = f" <small>({escape(line.source)})</small>" if line.source else ""
        yield f"<p>{prose_html(line.title)}{source}<br>{mathematics(equations_latex(line))}</p>"
    else:
        yield from table_html(line)


def table_html(table: Table) -> Iterator[str]:
    """A table, aligned to the left."""
    yield "<table>"
    if table.header:
        yield "<tr>" + "".join(f"<th {LEFT}>{escape(one)}</th>" for one in table.header) + "</tr>"
    for row in table.cells:
        yield "<tr>" + "".join(f"<td {LEFT}>{prose_html(cell)}</td>" for cell in row) + "</tr>"
    yield "</table>"


def prose_html(parts: Sequence[Part]) -> str:
    """Prose with mathematics in it."""
    return "".join(map(part_html, parts))


def part_html(piece: Part) -> str:
    """One part of prose."""
    if isinstance(piece, Code):
        return f"<code>{escape(piece)}</code>"
    return escape(piece) if isinstance(piece, str) else mathematics(WRITER.write(piece))


def mathematics(body: str) -> str:
    r"""LaTeX between \( and \)."""
    return rf"\({escape(body)}\)"
