"""The place of a kernel's block in the grid, and the tiles of the streamed axis that the block reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from sympy import Eq, Expr, Ge, Integer, Lt, Max, Min, Mod, S, Symbol, floor, sympify
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis, Value, Where
from redalg.incremental.form import FusedForm
from redalg.lower_tile.ir.mentions import variables_of
from redalg.lower_tile.ir.names import Names, kernel_name
from redalg.lower_tile.ir.program import Bind, Kernel, index
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.extent import Tiles, needed_tiles
from redalg.lower_tile.place.space import E_, PLACE, I, Space, output_name
from redalg.lower_tile.place.sums import Sums
from redalg.strategies.binding import Binding
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.rules.halves import takes_half
from redalg.strategies.varying import tiles_of

TILE, SEGMENT = index("t"), index("z")


Within = tuple[FusedForm, Problem]
"""A form whose values a loop's tiles make, and the problem that it is."""


@final
@dataclass(frozen=True)
class Job:
    """The form to lower, under a plan, for a problem whose outputs have the given dtypes.

    `also`: names that other stages have taken. `within`: the forms of rows that the loop's tiles make, with the
    problems that they are.
    """

    form: FusedForm
    plan: Plan
    problem: Problem
    dtypes: Mapping[str, str]
    sums: Mapping[Value, Sums] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    within: tuple[Within, ...] = ()


@final
@dataclass(frozen=True)
class Span:
    """The loop over tiles from `start` to `stop`, and the variables that these two need (`bound`).

    If `moving`, every segment counts from the axis's first tile, since the live elements move from block to block.
    Otherwise it counts from its own first tile. `tile` is the number of the tile that the loop reads at TILE.
    """

    start: Expr
    stop: Expr
    bound: tuple[Bind, ...] = ()
    moving: bool = True
    tile: Expr = TILE


@final
@dataclass(frozen=True)
class Listing:
    """A workspace that lists live tiles: at 0 of its last dimension how many, then 2·t of each, 2·t + 1 if it is whole.

    Its other dimensions are those of the grid along some axes. A tile is whole if all of its elements are live: then
    the `conditions` hold for each of them.
    """

    name: str
    axes: tuple[Axis, ...]
    conditions: tuple[Boolean, ...] = ()


@final
@dataclass(frozen=True)
class Frame:
    """The grid of a kernel (variables named after the axes), the place of a block, and the tiles that it streams.

    `variables` are those of the grid by axis.
    """

    grid: tuple[tuple[Symbol, Any], ...]
    space: Space
    span: Span
    variables: Mapping[Axis, Symbol]


def frame(job: Job, names: Names, *, segmented: bool, listing: Listing | None = None) -> Frame:
    """The grid (rows first, then columns if a block does not hold them all), and the place of a block in it."""
    plan, sizes = job.plan, job.problem.sizes
    binding, grid = plan.binding, list[tuple[Symbol, Any]]()
    at: dict[Axis, Expr] = {}
    variables: dict[Axis, Symbol] = {}
    start: dict[Axis, tuple[Expr, int]] = {}
    halved, bound = segmented and takes_half(job.form, plan, job.problem), tuple[Bind, ...]()
    cut_rows = not (plan.is_serial and binding.contracted)  # else only if a block does not hold them all
    rows, columns = (binding.row, plan.block_row, I, cut_rows), (binding.column, plan.block_column, E_, False)
    if halved and binding.row is not None:
        grid, bound = triangle_grid(tiles_of(sizes[binding.row.name], plan.block_row), names)
    folded = (Load(one.name) for one in bound)
    for axis, length, place, cut in (rows, columns):
        if axis is None:
            continue
        begin: Expr = S.Zero
        if halved:
            begin = next(folded) * length
        elif cut or length < sizes[axis.name]:
            block = index(names.fresh(f"{axis.name}_block"))
            grid.append((block, tiles_of(sizes[axis.name], length)))
            begin, variables[axis] = block * length, block
        at[axis], start[axis] = begin + place, (begin, length)
    if segmented:
        grid.append((SEGMENT, plan.segments))
    for axis in reversed(binding.grid):
        at[axis] = variables[axis] = index(names.fresh(axis.name))
        grid.append((variables[axis], sizes[axis.name]))
    packed, known = unpack_rows(binding, at)
    at |= {axis: PLACE if sizes[axis.name] > 1 else S.Zero for axis in job.form.places}
    space = Space(plan, job.problem, at, start, packed=packed, known=known, places=job.form.places,
                  halved=halved)  # fmt: skip
    if listing is None:
        spanned = span(job, space, names, segmented=segmented)
    else:
        spanned = span_of_list(listing, variables, plan, names)
    blocks = tuple(grid) or ((index(names.fresh("block")), 1),)
    first = SEGMENT * space.tiles if segmented and not spanned.moving else S.Zero
    space = space.at_tile(spanned.tile, first)
    if listing is not None:
        whole = Eq(Mod(entry(listing, variables), 2), 1)
        space = replace(space, whole=dict.fromkeys(listing.conditions, whole))
    return Frame(blocks, space, replace(spanned, bound=(*bound, *spanned.bound)), variables)


