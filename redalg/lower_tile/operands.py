"""Operands of contractions and producers: tiles of inputs in shared memory, loaded or computed.

What does not depend on the streamed axis is loaded before the loop (MCFuser's scope of a statement).

r(i)·f(i, j)   →   r[i]·f(i, j), r made once     before the loop; exact but for a rounding, where r reads inputs alone
"""

from __future__ import annotations

from dataclasses import replace
from typing import final

from sympy import Eq, Expr, Integer, Mul, S, Symbol
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.decompose import Producer, Reduction
from redalg.errors import PlanError
from redalg.expression import Axis, Cast, Element, Value, Where
from redalg.expression.contents import elements_of, free_axes, values_of
from redalg.incremental.factors import grouped
from redalg.lower_tile.assembly import Assembly
from redalg.lower_tile.moves import numeric_factor
from redalg.lower_tile.program import Contract, Copy, Fill, Load, Loop, Parallel, Region, Statement, Store
from redalg.lower_tile.space import E_, I, J, Space, U
from redalg.strategies.products import EIGHT_BITS, HOLDS
from redalg.strategies.tiles import padded


def node_axes(indices: tuple[Expr, ...]) -> tuple[Axis, ...]:
    """The axes of a tile, one a dimension."""
    return tuple(axis for one in indices for axis in free_axes(one))


