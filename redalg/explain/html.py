"""HTML for notebooks: a line that folds open to sections with LaTeX in them, and text in case MathJax is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import count

from redalg.decompose.verdict.verdict import Decomposition
from redalg.explain import text
from redalg.explain.latex import WRITER, equations_latex, matrices_latex
from redalg.explain.model import Code, Derivation, Equations, Line, Matrices, Notice, Part, Section, Sentence
from redalg.explain.page import LEFT, cell_table, fold, scroll, text_block
from redalg.explain.picture import draw_passes
from redalg.explain.steps import EXTRA, extra_sections
from redalg.explain.whole import derivation
from redalg.incremental.passes import Passes


def explain_html(decomposition: Decomposition, passes: Passes) -> str:
    """The derivation as HTML, with LaTeX for a notebook's MathJax in it and the tree as a picture, each part folded."""
    content = derivation(decomposition, passes)
    first, moves = (extra_sections(name, decomposition, passes) for name in EXTRA)
    tree = fold("The tree, drawn", draw_passes(decomposition, passes)._repr_html_())
    return render(replace(content, sections=(*first, *content.sections, *moves)), text.render(content), tree)


def render(content: Derivation, plain: str | None = None, picture: str = "") -> str:
    """A line, which opens to the picture, to the sections, each a line of its own, and to the text form."""
    numbers = count(1)
    body = [picture] if picture else []
    body += [
        section_html(section, "" if section.name in EXTRA else f"{next(numbers)}. ") for section in content.sections
    ]
    body.append(fold("As plain text", text_block(plain or text.render(content))))
    heading, summary = (escape(text.prose_text(one)) for one in (content.heading, content.summary.parts))
    return f"<article>{fold(f'<strong>{heading}</strong>. {summary}', chr(10).join(body))}</article>"


def notice_html(notice: Notice) -> str:
    """The heading, which opens to the entries under their labels."""
    entries = (
        f"<dt><strong>{escape(label)}</strong></dt><dd {LEFT}>{prose_html(said.parts)}</dd>"
        for label, said in notice.entries
    )
    body = "\n".join(["<dl>", *entries, "</dl>"])
    return f"<article>{fold(f'<strong>{escape(notice.heading)}</strong>', body, is_open=True)}</article>"


def section_html(section: Section, number: str) -> str:
    """One section, closed to its title; its number is that of the text."""
    body = "\n".join(one for line in section.lines for one in line_html(line))
    return fold(f"{number}{escape(section.title)}", body)


def line_html(line: Line) -> Iterator[str]:
    """One line of the model."""
    if isinstance(line, Sentence):
        yield f"<p>{prose_html(line.parts)}</p>"
    elif isinstance(line, Equations):
        source = f" <small>({escape(line.source)})</small>" if line.source else ""
        yield f"<p>{prose_html(line.title)}{source}</p>{scroll(mathematics(equations_latex(line)))}"
    elif isinstance(line, Matrices):
        yield f"<p>{prose_html(line.title)}</p>{scroll(mathematics(matrices_latex(line)))}"
    else:
        yield cell_table(line.header, ([prose_html(cell) for cell in row] for row in line.cells))


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
