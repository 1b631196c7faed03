"""A kernel's text beside the algebra: every line with the numbers of the slots, producers and outputs that it serves.

Numbers are those of the table of the state in `explain(section="state")`; producers and outputs follow. They come from
the tile program (`lower_tile.ir.purpose`), not from the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, final

from redalg.explain.page import PLAIN, cell_table
from redalg.explain.sections import slot_table
from redalg.explain.text import WRITER, prose_text
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import Stages
from redalg.lower_tile.text.origins import NO_STEP, NumberedLine, Results, numbered_lines

if TYPE_CHECKING:
    from redalg.lower_tile.text.emit import Source

COLOURS = {
    "Keyword": "#9a5bd6",
    "Comment": "#808080",
    "Literal.String": "#3f8f55",
    "Literal.Number": "#b26a1f",
    "Name.Function": "#3d7fd0",
    "Name.Decorator": "#3d7fd0",
    "Operator.Word": "#9a5bd6",
}
"""Token -> a colour of middle lightness: legible on white and on black."""
WAY = 'style="opacity:.6;user-select:none"'


@final
@dataclass(frozen=True)
class Legend:
    """A number of the legend.

    Attributes:
        number: from 1.
        name: of the slot, the producer or the output.
        what: the reduction that it is, and the term.
        step: of a launch of several functions, the number of the one that it is of.
    """

    number: int
    name: str
    what: str
    step: int = NO_STEP


@final
@dataclass(frozen=True)
class Listing:
    """A program's lines, with the legend of their numbers.

    Attributes:
        source: the text, with its program.
        stages: of the call, or of every step of a launch by its number; the legend begins with the stage that the plan
            is made for.
        results: of the steps of a launch.
    """

    source: Source
    stages: Stages | Mapping[int, Stages]
    results: Results = field(default_factory=dict)

    @cached_property
    def lines(self) -> tuple[NumberedLine, ...]:
        """The lines of the text."""
        return numbered_lines(self.source, self.results)

    @cached_property
    def legend(self) -> tuple[Legend, ...]:
        """The slots in the order of the state's table, the producers, the outputs; then those of other stages.

        Of a launch of several functions these of every step, one after another.
        """
        steps = self.stages if isinstance(self.stages, Mapping) else {NO_STEP: self.stages}
        parts = [(step, name, what) for step, stages in steps.items() for name, what in parts_of_stages(stages).items()]
        return tuple(
            Legend(number, name, what if step == NO_STEP else f"step {step}: {what}", step)
            for number, (step, name, what) in enumerate(parts, 1)
        )

    def entries_of(self, line: NumberedLine) -> list[Legend]:
        """The entries of the legend that a line serves; none of what serves all of them."""
        return [one for one in self.legend if one.name in line.serves and one.step == line.step]

    def numbers(self, line: NumberedLine) -> str:
        """The numbers that a line serves, as `2,3`."""
        return ",".join(str(one.number) for one in self.entries_of(line))

    def hover(self, line: NumberedLine) -> str:
        """The names that a line serves, in words."""
        names = [f"{one.number} {one.name}: {one.what}" for one in self.entries_of(line)]
        writes = f"writes {line.writes}; " if line.writes else ""
        return f"line {line.number}: {writes}serves {'; '.join(names)}" if names else f"line {line.number}"

    # ---- text --------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """The legend, then every line after its number and the numbers that it serves."""
        size = max((len(self.numbers(one)) for one in self.lines), default=0)
        last = len(str(len(self.lines)))
        body = [f"{line.number:>{last}} {self.numbers(line):<{size}} │ {line.text}".rstrip() for line in self.lines]
        return "\n".join([*self.legend_lines(), "", *body])

    def legend_lines(self) -> Iterator[str]:
        """The legend: a number, a name, what it is, and the lines that write it."""
        yield "numbers beside the lines: what a line serves; in brackets the lines that write it"
        size = max((len(one.name) for one in self.legend), default=0)
        for entry in self.legend:
            yield f"{entry.number:>3} {entry.name:<{size}}  {entry.what}  [{self.spans(entry)}]"

    def spans(self, entry: Legend) -> str:
        """The numbers of the lines that write what an entry names: `81, 101` or `90-96`."""
        written = [one.number for one in self.lines if (one.writes, one.step) == (entry.name, entry.step)]
        return ", ".join(runs(written)) or "none"

    # ---- HTML --------------------------------------------------------------------------------------------------------

    def page(self) -> str:
        """The legend as a table, then the coloured lines, each with a hover text."""
        rows = (
            [str(entry.number), f"<code>{escape(entry.name)}</code>", escape(entry.what), self.spans(entry)]
            for entry in self.legend
        )
        legend = cell_table(("", "name", "is", "written in lines"), rows)
        size, last = max((len(self.numbers(one)) for one in self.lines), default=0), len(str(len(self.lines)))
        body = []
        for line, coloured in zip(self.lines, coloured_lines(self.source.text), strict=True):
            margin = f"{line.number:>{last}} {self.numbers(line):<{size}} │ "
            body.append(f'<span title="{escape(self.hover(line))}"><span {WAY}>{margin}</span>{coloured}</span>')
        return f"{legend}<pre {PLAIN}>{chr(10).join(body)}</pre>"


def parts_of_stages(stages: Stages) -> dict[str, str]:
    """The named parts of the stage that the plan is made for, then those of other stages."""
    known = dict(named_parts(stages.loop))
    for form in (*stages.ahead, *stages.after):
        for name, what in dict(named_parts(form)).items():
            known.setdefault(name, f"of another stage: {what}")
    return known


def named_parts(form: FusedForm) -> Iterator[tuple[str, str]]:
    """The slots of a form in the order of its state's table, its producers, its outputs: (name, the formula)."""
    cells = slot_table(form).cells if form.slots else ()
    for slot, (_, _, kind, _, term, *_) in zip(form.slots, cells, strict=True):
        yield slot.name, f"{prose_text(kind)} of {prose_text(term)}"
    for producer in form.cascade.producers:
        yield producer.name, WRITER.write(producer.definition)
    for output in form.outputs:
        yield output.name, f"output: {WRITER.write(output.expr)}"


def runs(numbers: Sequence[int]) -> list[str]:
    """Numbers with neighbours joined.

    >>> runs([3, 4, 5, 9])
    ['3-5', '9']
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found]


def coloured_lines(code: str) -> list[str]:
    """The lines of a Python text as HTML, in the colours of its tokens."""
    from rich.syntax import Syntax

    lexer: Any = Syntax(code, "python").lexer
    lines, row = list[str](), ""
    for kind, text in lexer.get_tokens(code):
        colour = next((colour for name, colour in COLOURS.items() if name in str(kind)), "")
        for place, part in enumerate(text.split("\n")):
            if place:
                lines.append(row)
                row = ""
            written = escape(part)
            row += f'<span style="color:{colour}">{written}</span>' if colour and part.strip() else written
    return lines[: len(code.splitlines())]
