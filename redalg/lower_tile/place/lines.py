"""Put the lines of a program of states into buffers. The indices that a line reads say where its value lies.

reads i        a number for every row            reads i, e     one for every row and column
reads e        a number for every column         reads i, j     one for every row and lane

v := f(a, b), read once          v has no buffer: f(a, b) stands in the line that reads it
v := Π exp(q·(u − c))            scaled exponentials: a number that u and c share is part of q
v := max(n·a, n·b), n > 0        a buffer of max(a, b), which is read as n times its element
v := max(slot, max_j u)          the slot takes the maximum of the tile in; what it held is copied first, if it is read
v := Σ_j a·b                     a matrix product, which is added to the slot that it is for
v := ⊕_u f, u an inner axis      a tile of rows and streamed elements (`producers`)
v, w := ⊕_j of components        a tree of neighbours, or ranks (`joins`, `selection`); a ⊕ b is stored where a lies
v := f(a, b), of float64         no buffer: computed in float64 where a line of the kernel's arithmetic reads it
slots := values                  each slot is stored after the last value that reads what it held before
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import final

from sympy import Add, Expr, Integer, Max, Min, Mul, S, preorder_traversal

from redalg.expression import Let as Named
from redalg.expression import Value, Where
from redalg.expression.contents import values_of
from redalg.incremental.combine.let import Assign, Fold, Gather, Join, Precision, Program
from redalg.incremental.form import Structure
from redalg.lower_tile.ir.program import Copy, Statement
from redalg.lower_tile.ir.scalars import IsNaN, Kept, Load, RankedIndex, Wide
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.data import ColumnSum, Data, Pending
from redalg.lower_tile.place.expressions import (
    buffer_name,
    buffer_of,
    numeric_factor,
    positive_factor,
    rounded_once,
    scaled_exp,
    with_tests,
    without_factors,
    without_needless_tests,
)
from redalg.lower_tile.place.extent import is_place
from redalg.lower_tile.place.joins import Joins
from redalg.lower_tile.place.producers import Inner
from redalg.lower_tile.place.selection import take_best, tile_elements
from redalg.lower_tile.place.sets import join_best
from redalg.lower_tile.place.space import E_, PLACE, I, J, Space, keep_nan
from redalg.lower_tile.place.uses import needs_of, read_by_quotients, uses_of


@final
class Placer:
    """Places a program.

    Args:
        program, assembly, space: the program, the kernel's buffers, and the tile's place.
        values: where the values lie that the program is given.
        alone: the extrema that an output holds as they are: a maximum of the target ignores NaN, and theirs may not.
        data: the data of a tile, if the program reads any.
        named_lines: those that have a buffer each, in a program of results; other lines stand in those that read them.
        body: takes the statements.
    """

    def __init__(
        self, program: Program, assembly: Assembly, space: Space, values: Mapping[Value, Expr], *,
        alone: Collection[Value] = (), data: Data | None = None, named_lines: Collection[Value] | None = None,
        body: list[Statement] | None = None,
    ) -> None:  # fmt: skip
        self.named_lines = named_lines
        self.program, self.assembly, self.space, self.data = program, assembly, space, data
        self.alone = {program.results[slot] for slot in alone if slot in program.results}
        self.values = dict(values)
        self.lines = {let.value: let for let in program.lets if isinstance(let, Assign)}
        self.uses = uses_of(program)
        self.bases = {u for let in self.lines.values() for _, u, _ in let.moves}
        self.divided = read_by_quotients(self.lines)
        self.named: dict[Expr, Load] = {}
        self.pending: dict[Expr, Pending] = {}
        self.ends: dict[Value, tuple[Expr, Load]] = {}
        self.slots: dict[Value, Load] = {}
        counted = {slot: name for slot, name in (data.nan if data else {}).items() if slot in program.results}
        self.nan = {program.results[slot]: name for slot, name in counted.items()}
        self.buffers: dict[Expr, Expr] = {}
        self.body = list[Statement]() if body is None else body

    def build(self, slots: Mapping[Value, Expr]) -> list[Statement]:
        """The statements that make the values and store the results of the program in `slots`, the reads of buffers."""
        given = {load for read in self.values.values() for load in read.atoms(Load)}
        ends = [(self.program.results[slot], *numeric_factor(read)) for slot, read in slots.items()]
        self.ends = {value: (number, buffer) for value, number, buffer in ends if buffer not in given}
        self.slots = {value: buffer for value, _, buffer in ends}
        joins = self._joins({value: buffer for value, _, buffer in ends})
        for let in self.program.lets:
            if isinstance(let, Fold) and self.space.plan.binding.streamed not in let.over:
                self.values[let.value] = self._inner(let)
            elif isinstance(let, Fold) and let.value in joins:
                self._join(let, *joins[let.value])
            elif isinstance(let, Fold):
                self.values[let.value] = self._fold(let)
            elif isinstance(let, Gather) and any(self.uses[value] for value in let.values):
                self._gather(let, slots)
            elif isinstance(let, Join) and any(self.uses[value] for value in let.values):
                self._join_elements(let)
            elif isinstance(let, Assign) and self.uses[let.value] and not self._stands_in_reader(let):
                self.values[let.value] = self._line(let)
        self._store({buffer: self._value(value) / number for value, number, buffer in ends})
        return self.body

    def _line(self, let: Assign) -> Expr:
        """The read of a line that has a buffer."""
        expr = without_needless_tests(self._expr(let), self.buffers)
        if self.named_lines is not None:
            return expr if self._needs_no_buffer(expr) else self._buffer(let.value, S.One, expr)
        splits = isinstance(let.expr, Max | Min | Where) or let.value in self.bases  # of an exponential
        number, rest = positive_factor(expr) if splits else (S.One, expr)
        if isinstance(rest, Load) and (rest in self.buffers or rest in self.space.known.values()):
            return number * rest
        return number * self._buffer(let.value, number, rest)

    # ---- folds -------------------------------------------------------------------------------------------------------

    def _joins(self, ends: Mapping[Value, Load]) -> dict[Value, tuple[Value, Value, Load]]:
        """Folds that a slot takes in: fold -> (the value of both, what the slot held before, its buffer)."""
        joins = dict[Value, tuple[Value, Value, Load]]()
        folds = {let.value for let in self.program.lets if isinstance(let, Fold)}
        for value, buffer in ends.items():
            let = self.lines.get(value)
            if let is None or not isinstance(let.expr, Max | Min):
                continue
            alone = [fold for fold in let.expr.args if fold in folds and self.uses[fold] == 1]
            before = [slot for slot in let.expr.args if slot in self.values and self.values[slot].has(buffer)]
            if len(alone) == len(before) == 1:
                joins[alone[0]] = (value, before[0], buffer)
        return joins

    def _join(self, let: Fold, both: Value, before: Value, buffer: Load) -> None:
        """Take a fold in: slot := max(slot, max_j u)."""
        if self.uses[before] > 1:
            old = self.assembly.new(f"{buffer.name}_old", I)
            self.body.append(Copy(buffer.name, old.name))
            self.values[before] = self.values[before].xreplace({buffer: old})
        number, source = self._source(let, self._read(let.folding.factors[0]))
        self.body.append(self.assembly.reduce(let.folding.kind, source, buffer, clear=False))
        self._count_nan(both, source)
        self.values[both] = number * buffer

    def _fold(self, let: Fold) -> Expr:
        """The read of a fold over the lanes; a positive number that its elements share multiplies the result."""
        kind, factors = let.folding.kind, let.folding.factors
        if self.data and self.data.is_product(let):
            return self._pend(self.data.product(let, self.lines, self.space, self._read, self.body))
        if kind == "count":
            return self._count(let)
        read = self._read(factors[0])
        if self.data and read.has(E_) and not read.has(I):
            return self._pend(ColumnSum(read, self.space, self.assembly))
        if kind == "sum" and not read.has(J) and self.data:
            return read * self.space.plan.block_streamed
        number, source = self._source(let, read)
        target = self._end_of(let.value, number) or self.assembly.new(buffer_name(let.value.name), I)
        self.body.append(self.assembly.reduce(kind, source, target))
        self._count_nan(let.value, source)
        return number * target

    def _inner(self, let: Fold) -> Expr:
        """The read of a fold over an inner axis; 0 if it is added to the tile of another, which its readers add."""
        if self.data is None:
            raise AssertionError(f"`{let}` reads data, which {self.program.name} is not given")
        after = self.program.lets[self.program.lets.index(let) :]
        reader = next(one for one in after if isinstance(one, Assign))  # the producer that the fold is part of
        to = self.data.onto.get(reader.value)
        own, note = reader.value.name, f"{let.folding.kind} over {let.over[0]}"
        name = own if reader.expr == let.value else f"{own}_{let.value.name}"
        target = self._value(to) if to else self.assembly.new(name, *self.assembly.tile, note=note, slot=own)
        space = self.space.with_values({value: self._value(value) for value in let.reads})
        inner = Inner(let, buffer_of(target), clear=to is None, part=self.data.part)
        inner.build(space, self.data.operands, self.body)
        return S.Zero if to else target

    def _source(self, let: Fold, read: Expr) -> tuple[Expr, Load]:
        """The positive number that the elements of a fold share, and the tile that it reduces."""
        number, rest = positive_factor(read) if let.folding.kind == "max" or not self.data else (S.One, read)
        wanted = "term" if self.data else f"{let.value.name}_moved"
        return number, self.assembly.tile_of(buffer_name(wanted), rest, self.body)

    def _count(self, let: Fold) -> Expr:
        """The number of elements of a tile that count: its length, what is left of the axis, or a sum of ones."""
        [condition] = let.folding.factors
        if condition == S.true:
            return Integer(self.space.plan.block_streamed)
        read = self._read(condition)
        if read == self.space.inside():
            return self.space.rest_of_tile()
        row = self.assembly.new(buffer_name(let.value.name), I)
        ones = self.assembly.tile_of("term", Where(read, S.One, S.Zero), self.body)
        self.body.append(self.assembly.reduce("sum", ones, row))
        return row

    def _count_nan(self, value: Value, source: Load) -> None:
        """Count the NaN that an extremum met, if an output holds it as it is."""
        if value in self.nan:
            counted = self.assembly.tile_of("nan", Where(IsNaN(source), S.One, S.Zero), self.body)
            self.body.append(self.assembly.reduce("sum", counted, self.nan[value], clear=False))

    def _count_nan_of_lanes(self, let: Assign, reads: list[Expr]) -> None:
        """Count the NaN that the extremum of every lane meets."""
        [element] = (read for read in reads if not read.has(self.slots[let.value]))
        counted = self.nan[let.value]
        self.body.append(self.assembly.stores((counted, counted + Where(IsNaN(element), S.One, S.Zero))))

    def _pend(self, pending: Pending) -> Expr:
        """The read that stands for a product until it is stored."""
        read = Load(f"product {len(self.pending)}", *pending.indices)
        self.pending[read] = pending
        return read

    # ---- elements of several components ------------------------------------------------------------------------------

    def _gather(self, let: Gather, slots: Mapping[Value, Expr]) -> None:
        """Join the elements of a tile, or the states of lanes; a slot takes ranks in that nothing else is joined to."""
        parts = [self._read(part) for part in let.parts]
        if not self._is_ranked(let.structure):
            joins = Joins(let.structure, self.assembly, self.space, self.body)
            self.values |= zip(let.symbols, (joins.tile if self.data else joins.lanes)(parts), strict=True)
            return
        ends = {self.program.results[slot]: read for slot, read in slots.items()}
        tile = tile_elements(self.assembly, self.space, parts, self.body)
        best = [ends[symbol] for symbol in let.symbols if symbol in ends]
        if best:
            self.body += take_best(let.structure, self.assembly, self.space.problem, best, tile, alone=True)
        self.values |= zip(let.symbols, best or tile, strict=False)

    def _join_elements(self, let: Join) -> None:
        """Join an element, or another state, to a state, which holds the result."""
        if self._is_ranked(let.structure):
            before, after = ([self.values[value] for value in side if value in self.values]
                             for side in (let.first, let.second))  # fmt: skip
            self.body += join_best(let.structure, self.assembly, self.space.problem, before, after)
        else:
            is_element = self.data is not None and any(value in self.lines for value in let.second)
            before, after = ([self._value(value) for value in side] for side in (let.first, let.second))
            joins = Joins(let.structure, self.assembly, self.space, self.body)
            (joins.join_element if is_element else joins.join)(before, after)
        self.values |= zip(let.symbols, before, strict=False)

    def _is_ranked(self, structure: Structure) -> bool:
        """Tell if the elements of a structure are integers that order as they do."""
        return structure.is_ranked and not self.space.plan.keeps_states

    # ---- buffers -----------------------------------------------------------------------------------------------------

    def _end_of(self, value: Value, number: Expr) -> Load | None:
        """The buffer of the slot that a value is for, if no line reads what it held before."""
        same, buffer = self.ends.get(value, (None, None))
        return buffer if same == number else None

    def _needs_no_buffer(self, expr: Expr) -> bool:
        """Tell if no buffer of rows can hold a result (it differs in a row, or is an integer), or a tile holds it."""
        number_and_tile = numeric_factor(expr)
        by_tile = self.data is not None and (number_and_tile[1].is_Atom or isinstance(number_and_tile[1], Load))
        return by_tile or bool(expr.has(RankedIndex, E_, PLACE))

    def _stands_in_reader(self, let: Assign) -> bool:
        """Tell if a line stands in the lines that read it, without a buffer.

        A line of float64 does if only lines of float64 read it; any other line if it is read once, is no choice of
        numbers of rows, and no quotient reads it: a division branches, and loads behind it would wait for it. Another
        name of what the program is given needs no buffer, nor does a place, which stays an integer in what reads it.
        """
        if let.value in self.values or (let.precision is Precision.DOUBLE and not self._read_in_compute(let.value)):
            return True
        if self.named_lines is not None:
            return let.value not in self.named_lines
        if let.expr in self.program.inputs or is_place(let.expr, self.space):
            return True
        if self.uses[let.value] > 1:
            return False
        is_end = let.value in self.program.results.values()
        chosen = isinstance(let.expr, Where) and not self._is_element(let.value)
        return is_end or not (chosen or let.value in self.divided)

    def _is_element(self, value: Value) -> bool:
        """Tell if a value differs from element to element of the tile."""
        return self.space.plan.binding.streamed in value.indices

    def _read_in_compute(self, value: Value) -> bool:
        """Tell if a line that is not of float64 reads a value."""
        readers = (let for let in self.lines.values() if value in needs_of(let))
        return any(let.precision is not Precision.DOUBLE for let in readers)

    def _buffer(self, value: Value, number: Expr, expr: Expr) -> Expr:
        """The buffer of number · value := an expression; a new one if the value is no slot's."""
        target = self._end_of(value, number)
        if target is None and self.data and expr.has(J) and not expr.has(E_):
            return self.assembly.tile_of(buffer_name(value.name), expr, self.body)
        if target is None:
            target = self._new(value.name, expr)
            self.buffers[target] = expr
        self._assign(target, expr)
        return target

    def _new(self, name: str, expr: Expr) -> Load:
        """A new buffer for an expression, over the indices that it reads."""
        indices = self.assembly.lane_of(expr) if expr.has(J) else self.assembly.wide if expr.has(E_) else (I,)
        if indices == (I, E_) and all(E_ in one.indices and I not in one.indices for one in expr.atoms(Load)):
            indices = (E_,)
        return self.assembly.new(buffer_name(name), *indices)

    def _assign(self, target: Load, expr: Expr) -> None:
        """Append target := expr, at every place of the target."""
        for read in sorted((one for one in self.pending if expr.has(one)), key=str):
            expr = self._add(target, expr, read)
        if expr == target:
            return
        if target.indices == (I, E_):
            by_column = any(one.indices == (E_,) for one in expr.atoms(Load))
            expr = self.assembly.across(expr, self.body) if by_column or self._crosses(target, expr) else expr
        self.body.append(self.assembly.stores((target, rounded_once(target, expr))))

    def _crosses(self, target: Load, expr: Expr) -> bool:
        """Tell if a step of a loop stores more than a multiple of the target: rows then have another layout."""
        return self.data is not None and any(one != target and one.indices == (I, E_) for one in expr.atoms(Load))

    def _add(self, target: Load, expr: Expr, read: Expr) -> Expr:
        """Add a product to its target if it may be added there; return what is left to store."""
        pending, terms = self.pending[read], Add.make_args(expr)
        rest = Add(*(term for term in terms if term != read))
        others = {load for load in rest.atoms(Load) if load != target and load.indices == target.indices}
        if read in terms and not rest.has(read) and not others and not pending.apart:
            pending.first(self.body)
            self._assign(target, rest) if rest is not S.Zero else None
            pending.into(target.name, self.body, clear=rest is S.Zero)
            return target
        pending.first(self.body)
        product = Load(self.assembly.buffer("product", "fragment", pending.shape, note="of one tile"), *pending.indices)
        pending.into(product.name, self.body, clear=True)
        stored: Expr = expr.xreplace({read: product * pending.scale})
        return stored

    # ---- expressions -------------------------------------------------------------------------------------------------

    def _expr(self, let: Assign) -> Expr:
        """The expression of a line as reads of buffers."""
        if let.precision is Precision.DOUBLE:
            return Wide(self._doubles(let))
        if let.moves:
            return Mul(*(scaled_exp(self._value(u), self._value(c), self.space.read(q)) for q, u, c in let.moves))
        if isinstance(let.expr, Max | Min) and self.named_lines is None:
            return self._extremum(let)
        return self._read(let.expr)

    def _extremum(self, let: Assign) -> Expr:
        """The larger or the smaller of values; a positive number that they share multiplies the result."""
        kind, reads = type(let.expr), [self._value(value) for value in let.expr.args]
        if let.value in self.nan:
            self._count_nan_of_lanes(let, reads)
        numbers, rests = zip(*map(positive_factor, reads), strict=True)
        number, operands = (numbers[0], list(rests)) if len(set(numbers)) == 1 else (S.One, reads)
        return number * (keep_nan(kind, operands) if let.value in self.alone else kind(*operands))

    def _doubles(self, let: Assign) -> Expr:
        """The expression of a line of float64, with those of the lines of float64 that it reads."""
        reads = dict[Expr, Expr]()
        for value in values_of(let.expr):
            line = self.lines.get(value)
            wide = line is not None and line.precision is Precision.DOUBLE
            reads[value] = self._doubles(line) if line is not None and wide else self._value(value)
        expr: Expr = let.expr.xreplace(reads)
        return expr

    def _read(self, expr: Expr) -> Expr:
        """An expression as reads of buffers; what it names has a buffer of its own."""
        if self.data:
            self.space = self.data.stage(self.space, expr, self.body)
        elif self.named_lines is None:
            self._name(expr)
        expr = with_tests(expr.xreplace(self.named))
        reads = {value: self._operand(value, expr) for value in values_of(expr)}
        read: Expr = self.space.with_values(reads).read(expr)
        return without_factors(read)

    def _name(self, expr: Expr) -> None:
        """Store what an expression names."""
        for node in sorted(expr.atoms(Named), key=str):
            if node not in self.named:
                read = self._read(node.expr)
                self.named[node] = self._new(node.name, read)
                self._assign(self.named[node], read)

    def _operand(self, value: Value, reader: Expr) -> Expr:
        """The read of a value; a sum stays one number in a product, whose number SymPy would distribute over it.

        So does a sum of an element in another sum: it is rounded on its own before it is added.
        """
        read = self._value(value)
        kinds = (Mul, Add) if self._is_element(value) and self.data else (Mul,)
        within = (node for node in preorder_traversal(reader) if isinstance(node, kinds) and value in node.args)
        return Kept(read) if isinstance(read, Add) and any(within) else read

    def _value(self, value: Expr) -> Expr:
        if not isinstance(value, Value):
            return self._read(value)
        return self.values[value] if value in self.values else self._expr(self.lines[value])

    # ---- results -----------------------------------------------------------------------------------------------------

    def result(self, slot: Value) -> Expr:
        """The read of a result."""
        return self._value(self.program.results[slot])

    def keep(self, suffix: str) -> dict[Value, Expr]:
        """The reads of all results, each in a buffer."""
        reads = dict[Value, Expr]()
        for slot, value in self.program.results.items():
            read = self._value(value)
            if not isinstance(numeric_factor(read)[1], Load) or read.has(*self.pending):
                target = self._new(f"{slot.name}_{suffix}", read)
                self._assign(target, read)
                read = target
            reads[slot] = self.values[value] = read
        return reads

    def _store(self, stores: dict[Load, Expr]) -> None:
        """Store the results, each buffer after the results that read it."""
        stores = {buffer: expr for buffer, expr in stores.items() if expr != buffer}
        while stores:
            free = [buffer for buffer in stores if not self._is_read(buffer, stores)]
            for target in free:
                self._assign(target, stores.pop(target))
            if not free:
                target = next(iter(stores))
                after = self._new(f"{target.name}_next", stores[target])
                self._assign(after, stores[target])
                stores[target] = after

    def _is_read(self, buffer: Load, stores: Mapping[Load, Expr]) -> bool:
        """Tell if another store, or a product that it adds, reads a buffer."""
        exprs = [expr for target, expr in stores.items() if target != buffer]
        exprs += [pending.operand for read, pending in self.pending.items() if any(expr.has(read) for expr in exprs)]
        return any(expr.has(buffer) for expr in exprs)
