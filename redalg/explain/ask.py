"""The explanation that a caller asks for: all of it, its brief form or sections by name, in a format and a width."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from shutil import get_terminal_size
from typing import final

from redalg.decompose.verdict.verdict import Decomposition
from redalg.display import Latex, Markdown, Page, Printed
from redalg.errors import InputError
from redalg.explain import html, latex, text
from redalg.explain.brief import brief_derivation, render_brief
from redalg.explain.markdown import notice_markdown, render_markdown
from redalg.explain.model import Derivation, Section
from redalg.explain.refusal import Negative, notice
from redalg.explain.steps import EXTRA, extra_sections
from redalg.explain.whole import TITLES, derivation, names_of_sections, pairs_of
from redalg.incremental.passes import Passes

FORMATS: dict[str, Callable[[str], str]] = {"text": Printed, "latex": Latex, "html": Page, "markdown": Markdown}
"""Format -> the string that a notebook shows as that."""
RENDERERS = {"text": text.render, "latex": latex.render, "html": html.render, "markdown": render_markdown}
NOTICES = {"text": text.notice_text, "latex": latex.notice_latex, "html": html.notice_html, "markdown": notice_markdown}
PIPED, BRIEF = text.WIDTH, 80
"""Columns where no terminal is there: of the whole, and of the brief form."""
NARROWEST = 40
MEANT = {
    "cascade": ("definition", "reductions", "counts"),
    "decomposition": ("algebra", "separation", "rank", "proof", "g", "h", "F"),
    "rounding": ("cast", "approximate"),
    "state": ("slots", "pivots", "accumulators", "placement"),
    "forms": ("update", "merge", "leaf", "incremental", "element"),
    "finish": ("result", "output"),
    "cost": ("memory", "time", "operations", "flops", "passes"),
    "condition": ("accuracy", "precision", "numerics", "error", "digits"),
    "steps": ("derivation", "rewrites"),
    "transition": ("matrix", "moves"),
}
"""Name of a section -> other words for it, which an error answers by that name."""


@final
@dataclass(frozen=True)
class Request:
    """The part, the format and the width that are asked for.

    Attributes:
        section: the name of a section or several; None for all.
        brief: the brief form.
        width: the most columns of a line of text; None for the terminal's.
        format: `text`, `latex`, `html` or `markdown`.
    """

    section: str | Sequence[str] | None = None
    brief: bool = False
    width: int | None = None
    format: str = "text"

    def __post_init__(self) -> None:
        known_word("format", self.format, FORMATS)
        if self.width is not None and (not isinstance(self.width, int) or self.width < NARROWEST):
            raise InputError(f"explain: width={self.width!r} should be a number of columns, {NARROWEST} or more.")
        if self.brief and self.section is not None:
            raise InputError("explain: brief=True has no sections. Leave out brief= or section=.")

    @property
    def sections(self) -> tuple[str, ...] | None:
        """The names that are asked for; None for all."""
        return (self.section,) if isinstance(self.section, str) else None if self.section is None else (*self.section,)

    @property
    def columns(self) -> int:
        """The width in columns: that of the terminal if text goes to one."""
        return self.width or columns_of_terminal(BRIEF if self.brief else PIPED)


def explain_form(decomposition: Decomposition, passes: Passes, request: Request) -> str:
    """The part of a derivation that is asked for.

    Args:
        decomposition: that of the last pass.
        passes: the forms of all passes.
        request: what is asked for.

    Raises:
        InputError: there is no such section or format, or the width is too small.
    """
    with text.at_most(request.columns):
        if request.brief:
            content = brief_derivation(decomposition, passes)
            names = section_names(decomposition, passes)
            body = render_brief(content, names) if request.format == "text" else RENDERERS[request.format](content)
        else:
            wanted = request.sections
            stages = (decomposition, passes)
            content = derivation(*stages) if wanted is None else named_sections(wanted, *stages)
            body = RENDERERS[request.format](content)
    return FORMATS[request.format](body)


def explain_verdict(found: Negative, request: Request) -> str:
    """A verdict without a form; its sections are its labels."""
    said = notice(found, brief=request.brief)
    if request.sections is not None:
        labels = [label for label, _ in said.entries]
        wanted = [known_word("section", one, labels) for one in request.sections]
        said = replace(said, entries=tuple(entry for entry in said.entries if entry[0] in wanted))
    with text.at_most(request.columns):
        return FORMATS[request.format](NOTICES[request.format](said))


def section_names(decomposition: Decomposition, passes: Passes) -> tuple[str, ...]:
    """The names of the sections that may be asked for."""
    found = {name for own, form in pairs_of(decomposition, passes) for name in names_of_sections(own, form)}
    return (*(name for name in TITLES if name in found), *EXTRA)


def named_sections(names: Sequence[str], decomposition: Decomposition, passes: Passes) -> Derivation:
    """A derivation with some sections alone, in the order in which they are named."""
    known = section_names(decomposition, passes)
    for name in names:
        known_word("section", name, known)
    content = derivation(decomposition, passes, names)
    sections = list[Section]()
    for name in names:
        own = (one for one in content.sections if one.name == name)
        sections += extra_sections(name, decomposition, passes) if name in EXTRA else own
    return replace(content, sections=tuple(sections))


def known_word(option: str, given: str, known: Iterable[str]) -> str:
    """A word of those that are known; `InputError` names them, and the nearest."""
    words = list(known)
    if given in words:
        return given
    meant = [one for one, others in MEANT.items() if given in others and one in words]
    near = meant or get_close_matches(str(given), words, 1, 0.7)
    did_you_mean = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(f"explain: there is no {option} {given!r}.{did_you_mean} There are {', '.join(words)}.")


def columns_of_terminal(otherwise: int) -> int:
    """The columns of the terminal that text is printed to; a fixed number if there is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return otherwise
    return max(NARROWEST, get_terminal_size((otherwise, 24)).columns)
