"""The kernel under construction: buffers by name, and statements that share what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from sympy import Expr, S, Symbol
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Where
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import Buffer, Parallel, ReduceTile, Statement, Store
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.space import E_, I, J
from redalg.strategies.plan import Plan


@final
@dataclass(frozen=True)
class Sweep:
    """The states of a block: one for every row, or one for every row and lane."""

    indices: tuple[tuple[Symbol, int], ...]

    @property
    def place(self) -> tuple[Symbol, ...]:
        """The indices of one state."""
        return tuple(name for name, _ in self.indices)

    def stores(self, *stores: tuple[str, Expr]) -> Parallel:
        """Buffers := expressions, for every state."""
        return Parallel(self.indices, tuple(Store(name, self.place, expr) for name, expr in stores))


@final
class Assembly:
    """The buffers so far; each method returns a buffer's name and appends the statements that fill it to `body`."""

    def __init__(self, plan: Plan, names: Names, compute: str) -> None:
        self.plan, self.names, self.compute = plan, names, compute
        self.buffers: list[Buffer] = []
        self.made: dict[Basic, str] = {}
        self.rows = Sweep(((I, plan.block_row),))
        self.lanes = Sweep(((I, plan.block_row), (J, plan.block_streamed)))

    def buffer(self, wanted: str, scope: str, shape: Sequence[int], dtype: str | None = None, note: str = "") -> str:
        """Allocate a buffer."""
        name = self.names.fresh(wanted)
        self.buffers.append(Buffer(name, scope, tuple(shape), dtype or self.compute, note))
        return name

    def row(self, wanted: str, note: str = "", dtype: str | None = None) -> str:
        """A buffer of one number for every row of the tile."""
        return self.buffer(wanted, "fragment", (self.plan.block_row,), dtype, note)

    def tile(self, wanted: str, note: str = "") -> str:
        """A buffer of one number for every row and streamed element of the tile."""
        return self.buffer(wanted, "fragment", (self.plan.block_row, self.plan.block_streamed), note=note)

    def columns(self, wanted: str, note: str = "") -> str:
        """A buffer of one number for every row and column of the tile."""
        return self.buffer(wanted, "fragment", (self.plan.block_row, self.plan.block_column), note=note)

    def heads(self, wanted: str, note: str = "") -> str:
        """A buffer of one number for every column of the tile."""
        return self.buffer(wanted, "fragment", (self.plan.block_column,), note=note)

    def over_heads(self, name: str, expr: Expr) -> Parallel:
        """A buffer of one number a column := an expression in e."""
        return Parallel(((E_, self.plan.block_column),), (Store(name, (E_,), expr),))

    def over(self, sweep: Sweep, wanted: str, note: str = "") -> str:
        """A buffer of one number for every state of a sweep."""
        return self.row(wanted, note) if sweep is self.rows else self.tile(wanted, note)

    def over_rows(self, *stores: tuple[str, Expr]) -> Parallel:
        """Row buffers := expressions in i."""
        return self.rows.stores(*stores)

    def over_tile(self, name: str, expr: Expr) -> Parallel:
        """A tile buffer := an expression in i, j."""
        return self.lanes.stores((name, expr))

    def over_columns(self, name: str, expr: Expr) -> Parallel:
        """A column buffer := an expression in i, e."""
        extents = ((I, self.plan.block_row), (E_, self.plan.block_column))
        return Parallel(extents, (Store(name, (I, E_), expr),))

    def tile_of(self, wanted: str, expr: Expr, body: list[Statement]) -> str:
        """The tile buffer that holds an expression in i, j, computed once."""
        if isinstance(expr, Load) and expr.indices == (I, J) and self.is_fragment(expr.name):
            return expr.name
        if expr not in self.made:
            self.made[expr] = self.tile(wanted)
            body.append(self.over_tile(self.made[expr], expr))
        return self.made[expr]

    def shared_row(self, wanted: str, expr: Expr, body: list[Statement], note: str = "") -> Load:
        """A shared buffer of one number for every row, so that threads of any layout can read it."""
        name = self.buffer(wanted, "shared", (self.plan.block_row,), note=note)
        body.append(self.over_rows((name, expr)))
        return Load(name, I)

    def across(self, expr: Expr, body: list[Statement]) -> Expr:
        """An expression in i, e whose row and column buffers are read from shared memory.

        In registers such a buffer has the layout of the tile that it was reduced from; a product's result has another.
        """
        reads = sorted((one for one in expr.atoms(Load) if self.is_fragment(one.name)), key=str)
        moved: dict[Expr, Expr] = {}
        for read in reads:
            if read.indices == (I,) and self.plan.tensor_cores:
                moved[read] = self.shared_row(f"{read.name}_shared", read, body)
            elif read.indices == (E_,):
                name = self.buffer(f"{read.name}_shared", "shared", (self.plan.block_column,))
                body.append(self.over_heads(name, read))
                moved[read] = Load(name, E_)
        return expr.xreplace(moved)

    def holds(self, name: str) -> bool:
        """Tell if a name is a buffer of the kernel."""
        return any(one.name == name for one in self.buffers)

    def is_fragment(self, name: str) -> bool:
        """Tell if a name is a tile in registers, in the dtype of the arithmetic."""
        return any(one.name == name and (one.scope, one.dtype) == ("fragment", self.compute) for one in self.buffers)

    def summed(self, wanted: str, expr: Expr, body: list[Statement]) -> str:
        """The row buffer that holds Σ_j of an expression in i, j, computed once."""
        key = Load("sum of", expr)
        if key not in self.made and expr.is_number:  # the same for every element of the tile
            self.made[key] = self.row(wanted)
            body.append(self.over_rows((self.made[key], expr * self.plan.block_streamed)))
        elif key not in self.made:
            source = self.tile_of("term", expr, body)
            self.made[key] = self.row(wanted)
            body.append(ReduceTile("sum", source, self.made[key], clear=True))
        return self.made[key]


def mask_dead(live: Boolean, expr: Expr, outside: Expr) -> Expr:
    """`expr` for the elements that count, else `outside`."""
    return expr if live is S.true else Where(live, expr, outside)
