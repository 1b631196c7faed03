"""Write the exponentials of a loop over tiles with one multiply-add each.

for t:  c = max(c, u);  r = exp(q·(c_old − c));  s = r·s + Σ exp(q·(u − c))
    →
for t:  c = max(c, u);  r = 2^(p − k·c);  p = k·c;  s = r·s + Σ 2^(k·u − p)           k = q·log₂e
s = s·2^(p − k·c)

A row without an element has a c of −∞, and so a p of −∞, which no weight is about: the weights are about p or the
least float32, whichever is larger, and r is 0. In the loop all weights are about p, the rounded k·c, and so are the
sums, which are about c again when it ends: the state is the same. Where ratios of the sums alone are read, they stay
about p:

    o = s / l; lse = c + log l     s and l have the degree 1, s / l has 0, log l has none

The exponent k·u − p is rounded once, as k·(u − c) was. What p is off k·c by stands in every weight of a row: 2^±4 at
most where |p| < 2^27. Beyond that a unit in the last place of u is 8 or more in the exponent, and a power of 2 serves
for k (`Rate`): it moves u by less than such a unit, and p is exact. So a row of the least float32 stays uniform. Where
|k| < 2: then no such power is above 1, and p does not overflow.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from math import copysign, floor, log2
from typing import final

from sympy import Add, Expr, Float, Max, Mul, Pow, S, Symbol, sign
from sympy.core.basic import Basic

from redalg.expression import Where
from redalg.expression.degrees import ANY, NoDegreeError, degree_of
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import (
    Copy,
    Fill,
    Kernel,
    Loop,
    Parallel,
    Statement,
    Store,
    TileProgram,
    expressions,
    map_statement,
    nested_statements,
)
from redalg.lower_tile.ir.scalars import LOG2_E, Fma, Is, Kept, Load, Rate, Rounded, ScaledExp
from redalg.lower_tile.passes.elements import loads_of_store, mentions
from redalg.lower_tile.passes.hoist import program_names
from redalg.strategies.plan import Plan

MOST = 2.0
"""The size that k stays below."""
LEAST = Float(-(2.0**128 - 2.0**104))
"""The least float32: 2^(k·u − p) is 0 beside it where u is −∞, and no p of a row with an element is below it."""
WIDE = 128
"""The least number of elements of a tile's row: those of fewer save less than what the row itself costs."""


def add_exponents_once(program: TileProgram, plan: Plan) -> TileProgram:
    """The program in whose loops the exponentials of a tile are powers of 2 of one multiply-add each."""
    plans = [kernel.plan or plan for kernel in program.kernels]
    if program.compute != "float32" or not any(one.multiplies and one.block_streamed >= WIDE for one in plans):
        return program
    names = program_names(program)
    return replace(program, kernels=tuple(_Exponents(kernel, names).kernel() for kernel in program.kernels))


@final
@dataclass(frozen=True)
class Weights:
    """The weights of a loop about one pivot.

    Attributes:
        store: what stores the pivot c, a number of the row.
        q: the factor of the exponent.
        rescale: the buffer of exp(q·(c_old − c)).
        old: c_old, −∞ where no element has come.
        sums: the buffers that the loop multiplies by it, each as it is read.
    """

    store: Store
    q: Expr
    rescale: Load
    old: Expr
    sums: tuple[Load, ...]

    @property
    def c(self) -> Load:
        """The pivot."""
        return Load(self.store.target, *self.store.indices)

    @property
    def raw(self) -> Expr:
        """The pivot, infinite where no element has come if that is what c makes 0 of; else c."""
        guards = [one for one in self.store.expr.atoms(Is) if one.args[1] == -sign(self.q) * S.Infinity]
        raws = [one.args[0] for one in guards if self.store.expr == Where(one, S.Zero, one.args[0])]
        return raws[0] if raws else self.c

    @property
    def k(self) -> float:
        """q·log₂e."""
        return float(self.q) * LOG2_E


