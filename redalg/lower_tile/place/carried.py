"""Outputs that carry the streamed axis: a second pass over the row's tiles, after the state is finished.

    out[b, n] = f(x[b, n], d[b])      one loop over the tiles again, or the tile that is still in registers

Expressions that depend on the row alone leave the elementwise loop:

    x·g/v → r = g/v;  x·r        exact but for one rounding; where 1/v cannot overflow: v is a root, or at least 1
    x/v   → r = 1/(s·v);  (x·r)·s    exact but for one rounding; v of a tensor in float32: s is 2^64 where v is small,
                                     2^−64 where it is large, else 1, so that r is neither infinite nor subnormal
    f(d)  → r = f(d);  r         exact
    (x − c) − δ → r = c + δ;  x − r    where c + δ is the mean of x, δ = Σ (x − c)/n, and x and the output have 16 bits:
                                       r is off by its last digit in float32, less than a thousandth of the distance
                                       of neighbouring x

A weight of the state has the same form in an output as in the state:

    exp(q·(u − m)) → exp(q·(u − safe(m)))       m the extremum of u: where m is −∞ so is u, and both give 0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import final

from sympy import Add, And, Expr, Float, Mul, Or, Pow, S, Symbol, exp, sympify

from redalg.decompose.domain import live_term
from redalg.expression import Cast, Value, Where
from redalg.expression.contents import values_of
from redalg.expression.dtypes import DTYPES, is_float
from redalg.incremental.combine.finish import output_program, value_of_output
from redalg.incremental.combine.let import Assign
from redalg.incremental.combine.programs import programs
from redalg.incremental.form import FormOutput, FusedForm
from redalg.lower_tile.ir.program import Copy, Loop, Parallel, Region, Statement, Store
from redalg.lower_tile.ir.scalars import Is, Kept, Load, ScaledExp
from redalg.lower_tile.passes.loops import over_tiles
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.data import Data
from redalg.lower_tile.place.few_digits import has_few_digits
from redalg.lower_tile.place.frames import Within
from redalg.lower_tile.place.lines import Placer
from redalg.lower_tile.place.operands import Operands
from redalg.lower_tile.place.space import I, J, Space
from redalg.lower_tile.place.sums import Sums, add_parts
from redalg.lower_tile.place.whole_rows import stage_rows
from redalg.strategies.device import BANK_BYTES
from redalg.strategies.plan import Plan
from redalg.strategies.rules.narrow import NARROW, WIDE_COLUMNS

MOST_TURNED_BYTES = 16 << 10
"""Bytes of an output's tile in shared memory, at most."""
LARGE = Float(2.0**64)
"""The size beyond which a divisor in float32 is scaled before its reciprocal is taken."""


def carries(form: FusedForm) -> bool:
    """Tell if any output carries the streamed axis."""
    return any(one.carries for one in form.outputs)


def carries_after(form: FusedForm, plan: Plan) -> bool:
    """Tell if outputs that carry the streamed axis are written after the loop: they need the finished state.

    Where all of them need the element alone, a loop that keeps states in lanes writes them.
    """
    carried = [one for one in form.outputs if one.carries]
    in_loop = plan.level == "thread" and not any(values_of(one.expr) | values_of(one.empty) for one in carried)
    return bool(carried) and not in_loop


