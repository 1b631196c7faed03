"""The tree of a form as a picture: pieces of the data, leaf, merge, finish, each with what it computes beside it.

    x[b,n] …    ▭   ▭   ▭   ▭      pieces
    leaf        ○   ○   ○   ○      the slots, and the term that each holds
    merge         ╲╱     ╲╱        the rule by which two states are joined
    merge            ╲ ╱
    finish            ▭            the outputs

SVG without a style sheet of its own when it stands in a page, so that lines and letters have the page's colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import final

from redalg.decompose.cascade import Cascade
from redalg.decompose.verdict.verdict import Decomposition
from redalg.errors import InputError
from redalg.explain.cost import outputs_along_axis
from redalg.explain.model import Equation, Equations, Section, column
from redalg.explain.moves import Moves
from redalg.explain.names import in_users_words
from redalg.explain.text import WRITER, pad_right, text_width
from redalg.explain.whole import pairs_of
from redalg.expression import Label
from redalg.expression.arguments import answer_methods
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes

LETTER, LINE_HEIGHT, FONT = 6.7, 16, 11
"""The width of a letter, the height of a line and the size of the font, in pixels."""
NOTES, GAP = 350, 22
"""The pixel at which the notes begin, and the room between rows."""
MOST_LINES, MOST_LETTERS = 9, 74
"""Lines of a note, and letters of a line; what is longer has all of it as a tooltip."""
NAMESPACE = "http://www.w3.org/2000/svg"
"""That of SVG, which a file must name."""
ACCENT = "#3d7fd0"
"""A colour of middle lightness."""
STYLE = "<style>svg{color:#24292f}@media (prefers-color-scheme:dark){svg{color:#d0d7de}}</style>"
"""The colours of a file, which has no page to take them from."""


@answer_methods(InputError)
@final
@dataclass(frozen=True)
class Picture:
    """A picture in SVG: a notebook shows it, `str` gives the text, `save` writes a file.

    Attributes:
        body: the elements within the `svg` element.
        width, height: of the view box, in pixels.
        title: what it shows, for readers who cannot see it.

    >>> import redalg as ra
    >>> from tempfile import TemporaryDirectory
    >>> picture = ra.fuse(ra.sum(ra.tensor("x[n]"), ra.axes("n"))).draw()
    >>> picture.title, picture.svg()[:4]
    ('how out is computed: leaf, merge, finish', '<svg')
    >>> with TemporaryDirectory() as folder:
    ...     print(picture.save(f"{folder}/tree.svg").name)
    tree.svg
    """

    body: str
    width: int
    height: int
    title: str

    def svg(self, style: str = "") -> str:
        """The text, with a style sheet if it stands alone."""
        return (f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {self.width} {self.height}" role="img" '
                f'width="{self.width}" style="max-width:none;height:auto" font-family="ui-monospace,Menlo,Consolas,'
                f'DejaVu Sans Mono,monospace" font-size="{FONT}" fill="currentColor">'
                f"<title>{escape(self.title)}</title>{style}{self.body}</svg>")  # fmt: skip

    def __str__(self) -> str:
        return self.svg(STYLE)

    def __repr__(self) -> str:
        return f"<Picture {self.width}×{self.height}: {self.title}>"

    def _repr_svg_(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        inline = self.svg().replace(f' xmlns="{NAMESPACE}"', "", 1)  # HTML knows the element
        return f'<div style="overflow-x:auto;max-width:100%">{inline}</div>'

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file, whose colours follow the reader's light or dark scheme; give back the path."""
        path = Path(path)
        path.write_text(f'<?xml version="1.0" encoding="UTF-8"?>\n{self}\n', encoding="utf-8")
        return path


def draw_passes(decomposition: Decomposition, passes: Passes) -> Picture:
    """The trees of all passes, one below the other."""
    pairs = pairs_of(decomposition, passes)
    parts, top, width = list[str](), 8.0, float(NOTES)
    for place, (_, form) in enumerate(pairs, 1):
        prefix = f"pass {place} of {len(pairs)}" if len(pairs) > 1 else ""
        drawing = Drawing(form, top)
        if prefix:
            drawing.write(12, drawing.top + 10, prefix, weight="bold")
            drawing.top += 24
        drawing.tree()
        parts.append("".join(drawing.parts))
        top, width = drawing.top + 16, max(width, drawing.width)
    outputs = ", ".join(one.name for one in passes.last.outputs)
    return Picture("".join(parts), int(width) + 12, int(top), f"how {outputs} is computed: leaf, merge, finish")


