"""Elements of several components (a value and its index, a mantissa and its exponent) along the streamed axis.

    lane     e_j = e_j ⊕ lift(u(x_j), n)                    the monoid's own join, component by component
    best     e_j = (x, n) where x is better or e_j empty    of one best place: a lane's elements lie in order
    tree     e_j = e_j ⊕ e_{j + 2^k},  j = 0 mod 2^(k+1)     neighbours, so that order is kept, in shared memory; k is
                                                            the variable of an unrolled loop
    rank     e = max_j (e_j as an integer)                  of one best place, where 64 bits hold it (`selection`)
    tile     e = e ⊕ (the tree of a tile's elements)        where a tile becomes one state a row
    part     e = e ⊕ (what a segment found)                 segment after segment, so that order is kept
    lost     t = a + b;  s = t − a;  (a − (t − s)) + (b − s)    what rounding loses of a sum, 0 where it is not finite

If the monoid is not commutative, a lane takes neighbouring elements (x[j·tiles + t]). Otherwise it takes every
block_streamed-th element. Every element is read, masked or not; beyond the end stands the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from sympy import And, Eq, Expr, Integer, Mod, Not, Or, S, Symbol, Tuple
from sympy.logic.boolalg import Boolean

from redalg.expression import Value, Where
from redalg.incremental.combine.structures import NOWHERE, component_symbols, join_of
from redalg.incremental.form import Structure
from redalg.lower_tile.ir.program import Copy, Loop, Statement, index
from redalg.lower_tile.ir.scalars import (
    NO_ELEMENT,
    IsFinite,
    IsNaN,
    Kept,
    Load,
    Ranked,
    RankedIndex,
    RankedValue,
    TwoTo,
)
from redalg.lower_tile.place.assembly import Assembly, mask_dead
from redalg.lower_tile.place.selection import in_two
from redalg.lower_tile.place.space import J, Space
from redalg.monoids.functions import Lost
from redalg.monoids.table import KNOWN

INDEX, WHOLE = "int32", "int64"
"""Dtypes: of an index, an exponent or a truth value; and of an integer of a monoid that a user registered."""
LEVEL = index("level")
"""Of a tree, from its leaves: the power of 2 that neighbours are apart."""


@final
class Joins:
    """The statements that join elements of a structure; `body` takes them."""

    def __init__(self, structure: Structure, assembly: Assembly, space: Space, body: list[Statement]) -> None:
        self.structure, self.assembly, self.space, self.body = structure, assembly, space, body

    def lift(self, parts: Sequence[Expr]) -> list[Load]:
        """The buffers of a tile's elements; beyond the end of the streamed axis they hold the identity."""
        elements = [self._new(value, "_next", *self.assembly.lane) for value in self.structure.values]
        reads = (mask_dead(self.space.inside(), part, identity)
                 for part, identity in zip(parts, identities(self.structure), strict=True))  # fmt: skip
        self.body.append(self.assembly.stores(*zip(elements, reads, strict=True)))
        return elements

    def join_element(self, before: Sequence[Load], parts: Sequence[Expr]) -> None:
        """Store before ⊕ the element of every lane in `before`; one best place is compared by its value alone.

        What a lane holds lies before what it takes, so that it stays where values are equal. NaN is above all others.
        """
        if not self.structure.is_ranked:
            self.join(before, self.lift(parts))
            return
        (value, place), (number, index) = before, parts
        inside, better = self.space.inside(), Not(Or(IsNaN(value), value >= number))
        first = (place, Where(And(inside, Or(place < 0, better)), index, place))  # before the value that decides it
        self.body.append(self.assembly.stores(first, (value, Where(And(inside, better), number, value))))

    def tile(self, parts: Sequence[Expr]) -> list[Load]:
        """The join of a tile's elements."""
        return self.tree(self.lift(parts))

    def lanes(self, elements: Sequence[Load]) -> list[Expr]:
        """The join of what the lanes hold."""
        if not self.structure.is_ranked or in_two(self.space.problem):
            return [*self.tree(elements)]
        value, place = elements
        rank = self.assembly.new("ranked", *self.assembly.lane, dtype=WHOLE)
        best = self.assembly.new("best", *self.assembly.row, dtype=WHOLE)
        self.body.append(self.assembly.stores((rank, Where(place < 0, NO_ELEMENT, Ranked(value, place)))))
        self.body.append(self.assembly.reduce("max", rank, best))
        return [RankedValue(best), RankedIndex(best)]

    def tree(self, elements: Sequence[Load]) -> list[Load]:
        """The join of elements along the streamed axis: the first place of shared tiles."""
        tree = [self._new(value, "_tree", *self.assembly.lane, scope="shared") for value in self.structure.values]
        self.body += [Copy(one.name, shared.name) for one, shared in zip(elements, tree, strict=True)]
        width, step = self.assembly.plan.block_streamed, TwoTo(LEVEL)
        if levels := (width - 1).bit_length():
            # of the elements `there`, only those that the guard keeps count
            there = [load.xreplace({J: Mod(J + step, width)}) for load in tree]
            level = Joins(self.structure, self.assembly, self.space, [])
            level.join(tree, there, And(Eq(Mod(J, TwoTo(LEVEL + 1)), 0), J + step < width))
            loop = Loop(LEVEL, Integer(levels), 0, tuple(level.body), pipelined=False, unrolled=levels)
            self.body.append(loop)
        return [load.xreplace({J: S.Zero}) for load in tree]

    def join(self, before: Sequence[Load], after: Sequence[Expr], guard: Boolean = S.true) -> None:
        """Store before ⊕ after in `before`, through separate buffers: a component is read until all are known."""
        monoid, indices = self.structure.monoid, before[0].indices
        parts = (*component_symbols(monoid, "a"), *component_symbols(monoid, "b"))
        reads = dict(zip(parts, (*before, *after), strict=True))
        joined = [self._new(value, "_joined", *indices) for value in self.structure.values]
        exprs = self._with_lost([self.space.read(expr.xreplace(reads)) for expr in join_of(monoid)], *indices)
        last = self.assembly.stores(*zip(before, joined, strict=True))
        guarded = tuple(replace(store, guard=guard) for store in last.body)
        self.body += [self.assembly.stores(*zip(joined, exprs, strict=True)), replace(last, body=guarded)]

    def _with_lost(self, exprs: list[Expr], *indices: Expr) -> list[Expr]:
        """Compute what sums lose, step by step through buffers: TVM takes (a + b) − a for b, even of floats."""
        losses = dict[Expr, Expr]()
        for node in sorted({node for expr in exprs for node in expr.atoms(Lost)}, key=str):
            a, b = node.args
            total, second = (self.assembly.new(name, *indices) for name in ("total", "second"))
            self.body.append(self.assembly.stores((total, a + b), (second, total - a)))
            losses[node] = Where(IsFinite(total), Kept(a - Kept(total - second)) + Kept(b - second), S.Zero)
        return [expr.xreplace(losses) for expr in exprs]

    def _new(self, value: Value, suffix: str, *indices: Symbol, scope: str = "fragment") -> Load:
        """A buffer of a component."""
        dtype = integer_dtype(value, self.structure)
        return self.assembly.new(f"{value.name}{suffix}", *indices, dtype=dtype, scope=scope)


def integer_dtype(value: Value, structure: Structure) -> str | None:
    """The dtype of a component that is an integer; None for other components, which have the arithmetic's dtype."""
    if value not in structure.integers:
        return None
    return INDEX if structure.monoid in KNOWN else WHOLE


def identities(structure: Structure) -> list[Expr]:
    """The components of the identity (for a list of one: those of a place without an element)."""
    numbers = [part.identity for part in structure.monoid.components]
    return [Integer(int(NOWHERE[part.name])) if isinstance(identity, Tuple) and part.integer
            else S.NegativeInfinity if isinstance(identity, Tuple) else identity
            for part, identity in zip(structure.monoid.components, numbers, strict=True)]  # fmt: skip
