"""States at the deepest level of the tree: every lane of the tile keeps one, and they are merged once, after the loop.

    step       c' = c + δ(a + f(x; c)),  a' = A(c → c')·a + f(x; c')       in every lane, for the lane's own element x
    lagged     a' = a + f(x; c), and every GROUP tiles c moves to the lane's own natural centre
    scaled     c := ρ·c with every element that raises the lane's scale, then as in a step
    shared     c of the row's first tile, in every lane, of pivots that are no means: nothing moves in the loop
    collapse   c = the centre of all lanes' states;   a = Σ_j A(c_j → c)·a_j

To reduce each tile to one number costs a barrier a tile. Here no barrier comes before the end of the row (RedFuser,
section 5.3: fusion at the level of a thread). A lane's centre may lag if centres are means over a count, since the loss
is then bounded (THEORY.md, section 3): for a lane of one element and GROUP more, amplification ≤ 1 + GROUP. Weighted
centres move with every element. So do the centres of tangents: log x may lie any distance from its tangent at an
element far below x.
"""

from __future__ import annotations

from dataclasses import replace
from typing import final

from sympy import Add, And, Eq, Expr, Min, S, fraction, sympify

from redalg.decompose.domain import live_term
from redalg.expression import Value, Where
from redalg.expression.contents import values_of
from redalg.incremental.combine.programs import collapse_program, programs
from redalg.incremental.combine.sources import tagged
from redalg.incremental.form import Accumulator, Extremum, FusedForm, Pivot, PivotPolicy
from redalg.lower_tile.ir.program import Fill, Loop, ReduceTile, Statement, index
from redalg.lower_tile.ir.scalars import Is, IsFinite, IsNaN, Kept, Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.centres import is_local, local
from redalg.lower_tile.place.folds import Folds
from redalg.lower_tile.place.frames import TILE
from redalg.lower_tile.place.lines import Placer
from redalg.lower_tile.place.moves import Merge, Side, first_nonempty_pivot, triangular
from redalg.lower_tile.place.slots import Slots, allocate, stands_alone
from redalg.lower_tile.place.space import I, J, Space
from redalg.lower_tile.place.stream import Step
from redalg.strategies.varying import tiles_of

GROUP = 8
"""Tiles between two moves of a lagged centre."""
GROUP_NUMBER = index("group")


def weight_of(pivot: Pivot) -> Expr:
    """The total weight that a centre is a mean over: the denominator of its displacement."""
    return fraction(pivot.source.together())[1]


def is_counted(form: FusedForm) -> bool:
    """Tell if every centre is a mean over a count of elements, and no mask hides any of them."""
    counts = {one.value for one in form.accumulators if one.is_count}
    return form.cascade.domain is S.true and all(weight_of(one) in counts for one in local(form))


def is_curved(form: FusedForm) -> bool:
    """Tell if any sum moves by more than powers of a pivot's displacement, as a sum about a tangent does."""
    moves = [c for one in form.accumulators for _, c in one.transition]
    return any(c.has(pivot.departure) for c in moves for pivot in form.shifted)


def lane_order_space(space: Space, step: Expr, first: Expr) -> Space:
    """The space of a join in order: each lane takes neighbouring elements, one a step, from a first tile on."""
    streamed = space.plan.binding.streamed
    start = {axis: span for axis, span in space.start.items() if axis != streamed}
    place = first * space.plan.block_streamed + J * space.tiles + step
    return replace(space, at={**space.at, streamed: place}, start=start)


