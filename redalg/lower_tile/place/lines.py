"""Put the lines of a program of states into buffers. The indices that a line reads say where its value lies.

reads i        a number for every row            reads i, e     one for every row and column
reads e        a number for every column         reads i, j     one for every row and lane

v := f(a, b), read once          v has no buffer: f(a, b) stands in the line that reads it
v := Π exp(q·(u − c))            scaled exponentials: a number that u and c share is part of q
v := max(n·a, n·b), n > 0        a buffer of max(a, b), which is read as n times its element
v := f(a, b), of float64         no buffer: computed in float64 where a line of the kernel's arithmetic reads it
slots := values                  each slot is stored after the last value that reads what it held before
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import final

from sympy import Abs, Add, Eq, Expr, Integer, Lt, Max, Min, Mul, Or, Pow, S, preorder_traversal
from sympy.core.basic import Basic

from redalg.expression import Let as Named
from redalg.expression import Value, Where
from redalg.expression.contents import values_of
from redalg.incremental.combine.let import Assign, Fold, Let, Precision, Program
from redalg.lower_tile.ir.program import ReduceTile, Statement
from redalg.lower_tile.ir.scalars import Is, IsFinite, Kept, Load, Wide
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.moves import numeric_factor, scaled_exp
from redalg.lower_tile.place.space import E_, I, J, Space, unforgetting

FIRST, SECOND = "a", "b"
"""The tags of two states that are merged."""


@final
class Placer:
    """Places a program of assignments.

    `values` tells where the values lie that it is given. `alone` are the extrema that an output holds as they are: a
    maximum of the target ignores NaN, and theirs may not.
    """

    def __init__(
        self, program: Program, assembly: Assembly, space: Space, values: Mapping[Value, Expr],
        alone: Collection[Value] = (),
    ) -> None:  # fmt: skip
        self.program, self.assembly, self.space = program, assembly, space
        self.alone = {program.results[slot] for slot in alone if slot in program.results}
        self.values = dict(values)
        self.lines = {let.value: let for let in program.lets if isinstance(let, Assign)}
        self.uses = _uses(program)
        self.divided = {value for let in self.lines.values() if _divides(let.expr) for value in _needs(let)}
        self.named: dict[Expr, Load] = {}
        self.ends: dict[Value, tuple[Expr, Load]] = {}
        self.body: list[Statement] = []

    def build(self, slots: Mapping[Value, Expr]) -> list[Statement]:
        """The statements that make the values and store the results of the program in `slots`, the reads of buffers."""
        given = {load for read in self.values.values() for load in read.atoms(Load)}
        ends = [(self.program.results[slot], *numeric_factor(read)) for slot, read in slots.items()]
        self.ends = {value: (number, buffer) for value, number, buffer in ends if buffer not in given}
        for let in self.program.lets:
            if isinstance(let, Fold):
                self.values[let.value] = self._fold(let)
            elif isinstance(let, Assign) and self.uses[let.value] and not self._stands_in_reader(let):
                expr = self._expr(let)
                number, rest = positive_factor(expr) if isinstance(let.expr, Max | Min | Where) else (S.One, expr)
                self.values[let.value] = number * self._buffer(let.value, number, rest)
        self._store({buffer: self._value(value) / number for value, number, buffer in ends})
        return self.body

    def _fold(self, let: Fold) -> Expr:
        """The read of a fold over the lanes; a positive number that its elements share multiplies the result."""
        kind, [factor] = let.folding.kind, let.folding.factors
        if kind == "count" and factor == S.true:
            return Integer(self.space.plan.block_streamed)
        number, rest = positive_factor(self._read(factor))
        source = self.assembly.tile_of(buffer_name(f"{let.value.name}_moved"), rest, self.body)
        target = self._end_of(let.value, number) or Load(self.assembly.row(buffer_name(let.value.name)), I)
        self.body.append(ReduceTile(kind, source, target.name, clear=True))
        return number * target

    def _end_of(self, value: Value, number: Expr) -> Load | None:
        """The buffer of the slot that a value is for, if no line reads what it held before."""
        same, buffer = self.ends.get(value, (None, None))
        return buffer if same == number else None

    def _stands_in_reader(self, let: Assign) -> bool:
        """Tell if a line stands in the lines that read it, without a buffer.

        A line of float64 does if only lines of float64 read it; any other line if it is read once, is no choice, and no
        quotient reads it: a division branches, and loads behind it would wait for it.
        """
        if let.precision is Precision.DOUBLE and not self._read_in_compute(let.value):
            return True
        if self.uses[let.value] > 1:
            return False
        is_end = let.value in self.program.results.values()
        return is_end or not (isinstance(let.expr, Where) or let.value in self.divided)

    def _read_in_compute(self, value: Value) -> bool:
        """Tell if a line that is not of float64 reads a value."""
        readers = (let for let in self.lines.values() if value in _needs(let))
        return any(let.precision is not Precision.DOUBLE for let in readers)

    def _buffer(self, value: Value, number: Expr, expr: Expr) -> Load:
        """The buffer of number · value := an expression; a new one if the value is no slot's."""
        target = self._end_of(value, number) or self._new(value.name, expr)
        self._assign(target, expr)
        return target

    def _new(self, name: str, expr: Expr) -> Load:
        """A new buffer for an expression."""
        wanted, assembly = buffer_name(name), self.assembly
        if expr.has(J):
            return Load(assembly.tile(wanted), *assembly.lanes.place)
        if not expr.has(E_):
            return Load(assembly.row(wanted), I)
        if all(E_ in one.indices and I not in one.indices for one in expr.atoms(Load)):
            return Load(assembly.heads(wanted), E_)
        return Load(assembly.columns(wanted), I, E_)

    def _assign(self, target: Load, expr: Expr) -> None:
        """Append target := expr, at every place of the target."""
        if target.indices == (I,):
            self.body.append(self.assembly.over_rows((target.name, expr)))
        elif target.indices == (E_,):
            self.body.append(self.assembly.over_heads(target.name, expr))
        elif J in target.indices:
            self.body.append(self.assembly.over_tile(target.name, expr))
        else:
            by_column = any(one.indices == (E_,) for one in expr.atoms(Load))
            expr = self.assembly.across(expr, self.body) if by_column else expr
            self.body.append(self.assembly.over_columns(target.name, expr))

    # ---- expressions -------------------------------------------------------------------------------------------------

    def _expr(self, let: Assign) -> Expr:
        """The expression of a line as reads of buffers."""
        if let.precision is Precision.DOUBLE:
            return Wide(self._doubles(let))
        if let.moves:
            return Mul(*(scaled_exp(self._value(u), self._value(c), self.space.read(q)) for q, u, c in let.moves))
        if isinstance(let.expr, Max | Min):
            return self._extremum(let)
        return self._read(let.expr)

    def _extremum(self, let: Assign) -> Expr:
        """The larger or the smaller of values; a positive number that they share multiplies the result."""
        kind, reads = type(let.expr), [self._value(value) for value in let.expr.args]
        numbers, rests = zip(*map(positive_factor, reads), strict=True)
        number, operands = (numbers[0], list(rests)) if len(set(numbers)) == 1 else (S.One, reads)
        return number * (unforgetting(kind, operands) if let.value in self.alone else kind(*operands))

    def _doubles(self, let: Assign) -> Expr:
        """The expression of a line of float64, with those of the lines of float64 that it reads."""
        found = dict[Expr, Expr]()
        for value in values_of(let.expr):
            line = self.lines.get(value)
            wide = line is not None and line.precision is Precision.DOUBLE
            found[value] = self._doubles(line) if line is not None and wide else self._value(value)
        made: Expr = let.expr.xreplace(found)
        return made

    def _read(self, expr: Expr) -> Expr:
        """An expression as reads of buffers; what it names has a buffer of its own."""
        for node in sorted(expr.atoms(Named), key=str):
            if node not in self.named:
                read = self._read(node.expr)
                self.named[node] = self._new(node.name, read)
                self._assign(self.named[node], read)
        expr = with_tests(expr.xreplace(self.named))
        reads = {value: self._operand(value, expr) for value in values_of(expr)}
        made: Expr = self.space.with_values(reads).read(expr)
        return made

    def _operand(self, value: Value, reader: Expr) -> Expr:
        """The read of a value; a sum stays one number in a product, whose number SymPy would distribute over it."""
        read = self._value(value)
        within = (node for node in preorder_traversal(reader) if isinstance(node, Mul) and value in node.args)
        return Kept(read) if isinstance(read, Add) and any(within) else read

    def _value(self, value: Expr) -> Expr:
        if not isinstance(value, Value):
            return self._read(value)
        return self.values[value] if value in self.values else self._expr(self.lines[value])

    # ---- results -----------------------------------------------------------------------------------------------------

    def _store(self, stores: dict[Load, Expr]) -> None:
        """Store the results, each buffer after the results that read it."""
        stores = {buffer: expr for buffer, expr in stores.items() if expr != buffer}
        while stores:
            free = [one for one in stores if not any(expr.has(one) for to, expr in stores.items() if to != one)]
            for target in free:
                self._assign(target, stores.pop(target))
            if not free:
                target = next(iter(stores))
                after = self._new(f"{target.name}_next", stores[target])
                self._assign(after, stores[target])
                stores[target] = after