@final
class Drawing:
    """The elements of one tree, row after row from `top` down."""

    def __init__(self, form: FusedForm, top: float) -> None:
        self.form, self.top, self.width = form, top, float(NOTES)
        self.parts: list[str] = []

    def tree(self) -> None:
        """Pieces, leaves, two rows of merges, finish; of a form without a state, the element alone."""
        form = self.form
        streamed = ", ".join(str(axis) for axis in form.cascade.reduced_axes)
        if form.is_elementwise:
            note = [f"{one.name} = {WRITER.write(one.expr)}" for one in form.outputs]
            self.row([165.0], "element", "every element by itself", note)
            return
        moves = Moves(form)
        pieces, pairs, root = [45.0, 125.0, 205.0, 285.0], [85.0, 245.0], [165.0]
        data = ", ".join(sorted({WRITER.write(one) for one in form.cascade.elements()}))
        y = self.row(pieces, f"{streamed} …", f"pieces of {streamed}, of any length", [f"read {data}"], dashed=True)
        leaf = self.row(
            pieces,
            "leaf",
            "leaf: the state of a piece",
            equations(moves.first_level(), form.cascade),
            above=(pieces, y),
        )
        rule = equations(moves.incremental(), form.cascade)
        pair = self.row(pairs, "merge", "merge: one more piece, whose state wears the hat", rule,
                        above=(sorted(pairs * 2), leaf), sources=pieces)  # fmt: skip
        order = "in order, " if form.is_ordered else "in any order, "
        two = self.row(root, "merge", f"{order}as any tree: tiles, blocks, devices, batches", [],
                       above=(root * 2, pair), sources=pairs)  # fmt: skip
        steps = [Equation(step.value, step.expr) for step in form.assignments]
        steps += [Equation(Label(output.name), output.expr) for output in form.outputs if not output.carries]
        end = self.row(root, "finish", "finish: the outputs, once", equations(steps, form.cascade), above=(root, two))
        if later := outputs_along_axis(form):
            again = [Equation(Label(output.name), output.expr) for output in later]
            self.row(pieces, "pass 2", f"at every element of {streamed}", equations(again, form.cascade),
                     above=(pieces, end), sources=root * 4)  # fmt: skip

    def row(
        self, centres: Sequence[float], label: str, title: str, note: Sequence[str], *, dashed: bool = False,
        above: tuple[Sequence[float], float] | None = None, sources: Sequence[float] | None = None,
    ) -> float:  # fmt: skip
        """Boxes beside a note; arrows come from the row above. Gives the lower edge of the boxes."""
        top = self.top
        for centre in centres:
            self.box(centre, top, label, dashed=dashed)
        if above is not None:
            targets, edge = above
            for start, target in zip(sources or targets, targets, strict=True):
                self.arrow(start, edge, target, top)
        self.write(NOTES, top + 12, title, weight="bold")
        shown = [*note[: MOST_LINES - 1], f"… {len(note) - MOST_LINES + 1} more"] if len(note) > MOST_LINES else note
        for number, line in enumerate(shown, 1):
            self.write(NOTES + 10, top + 12 + number * LINE_HEIGHT, line)
        self.top = top + max(24, 12 + LINE_HEIGHT * len(shown)) + GAP
        return top + 24

    def box(self, centre: float, top: float, label: str, *, dashed: bool) -> None:
        """A box of one row of the tree."""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        colour = "currentColor" if dashed else ACCENT
        self.parts.append(f'<rect x="{centre - 34:g}" y="{top:g}" width="68" height="24" rx="5" fill="none" '
                          f'stroke="{colour}" stroke-width="1.4"{dashes}/>')  # fmt: skip
        self.parts.append(f'<text x="{centre:g}" y="{top + 16:g}" text-anchor="middle">{escape(shorten(label, 10))}'
                          "</text>")  # fmt: skip

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """An arrow from a lower edge to an upper edge."""
        self.parts.append(f'<path d="M{x:g} {y:g} L{to_x:g} {to_y - 5:g}" fill="none" stroke="currentColor" '
                          f'stroke-width="1.1" opacity=".7"/>')  # fmt: skip
        self.parts.append(f'<path d="M{to_x:g} {to_y:g} l-3.5 -6.5 h7 z" opacity=".7"/>')

    def write(self, x: float, y: float, text: str, weight: str = "normal") -> None:
        """A line of text, cut if it is long, with all of it as its tooltip."""
        shown = shorten(text, MOST_LETTERS)
        tip = f"<title>{escape(text)}</title>" if shown != text else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-weight="{weight}" xml:space="preserve">{tip}{escape(shown)}'
                          "</text>")  # fmt: skip
        self.width = max(self.width, x + text_width(shown) * LETTER)


def equations(found: Sequence[Equation], cascade: Cascade) -> list[str]:
    """Equations in the words of a cascade, aligned at their relations."""
    [line] = in_users_words(Section("", (column(("",), list(found)),)), cascade).lines
    rows = [equation for row in line.rows for equation in row] if isinstance(line, Equations) else []
    lefts = [WRITER.write(one.left) for one in rows]
    size = max(map(text_width, lefts), default=0)
    return [
        f"{pad_right(left, size)} {equation.relation} {WRITER.write(equation.right)}"
        for left, equation in zip(lefts, rows, strict=True)
    ]


def shorten(text: str, most: int) -> str:
    """A text of at most so many letters."""
    return text if text_width(text) <= most else text[: most - 1] + "…"
