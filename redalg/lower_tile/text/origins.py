"""The lines of a program's text, each with the part of the program that it is for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from redalg.lower_tile.ir.program import Kernel, Last, Loop, Parallel, Statement
from redalg.lower_tile.ir.purpose import Origin, Purposes
from redalg.lower_tile.text.emit import Emitter, Source
from redalg.lower_tile.text.wrap import wrap_lines


@final
@dataclass(frozen=True)
class NumberedLine:
    """A line of a program's text.

    Attributes:
        number: from 1, in the whole text.
        text: as it stands.
        serves: the slots, producers and outputs that it is for, by their names in the form; none of what is for all.
        writes: of these the one whose buffer it writes; empty if it only prepares for it.
    """

    number: int
    text: str
    serves: frozenset[str] = frozenset()
    writes: str = ""


def numbered_lines(source: Source) -> tuple[NumberedLine, ...]:
    """Every line of a text with its number and its purpose; programs of one launch for several have no purposes."""
    lines = source.text.splitlines()
    purposes = dict[int, tuple[frozenset[str], str]]()
    if source.program.together is None:
        purposes = dict(purposes_by_line(source, lines))
    return tuple(
        NumberedLine(number, line, *purposes.get(number, (frozenset(), ""))) for number, line in enumerate(lines, 1)
    )


def purposes_by_line(source: Source, lines: list[str]) -> Iterator[tuple[int, tuple[frozenset[str], str]]]:
    """(number of a line, its purpose) of the lines of kernels."""
    emitter = Emitter(source.program)
    number = next(place for place, line in enumerate(lines, 1) if line.startswith("def main("))
    number += len(source.program.parameters) + 2  # `def main(`, the parameters, `):`
    for kernel in source.program.kernels:
        found = Purposes(source.program, kernel)
        for line, origin in origins_of_kernel(emitter, kernel):
            parts = wrap_lines("    " + line).count("\n") + 1
            if origin is not None:
                for place in range(number, number + parts):
                    yield place, purpose(origin, found)
            number += parts


def purpose(origin: Origin, found: Purposes) -> tuple[frozenset[str], str]:
    """The names that an origin serves, and the slot whose buffer it writes or is."""
    serves = found.of_origin(origin)
    target = getattr(origin, "target", None) or getattr(origin, "buffer", None) or getattr(origin, "c", None)
    name = getattr(target, "name", target) or getattr(origin, "name", None)
    own = found.own.get(str(name), "")
    return serves, own if own in serves else ""


def origins_of_kernel(emitter: Emitter, kernel: Kernel) -> list[tuple[str, Origin | None]]:
    """The lines of a kernel before they are broken, each with its origin."""
    lines = emitter.kernel(kernel)
    buffers = dict(zip(emitter.buffers(kernel), (one for one in kernel.buffers if one.scope != "element"), strict=True))
    inner = [origin for one in kernel.body for origin in origins_of_statement(emitter, one)]
    head = len(lines) - len(inner)
    origins: list[Origin | None] = [buffers.get(line.strip()) for line in lines[:head]]
    return list(zip(lines, [*origins, *inner], strict=True))


def origins_of_statement(emitter: Emitter, statement: Statement) -> list[Origin]:
    """The origin of every line of a statement: of a loop its own head, then those of its body."""
    inner: list[Origin] = []
    if isinstance(statement, Loop | Last):
        inner = [origin for one in statement.body for origin in origins_of_statement(emitter, one)]
    elif isinstance(statement, Parallel):
        inner = [store for store, lines in emitter.stores(statement) for _ in lines]
    head: list[Origin] = [statement] * (len(emitter.statement(statement)) - len(inner))
    return head + inner
