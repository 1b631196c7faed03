"""The text of kernels in one launch: of every level each block takes points in turn, then it waits for all others.

for turn in T.serial(T.ceildiv(points - worker, blocks)):
    point = turn * blocks + worker
    if point < 12:              the first kernel's points
        …
    if point >= 12:             the second's
        …
T.sync_grid()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import prod

from redalg.lower_tile.ir.program import Kernel, TileProgram
from redalg.lower_tile.text.expr_printer import Printer
from redalg.lower_tile.text.launch import unfold_grid

Body = Callable[[Kernel], list[str]]
"""The lines of a kernel: its buffers and its statements."""


def lines_together(program: TileProgram, printer: Printer, body: Body) -> list[str]:
    """The lines of the launch of all kernels of a program."""
    together = program.together
    assert together is not None
    shared = [one.name for one in program.parameters if one.role not in ("input", "scalar")]
    head = [f"T.annotate_min_blocks_per_sm({together.beside})"] if together.beside > 1 else []
    head.append(f"T.annotate_restrict_buffers({', '.join(shared)})  # which other blocks change meanwhile")
    lines = [
        line
        for number, level in enumerate(kernels_by_level(program))
        for line in (*(["T.sync_grid()"] if number else []), *lines_of_level(level, together.blocks, printer, body))
    ]
    names = ", ".join(program.name.split("_over_")[:1])
    first = f"with T.Kernel({together.blocks}, **launch) as worker:  # {names}, {len(together.levels)} levels"
    return [first, *indent_lines([*head, *lines])]


def kernels_by_level(program: TileProgram) -> Iterator[tuple[Kernel, ...]]:
    """Yield the kernels of every level of a program in one launch."""
    kernels = iter(program.kernels)
    assert program.together is not None
    for count in program.together.levels:
        yield tuple(islice(kernels, count))


def lines_of_level(level: Sequence[Kernel], blocks: int, printer: Printer, body: Body) -> list[str]:
    """The lines by which a block takes its points of a level."""
    counts = [prod(int(extent) for _, extent in kernel.grid) for kernel in level]
    total, lines, before = sum(counts), list[str](), 0
    turns = total > blocks
    name = "point" if turns else "worker"
    for kernel, count in zip(level, counts, strict=True):
        number = f"{name} - {before}" if before else name
        own = [f"block = {number}", *unfold_grid(kernel.grid, printer), *body(kernel)]
        guards = [f"if {name} >= {before}:"] * bool(before)
        guards += [f"if {name} < {before + count}:"] * (before + count < total or (not turns and total < blocks))
        for guard in reversed(guards):
            own = [guard, *indent_lines(own)]
        lines += [f"# {kernel.title}", *own]
        before += count
    if not turns:
        return lines
    head = [f"for turn in T.serial(T.ceildiv({total} - worker, {blocks})):", f"    point = turn * {blocks} + worker"]
    return [*head, *indent_lines(lines)]


def indent_lines(lines: Sequence[str]) -> list[str]:
    """Lines one step to the right."""
    return ["    " + line for line in lines]