@final
class Operands:
    """Loads tiles into `before` (ahead of the loop) or into the loop's body."""

    def __init__(self, assembly: Assembly, before: list[Statement]) -> None:
        self.assembly, self.before = assembly, before
        self.tiles: dict[Region, str] = {}

    # ---- tiles of inputs ---------------------------------------------------------------------------------------------

    def staged(self, space: Space, expr: Basic, body: list[Statement], least: int = 2) -> Space:
        """The space with every floating-point element of the expression that spans `least` axes of the tile staged."""
        found = {}
        for element in sorted(elements_of(expr), key=str):
            part = space.region(element)
            floating = space.problem.dtypes[element.name].startswith(("float", "bfloat"))
            if part is not None and floating and len(part[1]) >= least and element not in space.staged:
                found[element] = (self.load(space, element, body), part[1])
        return space.with_staged(found)

    def load(self, space: Space, element: Element, body: list[Statement]) -> str:
        """A tile of an input in shared memory, loaded once, ahead of the loop where it does not move with it."""
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
            target = body if binding.streamed in node_axes(indices) else self.before
            target.append(Copy(region, name))
        return self.tiles[region]

    def _by_lane(self, space: Space, indices: tuple[Expr, ...]) -> bool:
        """Whether a tile is read by the lane that loads it: registers then hold it."""
        binding = space.plan.binding
        return not space.plan.multiplies and indices == (binding.row, binding.streamed)

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

        It is 0 where `live` does not hold: a weight of 0 does not hide a NaN there. That takes a tile of its own, since
        what a pipeline loads ahead may not be overwritten.
        """
        dtype = dtype or operand_dtype(space, expr)
        if isinstance(expr, Element) and dtype == space.problem.dtypes[expr.name] and live is S.true:
            part = space.region(expr)
            if part is not None and part[1] == axes:
                return self.load(space, expr, body)
        inner = self.staged(space, expr, body)
        shape = [space.start[axis][1] if axis in space.start else space.plan.block_row for axis in axes] if axes else []
        shape = shape if len(shape) == len(indices) else [space.plan.block_row, *shape]
        name = self.assembly.buffer("operand", "shared", shape, dtype)
        read = inner.read(expr) if live is S.true else Where(inner.read(live), inner.read(expr), S.Zero)
        for axis in axes:
            if space.ragged(axis):
                read = Where(inner.at[axis] < space.problem.sizes[axis.name], read, S.Zero)
        target = body if space.plan.binding.streamed in free_axes(expr) else self.before
        target.append(Parallel(tuple(zip(indices, shape, strict=True)), (Store(name, indices, read),)))
        return name

    def made_of(self, space: Space, read: Expr, dtype: str, body: list[Statement]) -> str:
        """A shared tile of rows and streamed elements that holds an expression in i, j, in the given dtype."""
        key = Load(f"operand {dtype}", read)
        if key not in self.assembly.made:
            shape = (space.plan.block_row, space.plan.block_streamed)
            name = self.assembly.made[key] = self.assembly.buffer("operand", "shared", shape, dtype)
            store = Store(name, (I, J), self.assembly.across(self._hoisted(read), body))
            body.append(Parallel(((I, shape[0]), (J, shape[1])), (store,)))
        return self.assembly.made[key]

    def _hoisted(self, read: Expr) -> Expr:
        """r(i)·f(i, j)  →  r computed for every row, ahead of the loop; where it reads inputs alone."""
        if isinstance(read, Where):
            return Where(read.args[0], self._hoisted(read.args[1]), read.args[2])
        if isinstance(read, Cast):
            return Cast(self._hoisted(read.args[0]), read.dtype)
        rows = [one for one in Mul.make_args(read) if not one.has(J)]
        factor = Mul(*rows)
        names = {one.name for one in factor.atoms(Load)}
        if not names or any(self.assembly.holds(name) for name in names):
            return read
        rest = Mul(*(one for one in Mul.make_args(read) if one.has(J)))
        return rest * self.assembly.shared_row("factor", factor, self.before, note=f"{factor}")

    def head(self, space: Space, expr: Expr, live: Boolean, body: list[Statement]) -> str:
        """A tile in registers of columns and streamed elements that holds a term, 0 where it does not count."""
        inner, plan = self.staged(space, expr, body), space.plan
        read = inner.read(expr) if live is S.true else Where(live, inner.read(expr), S.Zero)
        shape = (plan.block_column, plan.block_streamed)
        name = self.assembly.buffer("head", "fragment", shape, space.problem.compute)
        body.append(Parallel(((E_, shape[0]), (J, shape[1])), (Store(name, (E_, J), read),)))
        return name

    def right(
        self, space: Space, expr: Expr, dtype: str, body: list[Statement], live: Boolean = S.true
    ) -> tuple[str, bool]:
        """The second factor of a contraction as a shared tile, and whether it lies with its columns first.

        8-bit matrix instructions want that; otherwise it lies as its tensor does.
        """
        binding = space.plan.binding
        if binding.column is None:
            raise AssertionError("a contraction without columns")
        turned = dtype in EIGHT_BITS or any(
            (part := space.region(one)) is not None and part[1] == (binding.column, binding.streamed)
            for one in elements_of(expr)
        )
        axes, indices = ((binding.column, binding.streamed), (E_, J)) if turned else (
            (binding.streamed, binding.column), (J, E_))  # fmt: skip
        return self.operand(space, expr, axes, indices, body, dtype=dtype, live=live), turned

    # ---- producers ---------------------------------------------------------------------------------------------------

    def produce(self, space: Space, producer: Producer, body: list[Statement]) -> Space:
        """A producer's tile: a contraction where its term is a product of a row factor and a streamed factor."""
        cascade = producer.cascade
        if cascade.producers:
            raise PlanError(
                f"producer `{producer.name}` has producers of its own, which the tile program does not hold yet. "
                'Run it with backend="torch".'
            )
        inner, expr = self._inner(space, cascade.axis), cascade.outputs[0].expr
        values: dict[Value, Expr] = {}
        for reduction in cascade.reductions:
            wanted = producer.name if expr == reduction.value else f"{producer.name}_{reduction.name}"
            name = self._reduced(inner.with_values(values), reduction, cascade.axis, wanted, body)
            values[reduction.value] = Load(name, I, J)
        if expr in values:
            return space.with_values({producer.value: values[expr]})
        read = inner.with_values(values).read(expr)
        if numeric_factor(read)[1].is_Atom or isinstance(numeric_factor(read)[1], Load):
            return space.with_values({producer.value: read})  # a number times a tile needs no tile of its own
        return space.with_values({producer.value: Load(self.assembly.tile_of(producer.name, read, body), I, J)})

    def _inner(self, space: Space, axis: Axis) -> Space:
        """The space with a producer's axis along u, padded to what matrix instructions take."""
        length = padded(space.problem.sizes[axis.name], 16)
        return replace(space, at={**space.at, axis: U}, start={**space.start, axis: (S.Zero, length)})

    def _reduced(self, space: Space, reduction: Reduction, axis: Axis, wanted: str, body: list[Statement]) -> str:
        sides = self._sides(space, reduction.term) if reduction.monoid.name == "sum" else None
        name = self.assembly.tile(wanted, note=f"{reduction.monoid} over {axis}")
        if sides is None:
            body += self._serial(space, reduction, axis, name, body)
            return name
        row, streamed = sides
        binding = space.plan.binding
        rows = (binding.row, axis) if space.by_row(row) else (axis,)
        dtype = operand_dtype(space, row)
        if dtype in EIGHT_BITS and not (space.plan.device.fp8 and dtype in HOLDS and space.start[axis][1] % 32 == 0):
            dtype = "float16"
        elif dtype == "float16" and not (isinstance(row, Element) and isinstance(streamed, Element)):
            dtype = space.problem.compute  # what is computed may not fit: float16 holds nothing above 65504
        a = self.operand(space, row, tuple(one for one in rows if one is not None), (I, U), body, dtype=dtype)
        b = self.operand(space, streamed, (binding.streamed, axis), (J, U), body, dtype=dtype)
        body.append(Contract(a, b, name, transposed=True, clear=True))
        return name

    def _sides(self, space: Space, term: Expr) -> tuple[Expr, Expr] | None:
        """(row factor, streamed factor) of a term that is a product of the two, in one dtype."""
        factors = grouped(term, ())
        streamed = space.plan.binding.streamed
        if len(factors) != 2 or values_of(term):
            return None
        b, a = sorted(factors, key=lambda one: streamed not in free_axes(one))
        if streamed not in free_axes(b) or streamed in free_axes(a) or space.by_row(b):
            return None
        return (a, b) if operand_dtype(space, a) == operand_dtype(space, b) else None

    def _serial(
        self, space: Space, reduction: Reduction, axis: Axis, name: str, body: list[Statement]
    ) -> list[Statement]:
        """name[i, j] := ⊕_u term, one u after the other."""
        inner = self.staged(space, reduction.term, body)
        term = inner.read(reduction.term)
        held = Load(name, I, J)
        made = reduction.monoid.combine(held, term)
        if space.ragged(axis):
            made = Where(U < space.problem.sizes[axis.name], made, held)  # noqa: SIM300 - index first, as elsewhere
        length = space.start[axis][1]
        step = self.assembly.over_tile(name, made)
        return [Fill(name, reduction.monoid.identity), Loop(U, Integer(length), 0, (step,), pipelined=False)]


def operand_dtype(space: Space, expr: Expr) -> str:
    """The dtype in which a factor enters a contraction: its own when it is one input's, else the arithmetic's."""
    found = {space.problem.dtypes[one.name] for one in elements_of(expr)}
    found = {dtype for dtype in found if dtype.startswith(("float", "bfloat"))}
    if isinstance(expr, Cast):
        return expr.dtype
    return found.pop() if len(found) == 1 else space.problem.compute


def nonzero(weight: Expr, term: Expr) -> Expr:
    """term, or 0 where its weight is exactly 0 (whatever else it holds)."""
    return Where(Eq(weight, 0), S.Zero, term)
