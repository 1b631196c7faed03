"""The place of a block: the index of every axis within a tile, and expressions translated to reads of buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from sympy import Add, And, Eq, Expr, Ge, Gt, Integer, Le, Lt, Max, Min, Mod, Mul, Ne, Not, Or, S, exp, floor, sympify
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from redalg.errors import PlanError
from redalg.expression import Axis, Cast, Element, Extent, Let, RunningCast, Scalar, Value, Where
from redalg.expression.contents import free_axes, is_indicator
from redalg.expression.infinite import divisors_that_may_be_zero, infinite_terms
from redalg.lower_tile.ir.names import kernel_name
from redalg.lower_tile.ir.program import Region, index
from redalg.lower_tile.ir.scalars import Is, IsFinite, IsNaN, Kept, Load, Within
from redalg.lower_tile.place.expressions import among_places, divides, nothing_beside_logarithms, without_hidden_choice
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.varying import tiles_of

I, J, E_, U, PLACE = index("i"), index("j"), index("e"), index("u"), index("place")


@final
@dataclass(frozen=True)
class Space:
    """The block's place.

    Attributes:
        plan, problem: the plan and the problem that are lowered.
        at: axis -> its global index within a tile, by grid variables, `t`, and tile indices i, j, e, u, place.
        start: axis -> (global index of the tile's first element, tile length), for the axes that a tile spans.
        values: value -> the expression that reads it at tile indices.
        staged: element -> (buffer, index of each of its dimensions): tiles of inputs in shared memory.
        packed: axis -> (first, length) within the block, for axes that are packed into the rows.
        known: expression of axes -> the expression that it equals within the block.
        whole: condition -> what tells that it holds for every element of the tile.
        places: axes that number selected elements.
        halved: tiles lie on one side of the diagonal of rows and columns, or on it.
    """

    plan: Plan
    problem: Problem
    at: Mapping[Axis, Expr]
    start: Mapping[Axis, tuple[Expr, int]]
    values: Mapping[Value, Expr] = field(default_factory=dict)
    staged: Mapping[Element, tuple[str, tuple[Expr, ...]]] = field(default_factory=dict)
    packed: Mapping[Axis, tuple[Expr, int]] = field(default_factory=dict)
    known: Mapping[Expr, Expr] = field(default_factory=dict)
    whole: Mapping[Boolean, Boolean] = field(default_factory=dict)
    places: frozenset[Axis] = frozenset()
    halved: bool = False

    @property
    def spans(self) -> dict[Axis, tuple[Expr, int]]:
        """(first, length) within the block of every axis that varies in it."""
        return {**self.packed, **self.start}

    def axes_within(self, node: Expr | Boolean) -> frozenset[Axis]:
        """The axes within a block on which an expression depends."""
        return free_axes(node.xreplace(dict.fromkeys(self.known, S.Zero))) & set(self.spans)

    def by_row(self, node: Expr) -> bool:
        """Tell if an expression differs from row to row."""
        return bool(self.axes_within(node) & self.plan.binding.rows)

    def at_tile(self, tile: Expr, first: Expr = S.Zero) -> Space:
        """The place at tile `first` + `tile` of the streamed axis (at tile 0 if one tile holds the row)."""
        number = S.Zero if self.plan.level == "row" else first + tile
        length, streamed = self.plan.block_streamed, self.plan.binding.streamed
        return replace(
            self,
            at={**self.at, streamed: number * length + J},
            start={**self.start, streamed: (number * length, length)},
            whole={},
        )

    def with_values(self, values: Mapping[Value, Expr]) -> Space:
        """The same place with additional values."""
        return replace(self, values={**self.values, **values})

    def _place(self, axis: Axis) -> Expr:
        if axis not in self.at:
            raise PlanError(f"a reduction within another reads axis {axis}, of which the kernel has no place there. "
                            'Call with backend="torch", or compute the inner reduction first.')  # fmt: skip
        return self.at[axis]

    def with_staged(self, staged: Mapping[Element, tuple[str, tuple[Expr, ...]]]) -> Space:
        """The same place with additional tiles of inputs in shared memory."""
        return replace(self, staged={**self.staged, **staged})

    def read(self, node: Any) -> Any:
        """The expression with reads for its elements and values, indices for its axes, numbers for its extents."""
        if node in self.known:
            return self.known[node]
        if node in self.whole:
            return Within(replace(self, whole={}).read(node), self.whole[node])
        if isinstance(node, Value):
            return self.values[node]
        if isinstance(node, Element):
            return self._element(node)
        if isinstance(node, Axis):
            return self._place(node)
        if isinstance(node, Extent):
            return sympify(self.problem.sizes[node.name])
        if isinstance(node, Scalar):
            return Load(kernel_name(node.name))
        if isinstance(node, Let):
            read = self.read(node.expr)
            kept = node.expr.has(Value) and (node.expr.has(Element) or divides(node.expr))
            return Kept(read) if kept else read
        if isinstance(node, RunningCast):
            g, h = self.read(node.args[0]), usable_scale(self.read(node.args[1]))
            return Cast(g * h, node.dtype) / h
        if isinstance(node, Relational) and (met := self._relation(node)) is not None:
            return met
        if not node.args:
            return node
        if isinstance(node, exp) and len(infinite := infinite_terms(node.args[0])) > 1:  # −∞ counts, also beside +∞
            nothing = Or(*(And(Is(self.read(term), S.NegativeInfinity),
                               *(Ne(self.read(below), S.Zero) for below in divisors_that_may_be_zero(term)))
                           for term in infinite))  # fmt: skip
            return Where(nothing, S.Zero, exp(self.read(node.args[0])))
        if isinstance(node, Max | Min) and any(not arg.is_integer and may_be_nan(arg) for arg in node.args):
            return keep_nan(type(node), [self.read(arg) for arg in node.args])
        if isinstance(node, Mul) and (product := self._product(node)) is not None:
            return product
        args = [arg if isinstance(node, Cast) and arg is node.args[1] else self.read(arg) for arg in node.args]
        unchanged = all(a is b for a, b in zip(args, node.args, strict=True))
        return node if unchanged else without_hidden_choice(*args) if isinstance(node, Where) else node.func(*args)

    def _product(self, node: Mul) -> Expr | None:
        """The read of a product in which a factor hides the others; None of any other."""
        plain = [one for one in node.args if not is_indicator(one)]
        if len(plain) < len(node.args):
            return self._mask(node, Mul(*plain))
        pairs = nothing_beside_logarithms(node)
        return self._beside_logarithms(node, pairs) if pairs else None

    def _mask(self, node: Mul, plain: Expr) -> Expr:
        """The read of a product with indicators: 0 if an indicator is 0, whatever value the other factors have."""
        read: Expr = self.read(plain)
        for condition, *branches in (one.args for one in node.args if is_indicator(one)):
            branch_reads = [read if branch is S.One else S.Zero for branch in branches]
            read = Where(self.read(condition), *branch_reads)
        return read

    def _beside_logarithms(self, node: Mul, pairs: list[tuple[Expr, Expr | None]]) -> Expr:
        """The read of a product with logarithms: 0 where a factor is 0 beside log 0, over what divides it."""
        nothing = Or(*(self._nothing(f, g) for f, g in pairs))
        above, below = [one for one in node.args if not divides(one)], [one for one in node.args if divides(one)]
        return Mul(Where(nothing, S.Zero, Mul(*map(self.read, above))), *map(self.read, below))

    def _nothing(self, f: Expr, g: Expr | None) -> Boolean:
        zero = Eq(self.read(f), S.Zero)
        return zero if g is None else And(zero, Is(self.read(g), S.NegativeInfinity))

    def _relation(self, node: Relational) -> Boolean | None:
        """The read of a relation that kernels write in their own way; None of any other."""
        if isinstance(node, Eq) and type(node.lhs).__name__ == "IsNaN":  # 1 or 0 where monoids are written
            met = IsNaN(self.read(node.lhs.args[0]))
            return met if node.rhs == 1 else Not(met)
        if isinstance(node, Eq | Ne):
            return self._infinite(node) if type(node.lhs).__name__ == "Infinite" else None
        exact = among_places(node)
        return None if exact is None else self.read(exact)

    def _infinite(self, node: Eq | Ne) -> Boolean:
        """The read of a test of which infinity an expression is: 1, −1, or 0 of any other number."""
        read, kinds = self.read(node.lhs.args[0]), {1: (S.Infinity,), -1: (S.NegativeInfinity,)}
        met = Or(*(Is(read, one) for one in kinds.get(int(node.rhs), (S.Infinity, S.NegativeInfinity))))
        return met if isinstance(node, Eq) == (node.rhs != 0) else Not(met)

    def _element(self, node: Element) -> Load:
        if node in self.staged:
            name, indices = self.staged[node]
            within = {axis: self.at[axis] - first for axis, (first, _) in self.start.items()}
            return Load(name, *(one.xreplace(within) for one in indices))
        if not node.indices:  # a tensor without dimensions is passed as one of one element
            return Load(kernel_name(node.name), S.Zero)
        return Load(kernel_name(node.name), *(self.read(one) for one in node.indices))

    def output_name(self, name: str) -> str:
        """The name of an output in the kernel: its own, unless an input has that name."""
        return output_name(name, self.problem)

    def region(self, node: Element) -> tuple[Region, tuple[Expr, ...]] | None:
        """The part of a tensor that a tile reads, and its index along each dimension; None if that is not one block.

        An index is an axis, or an expression that is the same for the whole tile, or ⌊k / P⌋ or k mod P. There P is a
        multiple of the tile's length: it divides axis k into equal parts, and a tile lies within one of them. An index
        s·n + k (0 ≤ k < s) takes s elements for each element of the tile: the neighbours k = 0, 1, … lie there too.
        """
        place: list[Expr | tuple[Expr, int]] = []
        indices: list[Expr] = []
        parts = {one: whole for axis in self.start for one, whole in self._parts(node, axis).items()}
        for coordinate in node.indices:
            index, first = coordinate, S.Zero
            if isinstance(coordinate, Mod) and coordinate in parts:
                index, first = coordinate.args[0], parts[coordinate] - self.start[coordinate.args[0]][0]
            fixed = coordinate.xreplace(parts)
            axis, stride = interleaved_axis(index) or (None, 1)
            if axis is not None and axis in self.start and axis not in free_axes(Add(*indices)):
                start, length = self.start[axis]
                place.append((start * stride + first, length * stride))
                indices.append(index)
            elif self.axes_within(fixed):
                return None
            else:
                place.append(self.read(fixed))
        return Region(kernel_name(node.name), tuple(place)), tuple(indices)

    def _parts(self, node: Element, axis: Axis) -> dict[Expr, Expr]:
        """⌊axis / P⌋ and axis mod P of an element's indices -> their values at the tile's first element."""
        first, length = self.start[axis]
        parts: dict[Expr, Expr] = {}
        for part in node.atoms(floor, Mod):
            above, below = part.args[0].as_numer_denom() if isinstance(part, floor) else part.args
            if above == axis and below.is_Integer and int(below) % length == 0:
                parts[part] = part.xreplace({axis: first})
        return parts

    def read_in_part(self, element: Element) -> Load:
        """The read of an input whose part is one block (`region`): ⌊k / P⌋ is a number there, and k mod P runs with k.

        Its tile is filled by the axes that it has. An axis of which it reads ⌊k / P⌋ alone is none of them.
        """
        parts = {
            part: value if isinstance(part, floor) else value + axis - self.start[axis][0]
            for axis in self.start
            for part, value in self._parts(element, axis).items()
        }
        return (
            self._element(element)
            if element in self.staged
            else Load(kernel_name(element.name), *(self.read(one.xreplace(parts)) for one in element.indices))
        )

    def live(self, domain: Boolean) -> Boolean:
        """The condition that an element of the tile counts: it lies in the domain and within the streamed axis."""
        counts = S.true if domain is S.true else self.read(domain)
        return And(self.inside(), counts)

    def inside(self) -> Boolean:
        """The condition that streamed element j of the tile exists."""
        streamed = self.plan.binding.streamed
        covered = self.plan.block_streamed * self.tiles * self.plan.segments
        size = self.problem.sizes[streamed.name]
        return S.true if covered == size else self.at[streamed] < size

    def rest_of_tile(self, together: int = 1, *, first: Expr = S.Zero, length: int = 0) -> Expr:
        """The number of elements of the tile that exist, or of whole groups of so many.

        `first`, `length`: of the elements that the tile has from there on; 0 for all of them.
        """
        streamed, length = self.plan.binding.streamed, length or self.plan.block_streamed
        if self.inside() is S.true:
            return Integer(length // together)
        rest = self.problem.sizes[streamed.name] - self.start[streamed][0] - first
        return Max(0, Min(length // together, floor(rest / together)))

    def alike(self, domain: Boolean) -> Boolean:
        """The conditions of the domain that are the same for every row and column of the block."""
        streamed = self.plan.binding.streamed
        return And(*(one for one in And.make_args(domain) if self.axes_within(one) <= {streamed}))

    def rows_inside(self) -> Boolean:
        """The condition that row i of the tile exists (row 0 alone if no axis is bound to rows)."""
        row = self.plan.binding.row
        if row is None:
            return I < 1 if self.plan.block_row > 1 else S.true
        return self.at[row] < self.problem.sizes[row.name] if self.is_ragged(row) else S.true

    def columns_inside(self) -> Boolean:
        """The condition that column e of the tile exists."""
        column = self.plan.binding.column
        if column is None or not self.is_ragged(column):
            return S.true
        return self.at[column] < self.problem.sizes[column.name]

    def first_rows(self) -> Boolean:
        """The condition that the block holds the first rows; on one side of the diagonal, that it lies on it."""
        return self._first_along(self.plan.binding.row)

    def first_columns(self) -> Boolean:
        """The condition that the block holds the first columns; on one side of the diagonal, that it lies on it.

        Of the blocks that hold the same rows, this one alone stores the values that have no columns.
        """
        return self._first_along(self.plan.binding.column)

    def _first_along(self, axis: Axis | None) -> Boolean:
        if self.halved:
            rows, columns = (self.start[one][0] for one in (self.plan.binding.row, self.plan.binding.column) if one)
            return Eq(rows, columns)
        return S.true if axis is None else Eq(self.start[axis][0], 0)

    def is_ragged(self, axis: Axis) -> bool:
        """Tell if a tile may extend past the end of an axis."""
        return axis in self.start and self.problem.sizes[axis.name] % self.start[axis][1] != 0

    @property
    def tiles(self) -> Any:
        """The number of tiles of the streamed axis that one block reads."""
        total = tiles_of(self.problem.sizes[self.plan.binding.streamed.name], self.plan.block_streamed)
        return tiles_of(total, self.plan.segments)


def keep_nan(kind: type[Max | Min], args: list[Expr]) -> Expr:
    """max(a, b) that keeps a NaN, since T.max loses it: a if a ≥ b or a is NaN, else b.

    If b is a number: b if a < b, else a. Of three or more: NaN if any is NaN, else T.max of all. That expression holds
    each argument twice; nested pairs would hold it 3ⁿ times.
    """
    order, strict = (Ge, Lt) if kind is Max else (Le, Gt)
    first, *others = sorted(args, key=lambda one: (one.is_number, str(one)))
    data = [one for one in args if not one.is_number]
    if len(data) > 2:
        return Where(Or(*map(IsNaN, data)), S.NaN, kind(*args))
    for other in others:
        first = Where(strict(first, other), other, first) if other.is_number else \
            Where(Or(order(first, other), IsNaN(first)), first, other)  # fmt: skip
    return first


def may_be_nan(expr: Expr) -> bool:
    """Tell if an expression may be NaN: it is not chosen where it compares with a number, nor made of such choices."""
    if expr.is_number:
        return bool(expr.has(S.NaN))
    if isinstance(expr, Max | Min):
        return any(map(may_be_nan, expr.args))
    if isinstance(expr, Let):
        return may_be_nan(expr.expr)
    if not isinstance(expr, Where):
        return True
    condition, chosen, other = expr.args
    tested = any(isinstance(part, Relational | IsFinite) and chosen in part.args and not isinstance(part, Ne)
                 for part in And.make_args(condition))  # fmt: skip
    return may_be_nan(other) or (may_be_nan(chosen) and not tested)


def usable_scale(h: Expr) -> Expr:
    """A running scale, or 1 if it is 0 or not finite: no element met so far gives a scale."""
    return Where(And(IsFinite(h), Ne(h, 0)), h, S.One)


def interleaved_axis(index: Expr) -> tuple[Axis, int] | None:
    """(n, s) of an index s·n + k with 0 ≤ k < s; None for any other index."""
    if isinstance(index, Axis):
        return index, 1
    axes = free_axes(index)
    if len(axes) != 1 or not index.is_polynomial(*axes):
        return None
    [axis] = axes
    stride, k = index.coeff(axis, 1), index.coeff(axis, 0)
    plain = stride.is_Integer and k.is_Integer and (stride * axis + k - index).expand() == 0
    return (axis, int(stride)) if plain and 0 <= k < stride else None


def output_name(name: str, problem: Problem) -> str:
    """The name of an output in a kernel: its own, unless an input has that name."""
    return kernel_name(f"{name}_out" if name in problem.dtypes else name)
