"""Tiles that threads copy, since TMA would fetch them wrongly or not at all (sm_90's unit that copies tiles in bulk).

A tile ahead of a loop that may take no step. If warps are specialised, TileLang has TMA fetch it and waits before its
first use, which is in the loop. A block whose loop takes no step never waits: the result, which lies where the tile
was, is then overwritten by what arrives late (seen on an H200, where a sum ran between two bounds, of which one lay
behind the other).

    tile <- x;  for t from a to b: …   →   tile <- x by threads;  for t from a to b: …      where a < b is not known

A tile that is long in a dimension but the last. TMA fetches at most 256 elements of a dimension at once. TileLang
divides longer rows itself, but of the other dimensions those alone that are multiples of 256.

    tile <- x[n:+304, b:+16]   →   tile <- x[n:+304, b:+16] by threads        exact: the same elements, by other means
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from sympy import Expr, Integer, Max, Min, Symbol, floor, fraction

from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.program import Bind, Copy, Kernel, Loop, Region, Statement, innermost
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.plan import Plan

MOST_BLOCKS = 512
"""Blocks whose trip counts are computed one by one."""
BOUNDARY = 16
"""Bytes of which TMA fetches multiples."""
LONGEST = 256
"""Elements of a dimension that TMA fetches at once."""


def await_before_empty_loops(kernel: Kernel, plan: Plan) -> Kernel:
    """Copy by threads, not by TMA, ahead of a loop that may take no step."""
    late = arriving_late(kernel, plan)
    body = (replace(one, by_threads=True) if isinstance(one, Copy) and one in late else one for one in kernel.body)
    return replace(kernel, body=tuple(body))


def arriving_late(kernel: Kernel, plan: Plan) -> tuple[Copy, ...]:
    """The copies of parameters to tiles for which a block possibly never waits."""
    copies = (one for one in kernel.body if isinstance(one, Copy))
    by_tma = tuple(one for one in copies if isinstance(one.source, Region) and not one.by_threads)
    return by_tma if plan.warp_specialized and by_tma and not always_steps(kernel) else ()


def always_steps(kernel: Kernel) -> bool:
    """Tell if every pipelined loop is known to take a step in every block."""
    bound = {Load(one.name): one.value for one in kernel.body if isinstance(one, Bind)}
    loops = (one for one in kernel.body if isinstance(one, Loop) and one.pipelined)
    return all(is_positive(inline_numbers(loop.stop - loop.start, bound), dict(kernel.grid)) for loop in loops)


def inline_numbers(expr: Expr, bound: Mapping[Any, Any]) -> Expr:
    """An expression with the numbers that a kernel binds written out."""
    while (inlined := expr.xreplace(bound)) != expr:
        expr = inlined
    return expr


def is_positive(steps: Expr, grid: Mapping[Symbol, Any]) -> bool:
    """Tell if a number of steps is positive in every block of a grid: by its form, else block by block."""
    if counts(steps):
        return True
    found = steps_of_blocks(steps, grid, MOST_BLOCKS)
    return found is not None and all(one > 0 for one in found)


def steps_of_blocks(steps: Expr, grid: Mapping[Symbol, Any], most: int) -> Iterator[Expr] | None:
    """The number of steps in each block; None if the grid does not tell it, or has more than `most` such blocks."""
    variables = sorted(steps.free_symbols, key=str)
    extents = [int(grid[one]) for one in variables if isinstance(grid.get(one), int | Integer)]
    if steps.has(Load) or len(extents) < len(variables) or prod(extents) > most:
        return None
    places = product(*map(range, extents))
    return (steps.xreplace(dict(zip(variables, map(Integer, place), strict=True))) for place in places)


def counts(expr: Expr) -> bool:
    """Tell if an integer is at least 1 by its form: ⌊n/d⌋ is, if n − d is nonnegative.

    >>> k = Symbol("k", integer=True, positive=True)
    >>> counts(Max(0, floor((k + 127) / 128))), counts(floor(k / 128))
    (True, False)
    """
    if isinstance(expr, Max):
        return any(map(counts, expr.args))
    if isinstance(expr, Min):
        return all(map(counts, expr.args))
    if isinstance(expr, floor):
        above, below = fraction(expr.args[0].together())
        return bool((above - below).is_nonnegative)
    return bool(expr.is_positive)


def limit_boxes(kernel: Kernel, plan: Plan) -> Kernel:
    """Copy by threads if a box of TMA would exceed 256 elements in a dimension but the last."""
    if not plan.device.wgmma:
        return kernel
    shared = {one.name for one in kernel.buffers if one.scope == "shared"}

    def limit_box(statement: Statement) -> Statement:
        if (
            isinstance(statement, Copy)
            and statement.target in shared
            and isinstance(statement.source, Region)
            and is_long(statement.source)
        ):
            return replace(statement, by_threads=True)
        return statement

    return replace(kernel, body=tuple(innermost(one, limit_box) for one in kernel.body))


def is_long(region: Region) -> bool:
    """Tell if a dimension but the last is longer than TMA takes, and no multiple of that."""
    lengths = [int(place[1]) for place in region.place[:-1] if isinstance(place, tuple)]
    return any(length > LONGEST and length % LONGEST != 0 for length in lengths)


def is_fetched(shape: Sequence[Any], dtype: str, length: int) -> bool:
    """Tell if TMA fetches so many elements of a tensor's last dimension: they begin and end at multiples of 16 bytes.

    What it does not fetch, threads copy. If warps are specialised, TileLang releases such a tile of a loop with the
    one that is loaded next, which may be before the last read (seen on an H100: one key of 488 was lost now and then).
    """
    width = DTYPES[dtype].bytes
    rows = [size for size in shape[-1:] if len(shape) > 1]
    return all(isinstance(size, int | Integer) and int(size) * width % BOUNDARY == 0 for size in (*rows, length))
