"""The lines of a program's text, each with the part of the program that it is for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

from redalg.lower_tile.ir.program import Copy, Kernel, Last, Loop, Parallel, Statement, Store
from redalg.lower_tile.ir.purpose import Origin, Purposes, names_written
from redalg.lower_tile.text.emit import Emitter, Source
from redalg.lower_tile.text.together import lines_together
from redalg.lower_tile.text.wrap import wrap_lines

NO_STEP = -1
"""The step of a line that is of no step: of a program of one function, and between the kernels of a launch."""
MARK = "\0"
"""Before the number of a line's origin, while a launch of several kernels is written."""
Results = Mapping[int, Mapping[str, str]]
"""Step of a launch -> parameter -> the output of its function that it holds."""


@final
@dataclass(frozen=True)
class NumberedLine:
    """A line of a program's text.

    Attributes:
        number: from 1, in the whole text.
        text: as it stands.
        serves: the slots, producers and outputs that it is for, by their names in the form; none of what is for all.
        writes: of these the one whose buffer it writes; empty if it only prepares for it.
        step: of a launch of several functions, the number of the one that it is of.
    """

    number: int
    text: str
    serves: frozenset[str] = frozenset()
    writes: str = ""
    step: int = NO_STEP


def numbered_lines(source: Source, results: Results = MappingProxyType({})) -> tuple[NumberedLine, ...]:
    """Every line of a text with its number and its purpose; of a launch of several functions by their `results`."""
    lines = source.text.splitlines()
    purposes = dict(purposes_by_line(source, lines, results))
    return tuple(NumberedLine(number, line, *purposes.get(number, ())) for number, line in enumerate(lines, 1))


def purposes_by_line(
    source: Source, lines: list[str], results: Results
) -> Iterator[tuple[int, tuple[frozenset[str], str, int]]]:
    """(number of a line, its purpose and its step) of the lines of kernels."""
    program = source.program
    owners = program.together.owners if program.together else (NO_STEP,) * len(program.kernels)
    found = [Purposes(program, kernel, results.get(owner, {}) if program.together else None)
             for kernel, owner in zip(program.kernels, owners, strict=True)]  # fmt: skip
    number = next(place for place, line in enumerate(lines, 1) if line.startswith("def main("))
    number += len(program.parameters) + 2  # `def main(`, the parameters, `):`
    for line, place, origin in origins_of_program(Emitter(program)):
        parts = wrap_lines("    " + line).count("\n") + 1
        if origin is not None:
            told = (*purpose(origin, found[place]), owners[place])
            yield from ((one, told) for one in range(number, number + parts))
        number += parts


def origins_of_program(emitter: Emitter) -> Iterator[tuple[str, int, Origin | None]]:
    """The lines of all kernels before they are broken, each with the kernel's place and its origin."""
    kernels = emitter.program.kernels
    if emitter.program.together is None:
        for place, kernel in enumerate(kernels):
            yield from ((line, place, origin) for line, origin in origins_of_kernel(emitter, kernel))
        return
    marked = list[tuple[int, Origin | None]]()

    def body(kernel: Kernel) -> list[str]:
        lines, place = emitter.body(kernel), next(at for at, one in enumerate(kernels) if one is kernel)
        own = origins_of_lines(emitter, kernel, lines)
        first = len(marked)
        marked.extend((place, origin) for origin in own)
        return [f"{line}{MARK}{first + at}" for at, line in enumerate(lines)]

    for line in lines_together(emitter.program, emitter.printer, body):
        text, _, mark = line.partition(MARK)
        yield (text, *(marked[int(mark)] if mark else (0, None)))


def purpose(origin: Origin, found: Purposes) -> tuple[frozenset[str], str]:
    """The names that an origin serves, and the slot whose buffer it writes or is."""
    serves = found.of_origin(origin)
    if isinstance(origin, Store | Copy):
        [name] = names_written(origin, found.rows)
    else:
        target = getattr(origin, "target", None) or getattr(origin, "buffer", None) or getattr(origin, "c", None)
        name = str(getattr(target, "name", target) or getattr(origin, "name", None))
    own = found.own.get(name, "")
    return serves, own if own in serves else ""


def origins_of_kernel(emitter: Emitter, kernel: Kernel) -> list[tuple[str, Origin | None]]:
    """The lines of a kernel before they are broken, each with its origin."""
    lines = emitter.kernel(kernel)
    return list(zip(lines, origins_of_lines(emitter, kernel, lines), strict=True))


def origins_of_lines(emitter: Emitter, kernel: Kernel, lines: list[str]) -> list[Origin | None]:
    """The origin of every line of a kernel."""
    buffers = dict(zip(emitter.buffers(kernel), (one for one in kernel.buffers if one.scope != "element"), strict=True))
    inner = [origin for one in kernel.body for origin in origins_of_statement(emitter, one)]
    head = len(lines) - len(inner)
    origins: list[Origin | None] = [buffers.get(line.strip()) for line in lines[:head]]
    return [*origins, *inner]


def origins_of_statement(emitter: Emitter, statement: Statement) -> list[Origin]:
    """The origin of every line of a statement: of a loop its own head, then those of its body."""
    inner: list[Origin] = []
    if isinstance(statement, Loop | Last):
        inner = [origin for one in statement.body for origin in origins_of_statement(emitter, one)]
    elif isinstance(statement, Parallel):
        inner = [store for store, lines in emitter.stores(statement) for _ in lines]
    head: list[Origin] = [statement] * (len(emitter.statement(statement)) - len(inner))
    return head + inner