def triangle_grid(tiles: int, names: Names) -> tuple[list[tuple[Symbol, Any]], tuple[Bind, Bind]]:
    """The grid of the tiles (row, column) with row ≥ column of a square of tiles, and the number of a block's tile.

    Row p of the triangle has p + 1 tiles, and the row that is as far from the last as p from the first has the rest of
    a row of a rectangle.
    """
    rows, width = (tiles + 1) // 2, tiles + 1 - tiles % 2
    along, across = index(names.fresh("fold")), index(names.fresh("across"))
    last, shift = tiles - 1, tiles % 2
    short = along - shift  # the row of the triangle that lies ahead in the rectangle's row, −1 for none
    ahead = across <= short
    row = Bind(names.fresh("row_tile"), Where(ahead, short, last - along), "int32")
    column = Bind(names.fresh("column_tile"), Where(ahead, across, across - short - 1), "int32")
    return [(along, rows), (across, width)], (row, column)


def unpack_rows(binding: Binding, at: dict[Axis, Expr]) -> tuple[dict[Axis, tuple[Expr, int]], dict[Expr, Expr]]:
    """The spans within a block of the axes that rows pack, and the index of their groups; their places go to `at`."""
    packing = binding.packing
    if packing is None:
        return {}, {}
    outer = at[packing.outer] if packing.outer is not None else S.Zero
    at |= packing.places(at[packing.row], outer)
    quotient = packing.quotient()
    return packing.spans(outer), {} if quotient is None else {quotient: outer}


def span(job: Job, space: Space, names: Names, *, segmented: bool) -> Span:
    """The tiles that a block reads; a segment takes its share of the needed tiles.

    Where warps are specialised and data says how many there are, a block that needs none reads one, of which nothing
    counts: else TMA could load no tile ahead of the loop (`workarounds.tma`), which costs up to half of the time.
    Where they load for a loop within the tile, a part is one tile, and takes it whether it is needed or not.

    The bounds of several ranges that only a run tells are variables, where no warps are specialised
    (`workarounds.known` says why).
    """
    domain = S.true if job.form.structures else job.form.cascade.domain  # elements are selected from all
    needed, parts = needed_tiles(domain, space), Integer(job.plan.segments)
    if not needed or job.plan.loads_within:
        return Span(S.Zero, sympify(space.tiles), moving=False)
    bound, tile = list[Bind](), TILE

    def bind(wanted: str, value: Expr) -> Expr:
        if value.is_Integer:
            return value
        bound.append(Bind(names.fresh(wanted), value, "int32"))
        return Load(bound[-1].name)

    of_data = any(one.first.has(Load) or one.stop.has(Load) for one in needed)
    first = bind("first_tile", needed[0].first)
    stop = bind("stop_tile", Max(first, needed[0].stop))
    for other in needed[1:]:
        first, stop, tile = _join((first, stop), other, bind)
    if segmented:
        share = bind("share", floor((stop - first + parts - 1) / parts))
        begin = first + SEGMENT * share  # both read it: `workarounds.known` says why
        first, stop = bind("first_of_part", Min(stop, begin)), bind("stop_of_part", Min(stop, begin + share))
    elif job.plan.warp_specialized and of_data:
        number, last = bind("tiles", Max(S.One, stop - first)), sympify(space.tiles) - 1
        near = bind("near_tile", Max(S.Zero, Min(first, last))) if tile == TILE else S.Zero
        tile = TILE + near if tile == TILE else Max(S.Zero, Min(tile, last))
        first, stop = S.Zero, number
    told_by_run = of_data or bool(job.problem.varying)
    in_register = told_by_run and len(needed) > 1 and not job.plan.warp_specialized and job.plan.device.target != "c"
    return Span(first, stop, tuple(replace(one, in_register=in_register) for one in bound), tile=tile)


