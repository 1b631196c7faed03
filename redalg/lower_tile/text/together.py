"""The text of kernels in one launch: of every level each block takes points in turn, then it waits for all others.

    for turn in T.serial(T.ceildiv(points - worker, blocks)):
        point = turn * blocks + worker
        if point < 12:              the first kernel's points
            …
        if point >= 12:             the second's
            …
    T.sync_grid()

Levels that are one text are a loop; the kernels in it find in a table which instances they compute in a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from math import prod
from types import MappingProxyType
from typing import Any

from sympy import Mul, Symbol, sympify

from redalg.lower_tile.ir.program import Kernel, TileProgram
from redalg.lower_tile.ir.runtime_sizes import shape_at
from redalg.lower_tile.ir.together import Rounds
from redalg.lower_tile.text.expr_printer import Printer
from redalg.lower_tile.text.launch import unfold_grid

Body = Callable[[Kernel], list[str]]
"""The lines of a kernel: its buffers and its statements."""
SYNC = "T.sync_grid()"


def lines_together(program: TileProgram, printer: Printer, body: Body) -> list[str]:
    """The lines of the launch of all kernels of a program."""
    together = program.together
    assert together is not None
    shared = [one.name for one in program.parameters if one.role not in ("input", "scalar")]
    head = [f"T.annotate_min_blocks_per_sm({together.beside})"] if together.beside > 1 else []
    head.append(f"T.annotate_restrict_buffers({', '.join(shared)})  # which other blocks change meanwhile")
    levels = [lines_of_level(level, together.blocks, printer, body) for level in kernels_by_level(program)]
    if together.rounds is not None:
        kernels = program.kernels[together.place_of_rounds]
        levels.insert(together.rounds.after, lines_of_rounds(together.rounds, kernels, together.blocks, printer, body))
    lines = [line for number, level in enumerate(levels) for line in (*([SYNC] if number else []), *level)]
    first = f"with T.Kernel({together.blocks}, **launch) as worker:  # {program.name}: {together}"
    return [first, *indent_lines([*head, *lines])]


def kernels_by_level(program: TileProgram) -> Iterator[tuple[Kernel, ...]]:
    """Yield the kernels of every level of a program in one launch, without those of rounds."""
    assert program.together is not None
    repeated = program.together.place_of_rounds
    kernels = iter((*program.kernels[: repeated.start], *program.kernels[repeated.stop :]))
    for count in program.together.levels:
        yield tuple(islice(kernels, count))


def lines_of_level(level: Sequence[Kernel], blocks: int, printer: Printer, body: Body) -> list[str]:
    """The lines by which a block takes its points of a level."""
    counts = [points_of_grid(kernel) for kernel in level]
    ends = [*accumulate(counts)]
    total, lines, before = ends[-1], list[str](), 0
    turns = not isinstance(total, int) or total > blocks
    name = "point" if turns else "worker"
    for kernel, end in zip(level, ends, strict=True):
        first, last = printer.factor(sympify(before)), printer.integer(sympify(end))
        number = f"{name} - {first}" if before else name
        own = [f"block = {number}", *unfold_grid(kernel.grid, printer), *body(kernel)]
        guards = [f"if {name} >= {first}:"] * bool(before)
        guards += [f"if {name} < {last}:"] * (kernel is not level[-1] or (not turns and total < blocks))
        for guard in reversed(guards):
            own = [guard, *indent_lines(own)]
        lines += [f"# {kernel.title}", *own]
        before = end
    if not turns:
        return lines
    rest = f"{printer.factor(sympify(total))} - worker"
    head = [f"for turn in T.serial(T.ceildiv({rest}, {blocks})):", f"    point = turn * {blocks} + worker"]
    return [*head, *indent_lines(lines)]


def lines_of_rounds(
    rounds: Rounds, kernels: Sequence[Kernel], blocks: int, printer: Printer, body: Body
) -> list[str]:  # fmt: skip
    """The lines of a loop over rounds; after each all blocks wait for each other, but after the last."""
    lines = list[str]()
    for kernel, first in zip(kernels, rounds.firsts, strict=True):
        points = grid_points(kernel) // int(kernel.grid[-1][1])
        lines += [
            f"# {kernel.title}",
            f"for turn in T.serial(T.ceildiv(({first}[level + 1] - {first}[level]) * {points} - worker, {blocks})):",
            f"    block = {first}[level] * {points} + turn * {blocks} + worker",
            *indent_lines([*unfold_grid(kernel.grid, printer), *body(kernel)]),
        ]
    return [f"for level in T.serial({rounds.count}):", *indent_lines([*lines, SYNC])]


def grid_points(kernel: Kernel, sizes: Mapping[Symbol, int] = MappingProxyType({})) -> int:
    """The number of points of a kernel's grid, at run-time sizes."""
    return prod(shape_at(tuple(extent for _, extent in kernel.grid), sizes))


def points_of_grid(kernel: Kernel) -> Any:
    """The number of points of a kernel's grid, or the expression of it in run-time sizes."""
    extents = [extent for _, extent in kernel.grid]
    is_known = all(sympify(extent).is_Integer for extent in extents)
    return prod(map(int, extents)) if is_known else Mul(*extents)


def indent_lines(lines: Sequence[str]) -> list[str]:
    """Lines one step to the right."""
    return ["    " + line for line in lines]
