"""The data of a tile: what a program reads of its inputs and producers, and sums that are added where they are stored.

Σ_j a(i, j)·b(j, e)     c += A @ B: A in the dtype of its partner, in registers if it is a 16-bit weight
Σ_j a(j, i)·b(j, e)     c += Aᵀ @ B on tensor cores, of tiles as they lie
rounded at a scale h    c += (A @ B)/h, A = cast(g·h)
Σ_j f(e, j)             a sum for every column
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import final

from sympy import Expr, S, Symbol
from sympy.core.basic import Basic

from redalg.decompose.domain import live_term
from redalg.expression import Axis, Cast, Element, RunningCast, Value, Where
from redalg.expression.dtypes import DTYPES, is_eight_bits
from redalg.incremental.combine.let import Assign, Fold
from redalg.incremental.form import Accumulator, FusedForm
from redalg.lower_tile.ir.program import Contract, Copy, Fill, Parallel, ReduceTile, Statement, Store
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.expressions import divides, drop_rounding
from redalg.lower_tile.place.operands import Operands
from redalg.lower_tile.place.space import E_, I, J, Space, usable_scale
from redalg.strategies.rules.products import operands_dtype

Read = Callable[[Expr], Expr]
HALF = 2
"""Bytes of the numbers of which matrix instructions take tiles that lie either way."""


class Pending(ABC):
    """A sum over a tile that is computed where it is stored.

    Attributes:
        indices: those of a buffer of such sums.
        operand: what it reads of the state.
        apart: it needs a buffer of its own.
        scale: it is the sum over the tile times this.
    """

    indices: tuple[Symbol, ...]
    operand: Expr
    apart = False
    scale: Expr = S.One

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of a buffer of such sums."""

    @abstractmethod
    def first(self, body: list[Statement]) -> None:
        """Append what comes before the target is scaled."""

    @abstractmethod
    def into(self, target: str, body: list[Statement], *, clear: bool) -> None:
        """Append target := (0 if clear else target) + the sum."""


@final
class Product(Pending):
    """A matrix product of a factor of rows and one of columns."""

    indices = (I, E_)

    def __init__(self, data: Data, accumulator: Accumulator, left: Expr | Element, scale: Expr, space: Space) -> None:
        self.form, self.operands, self.assembly = data.form, data.operands, data.operands.assembly
        self.accumulator, self.left, self.scale, self.space = accumulator, left, scale, space
        self.dtype = operands_dtype(accumulator, self.form, space.problem, space.plan.device)
        self.operand = S.Zero if isinstance(left, Element) else left * scale
        self.apart = scale is not S.One or is_eight_bits(self.dtype)
        self.name = ""

    @property
    def lies_depth_first(self) -> bool:
        """Tell if the first operand is a tile of an input whose streamed axis comes first."""
        binding = self.space.plan.binding
        return isinstance(self.left, Element) and axes_of_tile(self.left, self.space) == (binding.streamed, binding.row)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.space.plan.block_row, self.space.plan.block_column)

    def first(self, body: list[Statement]) -> None:
        if isinstance(self.left, Element):
            self.name = self.operands.load(self.space, self.left, body)
        elif self.accumulator.weight or self.left in self.assembly.tiles:
            term = self.assembly.tile_of("term", self.left, body)
            self.name = self._copy_operand(term.name, body, stays=bool(self.accumulator.weight))
        else:
            term = drop_rounding(self.left, self.dtype)
            if self._is_of_producers(term):
                lines = self.operands.apart.of(self.space, term, body)
                self.name = self._copy_operand(self.assembly.tile_of("term", lines, body).name, body, stays=True)
            else:
                apart = self.space.plan.tensor_cores and divides(term)  # a quotient of lines is made once for each line
                lines = self.operands.apart.of(self.space, term, body) if apart else term
                self.name = self.operands.tile_in(self.space, lines, self.dtype, body)

    def _is_of_producers(self, term: Expr) -> bool:
        """Tell if an operand for tensor cores is made of products in registers, by functions or numbers of rows."""
        reads = term.atoms(Load)
        lines = {name for name, _ in self.space.staged.values()}
        held = {load for load in reads if self.assembly.holds(load.name) and load.name not in lines}
        in_registers = {one.name for one in held if self.assembly.is_fragment(one.name) and one.indices == (I, J)}
        computed = held < reads or bool(in_registers & {*self.assembly.tiles.values()})
        return bool(in_registers) and computed and self.space.plan.tensor_cores and not is_eight_bits(self.dtype)

    def into(self, target: str, body: list[Statement], *, clear: bool) -> None:
        domain = self.form.cascade.domain
        factor, live = live_term(self.accumulator.factors[1], domain), self.space.alike(domain)
        right, turned = self.operands.right(self.space, factor, self.dtype, body, live)
        depth_first = self.lies_depth_first
        if depth_first and clear:
            body.append(Fill(target, S.Zero))
        clear = clear and not depth_first
        body.append(Contract(self.name, right, target, transposed=turned, clear=clear, turned=depth_first))

    def _copy_operand(self, source: str, body: list[Statement], *, stays: bool) -> str:
        """The first operand in the dtype of its partner: in registers if it may stay, of 16 bits for tensor cores.

        With 8 bits, no layout of registers serves both a product's result and the next product's operand.
        """
        key = Load(f"operand {self.dtype} of {source}")
        if key not in self.assembly.tiles:
            plan, narrow = self.space.plan, self.dtype != self.space.problem.compute and not is_eight_bits(self.dtype)
            stays = stays and plan.tensor_cores and plan.warps == "rows" and narrow
            shape, note = (plan.block_row, plan.block_streamed), f"{source} as {self.dtype}"
            name = self.assembly.buffer("operand", "fragment" if stays else "shared", shape, self.dtype, note)
            self.assembly.tiles[key] = name
            body.append(Copy(source, name))
        return self.assembly.tiles[key]


