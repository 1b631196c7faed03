"""The display of stages: a line as `repr`, a page that folds in a notebook, colours where Rich prints.

A stage does not know how it is shown. `explain` does, which stands above all stages, and says so here:

    VIEWS["FusedForm"] = View(line, page)      the line, and the HTML, of a value of the class of that name
    LOADERS.append(load_views)                 fills VIEWS when a view is first asked for
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final

NARROWEST = 40
"""Columns of the narrowest text."""
STYLES = (
    (r"(?m)\A.+$", "bold"),
    (r"(?m)^[═─]+$|(?<= )─+$", "dim"),
    (r"(?m)^\d+  .+?(?= ─+$)", "bold"),
    (r"(?m)^(?:Counts|State|Update|Finish|Cost|Condition|Output)\b", "bold"),
    (r"(?m)^(?:reduction|where|means|because|evidence|instead|try|call)(?= {3})", "bold"),
    (r"`[^`]+`", "cyan"),
    (r"(?m)^Exact\.", "green"),
    (r"(?m)^(?:Approximate\.|Undecided:)", "yellow"),
    (r"(?m)^Not fusible", "red"),
)
"""Patterns of explanations -> the styles of what matches."""
SCREEN = 24
"""Lines that a terminal shows."""


@final
@dataclass(frozen=True)
class View:
    """The ways to show a stage.

    Attributes:
        line: the value in one line, for `repr`.
        page: the value as HTML, closed to one line.
        text: the value as text for a notebook without HTML.
        parts: the value for a terminal that Rich writes: programs, tables and prose; None if it is `text`.
    """

    line: Callable[[Any], str]
    page: Callable[[Any], str]
    text: Callable[[Any], str] = str
    parts: Callable[[Any], Iterable[object]] | None = None


VIEWS: dict[str, View] = {}
"""Class name -> how a value of it is shown."""
LOADERS: list[Callable[[], object]] = []
"""Functions that fill `VIEWS`."""


def view_of(value: object) -> View:
    """The ways to show a value of a class that has some."""
    name = type(value).__name__
    if name not in VIEWS:
        for load in LOADERS:
            load()
    return VIEWS[name]


@dataclass(frozen=True, eq=False, repr=False)
class Displayed:
    """A value that is shown: a line in a list or an error, a page in a notebook, and all of it by `print`."""

    @property
    def _view(self) -> View:
        return view_of(self)

    def __repr__(self) -> str:
        return self._view.line(self)

    def _repr_html_(self) -> str:
        return self._view.page(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Text of at most a screen, and HTML, for IPython."""
        return {"text/plain": first_lines(self._view.text(self)), "text/html": self._repr_html_()}

    def __rich__(self) -> Any:
        """The value for a terminal that Rich writes: programs in colours, tables with columns."""
        from rich.console import Group

        parts = self._view.parts
        return Group(*map(rich_part, [self._view.text(self)] if parts is None else parts(self)))


class Brief(ABC):
    """A value whose brief explanation Rich writes in the width of its terminal."""

    @abstractmethod
    def explain(self, *, brief: bool = False, width: int | None = None) -> str: ...

    def __rich_console__(self, _console: Any, options: Any) -> Iterator[Any]:
        yield rich_prose(self.explain(brief=True, width=max(NARROWEST, options.max_width)))


@final
class ProgramText(str):
    """The text of a program or of a loop nest: it shows itself as it prints; Rich and notebooks colour it as Python."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return view_of(self).page(self)


def rich_part(part: object) -> Any:
    """A part of a value as Rich writes it."""
    if isinstance(part, ProgramText):
        from rich.syntax import Syntax

        numbered = part.count("\n") >= SCREEN
        return Syntax(part, "python", line_numbers=numbered, background_color="default", theme="ansi_dark",
                      word_wrap=True)  # fmt: skip
    return rich_prose(part) if isinstance(part, str) else part


def rich_prose(text: str) -> Any:
    """An explanation for Rich: its headings and titles in bold, its rules faint, code and the verdict in colours."""
    from rich.text import Text

    shown = Text(text)
    for pattern, style in STYLES:
        shown.highlight_regex(pattern, style)
    return shown


@final
class Printed(str):
    r"""A text that shows itself as it prints: the last line of a cell or of an interpreter needs no `print`.

    >>> Printed("a\nb")
    a
    b
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@final
class Page(str):
    """HTML or Markdown, which a notebook renders.

    >>> Page("<b>2</b>")._repr_html_()
    '<b>2</b>'
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


@final
class Markdown(str):
    """Markdown, which a notebook renders."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)


@final
class Latex(str):
    """LaTeX, which a notebook typesets."""

    __slots__ = ()

    def _repr_latex_(self) -> str:
        return str(self)


def first_lines(text: str, most: int = SCREEN) -> str:
    r"""A text of at most so many lines; the last says how many are left out.

    >>> print(first_lines("a\nb\nc", 2))
    a
    … 2 more lines: print it
    """
    lines = text.splitlines()
    if len(lines) <= most:
        return text
    return "\n".join([*lines[: most - 1], f"… {len(lines) - most + 1} more lines: print it"])
