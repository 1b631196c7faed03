"""Say which elements of a tile each thread takes, where a step reduces rows and TileLang would share them out badly.

    parallel i, j: x[i, j] = f(w[j], v[i])   →   the same; thread ⌊(C·i + j) / W⌋ mod threads takes (i, j)

    C columns, W elements of a 16-byte load; v[i] a number of row i, which the step has reduced of its tile

Exact: elements come in any order. TileLang prefers layouts that take few registers. So it may have two threads keep the
numbers of two rows, and alone compute whatever reads them; or every thread computes whole rows, 1024 elements and not
16, until ptxas spills for a minute and more; or it finds no layout at all. With one row, whose numbers all threads
keep, it does well by itself as long as each loop that computes a tile of them reads or stores a tile of before. Sums
that go in turns have laid the rows out already (`whole_row_sums`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.program import (
    Buffer,
    Copy,
    Kernel,
    Loop,
    Parallel,
    Parameter,
    ReduceTile,
    Region,
    Statement,
    TileProgram,
    nested_statements,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.passes.whole_row_sums import elements_in_turns, read_along, tiles_like
from redalg.strategies.device import LOAD_BYTES
from redalg.strategies.plan import Plan

PLANE = 2
"""Dimensions of a tile."""


def share_out_rows(program: TileProgram, plan: Plan) -> TileProgram:
    """The program whose steps share out the tiles of which they reduce rows."""
    parameters = {one.name: one for one in program.parameters}
    return replace(program, kernels=tuple(_in_kernel(one, one.plan or plan, parameters) for one in program.kernels))


def _in_kernel(kernel: Kernel, plan: Plan, parameters: dict[str, Parameter]) -> Kernel:
    """A kernel with such tiles shared out: those of its body, and those of its loops' steps."""
    if plan.level != "thread" or plan.multiplies or plan.device.target == "c":
        return kernel
    buffers = {one.name: one for one in kernel.buffers}

    def share(step: tuple[Statement, ...]) -> tuple[Statement, ...]:
        wide, shape = elements_of_thread(step, buffers, parameters, plan.threads), _tile_of(step, buffers)
        return tuple(_by_threads(each, wide) if _extents(each) == shape else each for each in step)

    body = (replace(one, body=share(one.body)) if isinstance(one, Loop) else one for one in share(kernel.body))
    return replace(kernel, body=tuple(body))


def _by_threads(loop: Statement, wide: int) -> Statement:
    """A loop over a tile that says how many elements a thread takes side by side, if TileLang may not choose."""
    return replace(loop, adjacent=wide) if isinstance(loop, Parallel) and wide else loop


def elements_of_thread(
    step: Sequence[Statement], buffers: dict[str, Buffer], parameters: dict[str, Parameter], threads: int
) -> int:
    """The elements of a step's tile that a thread takes side by side; 0 if TileLang may share the tile out."""
    shape = _tile_of(step, buffers)
    steps = tuple(one for one in step if not (isinstance(one, Loop) and one.pipelined))
    reduces = any(isinstance(one, ReduceTile) and one.dim > 0 for one in nested_statements(steps))
    if not reduces or shape is None or (shape[0] == 1 and not any(_loops_apart(step, buffers))):
        return 0
    if (in_turns := elements_in_turns(step)) > 0:
        return in_turns
    shared = {name: one for name, one in buffers.items() if one.scope == "shared"}
    tiles = {name for name, one in shared.items() if one.shape == shape}
    dtypes = {shared[name].dtype for name in tiles} | {*read_along(step, tiles_like(tiles, step), shared, parameters)}
    return share_of_thread(shape, threads, LOAD_BYTES // max(DTYPES[one].bytes for one in dtypes))


def share_of_thread(shape: tuple[int, ...], threads: int, wide: int) -> int:
    """The elements, at most `wide`, of which all threads take as many: of whole rows at once, or of one row; else 0."""
    rows, columns = shape
    while wide and (columns % wide or rows * columns % (wide * threads) or not _fits(wide * threads, columns)):
        wide //= 2
    return wide


def _fits(width: int, columns: int) -> bool:
    return width % columns == 0 or columns % width == 0


def _tile_of(step: Sequence[Statement], buffers: Mapping[str, Buffer]) -> tuple[int, ...] | None:
    """The shape of the tiles that a step loads into shared memory; None if it loads none, or of several shapes."""
    copied = (one.target for one in step if isinstance(one, Copy) and isinstance(one.source, Region))
    loaded = [buffers[name] for name in copied if isinstance(name, str)]
    shapes = {one.shape for one in loaded if one.scope == "shared" and len(one.shape) == PLANE}
    return shapes.pop() if len(shapes) == 1 else None


def _loops_apart(step: Sequence[Statement], buffers: Mapping[str, Buffer]) -> Iterator[Parallel]:
    """Yield the loops that compute a tile of numbers of rows, and neither read nor store a tile of before."""
    registers = {name: one for name, one in buffers.items() if one.scope == "fragment"}
    rows = {name for name, one in registers.items() if len(one.shape) < PLANE}
    before = set[str]()
    for loop in step:
        if isinstance(loop, Parallel):
            stored = {store.target for store in loop.body} & registers.keys() - rows
            reads = {load.name for store in loop.body for load in store.expr.atoms(Load)}
            if stored and reads & rows and not (reads | stored) & before:
                yield loop
            before |= stored


def _extents(statement: Statement) -> tuple[int, ...] | None:
    """The extents of a loop over a tile; None of any other statement."""
    return tuple(extent for _, extent in statement.indices) if isinstance(statement, Parallel) else None