def weights_of(loop: Loop) -> Iterator[Weights]:
    """Yield the weights of a loop whose exponents may be rounded once."""
    inner = nested_statements(loop.body)
    stores = [store for one in inner if isinstance(one, Parallel) for store in one.body]
    nodes = {node for one in inner for expr in expressions(one) for node in expr.atoms(ScaledExp)}
    for store in stores:
        c = Load(store.target, *store.indices)
        about = [node for node in nodes if node.args[1] == c]
        tiles = [node for node in about if variables(c) and variables(c) < variables(node.args[0])]
        rescales = [one for one in stores if one.expr in about and one.expr not in tiles]
        rates = {node.args[2] for node in about}
        if len(rescales) != 1 or len(rates) != 1 or {*tiles, rescales[0].expr} != {*about} or not tiles:
            continue
        [q], rescale = rates, Load(rescales[0].target, *rescales[0].indices)
        sums = rescaled_sums(rescale, stores)
        if sums and q.is_number and 0 < abs(q * LOG2_E) < MOST and not variables(c) - variables(store.expr):
            yield Weights(store, q, rescale, rescales[0].expr.args[0], sums)


def rescaled_sums(rescale: Load, stores: Iterable[Store]) -> tuple[Load, ...]:
    """The sums s that stores s = r·s + … multiply by r; none if r is read in any other way."""
    sums = list[Load]()
    for store in stores:
        before = Load(store.target, *store.indices)
        terms = [term for term in Add.make_args(store.expr) if term.has(rescale)]
        if any(term.has(rescale) for term in (store.guard, *store.indices)) or len(terms) > 1:
            return ()
        if terms:
            factors = Mul.make_args(terms[0])
            if before not in factors or [factor for factor in factors if factor.has(rescale)] != [rescale]:
                return ()
            sums.append(before)
    return tuple(sums)


def variables(expr: Basic) -> set[Symbol]:
    """The indices of what an expression reads."""
    return {symbol for load in expr.atoms(Load) for place in load.indices for symbol in place.free_symbols}


def rate_of(c: Expr, k: float) -> Rate:
    """The rate of a pivot, with the largest power of 2 that is above neither k nor 1."""
    power = 2.0 ** min(0, floor(log2(abs(k))))
    return Rate(c, Float(k), Float(copysign(power, k)))


