"""Where a block stands: the index of every axis within a tile, and expressions translated to reads of buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from sympy import And, Expr, Integer, S
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis, Cast, Element, Extent, Let, Scalar, Value
from redalg.expression.contents import elements_of
from redalg.lower_tile.names import kernel_name
from redalg.lower_tile.program import Load, Region, index
from redalg.strategies import Plan, Problem

I, J, E_, U, PLACE = index("i"), index("j"), index("e"), index("u"), index("place")


@final
@dataclass(frozen=True)
class Space:
    """The block's place.

    Attributes:
        plan, problem: what is lowered.
        at: axis -> its global index within a tile, by grid variables, `t`, and tile indices i, j, e, u, place.
        start: axis -> (global index of the tile's first element, tile length), for the axes that a tile spans.
        values: value -> what reads it at tile indices.
        staged: element -> (buffer, axes of its dimensions): tiles of inputs in shared memory.
        places: axes that number selected elements.
    """

    plan: Plan
    problem: Problem
    at: Mapping[Axis, Expr]
    start: Mapping[Axis, tuple[Expr, int]]
    values: Mapping[Value, Expr] = field(default_factory=dict)
    staged: Mapping[Element, tuple[str, tuple[Axis, ...]]] = field(default_factory=dict)
    places: frozenset[Axis] = frozenset()

    def with_values(self, values: Mapping[Value, Expr]) -> Space:
        """The same place, with more values at hand."""
        return replace(self, values={**self.values, **values})

    def with_staged(self, staged: Mapping[Element, tuple[str, tuple[Axis, ...]]]) -> Space:
        """The same place, with more input tiles at hand."""
        return replace(self, staged={**self.staged, **staged})

    def read(self, node: Any) -> Any:
        """An expression with elements and values replaced by reads, axes by indices, extents by numbers."""
        if isinstance(node, Value):
            return self.values[node]
        if isinstance(node, Element):
            return self._element(node)
        if isinstance(node, Axis):
            return self.at[node]
        if isinstance(node, Extent):
            return Integer(self.problem.sizes[node.name])
        if isinstance(node, Scalar):
            return Load(kernel_name(node.name))
        if isinstance(node, Let):
            return self.read(node.expr)
        if not node.args:
            return node
        args = [arg if isinstance(node, Cast) and arg is node.args[1] else self.read(arg) for arg in node.args]
        return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)

    def _element(self, node: Element) -> Load:
        if node in self.staged:
            name, axes = self.staged[node]
            return Load(name, *(self.at[axis] - self.start[axis][0] for axis in axes))
        if not node.indices:  # a tensor without dimensions is passed as one of one element
            return Load(kernel_name(node.name), S.Zero)
        return Load(kernel_name(node.name), *(self.read(one) for one in node.indices))

    def output_name(self, name: str) -> str:
        """What the kernel calls an output: its own name, unless an input bears it."""
        return output_name(name, self.problem)

    def region(self, node: Element) -> tuple[Region, tuple[Axis, ...]] | None:
        """The part of a tensor that a tile reads, and the axes along it; None where indices are not plain."""
        place: list[Expr | tuple[Expr, int]] = []
        axes = []
        for one in node.indices:
            if isinstance(one, Axis) and one in self.start and one not in axes:
                place.append(self.start[one])
                axes.append(one)
            elif one.free_symbols & set(self.start) or elements_of(one):
                return None
            else:
                place.append(self.read(one))
        return Region(kernel_name(node.name), tuple(place)), tuple(axes)

    def live(self, domain: Boolean) -> Boolean:
        """Where an element of the tile counts: the domain, and the ragged tail of the streamed axis."""
        streamed = self.plan.binding.streamed
        held = [] if domain is S.true else [self.read(domain)]
        covered = self.plan.block_streamed * self.tiles * self.plan.segments
        if covered != self.problem.sizes[streamed.name]:
            held.insert(0, self.at[streamed] < self.problem.sizes[streamed.name])
        return And(*held) if held else S.true

    def rows_inside(self) -> Boolean:
        """Whether row i of the tile exists (row 0 alone where no axis is bound to rows)."""
        row = self.plan.binding.row
        if row is None:
            return I < 1 if self.plan.block_row > 1 else S.true
        return self.at[row] < self.problem.sizes[row.name] if self.ragged(row) else S.true

    def columns_inside(self) -> Boolean:
        """Whether column e of the tile exists."""
        column = self.plan.binding.column
        return self.problem.sizes[column.name] > E_ if column is not None and self.ragged(column) else S.true

    def ragged(self, axis: Axis) -> bool:
        """Whether a tile may hang over the end of an axis."""
        return axis in self.start and self.problem.sizes[axis.name] % self.start[axis][1] != 0

    @property
    def tiles(self) -> int:
        """Tiles of the streamed axis that one block reads."""
        total = -(-self.problem.sizes[self.plan.binding.streamed.name] // self.plan.block_streamed)
        return -(-total // self.plan.segments)


def output_name(name: str, problem: Problem) -> str:
    """An output's own name, unless an input bears it."""
    return kernel_name(f"{name}_out" if name in problem.dtypes else name)
