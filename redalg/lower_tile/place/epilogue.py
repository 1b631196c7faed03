"""Finish and outputs: the form's assignments row by row, then every output in its own shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sympy import And, Expr, S
from sympy.logic.boolalg import Boolean

from redalg.incremental.combine.finish import finish_program, output_program, value_of_output
from redalg.incremental.combine.programs import programs
from redalg.incremental.form import FormOutput, FusedForm
from redalg.lower_tile.ir.program import Copy, Parallel, Region, Statement, Store
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.expressions import drop_rounding
from redalg.lower_tile.place.lines import Placer
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
        self.space = space.with_values(values)

    def build(self) -> list[Statement]:
        """Build the finished values, then the outputs that do not carry the streamed axis."""
        self.values()
        for output, read in self.reads():
            self._output(output, drop_rounding(read, self.dtypes[output.name]))
        return self.body

    def reads(self) -> list[tuple[FormOutput, Expr]]:
        """The outputs that do not carry the streamed axis, each with its expression of the finished values."""
        program = programs(self.form).of(output_program, carries=False, empty=self.space.problem.empty)
        placer = Placer(program, self.assembly, self.space, self.space.values, named_lines=())
        return [(one, placer.result(value_of_output(one))) for one in self.form.outputs if not one.carries]

    def values(self) -> list[Statement]:
        """Build the finished values alone: those that are assigned have a buffer each."""
        assigned = [one.value for one in self.form.assignments]
        pivots = [one.value for one in self.form.pivots]
        program = programs(self.form).of(finish_program)
        wanted = [value for value in (*pivots, *assigned) if value in program.results]
        integers = {one.value for one in self.form.cascade.reductions if one.dtype == "int64"}
        named = {program.results[value] for value in assigned if value not in integers}
        placer = Placer(program.only(wanted), self.assembly, self.space, self.space.values, named_lines=named)
        self.body += placer.build({})
        self.space = self.space.with_values({value: placer.result(value) for value in wanted})
        return self.body

    def _output(self, output: FormOutput, read: Expr) -> None:
        if self.space.plan.binding.column in output.axes and self.space.plan.is_serial:
            inside = And(self.space.rows_inside(), self.space.columns_inside())
            store = Store(self.space.output_name(output.name), self._place(output), read, inside)
            place = tuple((one, self.assembly.extents[one]) for one in self.assembly.row)
            self.body.append(Parallel(place, (store,)))
        elif self.space.plan.binding.column in output.axes:
            self._wide(output, read)
        else:
            guard = And(self.space.rows_inside(), self.space.first_columns())
            guard = guard & self._first_block(output)
            extents = [(I, self.space.plan.block_row)]
            for axis in set(output.axes) & self.space.places:
                size = self.space.problem.sizes[axis.name]
                extents += [(PLACE, padded_places(size))] if size > 1 else []
                guard = guard & (size > PLACE) if 1 < size < padded_places(size) else guard
            store = Store(self.space.output_name(output.name), self._place(output), read, guard)
            self.body.append(Parallel(tuple(extents), (store,)))

    def _first_block(self, output: FormOutput) -> Boolean:
        """The condition of the one block, and of its one row, that stores what others have too."""
        binding, at = self.space.plan.binding, self.space.at
        used = {symbol for index in self._place(output) for symbol in index.free_symbols}
        row = () if binding.row is None else (binding.row,)
        return And(*(at[axis] < 1 for axis in (*binding.grid, *row) if not at[axis].free_symbols & used))

    def _wide(self, output: FormOutput, read: Expr) -> None:
        """Store a (row, column) output in a tile, then copy it out."""
        tile = self.assembly.new(f"{output.name}_tile", I, E_)
        read = self.assembly.across(read, self.body, rows=not self.form.cascade.producers)
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
        return tuple(self.space.read(index) for index in output.places or output.axes) or (S.Zero,)