@final
class _Exponents:
    """Rewrites the loops of one kernel."""

    def __init__(self, kernel: Kernel, names: Names) -> None:
        self.before, self.names = kernel, names
        self.buffers = {one.name: one for one in kernel.buffers}

    def kernel(self) -> Kernel:
        """The kernel with the buffers of rows that its loops need."""
        body = self._body(self.before.body)
        return replace(self.before, buffers=tuple(self.buffers.values()), body=body)

    def _body(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        statements = list[Statement]()
        for place, statement in enumerate(body, 1):
            if not isinstance(statement, Loop):
                statements.append(statement)
                continue
            loop, after = replace(statement, body=self._body(statement.body)), list[Statement]()
            for weights in weights_of(loop):
                begin, loop = self._rounded_once(loop, weights)
                statements.append(begin)
                if body is not self.before.body or not only_ratios_count(weights.sums, body[place:], self.buffers):
                    after += self._about_pivot(weights)
            statements += [loop, *after]
        return tuple(statements)

    def _rounded_once(self, loop: Loop, weights: Weights) -> tuple[Fill, Loop]:
        """The statement that precedes a loop, and the loop with one weight's exponents rounded once."""
        c, k, raw = weights.c, weights.k, weights.raw
        rate, of_pivot, exponent, before = (
            self._buffer(c, part) for part in ("rate", "exponent", "exponent_safe", "exponent_old"))  # fmt: skip

        def power(node: Basic) -> Basic:
            if not node.has(ScaledExp):
                return node
            if isinstance(node, ScaledExp) and node.args[1] == c:
                u = node.args[0]
                of_row = variables(u) <= variables(c)
                return Pow(2, before - exponent if of_row else Fma(u, rate, -exponent))
            return node.func(*map(power, node.args))

        def with_exponent(statement: Statement) -> Statement:
            if isinstance(statement, Loop):
                return replace(statement, body=tuple(map(with_exponent, statement.body)))
            if not isinstance(statement, Parallel) or weights.store not in statement.body:
                return statement
            none = Where(Is(weights.old, S.NegativeInfinity), S.NegativeInfinity, of_pivot) if raw == c else of_pivot
            own = ((before, none), (rate, rate_of(raw, k)), (of_pivot, Rounded(raw, rate)),
                   (exponent, Max(of_pivot, LEAST)))  # fmt: skip
            made = (Store(load.name, load.indices, expr, weights.store.guard) for load, expr in own)
            place = statement.body.index(weights.store) + 1
            return replace(statement, body=(*statement.body[:place], *made, *statement.body[place:]))

        body = tuple(map_statement(with_exponent(one), power) for one in loop.body)
        return Fill(of_pivot.name, S.NegativeInfinity), replace(loop, body=body)

    def _about_pivot(self, weights: Weights) -> list[Statement]:
        """The statements after a loop that bring the sums from p to k·c."""
        off = self._buffer(weights.c, "correction")
        safe = weights.store.expr  # the rows' buffers are not filled if the loop takes no step
        rate = rate_of(safe, weights.k)
        about = Fma(safe, rate, -Rounded(safe, rate))
        back = (self._stores(*((one, one * off) for one in sums)) for sums in by_indices(weights.sums))
        return [self._stores((off, Pow(2, -about))), *back]

    def _buffer(self, c: Load, part: str) -> Load:
        name = self.names.fresh(f"{c.name.removesuffix('_safe')}_{part}")
        self.buffers[name] = replace(self.buffers[c.name], name=name, note="")
        return Load(name, *c.indices)

    def _stores(self, *stores: tuple[Load, Expr]) -> Parallel:
        shape = self.buffers[stores[0][0].name].shape
        place = tuple(zip(stores[0][0].indices, shape, strict=True))
        return Parallel(place, tuple(Store(load.name, load.indices, expr) for load, expr in stores))


def by_indices(loads: Iterable[Load]) -> Iterator[list[Load]]:
    """Yield the reads that have the same indices together."""
    groups = dict[tuple[Expr, ...], list[Load]]()
    for load in loads:
        groups.setdefault(load.indices, []).append(load)
    yield from groups.values()


def only_ratios_count(sums: Iterable[Load], after: Iterable[Statement], buffers: Container[str]) -> bool:
    """Tell if a positive factor of the sums changes nothing that the statements after their loop store elsewhere.

    `buffers` are the kernel's own.
    """
    degrees: dict[str, Expr] = {one.name: S.One for one in sums}
    try:
        for statement in after:
            _follow(statement, degrees)
    except NoDegreeError:
        return False
    return all(name in buffers for name in degrees)


def _follow(statement: Statement, degrees: dict[str, Expr]) -> None:
    """Note the degrees of what a statement stores."""
    if isinstance(statement, Parallel):
        for store in statement.body:
            _keep(store.target, _degree_of_store(store, degrees), degrees)
    elif isinstance(statement, Copy) and isinstance(statement.source, str) and isinstance(statement.target, str):
        _keep(statement.target, degrees.get(statement.source, S.Zero), degrees)
    elif isinstance(statement, Fill):
        _keep(statement.buffer, S.Zero, degrees)
    elif mentions(statement) & degrees.keys() or _loads(expressions(statement)) & degrees.keys():
        raise NoDegreeError


def _loads(nodes: Iterable[Basic]) -> set[str]:
    return {load.name for node in nodes for load in node.atoms(Load)}


def _keep(name: str, degree: Expr, degrees: dict[str, Expr]) -> None:
    degrees.pop(name, None)
    if degree not in (S.Zero, ANY):
        degrees[name] = degree


def _degree_of_store(store: Store, degrees: dict[str, Expr]) -> Expr:
    if store.once or _loads((store.guard, *store.indices)) & degrees.keys():
        if {load.name for load in loads_of_store(store)} & degrees.keys():
            raise NoDegreeError
        return S.Zero
    return degree_of(store.expr, lambda node: degrees.get(node.name) if isinstance(node, Load) else None, (Kept,))