@final
class ColumnSum(Pending):
    """A sum over the tile for every column."""

    indices = (E_,)

    def __init__(self, term: Expr, space: Space, assembly: Assembly) -> None:
        self.operand, self.space, self.assembly = term, space, assembly

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.space.plan.block_column,)

    def first(self, body: list[Statement]) -> None:
        """Append nothing."""

    def into(self, target: str, body: list[Statement], *, clear: bool) -> None:
        shape = (self.space.plan.block_column, self.space.plan.block_streamed)
        name = self.assembly.buffer("head", "fragment", shape, self.space.problem.compute)
        body.append(Parallel(((E_, shape[0]), (J, shape[1])), (Store(name, (E_, J), self.operand),)))
        body.append(ReduceTile("sum", name, target, clear=clear))


@final
@dataclass(frozen=True)
class Data:
    """The data of a tile of a form.

    Attributes:
        nan: buffers that count the NaN which extrema meet.
        columns: the accumulators that are matrix products.
        onto: producers that are added to the tiles of others.
        part: the number of the part of an inner axis, if a kernel sums parts.
    """

    form: FusedForm
    operands: Operands
    nan: Mapping[Value, Load] = field(default_factory=dict)
    columns: frozenset[Value] = frozenset()
    onto: Mapping[Value, Value] = field(default_factory=dict)
    part: Symbol | None = None

    def stage(self, space: Space, expr: Basic, body: list[Statement]) -> Space:
        """The space with tiles for the elements that an expression reads, if the form has no producers.

        Beside their contractions, masks and biases are read straight from their tensors.
        """
        return space if self.form.cascade.producers else self.operands.stage(space, expr, body)

    def is_product(self, fold: Fold) -> bool:
        """Tell if a fold is a matrix product."""
        return fold.folding.of in self.columns

    def product(
        self, fold: Fold, lines: Mapping[Value, Assign], space: Space, read: Read, body: list[Statement]
    ) -> Product:
        """The matrix product of a fold."""
        accumulator = next(one for one in self.form.accumulators if one.value == fold.folding.of)
        left = fold.folding.factors[0]
        plain = self._plain(accumulator, space)
        condition, factor = _split_mask(left, lines)
        if plain is None and isinstance(factor, RunningCast) and not accumulator.weight:
            usable = self._scale(read(factor.args[1]), accumulator, body)
            term = Cast(read(factor.args[0]) * usable, factor.dtype)
            term = term if condition is S.true else Where(read(condition), term, S.Zero)
            return Product(self, accumulator, term, 1 / usable, space)
        return Product(self, accumulator, read(left) if plain is None else plain, S.One, space)

    def _plain(self, accumulator: Accumulator, space: Space) -> Element | None:
        """The first operand if it is an unchanged tile of an input, which is 0 outside the input."""
        first, problem = accumulator.factors[0], space.problem
        if accumulator.weight or self.form.cascade.domain is not S.true or not isinstance(first, Element):
            return None
        plan, axes = space.plan, axes_of_tile(first, space)
        row, column, streamed = plan.binding.row, plan.binding.column, plan.binding.streamed
        dtype = operands_dtype(accumulator, self.form, problem, plan.device)
        [_, second] = accumulator.factors
        beside = axes_of_tile(second, space) if isinstance(second, Element) else None
        turns = plan.tensor_cores and DTYPES[dtype].bytes == HALF and beside == (streamed, column)
        fits = axes == (row, streamed) or (turns and axes == (streamed, row))
        return first if fits and dtype == problem.dtypes[first.name] else None

    def _scale(self, read: Expr, accumulator: Accumulator, body: list[Statement]) -> Expr:
        """The running scale of a rounding, in a row buffer; 1 as long as no element gives a scale."""
        assembly, key = self.operands.assembly, Load("scale", read)
        if key not in assembly.tiles:
            cast = accumulator.factors[0]
            note = f"rounded at {cast.args[1]}" if isinstance(cast, RunningCast) else ""
            assembly.tiles[key] = assembly.shared_row("scale", usable_scale(read), body, note=note).name
        return Load(assembly.tiles[key], I)


def axes_of_tile(element: Element, space: Space) -> tuple[Axis, ...] | None:
    """The axes of an input's tile, in the order in which it lies; None if it is none."""
    part = space.region(element)
    return None if part is None else part[1]


def _split_mask(factor: Expr, lines: Mapping[Value, Assign]) -> tuple[Basic, Expr]:
    """The condition and the factor of Where(condition, factor, 0), as lines define them; true of any other."""
    condition: Basic = S.true
    while True:
        if isinstance(factor, Value) and factor in lines:
            factor = lines[factor].expr
        elif isinstance(factor, Where) and factor.args[2] is S.Zero and condition is S.true:
            condition, factor = factor.args[:2]
        else:
            return condition, factor
