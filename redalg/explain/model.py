"""The content of an explanation, free of any medium; text, LaTeX and HTML render this and nothing else.

Grammar:

    Derivation := heading Part*, summary Sentence, Section*
    Section    := title, Line*
    Line       := Sentence(Part*) | Equations(title Part*, source, Row*) | Table(header, cells Part*) | Matrices
    Matrices   := title Part*, Matrix = Matrix · Matrix
    Row        := Equation, …              what stands side by side: g_k beside h_k
    Equation   := left relation right
    Part       := prose (a string: no mathematics, no name) | Code | an expression
    Notice     := heading, (label, Sentence)*      a verdict that has no form to derive
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

from sympy.core.basic import Basic

Part: TypeAlias = str | Basic


@final
class Code(str):
    """Code within prose: text that a user would type."""

    __slots__ = ()


@final
@dataclass(frozen=True)
class Sentence:
    """Prose with mathematics in it."""

    parts: tuple[Part, ...]


@final
@dataclass(frozen=True)
class Equation:
    """left = right, or ≈ where any nearby value will do, or → for an output."""

    left: Basic
    right: Basic
    relation: str = "="


@final
@dataclass(frozen=True)
class Equations:
    """Aligned equations under a title; `source` says where their form is published."""

    title: tuple[Part, ...]
    rows: tuple[tuple[Equation, ...], ...]
    source: str = ""


@final
@dataclass(frozen=True)
class Table:
    """Cells of prose and mathematics under a header."""

    header: tuple[str, ...]
    cells: tuple[tuple[tuple[Part, ...], ...], ...]


Matrix: TypeAlias = tuple[tuple[Basic, ...], ...]
"""Rows of entries."""


@final
@dataclass(frozen=True)
class Matrices:
    """left = first · second, where entries that are 0 are written as dots."""

    title: tuple[Part, ...]
    left: Matrix
    first: Matrix
    second: Matrix


Line: TypeAlias = Sentence | Equations | Table | Matrices


@final
@dataclass(frozen=True)
class Section:
    """One stage of the derivation; `name` is what a caller asks for it by."""

    title: str
    lines: tuple[Line, ...]
    name: str = ""


@final
@dataclass(frozen=True)
class Derivation:
    """The whole explanation: what it is about, its result in one sentence, and the stages."""

    heading: tuple[Part, ...]
    summary: Sentence
    sections: tuple[Section, ...]

    def equations(self) -> Iterator[tuple[str, Equation]]:
        """Every equation with its section's title, in order."""
        for section in self.sections:
            for line in section.lines:
                for row in line.rows if isinstance(line, Equations) else ():
                    yield from ((section.title, one) for one in row)


@final
@dataclass(frozen=True)
class Notice:
    """A heading, and sentences under labels."""

    heading: str
    entries: tuple[tuple[str, Sentence], ...]


def sentence(*parts: Part) -> Sentence:
    """A sentence of its parts; text between `…` in prose is code."""
    return Sentence(tuple(one for part in parts for one in (split_code(part) if isinstance(part, str) else (part,))))


def split_code(prose: str) -> Iterator[Part]:
    """Split prose into its text and its code.

    >>> list(split_code("call `f(x)` twice"))
    ['call ', 'f(x)', ' twice']
    """
    pieces = prose.split("`")
    for place, piece in enumerate(pieces):
        if piece:
            yield Code(piece) if place % 2 and place < len(pieces) - 1 else piece


def column(title: tuple[Part, ...], equations: Sequence[Equation], source: str = "") -> Equations:
    """Equations one below the other."""
    return Equations(title, tuple((one,) for one in equations), source)


def comma_list(exprs: list[Basic], between: str = ", ") -> tuple[Part, ...]:
    """Expressions as parts of prose: `a, b, c`."""
    return tuple(part for one in exprs for part in (between, one))[1:]
