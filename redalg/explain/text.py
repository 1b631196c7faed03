"""Text: plain Unicode for a terminal, at most 100 columns unless it is told another width, aligned."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import groupby
from typing import final

from sympy import Add, Expr, Mul, S
from sympy.core.basic import Basic

from redalg.decompose.verdict.verdict import Decomposition
from redalg.explain.model import (
    Code,
    Derivation,
    Equations,
    Line,
    Matrices,
    Matrix,
    Notice,
    Part,
    Section,
    Sentence,
    Table,
)
from redalg.explain.notation import ATOM, DELTA, HAT, LONG_HAT, POWER, PRODUCT, RHO, Writer, split_marks
from redalg.explain.sections import the_conventions
from redalg.explain.whole import derivation
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes

WIDTH = 100
COLUMNS = ContextVar("COLUMNS", default=WIDTH)
"""The most columns of a line."""
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

JOINTS = "·/,)]|"
"""A line may end at these if it must."""
LEAST = 16
"""Columns that the last cell of a row has at least beside the others; else it stands below them."""
GLUE = "⊗=≤≥<>≠"
"""No line ends at these: they hold their neighbours together."""


def explain_text(decomposition: Decomposition, passes: Passes, width: int = WIDTH) -> str:
    """The derivation as text.

    Args:
        decomposition: that of the last pass, `Fused.decomposition`.
        passes: the forms of all passes, `Fused.passes`.
        width: the most columns of a line.

    Returns:
        Lines of at most so many columns.
    """
    with at_most(width):
        return render(derivation(decomposition, passes))


@contextmanager
def at_most(width: int) -> Iterator[None]:
    """Lay out text in so many columns."""
    before = COLUMNS.set(width)
    try:
        yield
    finally:
        COLUMNS.reset(before)


# ---- the writer ------------------------------------------------------------------------------------------------------


@final
class TextWriter(Writer):
    """`sum_1·exp(m − m′)`, `x[b,n]²`, `√|d|`, `Σ_k …`: names stand as they are written in Python."""

    def __init__(self) -> None:
        self.comparisons = {"<": "<", "<=": "≤", ">": ">", ">=": "≥", "==": "=", "!=": "≠"}
        self.words = {"And": "and", "Or": "or", "Not": "not", "Xor": "xor"}
        self.minus = "−"

    def name(self, name: str) -> str:
        base, marks = split_marks(name)
        for prefix, letter in ((DELTA, "δ_"), (RHO, "ρ_")):
            base = letter + base.removeprefix(prefix) if base.startswith(prefix) else base
        if HAT not in marks:
            return base + marks
        head = base.partition("_")[0]
        marks = marks.replace(HAT, "")
        if len(head) > 1:  # no accent spans several letters
            return base + LONG_HAT + marks
        return unicodedata.normalize("NFC", head + HAT) + base[len(head) :] + marks

    def symbol(self, name: str) -> str:
        return name.replace("_", "").translate(SUBSCRIPTS)

    def element(self, name: str, indices: Sequence[Basic]) -> str:
        return f"{self.name(name)}[{','.join(self.many(indices))}]" if indices else self.name(name)

    def parentheses(self, body: str) -> str:
        return f"({body})"

    def product(self, factors: Sequence[str]) -> str:
        return "·".join(factors)

    def fraction(self, above: Sequence[Expr], below: Sequence[Expr]) -> tuple[str, int]:
        divisor = self.product([self.write(one, POWER) for one in below])
        divisor = self.parentheses(divisor) if len(below) > 1 else divisor
        return self.product([self.write(one, POWER) for one in above]) + "/" + divisor, PRODUCT

    def power(self, base: Expr, exponent: Expr) -> tuple[str, int]:
        if exponent == S.Half:
            return f"√{self.write(base, ATOM)}", ATOM
        power = self.write(exponent)
        power = (
            power.translate(SUPERSCRIPTS) if power.isdecimal() else f"^{power}" if power.isalnum() else f"^({power})"
        )
        return self.write(base, ATOM) + power, POWER

    def function(self, name: str, args: Sequence[Basic]) -> str:
        return f"{name}({', '.join(self.many(args))})"

    def brackets(self, kind: str, body: str) -> str:
        left, right = ("|", "|") if kind == "abs" else ("⌊", "⌋")
        return left + body + right

    def reduction(self, kind: str, axes: Sequence[str], body: str) -> str:
        return f"{({'sum': 'Σ', 'prod': 'Π', 'any': '⋁', 'all': '⋀'}).get(kind, kind)}_{','.join(axes)} {body}"

    def cases(self, condition: str, a: str, b: str) -> str:
        return f"where({condition}, {a}, {b})"

    def foreign(self, expr: Basic) -> str:
        return {S.Infinity: "∞", S.NaN: "NaN"}.get(expr, str(expr))


WRITER = TextWriter()


def prose_text(parts: Sequence[Part]) -> str:
    """Parts as one string."""
    texts = (f"`{part}`" if isinstance(part, Code) else part if isinstance(part, str) else WRITER.write(part)
             for part in parts)  # fmt: skip
    return "".join(texts)


def conditions_text(decomposition: Decomposition, form: FusedForm) -> tuple[str, ...]:
    """The conditions under which the form is the definition, as sentences; none if there is no condition."""
    lines = the_conventions(decomposition, form)
    return tuple(prose_text(one.parts) for one in lines if isinstance(one, Sentence))


# ---- layout ----------------------------------------------------------------------------------------------------------


def render(content: Derivation) -> str:
    """The whole derivation."""
    heading = prose_text(content.heading)
    headings = list(wrap_text(heading, ""))
    lines = [*headings, "═" * max(map(text_width, headings)), *wrap_text(prose_text(content.summary.parts), "")]
    for number, section in enumerate(content.sections, 1):
        lines += ["", *section_text(number, section)]
    return "\n".join(line.rstrip() for line in lines)


def notice_text(notice: Notice) -> str:
    """The heading with a rule below it, and a labelled paragraph for every entry."""
    entries = [(label, prose_text(one.parts)) for label, one in notice.entries]
    headings = list(wrap_text(notice.heading, ""))
    return "\n".join([*headings, "─" * max(map(len, headings)), *labelled_lines(entries)])


def section_text(number: int, section: Section) -> Iterator[str]:
    """A section under its ruled title; sentences in a row stand together, an empty line precedes all else."""
    title = f"{number}  {section.title} "
    yield title + "─" * (COLUMNS.get() - len(title))
    for kind, group in groupby(section.lines, key=type):
        lines = list(group)
        for line in lines:
            if kind is not Sentence or line is lines[0]:
                yield ""
            yield from line_text(line, "   • " if len(lines) > 1 else "   ")


def line_text(line: Line, bullet: str) -> Iterator[str]:
    """One line of the model."""
    if isinstance(line, Sentence):
        yield from wrap_text(prose_text(line.parts), bullet)
    elif isinstance(line, Table):
        yield from table_text(line)
    elif isinstance(line, Matrices):
        yield from matrices_text(line)
    else:
        yield from equations_text(line)


def equations_text(line: Equations) -> Iterator[str]:
    """The title with its source at the right margin; then the equations, aligned at their relations."""
    *before, title = wrap_text(prose_text(line.title), "   ")
    room = COLUMNS.get() - text_width(title) - len(line.source)
    yield from before
    yield title + " " * room + line.source if line.source and room > 1 else title
    if line.source and room <= 1:
        yield line.source.rjust(COLUMNS.get())
    rows = [[(WRITER.write(one.left), one.relation, WRITER.write(one.right)) for one in row] for row in line.rows]
    widths = [text_width(cell[0]) for row in rows for cell in row]
    left = max((one for one in widths if one <= COLUMNS.get() * 2 // 5), default=0)
    pairs = [row for row in rows if len(row) > 1]
    second = max((text_width(row[0][2]) for row in pairs), default=0)
    beside = 8 + left + second + 4 + max((left + 3 + text_width(row[1][2]) for row in pairs), default=0)
    for row in rows:
        if len(row) > 1 and beside <= COLUMNS.get():
            (a, r, b), (c, s, d) = row
            yield f"     {pad_right(a, left)} {r} {pad_right(b, second)}    {pad_right(c, left)} {s} {d}"
        else:
            for a, r, b in row:
                yield from equation_text(a, r, b, left)


def equation_text(left: str, relation: str, right: str, size: int) -> Iterator[str]:
    """left = right, the left side padded; what is too wide for a line goes on below it, further in."""
    lead = f"     {pad_right(left, size)} {relation} "
    room = COLUMNS.get() - text_width(lead)
    if text_width(right) <= room or (room >= COLUMNS.get() // 2 and _break(right, room) is not None):
        yield from wrap_text(right, lead, " " * (size + 8 + 2))
    else:
        yield from wrap_text(f"{left} {relation}", "     ", " " * 7)
        yield from wrap_text(right, " " * 9, " " * 11)


def matrices_text(line: Matrices) -> Iterator[str]:
    """Matrices side by side; if they are too wide, an equation for every entry that is no number."""
    yield from wrap_text(prose_text(line.title), "   ")
    blocks = [matrix_text(one) for one in (line.left, line.first, line.second)]
    sides = zip(*blocks, strict=True)
    middle = (len(line.left) - 1) // 2
    rows = ["     " + a + (" = " if place == middle else "   ") + b + (" · " if place == middle else "   ") + c
            for place, (a, b, c) in enumerate(sides)]  # fmt: skip
    if max(map(text_width, rows)) <= COLUMNS.get():
        yield from rows
        return
    for row, factors in zip(line.left, line.first, strict=True):
        for left, entries in zip(row, zip(*line.second, strict=True), strict=True):
            if not left.is_number:
                terms = (Mul(a, b, evaluate=False) for a, b in zip(factors, entries, strict=True) if 0 not in (a, b))
                yield from equation_text(WRITER.write(left), "=", WRITER.write(Add(*terms)), 0)


def matrix_text(matrix: Matrix) -> list[str]:
    """The lines of a matrix between brackets; an entry that is 0 is a dot."""
    cells = [["·" if one == 0 else WRITER.write(one) for one in row] for row in matrix]
    sizes = [max(map(text_width, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(pad_right(cell, size) for cell, size in zip(row, sizes, strict=True)) for row in cells]
    last = len(lines) - 1
    left = ["[" if not last else "⎡" if not place else "⎣" if place == last else "⎢" for place in range(last + 1)]
    right = ["]" if not last else "⎤" if not place else "⎦" if place == last else "⎥" for place in range(last + 1)]
    return [a + line + b for a, line, b in zip(left, lines, right, strict=True)]


def table_text(table: Table) -> Iterator[str]:
    """Columns; the last one wraps."""
    cells = [[prose_text(cell) for cell in row] for row in table.cells]
    rows = [list(table.header), *cells] if table.header else cells
    sizes = [max(text_width(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    before = ""
    for row in rows:
        first = ["" if row[0] == before and not table.header else row[0], *row[1:-1]]
        lead = "     " + "   ".join(pad_right(cell, size) for cell, size in zip(first, sizes, strict=True)) + "   "
        if text_width(lead) + min(text_width(row[-1]), LEAST) <= COLUMNS.get():
            yield from wrap_text(row[-1], lead, " " * (text_width(lead) + 2))
        else:
            yield from (lead, *wrap_text(row[-1], " " * 9, " " * 11))
        before = row[0]


def labelled_lines(entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    """`label   text`, wrapped."""
    size = max(len(label) for label, _ in entries)
    for label, text in entries:
        yield from wrap_text(" ".join(text.split()), f"{label:<{size}}   ", " " * (size + 3))


def text_width(text: str) -> int:
    """Columns that a text takes: combining marks take none."""
    return sum(not unicodedata.combining(one) for one in text)


def pad_right(text: str, size: int) -> str:
    """A text left-aligned in `size` columns."""
    return text + " " * (size - text_width(text))


def wrap_text(text: str, lead: str, hang: str | None = None) -> Iterator[str]:
    """A text after its lead, broken where the fewest brackets are open, and then as late as possible."""
    hang = hang if hang is not None else " " * text_width(lead)
    while text_width(lead + text) > COLUMNS.get():
        room = COLUMNS.get() - text_width(lead)
        cut = _break(text, room)
        if cut is None or text_width(text[:cut].rstrip()) > room:
            cut = _last_break(text, room)
        if cut is None:
            break
        yield lead + text[:cut].rstrip()
        text, lead = text[cut:].lstrip(), hang
    yield lead + text


def _last_break(text: str, room: int) -> int | None:
    """The break of a text that has no good one: after a sign that joins, as late as possible; None if it is short."""
    places = [place + 1 for place, one in enumerate(text) if one in JOINTS and 0 < place < room - 1]
    return max(places, default=room if room > 1 else None)


def _after_a_factor(text: str, room: int) -> list[tuple[int, int]]:
    """The breaks of a text that has no space: after the dots of a product, of which the last counts."""
    return [(0, -place - 1) for place, one in enumerate(text) if one == "·" and place < room]


def _break(text: str, room: int) -> int | None:
    depth, found = 0, list[tuple[int, int]]()
    for place, character in enumerate(text):
        depth += (character in "([⌊") - (character in ")]⌋")
        if character == " " and place <= room:
            glued = text[place + 1] in GLUE or text[place - 1] in GLUE + "+−"
            found.append((depth + glued, -place))
    late = [one for one in found if -one[1] > room // 4] or found or _after_a_factor(text, room)
    return -min(late)[1] if late else None
