"""Numbers of a row, or of a streamed element, that an operand makes of inputs alone: once each.

    f(r(i), c(j), s[i, j])   →   r[i] before the loop;  c[j] in every step;  f(r[i], c[j], s[i, j])

An operand is evaluated at every place of a tile: without this, a backward would read a row's statistics from memory,
and divide by them, as often as a tile has columns.
"""

from __future__ import annotations

from typing import final

from sympy import Add, Expr, Mul, S, Symbol
from sympy.core.basic import Basic

from redalg.expression import Where
from redalg.expression.rebuild import with_args
from redalg.lower_tile.ir.program import Statement
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.parameters import dtypes_in_kernels
from redalg.lower_tile.place.space import E_, I, J, Space


@final
class LinesApart:
    """Rewrites the operands of one kernel, and appends what fills the lines: to `before` or to the loop's body."""

    def __init__(self, assembly: Assembly, before: list[Statement]) -> None:
        self.assembly, self.before = assembly, before
        self.lines: dict[Basic, Load] = {}

    def of(self, space: Space, read: Basic, body: list[Statement]) -> Basic:
        """The expression with reads of lines."""
        index = self._index(space, read)
        if isinstance(read, Expr) and index is not None:
            return self._line(space, read, index, body)
        if isinstance(read, Load):
            return read
        if isinstance(read, Add | Mul):
            for index in (I, J):
                alone = [one for one in read.args if self._index(space, one) == index]
                if len(alone) > 1:
                    rest = [one for one in read.args if one not in alone]
                    line = self._line(space, read.func(*alone), index, body)
                    return read.func(line, self.of(space, read.func(*rest), body))
        return with_args(read, [self.of(space, one, body) for one in read.args])

    def _index(self, space: Space, node: Basic) -> Symbol | None:
        """The index that an expression of inputs depends on, if it is one that has lines; else None."""
        loads = node.atoms(Load)
        if not loads or any(self.assembly.holds(load.name) for load in loads) or node.has(E_):
            return None
        if node.has(I) == node.has(J) or (node.has(J) and space.plan.warp_specialized):
            return None
        if not isinstance(node, Load) and any("int" in read_dtype(space, load) for load in loads):
            return None  # an integer stays one: its comparison is exact
        return I if node.has(I) else J

    def _line(self, space: Space, node: Expr, index: Symbol, body: list[Statement]) -> Load:
        """The line that holds an expression; 0 beyond the end of its axis."""
        if node not in self.lines:
            binding = space.plan.binding
            axis, wanted = (binding.row, "row") if index == I else (binding.streamed, "line")
            whole = isinstance(node, Load) and "int" in read_dtype(space, node)
            dtype = read_dtype(space, node) if whole else None
            by_row = index == I and space.plan.tensor_cores and space.plan.warps == "rows"  # as a product's sums lie
            scope = "fragment" if by_row and not whole else "shared"
            line = self.lines[node] = self.assembly.new(wanted, index, dtype=dtype, scope=scope)
            ragged = axis is not None and space.is_ragged(axis)
            value = Where(space.at[axis] < space.problem.sizes[axis.name], node, S.Zero) if axis and ragged else node
            moves = node.free_symbols & (space.at[binding.streamed].free_symbols - {J})
            (body if moves else self.before).append(self.assembly.stores((line, value)))
        return self.lines[node]


def read_dtype(space: Space, load: Load) -> str:
    """The dtype of an input that is read; of nothing else that is read the arithmetic's."""
    return dtypes_in_kernels(space.problem).get(load.name, space.problem.compute)
