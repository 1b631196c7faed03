"""Outputs that carry the streamed axis: a second pass over the row's tiles, after the state is finished.

    out[b, n] = f(x[b, n], d[b])      one loop over the tiles again, or the tile that is still in registers

Expressions that depend on the row alone leave the elementwise loop:

    x·g/v → r = g/v;  x·r        exact but for one rounding; where 1/v cannot overflow: v is a root, or at least 1
    f(d)  → r = f(d);  r         exact

A weight of the state has the same form in an output as in the state:

    exp(q·(u − m)) → exp(q·(u − safe(m)))       m the extremum of u: where m is −∞ so is u, and both give 0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sympy import Expr, Mul, Pow, S, Symbol, exp, sympify

from redalg.decompose.domain import live_term
from redalg.expression import Cast, Value, Where
from redalg.expression.contents import values_of
from redalg.incremental.form import FormOutput, FusedForm
from redalg.lower_tile.ir.program import Parallel, Statement, Store
from redalg.lower_tile.ir.scalars import Is, Load, ScaledExp
from redalg.lower_tile.passes.loops import over_tiles
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.epilogue import or_zero
from redalg.lower_tile.place.operands import Operands
from redalg.lower_tile.place.producers import Production
from redalg.lower_tile.place.space import I, Space
from redalg.lower_tile.place.split import Sums, added_up


def carries(form: FusedForm) -> bool:
    """Tell if any output carries the streamed axis."""
    return any(one.carries for one in form.outputs)


@final
class Carried:
    """Build the second pass from the finished values in the space."""

    def __init__(
        self, form: FusedForm, assembly: Assembly, space: Space, sums: Mapping[Value, Sums] | None = None
    ) -> None:
        self.form, self.assembly, self.space, self.sums = form, assembly, space, sums or {}
        self.before: list[Statement] = []
        self.body: list[Statement] = []
        self.held: dict[Expr, Load] = {}
        self.large = {space.values[one.value] for one in form.accumulators if one.bounded and one.value in space.values}

    def build(self, tile: Symbol) -> list[Statement]:
        """The statements of the pass: a loop over `tile`, or no loop if one tile holds the row."""
        outputs = [one for one in self.form.outputs if one.carries]
        wanted = {value for one in outputs for value in values_of(one.expr)}
        operands = Operands(self.assembly, self.before)
        production = Production(self.assembly, operands)
        for producer in self.form.cascade.producers:
            if not self._feeds(producer.value, wanted) or producer.value in self.space.values:
                continue
            if producer.value in self.sums:
                self.space = added_up(self.space, producer, self.sums[producer.value], self.assembly, self.body)
            else:
                self.space = production.produce(self.space, producer, self.body)
        for output in outputs:
            self._output(output, operands)
        if self.space.plan.level == "row":
            return [*self.before, *self.body]
        span = (S.Zero, sympify(self.space.tiles))
        return [*self.before, over_tiles(tile, span, self.space.plan.stages, tuple(self.body))]

    def _feeds(self, value: Value, wanted: set[Value]) -> bool:
        return value in wanted or any(
            value in values_of(expr)
            for producer in self.form.cascade.producers
            for expr in producer.cascade.expressions()
        )

    def _output(self, output: FormOutput, operands: Operands) -> None:
        expr = output.expr.args[0] if isinstance(output.expr, Cast) else output.expr
        if not self.form.cascade.producers:
            self.space = operands.staged(self.space, expr, self.body)
        read = or_zero(output, self.space, self.hoisted(self.space.read(self.about_pivots(expr))))
        guard = self.space.inside() & self.space.rows_inside() & self.space.read(output.once)
        if self.space.plan.binding.row is not None and self.space.plan.binding.row not in output.axes:
            guard = guard & (I < 1)
        place = tuple(self.space.read(one) for one in output.places or output.axes)
        store = Store(self.space.output_name(output.name), place, read, guard)
        extents = self.assembly.extents
        self.body.append(Parallel(tuple((one, extents[one]) for one in self.assembly.lane), (store,)))

    def about_pivots(self, expr: Expr) -> Expr:
        """The expression with the state's weights rewritten: they subtract pivots that are safe to subtract."""
        weights = {(pivot, q) for one in self.form.accumulators for pivot, q in one.weight if not pivot.has_slot}
        found = {}
        for node in expr.atoms(exp):
            for pivot, q in weights:
                u = (node.args[0] + q * pivot.source) / q
                if pivot.base in (u, live_term(u, self.form.cascade.domain)):
                    safe = Where(Is(pivot.source, S.NegativeInfinity), S.Zero, pivot.source)
                    found[node] = ScaledExp(u, safe, q)
        made: Expr = expr.xreplace(found)
        return made

    # ---- what leaves the loop ----------------------------------------------------------------------------------------

    def hoisted(self, node: Expr) -> Expr:
        """The expression with row buffers in place of the parts that depend on the row alone."""
        if of_row(node):
            return self._row(node)
        if isinstance(node, Mul):
            rows = [one for one in node.args if of_row(one) and self._is_safe(one)]
            rest = [one for one in node.args if one not in rows]
            factors = [self._row(Mul(*rows))] if rows else []
            return Mul(*factors, *(self.hoisted(one) for one in rest))
        if not node.args or isinstance(node, Load):
            return node
        args = [self.hoisted(one) if isinstance(one, Expr) and not isinstance(one, str) else one for one in node.args]
        return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)

    def _is_safe(self, factor: Expr) -> bool:
        """Tell if a factor may be computed apart: a reciprocal may not overflow if the quotient does not."""
        if not (isinstance(factor, Pow) and factor.exp.is_negative):
            return True
        root = factor.exp.is_Rational and abs(factor.exp) <= S.Half
        return bool(root) or (factor.exp is S.NegativeOne and factor.base in self.large)

    def _row(self, node: Expr) -> Expr:
        if node.is_number or isinstance(node, Load):
            return node
        if node not in self.held:
            self.held[node] = self.assembly.new("factor", I)
            self.before.append(self.assembly.stores((self.held[node], node)))
        return self.held[node]


def of_row(node: Expr) -> bool:
    """Tell if an expression consists of numbers and of row buffers."""
    return not node.free_symbols - {I} and all(one.indices in ((), (I,)) for one in node.atoms(Load))
