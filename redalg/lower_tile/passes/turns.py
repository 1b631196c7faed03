"""Launch the blocks that read the most tiles first, and those that read the same ones together.

grid (q, h, b), block q of rows reads f(q) tiles   →   grid (h, r, b), q = n − 1 − r     where f grows
                                                       grid (h, q, b)                    where f shrinks

Blocks start in the order of the grid, its first variable fastest. If the longest ones start last, they run alone at the
end: 64 blocks of rows in each of 16 groups took 12 % longer so on an H100. Blocks that run together should find what
they stream in the second cache, so that the variables ahead of the rows are those whose tensors come to `NEAR` at most.
Sizes that a call tells count as those of the call that the program was planned for (H200, causal, 2 x 16 x 4096 at d 64
and 128 of any number of batches, in the order of rows: 1.21 and 1.13 times the time of the longest first).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from sympy import Expr, Integer, Symbol

from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import (
    Bind,
    Copy,
    Kernel,
    Loop,
    Parameter,
    Region,
    TileProgram,
    index,
    map_statement,
)
from redalg.lower_tile.ir.scalars import FAR, Load, Places
from redalg.lower_tile.passes.hoist import program_names
from redalg.strategies.plan import Plan

NEAR = 72 << 20
"""Bytes of streamed tensors that blocks may read together: half as much again as the second cache of an H100."""

UNEVEN = 4
"""Blocks differ if the middle one reads fewer tiles than the longest one by this part of them, or more."""


def longest_first(program: TileProgram, _: Plan) -> TileProgram:
    """The program whose kernels start the blocks that read the most tiles first."""
    parameters = {one.name: one for one in program.parameters}
    names = program_names(program)
    planned = dict(program.planned)
    return replace(program, kernels=tuple(with_turns(kernel, parameters, names, planned) for kernel in program.kernels))


def with_turns(
    kernel: Kernel, parameters: Mapping[str, Parameter], names: Names, planned: Mapping[Symbol, int]
) -> Kernel:
    """A kernel with its grid in the order of the tiles that its blocks read; `planned`: sizes that a call tells."""
    loops = [one for one in kernel.body if isinstance(one, Loop) and one.pipelined]
    if len(loops) != 1 or kernel.blocks:
        return kernel
    streamed = [(at_sizes(parameters[one.name], planned), one) for one in streamed_regions(loops[0])]
    rows, growth = growing_variable(kernel, loops[0])
    if rows is None or not streamed or not all(isinstance(size, int) for one, _ in streamed for size in one.shape):
        return kernel
    others = [one for one in kernel.grid if one[0] != rows]
    fast = max(count for count in range(len(others) + 1) if count == 0 or bytes_read(streamed, others[:count]) <= NEAR)
    extent = dict(kernel.grid)[rows]
    if growth < 0:
        return replace(kernel, grid=(*others[:fast], (rows, extent), *others[fast:]))
    turn, number = index(names.fresh(f"{rows}_turn")), Load(str(rows))
    body = tuple(map_statement(one, lambda node: node.xreplace({rows: number})) for one in kernel.body)
    bind = Bind(str(rows), extent - 1 - turn, "int32")
    return replace(kernel, grid=(*others[:fast], (turn, extent), *others[fast:]), body=(bind, *body))


def at_sizes(parameter: Parameter, planned: Mapping[Symbol, int]) -> Parameter:
    """A parameter with the sizes that are planned for in place of those that a call tells."""
    return replace(parameter, shape=tuple(planned.get(size, size) for size in parameter.shape))


def streamed_regions(loop: Loop) -> Iterator[Region]:
    """Yield what a loop copies of parameters at places that it moves."""
    for copy in loop.body:
        if isinstance(copy, Copy) and isinstance(copy.source, Region):
            starts = (one[0] if isinstance(one, tuple) else one for one in copy.source.place)
            if any(loop.variable in start.free_symbols for start in starts):
                yield copy.source


def growing_variable(kernel: Kernel, loop: Loop) -> tuple[Symbol | None, int]:
    """The one variable of the grid along which the number of a loop's steps grows, and by how much; None if none is."""
    bound = {Load(one.name): one.value for one in kernel.body if isinstance(one, Bind)}
    steps: Expr = loop.stop - loop.start
    while steps.has(*bound) if bound else False:
        steps = steps.xreplace(bound)
    found = [(variable, extent) for variable, extent in kernel.grid if variable in steps.free_symbols]
    if len(found) != 1 or not isinstance(found[0][1], int):
        return None, 0
    variable, extent = found[0]
    steps = steps.xreplace(dict.fromkeys(steps.atoms(Load, Places), Integer(FAR)))  # data that limits nothing
    counts = [steps.xreplace({variable: Integer(place)}) for place in (0, extent // 2, extent - 1)]
    if not all(one.is_Integer for one in counts) or UNEVEN * (max(counts) - counts[1]) < max(counts):
        return None, 0
    return variable, int(counts[-1] - counts[0])


def bytes_read(streamed: Sequence[tuple[Parameter, Region]], fast: Sequence[tuple[Symbol, object]]) -> int:
    """The bytes of what blocks stream that differ in some variables of the grid."""
    variables = {variable for variable, _ in fast}
    total = 0
    for parameter, region in streamed:
        places = zip(parameter.shape, region.place, strict=True)
        whole = (size for size, place in places if isinstance(place, tuple) or place.free_symbols & variables)
        total += prod(whole) * DTYPES[parameter.dtype].bytes
    return total