@final
class Carried:
    """Build the second pass from the finished values in the space; its tiles make the values of forms `within`."""

    def __init__(
        self, form: FusedForm, assembly: Assembly, space: Space, sums: Mapping[Value, Sums] | None = None,
        within: Sequence[Within] = (), *, dtypes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.within, self.dtypes = within, dtypes
        self.form, self.assembly, self.space, self.sums = form, assembly, space, sums or {}
        self.before: list[Statement] = []
        self.factors: dict[Expr, Load] = {}
        weights = (one.value for one in form.accumulators if one.is_bounded)
        self.large = {space.values[value] for value in weights if value in space.values}
        self.moves = {space.values[value] for value in moves_of_means(form) if value in space.values}

    def build(self, tile: Symbol) -> list[Statement]:
        """The statements of the pass: a loop over `tile`, or no loop if one tile holds the row."""
        body = self.in_tile()
        if self.space.plan.level == "row":
            return [*self.before, *body]
        if self.space.plan.is_serial:
            body = [Loop(J, self.space.rest_of_tile(), 0, tuple(body), pipelined=False)]
        span = (S.Zero, sympify(self.space.tiles))
        return [*self.before, over_tiles(tile, span, self.space.plan.stages, tuple(body))]

    def in_tile(self) -> list[Statement]:
        """The statements of one tile; what leaves the loop over tiles is in `before`."""
        body = list[Statement]()
        if self.within:
            operands = Operands(self.assembly, self.before)
            self.space = stage_rows(self.within, self.form, self.space, operands, body)
        placer = self._placer(body)
        placer.build({})
        for output in self.form.outputs:
            if output.carries:
                read = placer.result(value_of_output(output))
                if isinstance(read, Cast) and is_float(read.dtype):  # the store rounds; to integers it truncates
                    read = read.args[0]
                if has_few_digits(self.dtypes.get(output.name, self.assembly.compute)):
                    read = self.about_means(read)
                body += self._store(output, self.hoist(read), placer.space)
        return body

    def _placer(self, body: list[Statement]) -> Placer:
        """The program of these outputs, and of the producers that no tile in registers holds."""
        produced = {one.value for one in self.form.cascade.producers}
        given = add_parts(self.sums, self.space, self.assembly, body) | dict(self.space.values)
        how = {"carries": True, "empty": self.space.problem.empty, "scaled": False}
        program = programs(self.form).of(output_program, **how).with_inputs(produced & set(given))
        lets = tuple(replace(let, expr=self.about_pivots(let.expr)) if isinstance(let, Assign) else let
                     for let in program.lets)  # fmt: skip
        program, data = replace(program, lets=lets), Data(self.form, Operands(self.assembly, self.before))
        space = self.space
        if self.form.is_elementwise and space.plan.binding.row is None:  # a line is the tile
            for output in self.form.outputs:
                space = data.operands.stage(space, output.expr, body, least=1)
        return Placer(program, self.assembly, space, given, data=data, named_lines=produced, body=body)

    def _store(self, output: FormOutput, read: Expr, space: Space) -> list[Statement]:
        """Store an output at every element of the tile: a tile in registers is copied, 16 bytes at a time."""
        guard = space.inside() & space.rows_inside() & space.read(output.once)
        if self.form.is_elementwise and (indices := self._tile_indices(output, space)):
            tile = self.assembly.new(f"{output.name}_tile", *indices)
            return [self.assembly.stores((tile, read)), self._copy_of(tile.name, output, space)]
        if self._is_turned(output, space):
            return self._turn(output, read, space)
        if self._is_narrow(output, space):
            return self._store_side_by_side(output, read, space)
        if space.plan.binding.row is not None and space.plan.binding.row not in output.axes:
            guard = guard & (I < 1)
        place = tuple(space.read(one) for one in output.places or output.axes)
        store = Store(space.output_name(output.name), place, read, guard)
        extents = self.assembly.extents
        return [Parallel(tuple((one, extents[one]) for one in self.assembly.lane), (store,))]

    def _is_turned(self, output: FormOutput, space: Space) -> bool:
        """Tell if neighbouring threads have neighbouring rows, and an output neighbouring elements of a row."""
        plan, binding = space.plan, space.plan.binding
        within = tuple(axis for axis in output.axes if axis in space.start)
        turned = plan.along_rows and not plan.is_serial and within == (binding.row, binding.streamed)
        plain = not output.places and output.once is S.true and binding.packing is None and output.name in self.dtypes
        small = turned and plain and self._tile_bytes(output, plan) <= MOST_TURNED_BYTES
        return small and output.axes[-1] == binding.streamed

    def _tile_bytes(self, output: FormOutput, plan: Plan) -> int:
        return plan.block_row * plan.block_streamed * DTYPES[self.dtypes[output.name]].bytes

    def _turn(self, output: FormOutput, read: Expr, space: Space) -> list[Statement]:
        """Store a tile through shared memory, of which neighbouring threads then write neighbouring elements.

        From registers each thread would write to a row of its own: a sector of 32 bytes for every element. A bank of
        four bytes more keeps the elements of a row in banks of their own.
        """
        extents, dtype = self.assembly.extents, self.dtypes[output.name]
        shape = (extents[J], extents[I] + max(1, BANK_BYTES // DTYPES[dtype].bytes))
        shared = self.assembly.buffer(f"{output.name}_shared", "shared", shape, dtype)
        keep = Store(shared, (J, I), read)
        place = tuple(space.read(axis) for axis in output.axes)
        store = Store(space.output_name(output.name), place, Load(shared, J, I), space.inside() & space.rows_inside())
        loops = (((J, extents[J]), (I, extents[I])), keep), (((I, extents[I]), (J, extents[J])), store)
        return [Parallel(indices, (each,)) for indices, each in loops]

    def _is_narrow(self, output: FormOutput, space: Space) -> bool:
        """Tell if a tile has short rows of 4 bytes an element, none of which begins where 16-byte loads do."""
        plan, length = space.plan, space.problem.sizes[space.plan.binding.streamed.name]
        ragged = plan.level == "row" and plan.device.target != "c" and isinstance(length, int) and length % 4 != 0
        in_order = self._tile_indices(output, space) == (I, J)
        return (
            ragged
            and in_order
            and plan.block_row > 1
            and WIDE_COLUMNS <= plan.block_streamed <= NARROW
            and DTYPES[self.dtypes.get(output.name, "float64")].bytes == BANK_BYTES
        )

    def _store_side_by_side(self, output: FormOutput, read: Expr, space: Space) -> list[Statement]:
        """Store a tile of short rows through shared memory, which a copy then writes in the order of addresses.

        Straight from registers a warp would have to hold a row alone to do so, which most of its lanes are beyond, and
        whose sums take a word from every lane (H200, float32: layer norms of 500000 x 17 take 0.45 of the time, of
        200000 x 33 0.33, softmaxes 0.67 and 0.43).
        """
        extents = self.assembly.extents
        shared = self.assembly.buffer(
            f"{output.name}_shared", "shared", (extents[I], extents[J]), self.dtypes[output.name]
        )
        keep = Parallel(((I, extents[I]), (J, extents[J])), (Store(shared, (I, J), read),))
        return [keep, self._copy_of(shared, output, space)]

    def _copy_of(self, tile: str, output: FormOutput, space: Space) -> Copy:
        """The copy of a tile to its place in an output."""
        place = tuple(space.start.get(axis, space.at[axis]) for axis in output.axes)
        return Copy(tile, Region(space.output_name(output.name), place))

    def _tile_indices(self, output: FormOutput, space: Space) -> tuple[Symbol, ...]:
        """The indices of the tile of an output that is one block of it; none if it is no such."""
        binding = space.plan.binding
        within = tuple(axis for axis in output.axes if axis in space.start)
        plain = within == tuple(axis for axis in (binding.row, binding.streamed) if axis is not None)
        known = not output.places and output.once is S.true and binding.packing is None
        return tuple(I if axis == binding.row else J for axis in within) if plain and known else ()

    def about_pivots(self, expr: Expr) -> Expr:
        """The expression with the state's weights rewritten: they subtract pivots that are safe to subtract."""
        weights = {(pivot, q) for one in self.form.accumulators for pivot, q in one.weight if not pivot.has_slot}
        weights_of = {}
        for node in expr.atoms(exp):
            for pivot, q in weights:
                u = (node.args[0] + q * pivot.source) / q
                if pivot.base in (u, live_term(u, self.form.cascade.domain)):
                    safe = Where(Is(pivot.source, S.NegativeInfinity), S.Zero, pivot.source)
                    weights_of[node] = ScaledExp(u, safe, q)
        rewritten: Expr = expr.xreplace(weights_of)
        return rewritten

    # ---- what leaves the loop ----------------------------------------------------------------------------------------

    def hoist(self, node: Expr) -> Expr:
        """The expression with row buffers in place of the parts that depend on the row alone."""
        if self.is_of_row(node):
            return self._row(node)
        if isinstance(node, Mul):
            rows = [one for one in node.args if self.is_of_row(one) and self._is_safe(one)]
            divisors = [one.base for one in node.args if one not in rows and self._is_divided(one)]
            rest = [one for one in node.args if one not in rows and 1 / one not in divisors]
            factors = [self._row(Mul(*rows))] if rows else []
            return self._quotient(Mul(*factors, *(self.hoist(one) for one in rest)), divisors)
        if not node.args or isinstance(node, Load):
            return node
        args = [self.hoist(one) if isinstance(one, Expr) and not isinstance(one, str) else one for one in node.args]
        return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)

    def about_means(self, expr: Expr) -> Expr:
        """The expression with x − r in place of (x − c) − δ, where r = c + δ is a mean and x has few digits."""
        joined = dict[Expr, Expr]()
        for node in expr.atoms(Add):
            moves = [one for one in node.args if -one in self.moves]
            others = [one for one in node.args if one not in moves]
            if not moves or len(others) != 1 or not isinstance(others[0], Kept):
                continue
            difference = others[0].args[0]
            elements = [one for one in Add.make_args(difference) if not self.is_of_row(one)]
            if len(elements) == 1 and self._is_read_with_few_digits(elements[0]):
                joined[node] = elements[0] + Kept(Add(*moves, difference - elements[0]))
        return expr.xreplace(joined)

    def _is_read_with_few_digits(self, element: Expr) -> bool:
        known = isinstance(element, Load) and self.assembly.holds(element.name)
        return known and has_few_digits(self.assembly.buffers[element.name].dtype)

    def _is_safe(self, factor: Expr) -> bool:
        """Tell if a factor may be computed apart: a reciprocal may not overflow if the quotient does not."""
        if not (isinstance(factor, Pow) and factor.exp.is_negative):
            return True
        root = factor.exp.is_Rational and abs(factor.exp) <= S.Half
        return bool(root) or (factor.exp is S.NegativeOne and factor.base in self.large)

    def is_of_row(self, node: Expr) -> bool:
        """Tell if an expression depends on the row alone: on row buffers, or on what tensors have for it."""
        if not self.form.is_elementwise:
            return of_row(node)
        has_rows = self.space.plan.binding.row is not None  # without rows a line is the tile: no buffer has a row
        return has_rows and J not in node.free_symbols and node.has(Load)

    def _is_divided(self, factor: Expr) -> bool:
        """Tell if a factor is the reciprocal of what tensors have for the row, of any size in float32."""
        reciprocal = isinstance(factor, Pow) and factor.exp is S.NegativeOne
        single = self.form.is_elementwise and self.assembly.compute == "float32"
        return reciprocal and single and self.is_of_row(factor)

    def _quotient(self, product: Expr, divisors: Iterable[Expr]) -> Expr:
        """A product over row values v: (product·r)·s with r = 1/(s·v), which no v makes infinite or subnormal."""
        for divisor in divisors:
            v = self._row(divisor)
            small, large = And(v > -1 / LARGE, v < 1 / LARGE), Or(v > LARGE, v < -LARGE)
            scale = self._row(Where(small, LARGE, Where(large, 1 / LARGE, S.One)))
            product = Kept(product * self._row(1 / (scale * v))) * scale
        return product

    def _row(self, node: Expr) -> Expr:
        plain = node.as_coeff_Mul()[1] if self.form.is_elementwise else node
        if node.is_number or isinstance(plain, Load):
            return node
        if node not in self.factors:
            self.factors[node] = self.assembly.new("factor", I)
            self.before.append(self.assembly.stores((self.factors[node], node)))
        return self.factors[node]


def moves_of_means(form: FusedForm) -> set[Value]:
    """The values δ = Σ (x − c)/n by which a mean lies beside its pivot c."""
    pivots = {one.value for one in form.slot_pivots}
    counts = {one.value for one in form.accumulators if one.term is S.One}
    differences = {one.value for one in form.accumulators if {-part for part in Add.make_args(one.term)} & pivots}
    shares = {value / count for value in differences for count in counts}
    return {one.value for one in form.assignments if one.expr in shares}


def of_row(node: Expr) -> bool:
    """Tell if an expression consists of numbers and of row buffers."""
    return not node.free_symbols - {I} and all(one.indices in ((), (I,)) for one in node.atoms(Load))
