"""Finish and outputs: the form's assignments row by row, then every output in its own shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sympy import And, Expr, S

from redalg.expression import Cast, Where
from redalg.incremental.form import FormOutput, FusedForm, Pivot, PivotPolicy
from redalg.lower_tile.ir.program import Copy, Parallel, Region, Statement, Store
from redalg.lower_tile.ir.scalars import Load, RankedIndex
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.expressions import safe, usable
from redalg.lower_tile.place.selection import padded_places
from redalg.lower_tile.place.selection import read_best as read_selected
from redalg.lower_tile.place.slots import Slots
from redalg.lower_tile.place.space import E_, PLACE, I, Space


@final
class Epilogue:
    """The statements that follow the loop, under construction."""

    def __init__(
        self, form: FusedForm, assembly: Assembly, slots: Slots, space: Space, dtypes: Mapping[str, str]
    ) -> None:
        self.form, self.assembly, self.dtypes = form, assembly, dtypes
        self.body: list[Statement] = []
        values = {value: slots.final(value) for value in slots.numbers}
        for structure, names in slots.best.items():
            values |= zip(structure.values, read_selected(structure, names, space.problem), strict=True)
        for pivot in form.pivots:
            if pivot.has_slot:
                values[pivot.value] = safe(values[pivot.value])
            elif pivot.value not in values:
                values[pivot.value] = self._running(pivot, space.with_values(values).read(pivot.source))
        self.space = space.with_values(values)

    def _running(self, pivot: Pivot, source: Expr) -> Expr:
        """The value of a pivot that the state does not hold: safe to subtract, or to multiply by."""
        if pivot.policy is not PivotPolicy.SCALE:
            return safe(source, scales=False)
        scale = self.assembly.new(f"{pivot.value.name}_scale", I)
        usable_or_one = Where(usable(scale), scale, S.One)
        self.body += [self.assembly.stores((scale, source)), self.assembly.stores((scale, usable_or_one))]
        return scale

    def build(self) -> list[Statement]:
        """Build the assignments, then the outputs that do not carry the streamed axis."""
        self.values()
        for output in self.form.outputs:
            if not output.carries:
                self._output(output)
        return self.body

    def values(self) -> list[Statement]:
        """Build the form's assignments alone."""
        places = {one.value for one in self.form.cascade.reductions if one.dtype == "int64"}
        for assignment in self.form.assignments:
            read = self.space.read(assignment.expr)
            if assignment.value not in places and not self._varies(read):
                row = self.assembly.new(assignment.value.name, I)
                self.body.append(self.assembly.stores((row, read)))
                read = row
            self.space = self.space.with_values({assignment.value: read})
        return self.body

    def _varies(self, read: Expr) -> bool:
        """Tell if an expression differs within a row (or is an integer: no buffer of numbers holds one)."""
        return read.has(RankedIndex, E_, PLACE)

    def _output(self, output: FormOutput) -> None:
        expr = output.expr
        if isinstance(expr, Cast) and expr.dtype == self.dtypes[output.name]:
            expr = expr.args[0]  # storing rounds
        read = self.space.read(expr)
        read = or_zero(output, self.space, read)
        if self.space.plan.binding.column in output.axes:
            self._wide(output, read)
        else:
            guard = And(self.space.rows_inside(), self.space.first_columns())
            if self.space.plan.binding.row is not None and not self.space.plan.binding.rows & set(output.axes):
                guard = guard & (I < 1)
            extents = [(I, self.space.plan.block_row)]
            for axis in set(output.axes) & self.space.places:
                size = self.space.problem.sizes[axis.name]
                extents += [(PLACE, padded_places(size))] if size > 1 else []
                guard = guard & (size > PLACE) if 1 < size < padded_places(size) else guard
            store = Store(self.space.output_name(output.name), self._place(output), read, guard)
            self.body.append(Parallel(tuple(extents), (store,)))

    def _wide(self, output: FormOutput, read: Expr) -> None:
        """Store a (row, column) output in a tile, then copy it out."""
        tile = self.assembly.new(f"{output.name}_tile", I, E_)
        read = read if self.form.cascade.producers else self.assembly.across(read, self.body)
        self.body.append(self.assembly.stores((tile, read)))
        binding = self.space.plan.binding
        plain = binding.row is not None and output.axes[-2:] == (binding.row, binding.column)
        if not plain:
            inside = And(self.space.rows_inside(), self.space.columns_inside())
            store = Store(self.space.output_name(output.name), self._place(output), tile, inside)
            extents = ((I, self.space.plan.block_row), (E_, self.space.plan.block_column))
            self.body.append(Parallel(extents, (store,)))
            return
        place = [self.space.start[axis] if axis in self.space.start else self.space.at[axis] for axis in output.axes]
        if self.space.plan.tensor_cores:  # through shared memory, so that each store is 16 bytes wide
            shape = (self.space.plan.block_row, self.space.plan.block_column)
            staged = self.assembly.buffer(f"{output.name}_shared", "shared", shape, self.dtypes[output.name])
            self.body.append(Copy(tile.name, staged))
            tile = Load(staged, I, E_)
        self.body.append(Copy(tile.name, Region(self.space.output_name(output.name), tuple(place))))

    def _place(self, output: FormOutput) -> tuple[Expr, ...]:
        return tuple(self.space.at[axis] for axis in output.axes) or (S.Zero,)


def or_zero(output: FormOutput, space: Space, read: Expr) -> Expr:
    """An output's read; for a ratio over no element, 0 if the call asks for that."""
    asked = space.problem.empty == "zero" and output.empty != S.false
    return Where(space.read(output.empty), S.Zero, read) if asked else read
