"""Elements of several components (a value and its index, a mantissa and its exponent) along the streamed axis.

    lane     e_j = e_j ⊕ lift(u(x_j), n)                    the monoid's own join, component by component
    tree     e_j = e_j ⊕ e_{j + 2^k},  j = 0 mod 2^(k+1)     neighbours, so that order is kept, in shared memory
    tile     e = e ⊕ (the tree of a tile's elements)        where a tile becomes one state a row
    part     e = e ⊕ (what a segment found)                 segment after segment, so that order is kept
    lost     t = a + b;  s = t − a;  (a − (t − s)) + (b − s)    what rounding loses of a sum, 0 where it is not finite

Where the monoid is not commutative a lane takes neighbouring elements (x[j·tiles + t]), else every block_streamed-th.
Every element is read, masked or not; what lies beyond the end is the identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sympy import And, Eq, Expr, Integer, Mod, S, Tuple
from sympy.logic.boolalg import Boolean

from redalg.expression import Value, Where
from redalg.incremental.arrays.structured import NOWHERE, join_of, lifted, parts_of
from redalg.incremental.form import FusedForm, Structure
from redalg.lower_tile.ir.program import Copy, Fill, Parallel, Statement, Store
from redalg.lower_tile.ir.scalars import IsFinite, Kept, Load
from redalg.lower_tile.place.assembly import Assembly, masked
from redalg.lower_tile.place.selection import ranked
from redalg.lower_tile.place.space import I, J, Space
from redalg.monoids.functions import Lost
from redalg.monoids.table import KNOWN

INDEX, WHOLE = "int32", "int64"
"""Dtype of an index, of an exponent, of a truth value; and of an integer of a monoid that a user registered."""


@final
class Folds:
    """The structures of a form, by lane and then by row (`by_row`: where there are no lanes, parts being merged)."""

    def __init__(self, form: FusedForm, assembly: Assembly, space: Space, *, by_row: bool = False) -> None:
        self.form, self.assembly, self.space = form, assembly, space
        self.structures = [one for one in form.structures if one not in ranked(form, assembly.plan)]
        self.lanes: dict[Value, str] = {}
        if assembly.plan.level == "thread" and not by_row:
            self.lanes = {value: self._buffer(f"{value.name}_lanes", value, rows=False) for value in self._values()}
        self.rows = {value: self._buffer(value.name, value, rows=True) for value in self._values()}

    def _values(self) -> list[Value]:
        return [value for one in self.structures for value in one.values]

    def _buffer(self, wanted: str, value: Value, *, rows: bool, scope: str = "fragment") -> str:
        plan, dtype = self.assembly.plan, integer_dtype(value, self.form)
        if rows:
            return self.assembly.row(wanted, dtype=dtype)
        return self.assembly.buffer(wanted, scope, (plan.block_row, plan.block_streamed), dtype)

    def emptied(self) -> list[Statement]:
        """Every state without elements."""
        into = self.lanes or self.rows
        return [Fill(into[value], identity) for one in self.structures
                for value, identity in zip(one.values, identities(one), strict=True)]  # fmt: skip

    def taken(self, space: Space) -> list[Statement]:
        """One element of every lane joined to what the lane has."""
        body = list[Statement]()
        for one in self.structures:
            element = self._lifted(one, space, body)
            after = [Load(element[value], I, J) for value in one.values]
            body += self._joined(one, [Load(self.lanes[value], I, J) for value in one.values], after, self.lanes)
        return body

    def tile(self, one: Structure, space: Space) -> list[Statement]:
        """A tile's elements, joined by a tree of neighbours, joined to what the row has."""
        body = list[Statement]()
        tree = self._tree(one, self._lifted(one, space, body), body)
        return [*body, *self._onto_rows(one, [Load(tree[value], I, S.Zero) for value in one.values])]

    def part(self, held: Mapping[Value, str]) -> list[Statement]:
        """What a segment found, which row buffers hold, joined to what the row has."""
        return [statement for one in self.structures
                for statement in self._onto_rows(one, [Load(held[value], I) for value in one.values])]  # fmt: skip

    def _onto_rows(self, one: Structure, after: list[Load]) -> list[Statement]:
        """The row's state := itself ⊕ after, through buffers of their own."""
        parts = (*parts_of(one.monoid, "a"), *parts_of(one.monoid, "b"))
        reads = dict(zip(parts, [*(Load(self.rows[value], I) for value in one.values), *after], strict=True))
        made = [self._buffer(f"{value.name}_joined", value, rows=True) for value in one.values]
        exprs = [self.space.read(expr.xreplace(reads)) for expr in join_of(one.monoid)]
        sums, exprs = self._with_lost(exprs, rows=True)
        stores = [(self.rows[value], Load(name, I)) for value, name in zip(one.values, made, strict=True)]
        rows = self.assembly.rows
        return [*sums, rows.stores(*zip(made, exprs, strict=True)), rows.stores(*stores)]

    def _lifted(self, one: Structure, space: Space, body: list[Statement]) -> dict[Value, str]:
        """The elements of a tile, the identity where the streamed axis has ended."""
        lift = lifted(one.monoid, one.operands, self.form.cascade.axis)
        element = {value: self._buffer(f"{value.name}_next", value, rows=False) for value in one.values}
        reads = [masked(space.inside(), space.read(part), identity)
                 for part, identity in zip(lift, identities(one), strict=True)]  # fmt: skip
        body.append(self.assembly.lanes.stores(*zip(element.values(), reads, strict=True)))
        return element

    def _joined(
        self, one: Structure, before: list[Load], after: list[Load], target: dict[Value, str], guard: Boolean = S.true
    ) -> list[Statement]:
        """target := before ⊕ after, through buffers of their own: a component is read until all are known."""
        parts = (*parts_of(one.monoid, "a"), *parts_of(one.monoid, "b"))
        reads = dict(zip(parts, (*before, *after), strict=True))
        made = [self._buffer(f"{value.name}_joined", value, rows=False) for value in one.values]
        exprs = [self.space.read(expr.xreplace(reads)) for expr in join_of(one.monoid)]
        sums, exprs = self._with_lost(exprs)
        stores = [Store(target[value], (I, J), Load(name, I, J), guard)
                  for value, name in zip(one.values, made, strict=True)]  # fmt: skip
        lanes = self.assembly.lanes
        return [*sums, lanes.stores(*zip(made, exprs, strict=True)), Parallel(lanes.indices, tuple(stores))]

    def _with_lost(self, exprs: list[Expr], *, rows: bool = False) -> tuple[list[Statement], list[Expr]]:
        """What sums lose, step by step through buffers: TVM takes (a + b) − a for b, of floats too."""
        found, body = dict[Expr, Expr](), list[Statement]()
        every, made, at = ((self.assembly.rows, self.assembly.row, (I,)) if rows else
                           (self.assembly.lanes, self.assembly.tile, (I, J)))  # fmt: skip
        for node in sorted({node for expr in exprs for node in expr.atoms(Lost)}, key=str):
            a, b = node.args
            total, second = (Load(made(name), *at) for name in ("total", "second"))
            body.append(every.stores((total.name, a + b), (second.name, total - a)))
            found[node] = Where(IsFinite(total), Kept(a - Kept(total - second)) + Kept(b - second), S.Zero)
        return body, [expr.xreplace(found) for expr in exprs]

    def collapsed(self) -> list[Statement]:
        """The lanes joined by a tree of neighbours, and its root in row buffers."""
        body = list[Statement]()
        for one in self.structures:
            tree = self._tree(one, self.lanes, body)
            roots = tuple(Store(self.rows[value], (I,), Load(tree[value], I, S.Zero)) for value in one.values)
            body.append(Parallel(self.assembly.rows.indices, roots))
        return body

    def _tree(self, one: Structure, lanes: Mapping[Value, str], body: list[Statement]) -> dict[Value, str]:
        """The shared tiles at whose first place is what lies along the lanes, joined."""
        tree = {value: self._buffer(f"{value.name}_tree", value, rows=False, scope="shared") for value in one.values}
        body += [Copy(lanes[value], tree[value]) for value in one.values]
        step = 1
        while step < self.assembly.plan.block_streamed:
            body += self._tree_step(one, tree, step)
            step *= 2
        return tree

    def _tree_step(self, one: Structure, tree: dict[Value, str], step: int) -> list[Statement]:
        width = self.assembly.plan.block_streamed
        here = [Load(tree[value], I, J) for value in one.values]
        there = [Load(tree[value], I, Mod(J + step, width)) for value in one.values]  # only what the guard keeps counts
        return self._joined(one, here, there, tree, And(Eq(Mod(J, 2 * step), 0), J + step < width))


def integer_dtype(value: Value, form: FusedForm) -> str | None:
    """The dtype of a component that is an integer; None of other values, which have the arithmetic's."""
    kinds = (INDEX if one.monoid in KNOWN else WHOLE for one in form.structures if value in one.integers)
    return next(kinds, None)


def identities(one: Structure) -> list[Expr]:
    """The identity's components (of a place without an element, for a list of one)."""
    found = [part.identity for part in one.monoid.components]
    return [Integer(int(NOWHERE[part.name])) if isinstance(identity, Tuple) and part.integer
            else S.NegativeInfinity if isinstance(identity, Tuple) else identity
            for part, identity in zip(one.monoid.components, found, strict=True)]  # fmt: skip