def _needs(let: Let) -> Counter[Value]:
    """The values that a line reads where it is placed, each as often as its text holds it."""
    moves = let.moves if isinstance(let, Assign) else ()
    exprs = [part for move in moves for part in move] or let.exprs
    return Counter(value for expr in exprs for value in _occurrences(expr))


def _divides(expr: Expr) -> bool:
    """Tell if an expression divides by something that is no number."""
    return any(node.exp.is_negative and not node.base.is_number for node in expr.atoms(Pow))


def _occurrences(expr: Basic) -> Iterator[Value]:
    if isinstance(expr, Value):
        yield expr
    elif isinstance(expr, Pow) and expr.exp.is_Integer and expr.exp > 1:
        yield from [*_occurrences(expr.base)] * 2
    else:
        for arg in expr.args:
            yield from _occurrences(arg)


def _uses(program: Program) -> Counter[Value]:
    """The number of reads of every value, by lines that a result needs and by results."""
    uses = Counter(program.results.values())
    for let in reversed(program.lets):
        if any(uses[value] for value in let.values):
            uses.update(_needs(let))
    return uses


def buffer_name(name: str) -> str:
    """The name of a value in a kernel: that of the second of two states has `part` in front.

    >>> buffer_name("a.delta_c"), buffer_name("b.delta_c"), buffer_name("c")
    ('delta_c', 'part_delta_c', 'c')
    """
    tag, _, rest = name.rpartition(".")
    return f"part_{rest}" if tag == SECOND else rest


