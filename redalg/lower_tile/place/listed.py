"""Lists of live tiles: where data says which elements count, a kernel ahead finds the tiles that hold some.

    mark[t] <- [some element of a block of rows in tile t is live]·(1 + [all are])   by a block for every tile
    list[n] <- 2·t + [mark[t] = 2];  n <- n + min(mark[t], 1)                        tile after tile
    for j < n:                                                                       the loop over tile ⌊list[j] / 2⌋

A mask by data has no limits that are known beforehand (documents, blocks, padding). The list is exact: it holds the
tiles with a live element, in their order, and tells which of them need no mask. It is found once for all columns and
for every axis that the mask lacks (heads), and only where a tile's products cost far more than its mask. Elements are
looked at only where the least and the largest of a tile's integers do not tell: for sorted documents at few.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from sympy import And, Expr, Integer, Max, Min, Or, S, floor, sympify
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis, Element, Where
from redalg.expression.contents import elements_of, free_axes, values_of
from redalg.lower_tile.ir.intervals import holds_for_all, index_ranges, opposite
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import (
    Buffer,
    Copy,
    Fill,
    Kernel,
    Loop,
    Parallel,
    Parameter,
    ReduceTile,
    Statement,
    Store,
    expressions,
    index,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.extent import is_limit
from redalg.lower_tile.place.frames import TILE, Job, Listing, frame, taken_names
from redalg.lower_tile.place.operands import Operands
from redalg.lower_tile.place.parameters import dtypes_in_kernels
from redalg.lower_tile.place.space import PLACE, I, J, Space

SHARED = 4
"""Blocks that read one list, from which on it may read as much for a tile as a product has scores."""
UNROLLED = 8
"""Marks that are read at a time."""


def lists_tiles(job: Job) -> bool:
    """Tell if the live tiles of a form are listed ahead."""
    plan, form = job.plan, job.form
    in_tiles = plan.level not in ("thread", "row") and not plan.is_serial and plan.segments == 1
    return in_tiles and bool(form.cascade.producers) and not form.structures and _is_worth_it(job)


def _is_worth_it(job: Job) -> bool:
    """Tell if data masks the streamed axis, and the mask is read much faster than what it masks."""
    binding, sizes, domain = job.plan.binding, job.problem.sizes, job.form.cascade.domain
    if not masks_by_data(job) or values_of(domain):  # values of a producer are made in the loop
        return False
    space = frame(job, Names(taken_names(job)), segmented=False).space
    by_data = data_conjuncts(job, space)
    axes = {axis for one in by_data for axis in free_axes(one)}
    shared = prod(least_size(sizes[axis.name]) for axis in binding.grid if axis not in axes) >= SHARED
    elements = {element for one in by_data for element in elements_of(one)}
    return bool(by_data) and all(shared or _is_small(element, job) for element in elements)


def data_conjuncts(job: Job, space: Space) -> list[Boolean]:
    """The parts of the domain of which only data says which tiles they leave."""
    return [one for one in masks_by_data(job) if not is_limit(one, space)]


def masks_by_data(job: Job) -> list[Boolean]:
    """The parts of the domain in which data meets the streamed axis."""
    masks = masks_of(job.plan.binding.streamed, job.form.cascade.domain)
    return [one for one in masks if elements_of(one)]


def masks_of(streamed: Axis, domain: Boolean) -> list[Boolean]:
    """The parts of a domain that hold the streamed axis."""
    return [one for one in And.make_args(domain) if streamed in free_axes(one)]


def least_size(size: Any) -> int:
    """A size, or the least that it may be."""
    return int(size) if isinstance(size, int) else 1


def _is_small(element: Element, job: Job) -> bool:
    """Tell if an element is one of fewer than a product's scores."""
    row, streamed = job.plan.binding.row, job.plan.binding.streamed
    of_blocks = any(isinstance(one, floor) and streamed in free_axes(one) for one in element.indices)
    return of_blocks or not {row, streamed} <= free_axes(element)


def list_tiles(job: Job, names: Names) -> tuple[list[Kernel], list[Parameter], Listing]:
    """The kernels that mark the live tiles and list them, their workspaces, and how a block finds its list."""
    place, assembly = frame(job, names, segmented=False), Assembly(job.plan, names, "int32")
    tile, before, body = index(names.fresh("tile")), list[Statement](), list[Statement]()
    domain = job.form.cascade.domain
    space = Operands(assembly, before).stage_lines(place.space.at_tile(tile), domain, body)
    counts = And(space.live(domain), space.rows_inside())
    live = assembly.new("live", J, note="1 where an element of some row counts")
    every = assembly.new("every", J, note="1 where the elements of all rows count")
    found, whole = (Load(assembly.buffer(name, "fragment", (1,)), PLACE) for name in ("found", "whole"))
    integers = {name for name, dtype in dtypes_in_kernels(job.problem).items() if "int" in dtype}
    certain, unknown = what_ends_tell(counts, integers, assembly, body)
    read = [counts, *(node for statement in (*before, *body) for node in expressions(statement))]
    used = {symbol for node in read for symbol in node.free_symbols}
    axes = tuple(axis for axis, variable in place.variables.items() if variable in used)
    grid = tuple(one for one in place.grid if one[0] in {place.variables[axis] for axis in axes})
    marks = names.fresh("marks")
    flag = Where(counts, S.One, S.Zero)
    look = replace(assembly.stores((live, Max(live, flag)), (every, Min(every, flag))), guard=unknown)
    body += [
        assembly.stores((live, Where(certain, S.One, S.Zero)), (every, S.One)),
        Loop(I, Integer(space.plan.block_row), 0, (look,), pipelined=False),
        ReduceTile("max", live.name, found.name, clear=True, dim=0),
        ReduceTile("min", every.name, whole.name, clear=True, dim=0),
        _once(marks, (*(place.variables[axis] for axis in axes), tile), found * (1 + whole)),
    ]
    streamed, tiles = space.plan.binding.streamed, space.tiles
    mark = Kernel(((tile, tiles), *grid), tuple(assembly.buffers.values()), (*before, *body),
                  f"mark the tiles of {streamed}")  # fmt: skip
    shape = tuple(dict(grid)[place.variables[axis]] for axis in axes)
    workspaces = [Parameter(marks, (*shape, tiles), "int32", "workspace", marks)]
    kernel, listing = _list_kernel(marks, axes, shape, tiles, names)
    listing = replace(listing, conditions=tuple(masks_of(streamed, domain)))
    workspaces.append(Parameter(listing.name, (*shape, tiles + 1), "int32", "workspace", listing.name))
    return [mark, kernel], workspaces, listing


