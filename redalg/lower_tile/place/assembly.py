"""The kernel under construction: buffers by name, and statements that share what they compute.

The indices of a buffer say what it holds: i a number for every row, j for every streamed element of the tile, e for
every column. A buffer is known by the read of its element, `Load(name, *indices)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from sympy import Expr, S, Symbol
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Where
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import Buffer, Parallel, ReduceTile, Statement, Store
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.space import E_, I, J
from redalg.strategies.device import WARP
from redalg.strategies.plan import Plan

LONGEST_NOTE = 300
"""Letters of what is said of a buffer, at most."""
MOST_OF_LOAD = 16
"""Elements of a 16-byte load, at most."""


@final
class Assembly:
    """The buffers so far; methods that take a `body` append the statements that fill what they return."""

    def __init__(self, plan: Plan, names: Names, compute: str) -> None:
        self.plan, self.names, self.compute = plan, names, compute
        self.buffers: dict[str, Buffer] = {}
        self.tiles: dict[Basic, str] = {}
        self.wide = (E_, I) if plan.is_serial else (I, E_)
        self.row = self.wide if plan.is_serial and plan.binding.column is not None else (I,)
        self.lane = self.row if plan.is_serial else (J, I) if plan.along_rows else (I, J)
        self.tile = (I,) if plan.is_serial else (I, J)
        self.extents = {I: plan.block_row, J: plan.block_streamed, E_: plan.block_column}

    def buffer(
        self, wanted: str, scope: str, shape: Sequence[int], dtype: str | None = None, note: str = "", *, slot: str = ""
    ) -> str:  # fmt: skip
        """Allocate a buffer."""
        name = self.names.fresh(wanted)
        note = note if len(note) <= LONGEST_NOTE else f"{note[: LONGEST_NOTE - 1]}…"
        self.buffers[name] = Buffer(name, scope, tuple(shape), dtype or self.compute, note, slot)
        return name

    def new(
        self, wanted: str, *indices: Symbol, note: str = "", dtype: str | None = None, scope: str = "fragment",
        slot: str = "",
    ) -> Load:  # fmt: skip
        """The read of a new buffer of a number for every row, streamed element or column, as its indices say."""
        shape = [self.extents[one] for one in indices]
        return Load(self.buffer(wanted, scope, shape, dtype, note, slot=slot), *indices)

    def stores(self, *stores: tuple[Load, Expr]) -> Parallel:
        """Buffers of one shape := expressions, at every index."""
        [target, *_] = (load for load, _ in stores)
        place = tuple(zip(target.indices, self.shape(target.name), strict=True))
        return Parallel(place, tuple(Store(load.name, load.indices, expr) for load, expr in stores))

    def reduce(self, kind: str, source: Load, target: Load, *, clear: bool = True) -> ReduceTile:
        """target := (target ⊕) the reduction of a tile over its streamed elements."""
        along = source.indices.index(J)
        together = self.rows_of_thread(source.name) if along == 1 else 1
        return ReduceTile(kind, source.name, target.name, clear=clear, dim=along, together=together)

    def rows_of_thread(self, tile: str) -> int:
        """The rows of a whole tile in registers, if every thread holds elements of all of them; else 1."""
        rows, columns = self.shape(tile)
        plan = self.plan
        wide = plan.level == "row" and plan.device.target != "c" and columns >= plan.threads * MOST_OF_LOAD
        return int(rows) if wide and plan.threads > WARP and self.is_fragment(tile) else 1

    def tile_of(self, wanted: str, expr: Expr, body: list[Statement]) -> Load:
        """The tile buffer that holds an expression in i, j, computed once."""
        indices = self.lane_of(expr)
        if isinstance(expr, Load) and expr.indices == indices and self.is_fragment(expr.name):
            return expr
        if expr not in self.tiles:
            tile = self.new(wanted, *indices)
            self.tiles[expr] = tile.name
            body.append(self.stores((tile, expr)))
        return Load(self.tiles[expr], *indices)

    def lane_of(self, expr: Expr) -> tuple[Symbol, ...]:
        """The indices of a tile of an expression: a thread of several columns computes once what reads none."""
        return (I,) if self.plan.is_serial and not expr.has(E_) else self.lane

    def shared_row(self, wanted: str, expr: Expr, body: list[Statement], note: str = "") -> Load:
        """A shared buffer of one number for every row, so that threads of any layout can read it."""
        shared = self.new(wanted, I, note=note, scope="shared")
        body.append(self.stores((shared, expr)))
        return shared

    def across(self, expr: Expr, body: list[Statement], *, rows: bool = True) -> Expr:
        """An expression in i, e whose column buffers, and those of `rows`, are read from shared memory.

        In registers such a buffer has the layout of the tile that it was reduced from; a product's result has another.
        """
        if self.plan.is_serial:  # no lane reads what another holds
            return expr
        reads = sorted((one for one in expr.atoms(Load) if self.is_fragment(one.name)), key=str)
        moved: dict[Expr, Expr] = {}
        for read in reads:
            if read.indices == (E_,) or (rows and read.indices == (I,) and self.plan.tensor_cores):
                shared = self.new(f"{read.name}_shared", *read.indices, scope="shared")
                body.append(self.stores((shared, read)))
                moved[read] = shared
        return expr.xreplace(moved)

    def holds(self, name: str) -> bool:
        """Tell if a name is a buffer of the kernel."""
        return name in self.buffers

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a buffer."""
        return self.buffers[name].shape

    def is_fragment(self, name: str) -> bool:
        """Tell if a name is a tile in registers, in the dtype of the arithmetic."""
        buffer = self.buffers.get(name)
        return buffer is not None and (buffer.scope, buffer.dtype) == ("fragment", self.compute)


def mask_dead(live: Boolean, expr: Expr, outside: Expr) -> Expr:
    """`expr` for the elements that count, else `outside`."""
    return expr if live is S.true else Where(live, expr, outside)
