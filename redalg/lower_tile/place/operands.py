"""Operands of contractions and producers: tiles of inputs in shared memory, loaded or computed.

A tile that does not depend on the streamed axis is loaded before the loop (MCFuser's scope of a statement). A part of a
tensor is one tile, however its elements are indexed: a tile that two contractions use is loaded once.

r(i)·f(i, j)   →   r[i]·f(i, j), r made once     before the loop; exact but for a rounding, where r reads inputs alone
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from sympy import Expr, Mod, Mul, S, Symbol, floor
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.errors import PlanError
from redalg.expression import Axis, Cast, Element, Where
from redalg.expression.contents import elements_of, free_axes
from redalg.expression.dtypes import DTYPES, is_eight_bits
from redalg.lower_tile.ir.program import Copy, Parallel, Region, Statement, Store
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.lines_apart import LinesApart
from redalg.lower_tile.place.space import E_, I, J, Space
from redalg.lower_tile.workarounds.tma import is_fetched
from redalg.strategies.model.dag import loops_around
from redalg.strategies.plan import shape_of

APART = 16
"""Bytes between the rows of a tile that lanes store across its rows: they store to 8 banks, and not to one."""


def node_axes(indices: tuple[Expr, ...]) -> tuple[Axis, ...]:
    """The axes of a tile, one for each dimension."""
    return tuple(axis for one in indices for axis in free_axes(one))


def zero_beyond(space: Space, axes: Iterable[Axis], read: Expr) -> Expr:
    """A number that is read, or 0 beyond the ends of the axes."""
    for axis in axes:
        if space.is_ragged(axis):
            read = Where(space.at[axis] < space.problem.sizes[axis.name], read, S.Zero)
    return read


@final
class Operands:
    """Load tiles into `before` (ahead of the loop) or into the loop's body."""

    def __init__(self, assembly: Assembly, before: list[Statement]) -> None:
        self.assembly, self.before = assembly, before
        self.tiles: dict[Region, str] = {}
        self.apart = LinesApart(assembly, before)

    # ---- tiles of inputs ---------------------------------------------------------------------------------------------

    def stage(self, space: Space, expr: Basic, body: list[Statement], least: int = 2) -> Space:
        """The space with tiles for the floating-point elements of the expression that span at least `least` axes."""
        tiles = {}
        for element in sorted(elements_of(expr), key=str):
            part = space.region(element)
            floating = space.problem.dtypes[element.name].startswith(("float", "bfloat"))
            if not floating or element in space.staged:
                continue
            if part is not None and len(part[1]) >= least:
                tiles[element] = (self.load(space, element, body), part[1])
            elif part is None and (axes := self._axes_in_stretches(space, element)):
                tiles[element] = (self._load_stretches(space, element, axes, body), axes)
        return space.with_staged(tiles)

    def _axes_in_stretches(self, space: Space, element: Element) -> tuple[Axis, ...]:
        """The axes of an element whose streamed places lie in stretches of its tensor, ⌊n / P⌋ apart; else none."""
        streamed, plan = space.plan.binding.streamed, space.plan
        parts = {one for one in element.indices if isinstance(one, floor | Mod) and free_axes(one) == {streamed}}
        others = {one for one in element.indices if one not in parts}
        row = plan.binding.row
        axes = (row, streamed) if row is not None and row in others else (streamed,)
        alone = {streamed} | {axis for one in others for axis in free_axes(one) & space.start.keys()} == {*axes}
        return axes if len(parts) > 1 and alone and plan.level == "thread" and self._by_lane(space, axes) else ()

    def _load_stretches(self, space: Space, element: Element, axes: tuple[Axis, ...], body: list[Statement]) -> str:
        """A tile in registers of an input that lies in stretches: no block of it, so that lanes load what they read."""
        shape, dtype = [space.start[axis][1] for axis in axes], space.problem.dtypes[element.name]
        name = self.assembly.buffer(f"{element.name}_tile", "fragment", shape, dtype, note=", ".join(map(str, axes)))
        self._fill(name, space, space.read(element), (axes, (I, J)[-len(axes) :]), body)
        return name

    def stage_lines(self, space: Space, domain: Boolean, body: list[Statement]) -> Space:
        """The space with a tile for every element of a mask along one axis: its row or column is read many times."""
        return self._stage_lines(space, elements_of(domain), body)

    def stage_columns(self, space: Space, terms: Iterable[Expr], body: list[Statement]) -> Space:
        """The space with a tile for every number of a streamed element that terms read, which is loaded ahead."""
        found = (element for term in terms for element in elements_of(term))
        floating = {one for one in found if space.problem.dtypes[one.name].startswith(("float", "bfloat"))}
        along = {space.plan.binding.streamed}
        return self._stage_lines(space, {one for one in floating if space.axes_within(one) == along}, body)

    def _stage_lines(self, space: Space, elements: Iterable[Element], body: list[Statement]) -> Space:
        tiles = {}
        for element in sorted(elements, key=str):
            part = space.region(element)
            if part is None or len(part[1]) != 1 or element in space.staged:
                continue
            [length] = [place[1] for place in part[0].place if isinstance(place, tuple)]
            dtype, shapes = space.problem.dtypes[element.name], space.problem.shapes
            shape = shapes.get(element.name) or shape_of(element.name, [element], space.problem)
            at_end = isinstance(part[0].place[-1], tuple)
            if not space.plan.warp_specialized or (at_end and is_fetched(shape, dtype, length)):
                tiles[element] = (self.load(space, element, body), part[1])
        return space.with_staged(tiles)

    def load(self, space: Space, element: Element, body: list[Statement]) -> str:
        """A tile of an input in shared memory, loaded once: before the loop if it does not move with the loop."""
        part = space.region(element)
        if part is None:
            raise PlanError(f"`{element}` is not a plain tile of its tensor")
        region, indices = part
        if region not in self.tiles:
            shape = [place[1] for place in region.place if isinstance(place, tuple)]
            dtype, binding = space.problem.dtypes[element.name], space.plan.binding
            scope = "fragment" if self._by_lane(space, indices) else "shared"
            note = ", ".join(map(str, node_axes(indices)))
            name = self.assembly.buffer(f"{element.name}_tile", scope, shape, dtype, note=note)
            self.tiles[region] = name
            self.place(binding.streamed, free_axes(element), body).append(Copy(region, name))
        return self.tiles[region]

    def place(self, streamed: Axis, axes: Iterable[Axis], body: list[Statement]) -> list[Statement]:
        """The statement list for a load that depends on the given axes: as far out as the memory-access DAG allows."""
        return body if loops_around((str(streamed),), set(map(str, axes))) else self.before

    def _by_lane(self, space: Space, indices: tuple[Expr, ...]) -> bool:
        """Tell if the lane that loads a tile is the one that reads it: registers then hold it."""
        binding = space.plan.binding
        along = space.plan.along_rows and not space.plan.is_serial
        lanes = (binding.streamed, binding.row) if along else (binding.row, binding.streamed)
        own = lanes[:1] if space.plan.is_serial else lanes
        ahead = space.plan.level == "thread" and space.plan.stages > 1
        return not (space.plan.multiplies or ahead) and indices == tuple(axis for axis in own if axis is not None)

    def operand(
        self,
        space: Space,
        expr: Expr,
        axes: tuple[Axis, ...],
        indices: tuple[Symbol, ...],
        body: list[Statement],
        *,
        dtype: str | None = None,
        live: Boolean = S.true,
    ) -> str:
        """A factor of a contraction as a shared tile over the given axes (in its own dtype, unless one is given).

        It is 0 if `live` does not hold: a weight of 0 does not hide a NaN there. That takes a tile of its own, since a
        tile that a pipeline loads ahead may not be overwritten.
        """
        dtype = dtype or operand_dtype(space, expr)
        whole = isinstance(expr, Element) and live is S.true and len(axes) == len(indices)
        if isinstance(expr, Element) and whole and dtype == space.problem.dtypes[expr.name]:
            part = space.region(expr)
            if part is not None and part[1] == axes:
                return self.load(space, expr, body)
        inner = self.stage(space, expr, body)
        shape = [space.start[axis][1] if axis in space.start else space.plan.block_row for axis in axes] if axes else []
        shape = shape if len(shape) == len(indices) else [space.plan.block_row, *shape]
        name = self.assembly.buffer("operand", "shared", shape, dtype)
        read = inner.read(expr) if live is S.true else Where(inner.read(live), inner.read(expr), S.Zero)
        self._fill(name, space, read, (axes, indices), self.place(space.plan.binding.streamed, free_axes(expr), body))
        return name

    def load_turned(
        self, space: Space, element: Element, axes: tuple[Axis, Axis], indices: tuple[Symbol, Symbol],
        body: list[Statement], *, along: bool = False,
    ) -> str:  # fmt: skip
        """A tile of an input in shared memory whose dimensions lie in another order than its tensor's.

        Lanes that load it lie along the tile's last dimension; or along its first one, in which neighbours are
        neighbours in memory. There 16 bytes follow each row of the tile, so that lanes store to several banks.
        """
        shape, dtype = [space.start[axis][1] for axis in axes], space.problem.dtypes[element.name]
        stored = [*shape[:-1], shape[-1] + APART // DTYPES[dtype].bytes] if along else shape
        name = self.assembly.buffer(f"{element.name}_tile", "shared", stored, dtype, ", ".join(map(str, axes)))
        target = self.place(space.plan.binding.streamed, free_axes(element), body)
        extents = tuple(zip(indices, shape, strict=True))
        store = Store(name, indices, zero_beyond(space, axes, space.read_in_part(element)))
        target.append(Parallel(extents[::-1] if along else extents, (store,)))
        return name

    def _fill(
        self, name: str, space: Space, read: Expr, place: tuple[tuple[Axis, ...], tuple[Symbol, ...]],
        target: list[Statement],
    ) -> None:  # fmt: skip
        """Append tile := read, at the place (axes, indices); 0 beyond the ends of the axes."""
        axes, indices = place
        extents = tuple(zip(indices, self.assembly.shape(name), strict=True))
        target.append(Parallel(extents, (Store(name, indices, zero_beyond(space, axes, read)),)))

    def tile_in(self, space: Space, read: Expr, dtype: str, body: list[Statement]) -> str:
        """A shared tile of rows and streamed elements that holds an expression in i, j, in the given dtype."""
        key = Load(f"operand {dtype}", read)
        if key not in self.assembly.tiles:
            shape = (space.plan.block_row, space.plan.block_streamed)
            name = self.assembly.tiles[key] = self.assembly.buffer("operand", "shared", shape, dtype)
            store = Store(name, (I, J), self.assembly.across(self._hoist(read), body))
            body.append(Parallel(((I, shape[0]), (J, shape[1])), (store,)))
        return self.assembly.tiles[key]

    def _hoist(self, read: Expr) -> Expr:
        """Compute r of r(i)·f(i, j) for every row, before the loop, if r reads inputs alone."""
        if isinstance(read, Where):
            return Where(read.args[0], self._hoist(read.args[1]), read.args[2])
        if isinstance(read, Cast):
            return Cast(self._hoist(read.args[0]), read.dtype)
        rows = [one for one in Mul.make_args(read) if not one.has(J)]
        factor = Mul(*rows)
        names = {one.name for one in factor.atoms(Load)}
        if not names or any(self.assembly.holds(name) for name in names):
            return read
        rest = Mul(*(one for one in Mul.make_args(read) if one.has(J)))
        return rest * self.assembly.shared_row("factor", factor, self.before, note=f"{factor}")

    def right(
        self, space: Space, expr: Expr, dtype: str, body: list[Statement], live: Boolean = S.true
    ) -> tuple[str, bool]:
        """The second factor of a contraction as a shared tile, and True if its columns are its first dimension.

        8-bit matrix instructions need that order; otherwise the tile has the order of its tensor.
        """
        binding = space.plan.binding
        if binding.column is None:
            raise AssertionError("a contraction without columns")
        turned = is_eight_bits(dtype) or any(
            (part := space.region(element)) is not None and part[1] == (binding.column, binding.streamed)
            for element in elements_of(expr)
        )
        axes, indices = ((binding.column, binding.streamed), (E_, J)) if turned else (
            (binding.streamed, binding.column), (J, E_))  # fmt: skip
        return self.operand(space, expr, axes, indices, body, dtype=dtype, live=live), turned


def operand_dtype(space: Space, expr: Expr) -> str:
    """The dtype of a factor in a contraction: its cast's, or its inputs' if they share one, else the arithmetic's."""
    dtypes = {space.problem.dtypes[one.name] for one in elements_of(expr)}
    dtypes = {dtype for dtype in dtypes if dtype.startswith(("float", "bfloat"))}
    if isinstance(expr, Cast):
        return expr.dtype
    return dtypes.pop() if len(dtypes) == 1 else space.problem.compute
