"""Lists of live tiles: where data says which elements count, a kernel ahead finds the tiles that hold some.

    for tiles t of a block of rows:   list[n] <- t;  n <- n + [some element of the block in tile t is live]
    for j < n:                        the loop over tile list[j]

A mask by data has no limits that are known beforehand (documents, blocks, padding). The list is exact: it holds the
tiles with a live element, in their order. It is found once for all columns and for every axis that the mask lacks
(heads), and only where a tile's products cost far more than its mask.
"""

from __future__ import annotations

from math import prod
from typing import Any

from sympy import And, Expr, S, floor

from redalg.expression import Element, Where
from redalg.expression.contents import elements_of, free_axes
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import Fill, Kernel, Loop, Parallel, Parameter, ReduceTile, Statement, Store
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.extent import is_limit
from redalg.lower_tile.place.frames import TILE, Job, Listing, frame, taken_names
from redalg.lower_tile.place.space import PLACE, I, J

SHARED = 4
"""Blocks that read one list, from which on it may read as much for a tile as a product has scores."""


def lists_tiles(job: Job) -> bool:
    """Tell if the live tiles of a form are listed ahead."""
    plan, form = job.plan, job.form
    in_tiles = plan.level not in ("thread", "row") and not plan.is_serial and plan.segments == 1
    return in_tiles and bool(form.cascade.producers) and not form.structures and _is_worth_it(job)


def _is_worth_it(job: Job) -> bool:
    """Tell if data masks the streamed axis, and the mask is read much faster than what it masks."""
    binding, sizes = job.plan.binding, job.problem.sizes
    space = frame(job, Names(taken_names(job)), segmented=False).space
    conjuncts = [one for one in And.make_args(job.form.cascade.domain) if binding.streamed in free_axes(one)]
    by_data = [one for one in conjuncts if elements_of(one) and not is_limit(one, space)]
    axes = {axis for one in by_data for axis in free_axes(one)}
    shared = prod(sizes[axis.name] for axis in binding.grid if axis not in axes) >= SHARED
    elements = {element for one in by_data for element in elements_of(one)}
    return bool(by_data) and all(shared or _is_small(element, job) for element in elements)


def _is_small(element: Element, job: Job) -> bool:
    """Tell if an element is one of fewer than a product's scores."""
    row, streamed = job.plan.binding.row, job.plan.binding.streamed
    of_blocks = any(isinstance(one, floor) and streamed in free_axes(one) for one in element.indices)
    return of_blocks or not {row, streamed} <= free_axes(element)


def list_tiles(job: Job, names: Names) -> tuple[Kernel, Parameter, Listing]:
    """The kernel that lists live tiles, the list, and how a block finds its own."""
    place, assembly = frame(job, names, segmented=False), Assembly(job.plan, names, "int32")
    space = place.space
    counts = And(space.live(job.form.cascade.domain), space.rows_inside())
    live = assembly.new("live", I, J, note="1 where an element counts")
    rows = assembly.new("live_rows", I)
    found, number = (Load(assembly.buffer(name, "fragment", (1,)), PLACE) for name in ("found", "number"))
    used = counts.free_symbols | {symbol for one in place.span.bound for symbol in one.value.free_symbols}
    axes = tuple(axis for axis, variable in place.variables.items() if variable in used)
    at = tuple(place.variables[axis] for axis in axes)
    name = names.fresh("live_tiles")
    step: tuple[Statement, ...] = (
        assembly.stores((live, Where(counts, S.One, S.Zero))),
        ReduceTile("max", live.name, rows.name, clear=True),
        ReduceTile("max", rows.name, found.name, clear=True, dim=0),
        _once(name, (*at, 1 + number), TILE),
        _once(number.name, (PLACE,), number + found),
    )
    loop = Loop(TILE, place.span.stop, 0, step, pipelined=False, start=place.span.start)
    body: tuple[Statement, ...] = (
        *place.span.bound,
        Fill(number.name, S.Zero),
        loop,
        _once(name, (*at, S.Zero), number),
    )
    grid = tuple(one for one in place.grid if one[0] in at) or place.grid[:1]
    shape = (*(dict(place.grid)[variable] for variable in at), space.tiles + 1)
    kernel = Kernel(grid, tuple(assembly.buffers.values()), body, f"list the tiles of {space.plan.binding.streamed}")
    return kernel, Parameter(name, shape, "int32", "workspace", name), Listing(name, axes)


def _once(target: str, indices: tuple[Any, ...], expr: Expr) -> Parallel:
    """Store one number."""
    return Parallel(((PLACE, 1),), (Store(target, indices, expr),))
