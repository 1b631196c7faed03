"""The display of stages: a line as `repr`, a page that folds in a notebook, colours where Rich prints.

A stage does not know how it is shown. `explain` does, which stands above all stages, and says so here:

    VIEWS["FusedForm"] = View(line, page)      the line, and the HTML, of a value of the class of that name
    LOADERS.append(load_views)                 fills VIEWS when a view is first asked for
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

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
        code: the text that Rich colours as Python; None if it is no program.
    """

    line: Callable[[Any], str]
    page: Callable[[Any], str]
    text: Callable[[Any], str] = str
    code: Callable[[Any], str] | None = None


VIEWS: dict[str, View] = {}
"""Class name -> how a value of it is shown."""
LOADERS: list[Callable[[], object]] = []
"""Functions that fill `VIEWS`."""


@dataclass(frozen=True, eq=False, repr=False)
class Displayed:
    """A value that is shown: a line in a list or an error, a page in a notebook, and all of it by `print`."""

    @property
    def _view(self) -> View:
        name = type(self).__name__
        if name not in VIEWS:
            for load in LOADERS:
                load()
        return VIEWS[name]

    def __repr__(self) -> str:
        return self._view.line(self)

    def _repr_html_(self) -> str:
        return self._view.page(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Text of at most a screen, and HTML, for IPython."""
        return {"text/plain": first_lines(self._view.text(self)), "text/html": self._repr_html_()}

    def __rich__(self) -> Any:
        """The value for a terminal that Rich writes: a program in colours."""
        from rich.syntax import Syntax
        from rich.text import Text

        code = self._view.code
        if code is None:
            return Text(self._view.text(self))
        return Syntax(code(self), "python", line_numbers=True, background_color="default", theme="ansi_dark")


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