def what_ends_tell(
    counts: Boolean, integers: set[str], assembly: Assembly, body: list[Statement]
) -> tuple[Boolean, Boolean]:
    """The conditions that all elements of a tile are live for certain, and that they have to be looked at.

    The body takes the reductions of the integers that a mask compares to their least and their largest.
    """
    ranges = dict(index_ranges(assembly.extents))
    for read in sorted(counts.atoms(Load), key=str):
        tile = assembly.buffers.get(read.name)
        if tile is None or len(tile.shape) != 1 or "int" not in tile.dtype:
            continue
        ranges[read] = ends_of_tile(read.name, assembly, body)
    integers |= {load.name for load in ranges if isinstance(load, Load)}
    found = (holds_for_all(one, ranges, integers) for one in (counts, opposite(counts)))
    certain, never = (S.false if one is None else one for one in found)
    return certain, opposite(Or(certain, never))


def ends_of_tile(tile: str, assembly: Assembly, body: list[Statement]) -> tuple[Load, Load]:
    """The least and the largest of a tile's integers, in shared memory, where every thread may read them.

    A reduction takes a power of two of numbers: the parts of another length, 3 of 64 say, are compared first.
    """
    (length,), dtype = assembly.shape(tile), assembly.buffers[tile].dtype
    width = length & -length
    if width == length:
        values = assembly.buffer(f"{tile}_values", "fragment", (length,), dtype)
        body.append(Copy(tile, values))
        return (end_of_values("min", values, f"{tile}_least", assembly, body),
                end_of_values("max", values, f"{tile}_largest", assembly, body))  # fmt: skip
    parts = [Load(tile, PLACE + first) for first in range(0, length, width)]
    least, largest = (assembly.buffer(f"{tile}_{name}", "fragment", (width,), dtype) for name in ("low", "high"))
    stores = Store(least, (PLACE,), Min(*parts)), Store(largest, (PLACE,), Max(*parts))
    body.append(Parallel(((PLACE, width),), stores))
    return (end_of_values("min", least, f"{tile}_least", assembly, body),
            end_of_values("max", largest, f"{tile}_largest", assembly, body))  # fmt: skip


def end_of_values(kind: str, values: str, name: str, assembly: Assembly, body: list[Statement]) -> Load:
    """The least or the largest of integers in registers, in shared memory."""
    dtype = assembly.buffers[values].dtype
    own, end = assembly.buffer(name, "fragment", (1,), dtype), assembly.buffer(name, "shared", (1,), dtype)
    body += [ReduceTile(kind, values, own, clear=True, dim=0), _once(end, (PLACE,), Load(own, PLACE))]
    return Load(end, S.Zero)


def _list_kernel(
    marks: str, axes: tuple[Axis, ...], shape: tuple[Any, ...], tiles: Any, names: Names
) -> tuple[Kernel, Listing]:
    """The kernel that lists the tiles that are marked."""
    at = tuple(index(names.fresh(f"{axis}_row")) for axis in axes)
    number, name = Buffer(names.fresh("number"), "fragment", (1,), "int32"), names.fresh("live_tiles")
    sofar, mark = Load(number.name, PLACE), Load(marks, *at, TILE)
    step = (
        _once(name, (*at, 1 + sofar), 2 * TILE + Where(mark > 1, S.One, S.Zero)),
        _once(number.name, (PLACE,), sofar + Min(mark, 1)),
    )
    unrolled = UNROLLED if isinstance(tiles, int) else 1
    loop = Loop(TILE, sympify(tiles), 0, step, pipelined=False, unrolled=unrolled)
    body = (Fill(number.name, S.Zero), loop, _once(name, (*at, S.Zero), sofar))
    grid = tuple(zip(at, shape, strict=True)) or ((index(names.fresh("list_row")), 1),)
    return Kernel(grid, (number,), body, "list the tiles that are marked"), Listing(name, axes)


def _once(target: str, indices: tuple[Any, ...], expr: Expr) -> Parallel:
    """Store one number."""
    return Parallel(((PLACE, 1),), (Store(target, indices, expr),))
