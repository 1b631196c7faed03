"""The loop over the streamed axis: one step takes a tile of data into the state.

producers      s = a · bᵀ
extrema        m' = max(m, max_j u)             u = −∞ outside the domain
pivots         c = safe(m'),  w = exp(m − c)
weights        p = exp(q·(u − c))
accumulators   a = a·w + Σ_j p·f                rows;   o = o·w + p · v    contractions
shift pivots   the tile's own natural centre, then the merge of two states (`moves`);  or kept from the first tile
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sympy import Expr, Integer, Mul, Or, S
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.decompose.domain import live_term
from redalg.expression import Cast, Element, RunningCast, Value, Where
from redalg.expression.contents import values_of
from redalg.expression.dtypes import is_eight_bits
from redalg.incremental.combine.structures import lifted
from redalg.incremental.form import Accumulator, Extremum, FusedForm, Pivot, Structure
from redalg.lower_tile.ir.program import Contract, Copy, ReduceTile, Statement
from redalg.lower_tile.ir.scalars import Is, IsFinite, IsNaN, Load
from redalg.lower_tile.place.assembly import Assembly, mask_dead
from redalg.lower_tile.place.centres import Centred, moving_pivots, start, staying_pivots
from redalg.lower_tile.place.folds import Folds
from redalg.lower_tile.place.moves import (
    Merge,
    Side,
    first_nonempty_pivot,
    numeric_factor,
    scaled_exp,
    steps,
    triangular,
)
from redalg.lower_tile.place.operands import Operands
from redalg.lower_tile.place.producers import Production, addable_producers
from redalg.lower_tile.place.selection import select_best, tile_elements
from redalg.lower_tile.place.slots import Slots
from redalg.lower_tile.place.space import E_, I, J, Space, usable_scale
from redalg.lower_tile.place.split import Sums, added_up
from redalg.strategies.rules.products import operands_dtype


@final
class Step:
    """Builds the body of the loop."""

    def __init__(
        self,
        form: FusedForm,
        assembly: Assembly,
        slots: Slots,
        space: Space,
        before: list[Statement],
        *,
        sums: Mapping[Value, Sums] | None = None,
        folds: Folds | None = None,
    ) -> None:
        self.sums, self.folds = sums or {}, folds
        self.form, self.assembly, self.slots, self.space = form, assembly, slots, space
        self.operands = Operands(assembly, before)
        self.production = Production(assembly, self.operands)
        self.domain = form.cascade.domain
        self.body: list[Statement] = []
        self.live: Boolean = S.true
        self.old: dict[Value, str] = {}
        self.tiles: dict[Expr, tuple[str, Expr]] = {}

    def build(self) -> list[Statement]:
        """The statements of one step."""
        onto = addable_producers(self.form, self.space)
        for producer in self.form.cascade.producers:
            if producer.value in self.sums:
                self.space = added_up(self.space, producer, self.sums[producer.value], self.assembly, self.body)
            elif producer.value in onto:
                self.space = self.production.add(self.space, producer, onto[producer.value], self.body)
            else:
                self.space = self.production.produce(self.space, producer, self.body)
        self.live = self.space.live(self.form.cascade.domain)
        for extremum in self.form.extrema:
            self._extremum(extremum)
        for structure in self.slots.best:
            self._select(structure)
        if self.folds is not None:
            self._fold(self.folds)
        merge = self._tile_state()
        wide = [one for one in self.form.accumulators if one.value in self.slots.columns]
        moving = [one for one in wide if merge.moves(one)]
        for accumulator in triangular(moving):  # before what they read moves itself
            self._contract(accumulator, merge)
        for accumulator in self.form.accumulators:
            if accumulator.value in self.slots.heads:
                self._head(accumulator)
        merge.accumulate(self._rows())
        self._flush(merge)
        for accumulator in wide:
            if accumulator not in moving:
                self._contract(accumulator, merge)
        return self.body

    def _rows(self) -> list[Accumulator]:
        """The accumulators that hold one number for every row."""
        held = self.slots.columns | self.slots.heads
        return [one for one in self.form.accumulators if one.value not in held]

    def _head(self, accumulator: Accumulator) -> None:
        """Add a tile to an accumulator of one number a column: a = a + Σ_j f(e, j)."""
        tile = self.operands.head(self.space, live_term(accumulator.factors[0], self.domain), self.live, self.body)
        self.body.append(ReduceTile("sum", tile, self.slots.names[accumulator.value], clear=False))

    # ---- terms -------------------------------------------------------------------------------------------------------

    def term(self, expr: Expr) -> Expr:
        """The term within the domain, written as reads of tiles."""
        expr = live_term(expr, self.form.cascade.domain)
        self.stage(expr)
        return self.space.read(expr)

    def stage(self, expr: Basic) -> None:
        """Load the tiles that an expression reads, if the form has no producers.

        Beside their contractions, masks and biases are read straight from their tensors.
        """
        if not self.form.cascade.producers:
            self.space = self.operands.staged(self.space, expr, self.body)

    def base(self, u: Expr) -> tuple[str, Expr]:
        """The tile that holds u without its positive factor (−∞ outside the domain), and that factor (1 if none)."""
        if u not in self.tiles:
            read = self.term(u)
            number, rest = numeric_factor(read)
            number, rest = (number, rest) if number.is_positive else (S.One, read)
            name = self.assembly.tile_of("u_tile", mask_dead(self.live, rest, S.NegativeInfinity), self.body)
            self.tiles[u] = (name, number)
        return self.tiles[u]

    def source(self, extremum: Extremum) -> str:
        """The tile that an extremum reduces; the positive factor that a maximum leaves out goes to the slots."""
        if extremum.monoid.name == "max":
            name, self.slots.scale[extremum.value] = self.base(extremum.term)
            return name
        outside = mask_dead(self.live, self.term(extremum.term), extremum.monoid.identity)
        return self.assembly.tile_of("term", outside, self.body)

    def _extremum(self, extremum: Extremum) -> None:
        buffer = self.slots.names[extremum.value]
        if any(pivot.source.has(extremum.value) for pivot in self.form.pivots):
            self.old[extremum.value] = self.assembly.row(f"{extremum.value.name}_old")
            self.body.append(Copy(buffer, self.old[extremum.value]))
        source = self.source(extremum)
        self.body.append(ReduceTile(extremum.monoid.reduction, source, buffer, clear=False))
        if extremum.value in self.slots.nan:
            met = Where(IsNaN(Load(source, I, J)), S.One, S.Zero)
            counted = self.assembly.tile_of("nan", met, self.body)
            self.body.append(ReduceTile("sum", counted, self.slots.nan[extremum.value], clear=False))

    def _fold(self, folds: Folds) -> None:
        for structure in folds.structures:
            for term in structure.operands:
                self.stage(term)
            self.body += folds.tile(structure, self.space)

    def _select(self, structure: Structure) -> None:
        value = lifted(structure.monoid, structure.operands, self.space.plan.binding.streamed)[0]
        self.stage(value)
        tile = tile_elements(structure, self.assembly, self.space, self.space.read(value), self.body)
        alone = self.space.tiles == 1
        self.body += select_best(
            structure, self.assembly, self.space.problem, self.slots.best[structure], tile, alone=alone
        )

    # ---- weights -----------------------------------------------------------------------------------------------------

    def weight(self, accumulator: Accumulator, merge: Merge) -> str | None:
        """The tile Π exp(q·(u − c)), 0 outside the domain; None if the accumulator has no weights."""
        if not accumulator.weight:
            return None
        parts = []
        for pivot, q in accumulator.weight:
            name, number = self.base(pivot.base)
            parts.append(scaled_exp(number * Load(name, I, J), merge.merged[pivot.value], self.space.read(q)))
        return self.assembly.tile_of("weight", Mul(*parts), self.body)

    def factor(self, accumulator: Accumulator, place: int, merge: Merge) -> Expr:
        """The factor written as reads, with every shifted generator at the tile's pivot.

        If a contraction moves, the generators are at the merged pivots instead.
        """
        extrema = {value: read for value, read in self.slots.reads().items() if value in self.form.held}
        # what is in the state comes to the merged pivots
        moves = len(accumulator.factors) > 1 and merge.moves(accumulator)
        values: dict[Value, Expr] = {**extrema, **merge.merged, **({} if moves else merge.tile_pivots)}
        return self._at(values, accumulator.factors[place])

    def _at(self, values: Mapping[Value, Expr], expr: Expr) -> Expr:
        """The term written as reads, with the given values of a state."""
        kept = self.space
        self.space = self.space.with_values(values)
        made = self.term(expr)
        self.space = kept.with_staged(self.space.staged)
        return made

    def summand(self, accumulator: Accumulator, merge: Merge) -> Expr:
        """The product weight · first factor; 0 outside the domain, and if an exponent is −∞."""
        weight = self.weight(accumulator, merge)
        factor = self.factor(accumulator, 0, merge)
        if weight is None:
            return mask_dead(self.live, factor, S.Zero)
        held = Load(weight, I, J)
        return held if factor is S.One else Where(self.uncounted(accumulator), S.Zero, held * factor)

    def uncounted(self, accumulator: Accumulator) -> Boolean:
        """True if an element has no weight: an exponent is −∞. Any other weight of 0 is one too small for a float."""
        exponents = (Load(self.base(pivot.base)[0], I, J) for pivot, _ in accumulator.weight)
        return Or(*(Is(u, S.NegativeInfinity) for u in exponents))

    # ---- the tile's own state ----------------------------------------------------------------------------------------

    def _tile_state(self) -> Merge:
        """Make a state of the tile, and return its merge into the running state."""
        tile: dict[Value, Expr] = {}
        merge = self._centred(tile)
        for accumulator in self._rows():
            tile[accumulator.value] = Load(self._row_sum(accumulator, merge, "tile"), I)
        self._flush(merge)
        merge.shift()
        return merge

    def _centred(self, tile: dict[Value, Expr]) -> Merge:
        """The merge of the tile into the running state, with the tile's pivots set."""
        running = {value: self.slots.read(value) for value in self.slots.names}
        before = {
            **running,
            **{value: self.slots.scale.get(value, S.One) * Load(name, I) for value, name in self.old.items()},
        }
        merge = Merge(self.form, self.assembly, self.space, (Side(before), Side(tile, moves=False)))
        merge.pivots(running)
        self._flush(merge)
        self._tile_pivots(merge, tile)
        return merge

    def starts(self) -> tuple[Merge, list[Statement]]:
        """The merge with the tile's own pivots that are no means, and the statements that find them.

        The state holds nothing yet.
        """
        self.live = self.space.live(self.domain)
        if self.form.is_tilted:
            for extremum in self.form.extrema:
                if extremum.value in self.slots.names:
                    self._extremum(extremum)
            return self._centred({}), self.body
        merge = Merge(self.form, self.assembly, self.space, (Side({}), Side({})))
        self._started(staying_pivots(self.form), merge, {})
        return merge, self.body

    def _flush(self, merge: Merge) -> None:
        self.body += merge.body
        merge.body.clear()

    def _row_sum(self, accumulator: Accumulator, merge: Merge, suffix: str) -> str:
        """The row buffer that holds Σ_j of an accumulator's summand over the tile."""
        if accumulator.is_count:
            return self._count(f"{accumulator.value.name}_{suffix}")
        return self.assembly.summed(f"{accumulator.value.name}_{suffix}", self.summand(accumulator, merge), self.body)

    def _count(self, wanted: str) -> str:
        """The row buffer that counts the tile's live elements.

        If no mask hides any, the count is the tile's length, or the number of elements left.
        """
        if self.live not in (S.true, self.space.inside()):
            return self.assembly.summed(wanted, mask_dead(self.live, S.One, S.Zero), self.body)
        key = Load("count of the tile")
        if key not in self.assembly.made:
            self.assembly.made[key] = self.assembly.row(wanted)
            length = Integer(self.space.plan.block_streamed) if self.live is S.true else self.space.left()
            self.body.append(self.assembly.over_rows((self.assembly.made[key], length)))
        return self.assembly.made[key]

    def _tile_pivots(self, merge: Merge, tile: dict[Value, Expr]) -> None:
        """Find the tile's own pivots. Those that no sum finds are the first live tile's, unless a slope is found."""
        if self.form.shifted:
            self._started(list(self.form.shifted), merge, tile)
            self._centre(merge, tile)

    def _started(self, pivots: list[Pivot], merge: Merge, tile: dict[Value, Expr]) -> None:
        count = Load(self._count("live"), I)
        for pivot in pivots:
            of = Centred(self._at(merge.merged, pivot.generator), self.live, count)
            held = start(pivot, of, self.assembly, self.body)
            if pivot.is_found or self.form.is_tilted:
                merge.tile_pivots[pivot.value] = tile[pivot.value] = held
            else:
                slot = Load(self.slots.names[pivot.value], I)
                running = merge.rescaled(0, pivot) if pivot.scales else slot
                self._flush(merge)
                self.body.append(self.assembly.over_rows((slot.name, first_nonempty_pivot(running, held))))
                merge.keep(pivot, slot)

    def _centre(self, merge: Merge, tile: dict[Value, Expr]) -> None:
        """Move every pivot that is found to c + δ, with δ from the tile's sums at c."""
        moving = moving_pivots(self.form)
        wanted = {value for pivot in moving for value in values_of(pivot.source)}
        first = {
            accumulator.value: Load(self._row_sum(accumulator, merge, "first"), I)
            for accumulator in self.form.accumulators
            if accumulator.value in wanted
        }
        at = {**self.slots.reads(), **first, **merge.merged, **merge.tile_pivots}
        moved, stores = list[tuple[str, Expr]](), list[tuple[str, Expr]]()
        for pivot in moving:
            c, name = tile[pivot.value], self.assembly.row(f"{pivot.value.name}_moved")
            moved.append((name, c + merge.read(pivot.source, at)))
            stores.append((merge.tile_pivots[pivot.value].name, Where(IsFinite(Load(name, I)), Load(name, I), c)))
        self.body += [self.assembly.over_rows(*one) for one in steps(self.form, moved, stores)]
        self.assembly.made = {
            key: name
            for key, name in self.assembly.made.items()
            if not key.has(*(Load(merge.tile_pivots[pivot.value].name, I) for pivot in moving))
        }

    # ---- contractions ------------------------------------------------------------------------------------------------

    def _contract(self, accumulator: Accumulator, merge: Merge) -> None:
        """Compute o = o·w + p · v, or o = o·w + r·(p · v) if p has 8 bits or is rounded at a row's own scale 1/r."""
        buffer = self.slots.names[accumulator.value]
        dtype = operands_dtype(accumulator, self.form, self.space.problem, self.space.plan.device)
        left, scale = self._left(accumulator, merge, dtype)
        rescale = merge.weight(0, accumulator)
        self._flush(merge)
        moves = merge.moves(accumulator)
        held = merge.moved(0, accumulator) if moves else Load(buffer, I, E_) * rescale
        self._flush(merge)
        apart = moves or scale is not S.One or is_eight_bits(dtype)
        if rescale is not S.One and not apart:
            self.body.append(self.assembly.over_columns(buffer, held))
        factor, live = live_term(accumulator.factors[1], self.domain), self.space.alike(self.domain)
        right, turned = self.operands.right(self.space, factor, dtype, self.body, live)
        if not apart:
            self.body.append(Contract(left, right, buffer, transposed=turned, clear=False))
            return
        product = self.assembly.columns("product", note="of one tile")
        self.body.append(Contract(left, right, product, transposed=turned, clear=True))
        made = held + Load(product, I, E_) * scale
        made = self.assembly.across(made, self.body) if moves else made
        self.body.append(self.assembly.over_columns(buffer, made))

    def _left(self, accumulator: Accumulator, merge: Merge, dtype: str) -> tuple[str, Expr]:
        """The first operand, and the factor that multiplies its product, row by row."""
        first, scale = accumulator.factors[0], S.One
        if self._is_plain(accumulator, dtype):
            return self.operands.load(self.space, first, self.body), scale
        if isinstance(first, RunningCast) and not accumulator.weight:
            g, usable = first.args[0], self._scale(first.args[1], merge)
            term, scale = mask_dead(self.live, Cast(self.term(g) * usable, first.dtype), S.Zero), 1 / usable
        else:
            term = self.summand(accumulator, merge)
        self._flush(merge)
        if accumulator.weight or term in self.assembly.made:
            source = self.assembly.tile_of("term", term, self.body)
            return self._left_operand(source, dtype, weighted=bool(accumulator.weight)), scale
        return self.operands.made_of(self.space, drop_rounding(term, dtype), dtype, self.body), scale

    def _is_plain(self, accumulator: Accumulator, dtype: str) -> bool:
        """True if the first operand is an unchanged tile of an input, which is 0 outside the input."""
        first, problem = accumulator.factors[0], self.space.problem
        if accumulator.weight or self.domain is not S.true or not isinstance(first, Element):
            return False
        part, binding = self.space.region(first), self.space.plan.binding
        return part is not None and part[1] == (binding.row, binding.streamed) and dtype == problem.dtypes[first.name]

    def _scale(self, h: Expr, merge: Merge) -> Expr:
        """The running scale of a rounding, in a row buffer; 1 as long as no element gives a scale."""
        read = self.space.with_values({**self.slots.reads(), **merge.merged}).read(h)
        key = Load("scale", read)
        if key not in self.assembly.made:
            self._flush(merge)
            made = self.assembly.shared_row("scale", usable_scale(read), self.body, note=f"rounded at {h}")
            self.assembly.made[key] = made.name
        return Load(self.assembly.made[key], I)

    def _left_operand(self, source: str, dtype: str, *, weighted: bool) -> str:
        """The first operand in the dtype of its partner: in registers if it is a 16-bit weight for tensor cores.

        With 8 bits, no layout of registers serves both a product's result and the next product's operand.
        """
        key = Load(f"operand {dtype} of {source}")
        if key not in self.assembly.made:
            plan = self.space.plan
            held = weighted and plan.tensor_cores and plan.warps == "rows"
            held = held and dtype != self.space.problem.compute and not is_eight_bits(dtype)
            scope, shape = "fragment" if held else "shared", (plan.block_row, plan.block_streamed)
            name = self.assembly.buffer("operand", scope, shape, dtype, f"{source} as {dtype}")
            self.assembly.made[key] = name
            self.body.append(Copy(source, name))
        return self.assembly.made[key]


def drop_rounding(term: Expr, dtype: str) -> Expr:
    """The term without its last rounding, if the copy into a buffer of that dtype does it."""
    if isinstance(term, Where) and term.args[2] is S.Zero:
        return Where(term.args[0], drop_rounding(term.args[1], dtype), S.Zero)
    return term.args[0] if isinstance(term, Cast) and term.dtype == dtype else term