def span_of_list(listing: Listing, variables: Mapping[Axis, Symbol], plan: Plan, names: Names) -> Span:
    """The loop over the tiles of a list; where warps are specialised also over the first place of an empty one."""
    at = tuple(variables[axis] for axis in listing.axes)
    count = Load(listing.name, *at, S.Zero)
    number = Bind(names.fresh("tiles"), Max(S.One, count) if plan.warp_specialized else count, "int32")
    return Span(S.Zero, Load(number.name), (number,), tile=floor(entry(listing, variables) / 2))


def entry(listing: Listing, variables: Mapping[Axis, Symbol]) -> Load:
    """The read of a list in the loop, at TILE."""
    return Load(listing.name, *(variables[axis] for axis in listing.axes), 1 + TILE)


def _join(own: tuple[Expr, Expr], other: Tiles, bind: Callable[[str, Expr], Expr]) -> tuple[Expr, Expr, Expr]:
    """The loop over the tiles of two ranges, in the order of the axis and each once: from 0, to where, and the tile."""
    start = bind("other_first", other.first)
    two = (own, (start, bind("other_stop", Max(start, other.stop))))
    ordered = sorted(two, key=lambda each: each[0] != 0)
    (first, stop), (later, end) = ordered
    if first != 0:  # which of them comes first is known at run time
        swapped = Lt(later, first)
        first, later = bind("least_first", Min(first, later)), bind("later_first", Max(first, later))
        stop, end = bind("least_stop", Where(swapped, end, stop)), bind("later_stop", Where(swapped, stop, end))
    later = bind("again_first", Max(stop, later))
    number = bind("before_gap", stop - first)
    gap = bind("gap", later - stop)
    tile = TILE + first + Where(Ge(TILE, number), gap, S.Zero)
    return S.Zero, bind("tiles", number + Max(0, end - later)), tile


def taken_names(job: Job) -> tuple[str, ...]:
    """The names of parameters, and those that other stages have taken."""
    cascade = job.form.cascade
    given = (*cascade.inputs(), *(one.name for one in cascade.scalars()))
    outputs = (output_name(one, job.problem) for one in job.dtypes)
    return (*map(kernel_name, given), *outputs, *map(str, runtime_sizes(job.problem)), *job.also)


def names_after(job: Job, kernels: list[Kernel], workspaces: list[str]) -> Names:
    """Names for one more kernel: a TileLang text may bind a variable's name only once."""
    return Names((*taken_names(job), *workspaces, *(name for kernel in kernels for name in variables_of(kernel))))


def runtime_sizes(problem: Problem) -> tuple[Symbol, ...]:
    """The run-time sizes: of axes, and of dimensions that no axis indexes."""
    sizes = {size for shape in problem.shapes.values() for size in shape if isinstance(size, Symbol)}
    return tuple(sorted(sizes | {problem.sizes[name] for name in problem.varying}, key=str))