@final
class Lanes:
    """The loop with a state in every lane, and the merge of the lanes into row buffers.

    `tiles`: the number of the block's first tile, then the loop's start and stop, counted from that tile.
    """

    def __init__(self, form: FusedForm, assembly: Assembly, space: Space, tiles: tuple[Expr, ...]) -> None:
        self.form, self.assembly, (first, *self.span) = form, assembly, tiles
        self.first = first
        self.local = local(form)
        self.shared = [one for one in form.shifted if one not in self.local]
        self.late = form.cascade.domain is not S.true and any(one.is_found for one in self.shared)
        scaled = any(one.scales for one in self.local)  # in units of the lane's scale, which no element before tells
        self.lagged = bool(self.local) and is_counted(form) and not scaled and not is_curved(form)
        few = sympify(space.tiles)
        self.grouped = self.lagged and not (few.is_Integer and few <= GROUP)
        step = GROUP_NUMBER * GROUP + TILE if self.grouped else TILE
        self.space = lane_order_space(space, step, first) if form.ordered else space.streaming(step, first)
        self.folds = Folds(form, assembly, self.space)
        self.slots, self.starts = Slots(lanes=True), Slots()
        self.before: list[Statement] = []

    def build(self) -> tuple[Slots, list[Statement]]:
        """The slots of rows, and the statements: empty lanes, the loop, the merge of the lanes."""
        head = self._allocate() + self._begun() + (self._first_centres() if self.lagged else [])
        body = tuple(self._step())
        loop = self._groups(body) if self.grouped else self._loop(body)
        slots, tail = self._collapse()
        return slots, [*self.before, *head, loop, *tail]

    def _loop(self, body: tuple[Statement, ...]) -> Loop:
        start, stop = self.span
        return Loop(TILE, stop, self.space.plan.stages, body, start=start)

    def _groups(self, body: tuple[Statement, ...]) -> Loop:
        tiles = self.space.tiles
        left = Min(GROUP, tiles - GROUP_NUMBER * GROUP, evaluate=False)
        left = sympify(GROUP) if sympify(tiles % GROUP) == 0 else left
        inner = Loop(TILE, left, self.space.plan.stages, body)
        return Loop(GROUP_NUMBER, sympify(tiles_of(tiles, GROUP)), 0, (inner, *self._recentred()), pipelined=False)

    # ---- the lanes' states -------------------------------------------------------------------------------------------

    def _allocate(self) -> list[Statement]:
        body = list[Statement]()
        for extremum in self.form.extrema:
            body.append(self._lane(extremum.value, f"{extremum.monoid} {extremum.term}", extremum.monoid.identity))
            if stands_alone(extremum, self.form):
                self.slots.nan[extremum.value] = self.assembly.tile(
                    f"{extremum.value.name}_nan", note="NaN met, by lane"
                )
                body.append(Fill(self.slots.nan[extremum.value], S.Zero))
        for pivot in self.form.shifted:
            empty = S.Zero if is_local(pivot) else S.NegativeInfinity
            body.append(self._lane(pivot.value, f"pivot of {pivot.base}", empty))
        for accumulator in self.form.accumulators:
            body.append(self._lane(accumulator.value, f"sum {accumulator.term}", S.Zero))
        return body + self.folds.emptied()

    def _lane(self, value: Value, note: str, empty: Expr) -> Statement:
        self.slots.names[value] = self.assembly.tile(f"{value.name}_lanes", note=f"{note}, by lane")
        return Fill(self.slots.names[value], empty)

    def _first_centres(self) -> list[Statement]:
        """Store the first element of every lane as its centre (0 if it is not finite)."""
        start = Step(self.form, self.assembly, self.slots, self.space.streaming(S.Zero, self.first), self.before)
        stores = []
        for pivot in self.local:
            u = start.term(pivot.base)
            stores.append((self.slots.names[pivot.value], Where(IsFinite(u), u, S.Zero)))
        return [*start.body, self.assembly.lanes.stores(*stores)]

    def _begun(self) -> list[Statement]:
        """Start the pivots that a row's lanes share: from its first tile, as a block does; −∞ if nothing is live."""
        if not self.shared:
            return []
        scaled = {value for one in self.form.pivots if not one.has_slot for value in values_of(one.source)}
        body = list[Statement]()
        for extremum in self.form.extrema if self.form.is_tilted else ():
            if extremum.value in scaled:
                body.append(self._start_of(extremum.value, extremum.monoid.identity))
        body += [self._start_of(one.value, S.NegativeInfinity) for one in self.shared]
        if not self.late:
            body += self._offered(self.space.streaming(self.span[0], self.first))
            self.assembly.made.clear()
        return body

    def _start_of(self, value: Value, empty: Expr) -> Statement:
        self.starts.names[value] = self.assembly.row(f"{value.name}_start")
        return Fill(self.starts.names[value], empty)

    def _offered(self, space: Space) -> list[Statement]:
        """Offer a tile's own pivots to the rows that have none yet, and the rows' pivots to the lanes."""
        merge, body = Step(self.form, self.assembly, self.starts, space, self.before).starts()
        rows = {one.value: Load(self.starts.names[one.value], I) for one in self.shared}
        offers = [(rows[one.value], merge.tile_pivots[one.value]) for one in self.shared]
        body += [self.assembly.over_rows((c.name, first_nonempty_pivot(c, new))) for c, new in offers if c != new]
        taken = [(self._name(one), first_nonempty_pivot(self._c(one), rows[one.value])) for one in self.shared]
        return [*body, self.assembly.lanes.stores(*taken)]

    # ---- one tile ----------------------------------------------------------------------------------------------------

    def _step(self) -> list[Statement]:
        step = Step(self.form, self.assembly, self.slots, self.space, self.before)
        step.live = self.space.live(self.form.cascade.domain)
        self._load(step)
        step.body += self.folds.taken(step.space)
        for extremum in self.form.extrema:
            self._extremum(step, extremum)
        old = {value: self.slots.scale.get(value, S.One) * Load(name, I, J) for value, name in step.old.items()}
        merge = self._merge({**self.slots.reads(), **old})
        if self.late:
            step.body += self._offered(self.space)
        elif self.shared:
            step.body.append(self.assembly.lanes.stores(*(self._first(step, one) for one in self.shared)))
        merge.pivots(self.slots.reads())
        rescaled = [(self._name(one), merge.rescaled(0, one)) for one in self.local if one.scales]
        self._flush(step, merge)
        step.body += [self.assembly.lanes.stores(*rescaled)] if rescaled else []
        if self.lagged:
            merge.deltas.update({(0, one.value): S.Zero for one in self.local})
        elif self.local:
            self._follow(step, merge)
        merge.merged.update({one.value: merge.merged.get(one.value, self._c(one)) for one in self.form.shifted})
        terms = {one.value: self._summand(step, one, merge) for one in self.form.accumulators}
        moved = {one.value: merge.moved(0, one) for one in self.form.accumulators}
        self._flush(step, merge)
        stores = [(self._name(accumulator), moved[accumulator.value] + terms[accumulator.value])
                  for accumulator in triangular(list(self.form.accumulators))]  # fmt: skip
        stores += [(self._name(one), merge.merged[one.value]) for one in self.local if not self.lagged]
        return [*step.body, self.assembly.lanes.stores(*stores)] if stores else step.body

    def _first(self, step: Step, pivot: Pivot) -> tuple[str, Expr]:
        """The store of a lane's first live element as its pivot (0 for a slope), if the lane has none yet."""
        u, c = step.term(pivot.base), self._c(pivot)
        begun = S.Zero if pivot.policy is PivotPolicy.SLOPE else Where(IsFinite(u), u, S.Zero)
        return c.name, Where(And(Is(c, S.NegativeInfinity), step.live), begun, c)

    def _name(self, slot: Accumulator | Pivot) -> str:
        return self.slots.names[slot.value]

    def _c(self, pivot: Pivot) -> Load:
        return Load(self._name(pivot), I, J)

    def _load(self, step: Step) -> None:
        """Stage every input tile first, so that the elementwise loops are neighbours."""
        domain = self.form.cascade.domain
        exprs = [one.term for one in self.form.extrema] + [one.base for one in self.form.pivots]
        exprs += [one.factors[0] for one in self.form.accumulators]
        exprs += [term for one in self.form.structures for term in one.operands]
        for expr in (domain, *(live_term(one, domain) for one in exprs)):
            step.stage(expr)

    def _flush(self, step: Step, merge: Merge) -> None:
        step.body += merge.body
        merge.body.clear()

    def _merge(self, values: dict[Value, Expr]) -> Merge:
        """The merge that moves the lanes' states; its other side is the element, at the merged pivots."""
        merge = Merge(self.form, self.assembly, self.space, (Side(values), Side({}, moves=False)), self.assembly.lanes)
        for pivot in self.shared:
            merge.keep(pivot, self._c(pivot))
        return merge

    def _summand(self, step: Step, accumulator: Accumulator, merge: Merge) -> Expr:
        """The element's part of an accumulator, rounded on its own before it is added."""
        term = step.summand(accumulator, merge)
        return Kept(term) if isinstance(term, Add) else term

    def _extremum(self, step: Step, extremum: Extremum) -> None:
        lanes, held = self.assembly.lanes, Load(self.slots.names[extremum.value], I, J)
        read = Load(step.source(extremum), I, J)
        if any(pivot.source.has(extremum.value) for pivot in self.form.pivots):
            step.old[extremum.value] = self.assembly.tile(f"{extremum.value.name}_old")
            step.body.append(lanes.stores((step.old[extremum.value], held)))
        step.body.append(lanes.stores((held.name, extremum.monoid.combine(held, read))))
        if extremum.value in self.slots.nan:
            met = Load(self.slots.nan[extremum.value], I, J) + Where(IsNaN(read), S.One, S.Zero)
            step.body.append(lanes.stores((self.slots.nan[extremum.value], met)))

    def _follow(self, step: Step, merge: Merge) -> None:
        """Move the lanes' centres with the element: c' = c + δ, with δ from the sums at c; c if that is not finite."""
        merge.merged.update({one.value: self._c(one) for one in self.form.shifted})
        merge.deltas.update({(0, one.value): S.Zero for one in self.local})
        wanted = {value for one in self.local for value in values_of(one.source)}
        trial: dict[Value, Expr] = {}
        for accumulator in self.form.accumulators:
            if accumulator.value in wanted:
                term = self._summand(step, accumulator, merge)
                trial[accumulator.value] = merge.held(
                    f"{accumulator.value.name}_trial", merge.moved(0, accumulator) + term
                )
        self._move(merge, trial)
        self._flush(step, merge)

    def _move(self, merge: Merge, sums: dict[Value, Expr]) -> None:
        """Move every lane's centre to the natural one of these sums; an empty lane's displacement is 0."""
        inverse: dict[Expr, Load] = {}
        at = {**{one.value: self._c(one) for one in self.form.shifted}, **sums}
        for pivot in self.local:
            above, below = fraction(pivot.source.together())
            if below not in inverse:  # any centre is exact, so that one reciprocal serves all of them
                inverse[below] = merge.held("inverse", 1 / merge.read(below, at))
            moved = merge.held(f"{pivot.value.name}_moved", self._c(pivot) + merge.read(above, at) * inverse[below])
            merge.merged[pivot.value] = merge.held(
                f"{pivot.value.name}_new", Where(IsFinite(moved), moved, self._c(pivot))
            )
        for pivot in self.local:
            merge.deltas[0, pivot.value] = self._displaced(merge, pivot, self._c(pivot))

    def _displaced(self, merge: Merge, pivot: Pivot, c: Expr) -> Load:
        """c' − c, with c as the merged extrema scale it; 0 for a lane that holds nothing."""
        holds = merge.read(weight_of(pivot), self.slots.reads())
        displaced = merge.merged[pivot.value] - c
        return merge.held(f"delta_{pivot.value.name}", Where(Eq(holds, 0), S.Zero, displaced))

    def _recentred(self) -> list[Statement]:
        """Move every lane to its own natural centre; its extrema stay."""
        reads = self.slots.reads()
        here = (Side(reads, moves=False), Side({}, moves=False))
        merge = Merge(self.form, self.assembly, self.space, here, self.assembly.lanes)
        for pivot in self.shared:
            merge.keep(pivot, self._c(pivot))
        self._move(merge, reads)
        moving = [one for one in triangular(list(self.form.accumulators)) if not one.is_count]
        stores = [(self._name(one), merge.moved(0, one)) for one in moving]
        merge.store(*stores, *((self._name(one), merge.merged[one.value]) for one in self.local))
        return merge.body

    # ---- N states to one ---------------------------------------------------------------------------------------------

    def _collapse(self) -> tuple[Slots, list[Statement]]:
        """Merge the lanes into the row's state."""
        rows, _ = allocate(self.form, self.assembly, self.space.problem)
        rows.scale.update(self.slots.scale)
        rows.names.update(self.folds.rows)
        body = self.folds.collapsed()
        body += [ReduceTile("sum", met, rows.nan[value], clear=True) for value, met in self.slots.nan.items()]
        lanes = (self.form.cascade.axis,)
        reads = {tagged(value, "lane", lanes): read for value, read in self.slots.reads().items()}
        # the mean of the centres counts lanes without elements, and may be far from the row's
        steps = None if self._is_full() else self.form.links + 2
        program = programs(self.form).of(collapse_program, steps=steps, full=not self.shared)
        wanted = {value: rows.read(value) for value in self.slots.names}
        program = replace(program, results={value: program.results[value] for value in wanted}).pruned()
        body += Placer(program, self.assembly, self.space, reads).build(wanted)
        return rows, body if self._is_full() else [*body, *self._mark_empty(rows)]

    def _is_full(self) -> bool:
        """Tell if every lane holds an element."""
        length = sympify(self.space.problem.sizes[self.space.plan.binding.streamed.name])
        lanes = self.space.plan.block_streamed * self.space.plan.segments
        return self.lagged and bool(length.is_Integer) and length >= lanes

    def _mark_empty(self, rows: Slots) -> list[Statement]:
        """The stores of −∞ as the centre of a row without elements: a merge knows such a row by it."""
        stores = list[tuple[str, Expr]]()
        for pivot in self.local:
            holds = self.space.with_values(rows.reads()).read(weight_of(pivot))
            c = Load(rows.names[pivot.value], I)
            stores.append((c.name, Where(Eq(holds, 0), S.NegativeInfinity, c)))
        return [self.assembly.over_rows(*stores)] if stores else []