def positive_factor(expr: Expr) -> tuple[Expr, Expr]:
    """Split n·f into the positive number n and f, of a choice between it and 0 too; (1, the expression) of others."""
    if isinstance(expr, Where) and expr.args[1] is S.Zero:
        number, rest = positive_factor(expr.args[2])
        tests = {node: Is(positive_factor(node.args[0])[1], node.args[1]) for node in expr.args[0].atoms(Is)}
        return number, Where(expr.args[0].xreplace(tests), S.Zero, rest)
    number, rest = numeric_factor(expr)
    return (number, rest) if number.is_positive and not rest.is_number else (S.One, expr)


def with_tests(node: Basic) -> Basic:
    """The expression with tests of one number that SymPy does not decide: x = ±∞, |x| = ∞, |x| < ∞."""
    if isinstance(node, Eq | Lt):
        left, right = node.args
        number = with_tests(left.args[0] if isinstance(left, Abs) else left)
        if isinstance(node, Eq) and isinstance(left, Abs) and right is S.Infinity:
            return Or(Is(number, S.Infinity), Is(number, S.NegativeInfinity))
        if isinstance(node, Eq) and right.is_infinite is True and right.is_number:
            return Is(number, right)
        if isinstance(node, Lt) and isinstance(left, Abs) and right is S.Infinity:
            return IsFinite(number)
    if not node.args or isinstance(node, Value | Named):
        return node
    args = [with_tests(arg) for arg in node.args]
    return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)
